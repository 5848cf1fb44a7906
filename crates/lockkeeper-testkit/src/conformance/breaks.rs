//! Breaking what is meant, in time, and nothing else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper::Token;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Break, BreakOutcome, BreakTarget, Claim, ClaimId, Holder, Mode};

use super::Subject;
use super::client::{Client, in_time, name};

fn claims(holders: &[Holder]) -> Vec<ClaimId> {
    holders.iter().map(|holder| holder.claim).collect()
}

/// Breaks one hold and expects that exactly this claim's was ended.
async fn breaks(client: &Client, claim: &Claim, target: BreakTarget) {
    match client.break_hold(&claim.name, target, "stuck").await {
        BreakOutcome::Ended(ended) => assert_eq!(claims(&ended), [claim.id], "{target:?}"),
        other => panic!("{target:?} should end {:?}, was {other:?}", claim.id),
    }
    assert!(!client.holds(claim).await);
}

/// Breaks a hold that is not there, and expects to be told who holds instead.
async fn finds(client: &Client, held: &Claim, target: BreakTarget) {
    match client.break_hold(&held.name, target, "stuck").await {
        BreakOutcome::NotHeld(holders) => assert_eq!(claims(&holders), [held.id], "{target:?}"),
        other => panic!("{target:?} should end nothing, was {other:?}"),
    }
    assert!(client.holds(held).await);
    let info = client.inspect(&held.name).await.expect("it is held");
    assert_eq!(info.broken, None, "{target:?}");
}

pub(super) async fn a_late_break_does_nothing(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("late");
    let grant = a.granted(&claim).await;
    for target in [
        BreakTarget::All,
        BreakTarget::Token(grant.token),
        BreakTarget::Claim(claim.id),
    ] {
        let request = Break::new(
            claim.name.clone(),
            target,
            "stuck",
            Moment::now() - Duration::from_millis(10),
        );
        let outcome = b.break_as(&request).await;
        assert!(matches!(outcome, BreakOutcome::TooLate), "{outcome:?}");
        assert!(a.holds(&claim).await);
    }
    let info = b.inspect(&claim.name).await.expect("it is held");
    assert_eq!(info.broken, None);
    assert_eq!(info.last_token, Some(grant.token));
    assert!(a.release(&claim).await);
}

pub(super) async fn a_break_takes_any_token_of_the_run(s: Subject) {
    let (a, b) = s.clients();
    for which in 0..5u64 {
        let claim = a.claim("run").with_reserve(5);
        let grant = a.granted(&claim).await;
        assert_eq!(grant.tokens, 5);
        let token = Token::new(grant.token.get() + which);
        breaks(&b, &claim, BreakTarget::Token(token)).await;
        assert!(!a.release(&claim).await);
    }
}

pub(super) async fn a_break_is_not_before_the_tokens_that_it_ends(s: Subject) {
    let (a, b) = s.clients();
    // The next token is ahead of the clock, as far as a store lets reserved tokens run.
    let run = a.claim("ahead").with_reserve(900_000);
    a.granted(&run).await;
    assert!(a.release(&run).await);
    let claim = a.claim("ahead");
    let token = a.granted(&claim).await.token;
    breaks(&b, &claim, BreakTarget::All).await;
    let info = b.inspect(&claim.name).await.expect("it was broken");
    let at = info.broken.expect("it was broken").at;
    let by_token = UNIX_EPOCH + Duration::from_micros(token.get());
    // Otherwise a keeper could not tell this break from one that was before its hold. A token that is minutes ahead says nothing of time:
    // it comes of a clock that was set back, or of nodes that have just started.
    assert!(at >= by_token || by_token > SystemTime::now() + Duration::from_secs(50));
}

pub(super) async fn a_break_by_a_token_of_no_hold_does_nothing(s: Subject) {
    let (a, b) = s.clients();
    let run = |client: &Client| client.claim("tokens").with_reserve(5);
    let (first, second) = (run(&a), run(&b));
    let earlier = a.granted(&first).await;
    assert!(a.release(&first).await);
    let grant = b.granted(&second).await;
    let (token, earlier) = (grant.token.get(), earlier.token.get());
    let others = [earlier, earlier + 4, token - 1, token + 5, 0, 1, u64::MAX];
    for other in others {
        finds(&a, &second, BreakTarget::Token(Token::new(other))).await;
    }
    assert!(b.release(&second).await);
}

pub(super) async fn a_break_by_claim_ends_that_hold_alone(s: Subject) {
    let (a, b) = s.clients();
    let (first, second) = (a.claim("claims"), b.claim("claims"));
    a.granted(&first).await;
    breaks(&b, &first, BreakTarget::Claim(first.id)).await;
    let info = b.inspect(&first.name).await.expect("it was broken");
    assert_eq!(info.broken.expect("it was broken").reason, "stuck");
    // The same again, which comes when the next one holds.
    let next = b.claim("other");
    b.granted(&next).await;
    finds(&a, &next, BreakTarget::Claim(first.id)).await;
    b.granted(&second).await;
    match a
        .break_hold(&second.name, BreakTarget::Claim(first.id), "again")
        .await
    {
        BreakOutcome::NotHeld(holders) => assert_eq!(claims(&holders), [second.id]),
        other => panic!("it has ended, was {other:?}"),
    }
    let info = b.inspect(&first.name).await.expect("it is held");
    assert_eq!(info.broken.expect("it was broken").reason, "stuck");
    assert!(b.release(&second).await);
}

pub(super) async fn a_named_break_of_a_free_name_does_nothing(s: Subject) {
    let (a, b) = s.clients();
    for target in [
        BreakTarget::Claim(a.id()),
        BreakTarget::Token(Token::new(1)),
    ] {
        let request = Break::new(name("free"), target, "to be sure", in_time());
        let outcome = a.break_as(&request).await;
        assert!(
            matches!(&outcome, BreakOutcome::NotHeld(holders) if holders.is_empty()),
            "{outcome:?}"
        );
        assert!(b.inspect(&name("free")).await.is_none());
    }
}

pub(super) async fn a_named_break_moves_the_fence(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("fence");
    let grant = a.granted(&claim).await;
    breaks(&b, &claim, BreakTarget::Token(grant.token)).await;
    let info = b.inspect(&claim.name).await.expect("it was broken");
    let fence = info.last_token.expect("a token was given out");
    assert!(fence > grant.token);
    let next = b.granted(&b.claim("fence")).await;
    assert!(next.token > fence);
}

pub(super) async fn a_named_break_passes_the_lock_on(s: Subject) {
    let (a, b) = s.clients();
    let held = a.claim("passed on");
    a.granted(&held).await;
    let waiting = b.queued(b.claim("passed on")).await;
    // A waiter holds nothing that could be broken.
    finds(&a, &held, BreakTarget::Claim(waiting.id)).await;
    assert_eq!(a.waiters(&held.name).await, 1);
    breaks(&b, &held, BreakTarget::Claim(held.id)).await;
    b.granted(&waiting).await;
    assert!(b.release(&waiting).await);
}

pub(super) async fn a_break_of_one_reader_leaves_the_others(s: Subject) {
    let (a, b) = s.clients();
    let readers = [&a, &b, &a].map(|client| client.with_mode("book", Mode::Read));
    let mut grants = Vec::new();
    for reader in &readers {
        grants.push(a.granted(reader).await);
    }
    breaks(&b, &readers[1], BreakTarget::Claim(readers[1].id)).await;
    assert!(a.holds(&readers[0]).await && a.holds(&readers[2]).await);
    b.busy(&b.with_mode("book", Mode::Write)).await;
    breaks(&b, &readers[2], BreakTarget::Token(grants[2].token)).await;
    b.busy(&b.with_mode("book", Mode::Write)).await;
    assert!(a.release(&readers[0]).await);
    b.granted(&b.with_mode("book", Mode::Write)).await;
}

pub(super) async fn a_break_of_a_writer_leaves_the_reader_beside_it(s: Subject) {
    let (a, b) = s.clients();
    let writer = a.with_mode("page", Mode::Write);
    a.granted(&writer).await;
    let reader = a
        .with_mode("page", Mode::Read)
        .with_beside(Some(writer.id))
        .with_label(None);
    a.granted(&reader).await;
    b.busy(&b.with_mode("page", Mode::Read)).await;
    breaks(&b, &writer, BreakTarget::Claim(writer.id)).await;
    assert!(a.holds(&reader).await);
    // It is a reader like any other now.
    let another = b.with_mode("page", Mode::Read);
    b.granted(&another).await;
    b.busy(&b.with_mode("page", Mode::Write)).await;
    assert!(a.release(&reader).await);
    assert!(b.release(&another).await);
    b.granted(&b.with_mode("page", Mode::Write)).await;
}

pub(super) async fn a_break_of_one_permit_leaves_the_others(s: Subject) {
    let (a, b) = s.clients();
    let mode = Mode::Permit { limit: 3, count: 1 };
    let holds = [&a, &b, &a].map(|client| client.with_mode("pool", mode));
    let mut grants = Vec::new();
    for hold in &holds {
        grants.push(a.granted(hold).await);
    }
    b.busy(&b.with_mode("pool", mode)).await;
    breaks(&b, &holds[0], BreakTarget::Token(grants[0].token)).await;
    assert!(a.holds(&holds[1]).await && a.holds(&holds[2]).await);
    let next = b.with_mode("pool", mode);
    b.granted(&next).await;
    b.busy(&b.with_mode("pool", mode)).await;
    breaks(&b, &next, BreakTarget::Claim(next.id)).await;
    for hold in &holds[1..] {
        assert!(a.release(hold).await);
    }
}
