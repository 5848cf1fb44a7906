//! Letting go, and queueing again in the same step.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::Renewed;

use super::Subject;
use super::client::{LONG, SHORT};

pub(super) async fn a_release_frees_at_once(s: Subject) {
    let (a, b) = s.clients();
    for _ in 0..5 {
        let claim = a.claim("freed");
        a.granted(&claim).await;
        assert!(a.release(&claim).await);
        let claim = b.claim("freed");
        b.granted(&claim).await;
        assert!(b.release(&claim).await);
    }
}

pub(super) async fn a_repeated_release_says_not_held(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("twice");
    a.granted(&claim).await;
    assert!(a.release(&claim).await);
    assert!(!a.release(&claim).await);
    let next = b.claim("twice");
    b.granted(&next).await;
    assert!(!a.release(&claim).await);
    assert!(b.holds(&next).await);
}

pub(super) async fn a_release_of_an_unknown_claim_changes_nothing(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("mine");
    a.granted(&claim).await;
    assert!(!b.release(&b.claim("mine")).await);
    assert!(!b.release(&b.claim("nobody's")).await);
    assert!(a.holds(&claim).await);
    b.busy(&b.claim("mine")).await;
}

pub(super) async fn a_delayed_release_does_not_touch_the_next_hold(s: Subject) {
    let (a, b) = s.clients();
    let first = a.claim("next");
    a.granted(&first).await;
    assert!(a.release(&first).await);
    // The next hold is of the same keeper: only the claim tells them apart.
    let second = a.claim("next");
    a.granted(&second).await;
    assert!(!a.release(&first).await);
    a.withdraw(&first).await;
    assert_eq!(a.renew(&first, LONG).await, Renewed::NotHeld);
    b.busy(&b.claim("next")).await;
    assert!(a.release(&second).await);
}

pub(super) async fn a_release_after_expiry_says_not_held(s: Subject) {
    let (a, b) = s.clients();
    let slow = a.with_lease("slow", SHORT);
    a.granted(&slow).await;
    let next = b.claim("slow");
    b.eventually(&next).await;
    assert!(!a.release(&slow).await);
    assert_eq!(b.renew(&next, LONG).await, Renewed::Renewed);
}

pub(super) async fn a_release_with_requeue_is_granted_again_when_alone(s: Subject) {
    let (a, b) = s.clients();
    let first = a.claim("alone");
    let before = a.granted(&first).await;
    let next = a.claim("alone").with_enqueue(true).with_reserve(3);
    let released = a.release_and(&first, Some(next.clone())).await;
    assert!(released.was_held);
    let grant = released.regrant.expect("nobody else waits");
    assert!(grant.token > before.token);
    assert!((1..=3).contains(&grant.tokens));
    // It needs no confirmation: its lease is the whole one.
    let info = a.inspect(&next.name).await.expect("it is held");
    assert_eq!(info.holders.len(), 1);
    assert_eq!(info.holders[0].claim, next.id);
    assert!(info.holders[0].remaining > Some(LONG / 2), "{info:?}");
    assert_eq!(info.waiters, 0);
    b.busy(&b.claim("alone")).await;
    assert_eq!(a.granted(&next).await, grant);
    assert!(a.release(&next).await);
}

pub(super) async fn a_release_with_requeue_goes_to_the_waiter_first(s: Subject) {
    let (a, b) = s.clients();
    let first = a.claim("turns");
    a.granted(&first).await;
    let waiting = b.queued(b.claim("turns")).await;
    let next = a.claim("turns").with_enqueue(true);
    let released = a.release_and(&first, Some(next.clone())).await;
    assert!(released.was_held);
    assert_eq!(released.regrant, None);
    b.granted(&waiting).await;
    assert_eq!(b.waiters(&next.name).await, 1);
    a.busy(&next).await;
    assert!(b.release(&waiting).await);
    a.granted(&next).await;
}

pub(super) async fn a_late_requeue_only_releases(s: Subject) {
    let (a, b) = s.clients();
    let first = a.claim("late requeue");
    a.granted(&first).await;
    let late = a
        .claim("late requeue")
        .with_enqueue(true)
        .with_not_after(Moment::now() - Duration::from_millis(10));
    let released = a.release_and(&first, Some(late.clone())).await;
    assert!(released.was_held);
    assert_eq!(released.regrant, None);
    assert!(!a.holds(&late).await);
    b.granted(&b.claim("late requeue")).await;
}

pub(super) async fn a_requeue_without_a_hold_changes_nothing(s: Subject) {
    let (a, b) = s.clients();
    let holding = b.claim("not mine");
    b.granted(&holding).await;
    let next = a.claim("not mine").with_enqueue(true);
    let released = a.release_and(&a.claim("not mine"), Some(next)).await;
    assert!(!released.was_held);
    assert_eq!(released.regrant, None);
    assert_eq!(b.waiters(&holding.name).await, 0);
    // A repeat of a release that took effect must not queue a second time either.
    assert!(b.release(&holding).await);
    let next = b.claim("not mine").with_enqueue(true);
    let released = b.release_and(&holding, Some(next)).await;
    assert!(!released.was_held);
    a.granted(&a.claim("not mine")).await;
}
