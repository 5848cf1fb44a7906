//! Looking at locks, listing them, breaking them.

use std::time::{Duration, SystemTime};

use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Process, Renewed};

use super::Subject;
use super::client::{LONG, SHORT, name, pass};

pub(super) async fn an_unknown_name_has_no_information(s: Subject) {
    let (a, _) = s.clients();
    assert!(a.inspect(&name("never used")).await.is_none());
    assert!(a.list("").await.is_empty());
}

/// "`None` when nothing is known": a failed verb changed nothing, so it is not known either.
pub(super) async fn asking_about_nothing_leaves_nothing(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("nothing");
    a.withdraw(&claim).await;
    assert_eq!(a.renew(&claim, LONG).await, Renewed::NotHeld);
    assert!(!a.release(&claim).await);
    let late = claim.with_not_after(Moment::now() - Duration::from_millis(10));
    assert_eq!(a.attempt(&late).await, Attempt::TooLate);
    assert!(b.inspect(&name("nothing")).await.is_none());
}

pub(super) async fn a_holder_is_described(s: Subject) {
    let (a, b) = s.clients();
    let before = SystemTime::now() - Duration::from_secs(5);
    let claim = a.claim("described");
    let grant = a.granted(&claim).await;
    let info = b.inspect(&claim.name).await.expect("it is held");
    assert_eq!(info.name, claim.name);
    assert_eq!(info.holders.len(), 1);
    let holder = &info.holders[0];
    assert_eq!(holder.claim, claim.id);
    assert_eq!(holder.mode, claim.mode);
    assert_eq!(holder.token, Some(grant.token));
    let left = holder.remaining.expect("it has an end");
    assert!(left <= LONG && left > LONG / 2);
    let since = holder.since.expect("it is known");
    assert!(since >= before, "{holder:?}");
    assert!(since <= SystemTime::now() + Duration::from_secs(5));
    let this = Process::current();
    assert_eq!(holder.process.pid, this.pid);
    assert_eq!(holder.process.host, this.host);
    assert_eq!(holder.process.program, this.program);
    assert_eq!(info.last_token, Some(grant.token));
    assert_eq!(info.broken, None);
    assert_eq!(info.waiters, 0);
}

pub(super) async fn a_free_name_remembers_its_last_token(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("remembered").with_reserve(3);
    let grant = a.granted(&claim).await;
    assert!(a.release(&claim).await);
    // A store may forget a free name; what it does tell must be right.
    if let Some(info) = b.inspect(&claim.name).await {
        assert!(info.holders.is_empty());
        let last = info.last_token.expect("a token was given out").get();
        assert_eq!(last, grant.token.get() + u64::from(grant.tokens) - 1);
    }
}

pub(super) async fn a_waited_for_name_is_listed(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("waited for");
    a.granted(&holding).await;
    b.queued(b.claim("waited for")).await;
    let info = a.inspect(&holding.name).await.expect("it is held");
    assert_eq!(info.waiters, 1);
    assert_eq!(info.holders.len(), 1);
    assert_eq!(b.list("waited").await, ["waited for"]);
}

pub(super) async fn a_break_ends_the_hold_and_says_whose(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("stuck");
    let grant = a.granted(&claim).await;
    let ended = b.break_lock(&claim.name, "stuck").await;
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].claim, claim.id);
    assert_eq!(ended[0].token, Some(grant.token));
    assert!(!a.holds(&claim).await);
    assert!(!a.release(&claim).await);
    let next = b.claim("stuck");
    b.granted(&next).await;
    assert!(!a.release(&claim).await);
    assert!(b.holds(&next).await);
}

pub(super) async fn a_break_moves_the_fence(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("fence");
    let grant = a.granted(&claim).await;
    b.break_lock(&claim.name, "stuck").await;
    // The fence is past the hold at once, not only with the next grant.
    let info = b.inspect(&claim.name).await.expect("it was broken");
    let fence = info.last_token.expect("a token was given out");
    assert!(fence > grant.token);
    let next = b.granted(&b.claim("fence")).await;
    assert!(next.token > fence);
}

pub(super) async fn a_break_keeps_its_reason(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("reasons");
    for reason in [
        "stuck since noon",
        "it's \"odd\"; DROP TABLE lock; --",
        "卡住了 🔒",
    ] {
        let held = a.claim("reasons");
        a.granted(&held).await;
        b.break_lock(&held.name, reason).await;
        let info = b.inspect(&claim.name).await.expect("it was broken");
        let broken = info.broken.expect("it was broken");
        assert_eq!(broken.reason, reason);
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        assert!(broken.at > long_ago, "{broken:?}");
    }
    // The next hold does not hide it.
    a.granted(&claim).await;
    let info = b.inspect(&claim.name).await.expect("it is held");
    assert!(info.broken.is_some());
}

pub(super) async fn a_break_of_a_free_name_ends_nothing(s: Subject) {
    let (a, b) = s.clients();
    assert!(a.break_lock(&name("free"), "to be sure").await.is_empty());
    b.granted(&b.claim("free")).await;
}

pub(super) async fn a_break_that_ends_nothing_leaves_no_record(s: Subject) {
    let (a, b) = s.clients();
    let broken = async |text: &str| {
        let info = b.inspect(&name(text)).await;
        info.and_then(|info| info.broken)
            .map(|broken| broken.reason)
    };
    // A name that nobody ever held, one that was let go of, and one whose lease is over.
    let released = a.claim("released");
    a.granted(&released).await;
    assert!(a.release(&released).await);
    let expired = a.with_lease("expired", SHORT);
    a.granted(&expired).await;
    pass(SHORT + Duration::from_millis(20)).await;
    for text in ["never", "released", "expired"] {
        assert!(a.break_lock(&name(text), "to be sure").await.is_empty());
        assert_eq!(broken(text).await, None, "{text}");
        b.granted(&b.claim(text)).await;
        assert_eq!(broken(text).await, None, "{text}, held");
    }
    // What an earlier break has left stays.
    let stuck = a.claim("stuck");
    a.granted(&stuck).await;
    assert_eq!(b.break_lock(&stuck.name, "stuck").await.len(), 1);
    assert!(a.break_lock(&stuck.name, "again").await.is_empty());
    assert_eq!(broken("stuck").await.as_deref(), Some("stuck"));
}

pub(super) async fn a_list_has_what_is_held_in_order(s: Subject) {
    let (a, b) = s.clients();
    let mut claims = Vec::new();
    for text in ["b/2", "a", "b/10", "c", "b/1", "b"] {
        let claim = a.claim(text);
        a.granted(&claim).await;
        claims.push(claim);
    }
    assert_eq!(b.list("").await, ["a", "b", "b/1", "b/10", "b/2", "c"]);
    assert_eq!(b.list("b/").await, ["b/1", "b/10", "b/2"]);
    assert_eq!(b.list("b/1").await, ["b/1", "b/10"]);
    assert!(b.list("d").await.is_empty());
    assert!(a.release(&claims[2]).await);
    assert_eq!(b.list("b/1").await, ["b/1"]);
}

pub(super) async fn a_prefix_is_taken_literally(s: Subject) {
    let (a, b) = s.clients();
    let names = [
        "%", "*x", "A", "[ab]", "\\x", "_", "a", "a%b", "aXb", "a_b", "x'y", "ä", "订单", "😀",
    ];
    for text in names {
        a.granted(&a.claim(text)).await;
    }
    for prefix in [
        "%",
        "_",
        "*",
        "[ab]",
        "[",
        "\\",
        "a%",
        "a_",
        "A",
        "a",
        "x'",
        "'",
        "ä",
        "订",
        "😀",
        "\u{10FFFF}",
        "?",
        "a%' OR '1'='1",
        "{",
    ] {
        let expected: Vec<&str> = names
            .into_iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        assert_eq!(b.list(prefix).await, expected, "prefix {prefix:?}");
    }
    let mut all = names.to_vec();
    all.sort_unstable();
    assert_eq!(b.list("").await, all);
}

pub(super) async fn an_expired_hold_is_not_listed(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.with_lease("gone", SHORT);
    a.granted(&claim).await;
    pass(SHORT + Duration::from_millis(20)).await;
    assert!(b.list("").await.is_empty());
    assert!(!b.holds(&claim).await);
}
