//! First come, first served; direct grants and how they lapse.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, QUEUE_TTL};

use super::Subject;
use super::client::{LONG, SHORT, SOON};

pub(super) async fn waiters_are_granted_first_come_first_served(s: Subject) {
    let (a, _) = s.clients();
    let holding = a.claim("line");
    let mut last = a.granted(&holding).await;
    let mut waiting = Vec::new();
    for client in s.crowd(6) {
        let claim = client.queued(client.claim("line")).await;
        waiting.push((client, claim));
    }
    assert_eq!(a.waiters(&holding.name).await, 6);
    assert!(a.release(&holding).await);
    while !waiting.is_empty() {
        // The others try first: only the head may succeed.
        for (client, claim) in waiting.iter().skip(1) {
            client.busy(claim).await;
        }
        let (client, claim) = waiting.remove(0);
        let grant = client.granted(&claim).await;
        assert!(grant.token > last.token);
        last = grant;
        assert!(client.release(&claim).await);
    }
}

pub(super) async fn a_newcomer_does_not_overtake(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("overtake");
    a.granted(&holding).await;
    let waiting = b.queued(b.claim("overtake")).await;
    assert!(a.release(&holding).await);
    a.busy(&a.claim("overtake")).await;
    b.granted(&waiting).await;
}

pub(super) async fn trying_again_keeps_the_place(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("place");
    a.granted(&holding).await;
    let first = b.queued(b.claim("place")).await;
    let second = a.queued(a.claim("place")).await;
    for _ in 0..3 {
        b.busy(&first).await;
        a.busy(&second).await;
    }
    assert_eq!(a.waiters(&holding.name).await, 2);
    assert!(a.release(&holding).await);
    a.busy(&second).await;
    b.granted(&first).await;
}

pub(super) async fn a_busy_try_does_not_queue_unasked(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("unasked");
    a.granted(&holding).await;
    b.busy(&b.claim("unasked")).await;
    assert_eq!(a.waiters(&holding.name).await, 0);
    assert!(a.release(&holding).await);
    a.granted(&a.claim("unasked")).await;
}

pub(super) async fn a_direct_grant_is_confirmed_by_its_claim(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("confirmed");
    a.granted(&holding).await;
    let waiting = b.queued(b.claim("confirmed")).await;
    assert!(a.release(&holding).await);
    let grant = b.granted(&waiting).await;
    assert_eq!(b.granted(&waiting).await, grant);
    // Confirmed, it has the lease it asked for.
    let info = a.inspect(&waiting.name).await.expect("it is held");
    assert_eq!(info.holders[0].claim, waiting.id);
    assert!(info.holders[0].remaining > Some(LONG / 2), "{info:?}");
}

pub(super) async fn an_unconfirmed_grant_lapses_to_the_next(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("lapses");
    a.granted(&holding).await;
    let dead = b.queued(b.claim("lapses")).await;
    let alive = a.queued(a.claim("lapses")).await;
    assert!(a.release(&holding).await);
    a.eventually(&alive).await;
    assert!(!b.holds(&dead).await);
    b.busy(&dead).await;
    assert!(a.holds(&alive).await);
}

pub(super) async fn a_silent_waiter_leaves_the_queue(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("silent");
    a.granted(&holding).await;
    let before = Moment::now();
    b.queued(b.claim("silent")).await;
    while a.waiters(&holding.name).await > 0 {
        assert!(Moment::now().since(before) < SOON, "it never left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(Moment::now().since(before) >= QUEUE_TTL, "left too early");
    assert!(a.release(&holding).await);
    a.granted(&a.claim("silent")).await;
}

pub(super) async fn a_waiter_that_keeps_trying_keeps_its_place(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("patient");
    a.granted(&holding).await;
    let patient = b.queued(b.claim("patient")).await;
    let end = Moment::now() + QUEUE_TTL + Duration::from_millis(500);
    while Moment::now() < end {
        tokio::time::sleep(Duration::from_millis(250)).await;
        b.busy(&patient).await;
    }
    let later = a.queued(a.claim("patient")).await;
    assert!(a.release(&holding).await);
    a.busy(&later).await;
    b.granted(&patient).await;
}

pub(super) async fn withdrawing_leaves_the_queue(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("left");
    a.granted(&holding).await;
    let leaver = b.queued(b.claim("left")).await;
    let stayer = a.queued(a.claim("left")).await;
    b.withdraw(&leaver).await;
    assert_eq!(a.waiters(&holding.name).await, 1);
    assert!(a.release(&holding).await);
    a.granted(&stayer).await;
}

pub(super) async fn withdrawing_an_unconfirmed_grant_passes_it_on(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("passed on");
    a.granted(&holding).await;
    let leaver = b.queued(b.claim("passed on")).await;
    let stayer = a.queued(a.claim("passed on")).await;
    assert!(a.release(&holding).await);
    b.withdraw(&leaver).await;
    a.granted(&stayer).await;
}

pub(super) async fn an_expired_hold_goes_to_the_head_of_the_queue(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&a.with_lease("expired", SHORT)).await;
    // It may have expired before the waiter came, on a slow machine; then it simply holds.
    let mut waiting = b.claim("expired");
    waiting.enqueue = true;
    let end = Moment::now() + SOON;
    while !matches!(b.attempt(&waiting).await, Attempt::Granted(_)) {
        a.busy(&a.claim("expired")).await;
        assert!(Moment::now() < end, "the hold never expired");
    }
    assert!(b.holds(&waiting).await);
}

pub(super) async fn a_broken_lock_goes_to_the_head_of_the_queue(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("broken");
    a.granted(&holding).await;
    let waiting = b.queued(b.claim("broken")).await;
    a.break_lock(&holding.name, "stuck").await;
    a.busy(&a.claim("broken")).await;
    b.granted(&waiting).await;
    assert!(!a.release(&holding).await);
    assert!(b.holds(&waiting).await);
}
