//! One try, its repeats, and its end.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::Attempt;

use super::Subject;
use super::client::{LONG, SHORT, name, pass};
use super::crowd::take_turns;

pub(super) async fn a_free_name_is_granted(s: Subject) {
    let (a, _) = s.clients();
    let claim = a.claim("free");
    let grant = a.granted(&claim).await;
    assert_eq!(grant.tokens, 1);
    assert!(grant.token.get() > 0);
    assert!(a.holds(&claim).await);
}

pub(super) async fn a_held_name_is_busy_for_others(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&a.with_lease("held", LONG)).await;
    for client in [&a, &b] {
        let free_in = client.busy(&client.claim("held")).await;
        assert!(free_in.is_none_or(|free_in| free_in <= LONG));
    }
}

pub(super) async fn the_same_claim_is_answered_the_same_tokens(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("again").with_reserve(5);
    let first = a.granted(&claim).await;
    for _ in 0..3 {
        assert_eq!(a.granted(&claim).await, first);
    }
    // It was one acquire, so one release ends it.
    assert!(a.release(&claim).await);
    b.granted(&b.claim("again")).await;
}

pub(super) async fn asking_again_prolongs_and_never_shortens(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.with_lease("prolonged", Duration::from_secs(2));
    let first = a.granted(&claim).await;
    let longer = claim.clone().with_lease(LONG);
    assert_eq!(a.granted(&longer).await, first);
    assert_eq!(a.granted(&claim).await, first);
    pass(Duration::from_millis(2_100)).await;
    b.busy(&b.claim("prolonged")).await;
    assert!(a.release(&claim).await);
}

pub(super) async fn a_late_request_does_nothing(s: Subject) {
    let (a, b) = s.clients();
    let late = a
        .claim("late")
        .with_not_after(Moment::now() - Duration::from_millis(10))
        .with_enqueue(true);
    assert_eq!(a.attempt(&late).await, Attempt::TooLate);
    assert!(!a.holds(&late).await);
    let claim = b.claim("late");
    b.granted(&claim).await;
    assert_eq!(a.attempt(&late).await, Attempt::TooLate);
    assert_eq!(b.waiters(&claim.name).await, 0);
}

pub(super) async fn a_late_repeat_leaves_the_hold_alone(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("repeat");
    a.granted(&claim).await;
    let late = claim
        .clone()
        .with_not_after(Moment::now() - Duration::from_millis(10));
    assert_eq!(a.attempt(&late).await, Attempt::TooLate);
    b.busy(&b.claim("repeat")).await;
    assert!(a.release(&claim).await);
    // The danger: a repeat that arrives after the hold ended brings it back.
    assert_eq!(a.attempt(&late).await, Attempt::TooLate);
    b.granted(&b.claim("repeat")).await;
}

pub(super) async fn an_expired_hold_goes_to_another(s: Subject) {
    let (a, b) = s.clients();
    let before = Moment::now();
    let first = a.granted(&a.with_lease("expires", SHORT)).await;
    let second = b.eventually(&b.claim("expires")).await;
    assert!(Moment::now().since(before) >= SHORT, "granted too early");
    assert!(second.token > first.token);
}

pub(super) async fn withdrawing_lets_go_of_a_hold(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("withdrawn");
    a.granted(&claim).await;
    a.withdraw(&claim).await;
    a.withdraw(&claim).await;
    assert!(!a.release(&claim).await);
    b.granted(&b.claim("withdrawn")).await;
}

pub(super) async fn withdrawing_what_is_not_there_changes_nothing(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("kept");
    a.granted(&claim).await;
    b.withdraw(&b.claim("kept")).await;
    b.withdraw(&b.claim("never heard of")).await;
    // The name is part of what a claim holds.
    let elsewhere = claim.clone().with_name(name("elsewhere"));
    a.withdraw(&elsewhere).await;
    b.busy(&b.claim("kept")).await;
    assert!(a.release(&claim).await);
}

pub(super) async fn one_name_does_not_disturb_another(s: Subject) {
    let (a, b) = s.clients();
    let one = a.claim("one");
    a.granted(&one).await;
    let two = b.claim("two");
    b.granted(&two).await;
    assert!(a.release(&one).await);
    a.busy(&a.claim("two")).await;
    assert!(b.release(&two).await);
}

pub(super) async fn twenty_claimants_on_two_handles_exclude_each_other(s: Subject) {
    take_turns(s.crowd(20), 6, |client, _| client.claim("crowded")).await;
}
