//! How long leases are, what ends them, and what a store says of itself.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::Renewal;
use lockkeeper::{Error, Lockkeeper};

use super::Subject;
use super::client::{SHORT, hinted, in_time};

pub(super) async fn the_longest_lease_is_granted(s: Subject) {
    let (a, b) = s.clients();
    let longest = a.store.capabilities().longest_lease;
    let claim = a.with_lease("longest", longest);
    a.granted(&claim).await;
    let info = b.inspect(&claim.name).await.expect("it is held");
    let left = info.holders[0].remaining.expect("it has an end");
    assert!(left > longest / 2 && left <= longest, "{left:?}");
    assert!(a.release(&claim).await);
}

pub(super) async fn a_lease_longer_than_the_longest_is_refused(s: Subject) {
    let (a, b) = s.clients();
    let too_long = a.store.capabilities().longest_lease + Duration::from_secs(1);
    let is_refused = |error: &Error| matches!(error, Error::InvalidArgument { .. });
    let claim = a.with_lease("too long", too_long);
    let error = a.store.try_acquire(&claim).await;
    let error = error.expect_err("it is too long");
    assert!(is_refused(&error), "{error:?}");
    let held = b.claim("too long");
    b.granted(&held).await;
    let renewal = Renewal::new(held.name.clone(), held.id, too_long, in_time());
    let error = b.store.renew(&[renewal]).await;
    let error = error.expect_err("it is too long");
    assert!(is_refused(&error), "{error:?}");
    assert!(b.release(&held).await, "it is held as before");
}

pub(super) async fn a_keeper_asks_for_no_longer_lease(s: Subject) {
    let longest = s.store().capabilities().longest_lease;
    let too_long = longest + Duration::from_secs(1);
    let connect = |lease| Lockkeeper::builder().store(s.store()).lease(lease);
    let error = connect(too_long).connect().await;
    let error = error.expect_err("it is too long");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    let keeper = connect(longest).connect().await.expect("connects");
    assert_eq!(keeper.lease(), longest);
    let lock = keeper.lock("bounded").expect("a lock");
    for tried in [lock.fixed_lease(too_long), lock.with_lease(too_long)] {
        let error = tried.expect_err("it is too long");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
    let guard = lock.acquire().await.expect("acquires");
    let error = guard.extend(too_long).await.expect_err("it is too long");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert!(guard.is_held());
}

pub(super) async fn a_store_that_grants_is_ready(s: Subject) {
    let (a, b) = s.clients();
    for client in [&a, &b] {
        let claim = client.claim("ready");
        client.granted(&claim).await;
        assert_eq!(client.store.health().ready_in, Duration::ZERO);
        assert!(client.release(&claim).await);
    }
}

pub(super) async fn a_store_says_where_it_is(s: Subject) {
    let (one, two) = (s.store(), s.other());
    assert!(!one.place().is_empty());
    assert_eq!(one.place(), one.place(), "always the same");
    assert_eq!(one.capabilities(), one.capabilities(), "always the same");
    assert_eq!(one.capabilities().store, two.capabilities().store);
}

/// The process that held may be dead, so nobody there can be what ends its lease.
pub(super) async fn a_lease_ends_without_its_handle(s: Subject) {
    let (a, b) = s.clients();
    b.granted(&b.with_lease("left behind", SHORT)).await;
    let Subject {
        store,
        other,
        _keep: keep,
        ..
    } = s;
    drop((b, other));
    a.eventually(&a.claim("left behind")).await;
    drop((store, keep));
}

/// A grant may come with the hint. A holder that trusts it must not be told of more than it has.
pub(super) async fn a_grant_in_a_hint_says_how_long_it_lasts(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("direct");
    a.granted(&holding).await;
    let wish = b.claim("direct").with_reserve(3);
    let subscription = b.subscribe_to(&wish).await;
    let before = Moment::now();
    let waiting = b.queued(wish).await;
    let after = Moment::now();
    assert!(a.release(&holding).await);
    hinted(&subscription).await;
    if let Some(direct) = subscription.granted() {
        let info = a.inspect(&waiting.name).await.expect("it is known");
        let seen = Moment::now();
        let hold = info.holders.iter().find(|hold| hold.claim == waiting.id);
        let left = hold.and_then(|hold| hold.remaining).unwrap_or_default();
        assert!(before <= direct.sent && direct.sent <= after, "{direct:?}");
        let lease = direct.lease.min(waiting.lease);
        assert!(!lease.is_zero());
        let slack = Duration::from_millis(5);
        assert!(direct.sent + lease <= seen + left + slack, "{left:?} left");
        let again = b.granted(&waiting).await;
        match Moment::now() < direct.sent + lease {
            true => assert_eq!(again, direct.grant, "the same, asked"),
            // It ended on its way to us, so this may be another grant.
            false => assert!(again.token >= direct.grant.token),
        }
    }
}
