//! What went wrong in other lock libraries, each as a case.
//!
//! [`ROWS`] says for each such failure which cases keep it out, of the store or of the public API over it.
//! Failures of a quorum of nodes and of ZooKeeper's sessions come with those stores.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Release, Renewed};

use super::Subject;
use super::client::{Client, LONG, SHORT, SOON, hinted, pass};
use crate::polling::drop_after;

/// What went wrong elsewhere, and the names of the cases that would catch it here.
pub const ROWS: &[(&str, &[&str])] = &[
    (
        "wake-up lost between try and subscribe",
        &["field_wakeup_lost_between_try_and_subscribe"],
    ),
    (
        "renewal dated from a stale start, or silent re-acquire after expiry",
        &[
            "field_silent_reacquire_after_expiry",
            "field_loss_is_told_before_the_lease_ends",
        ],
    ),
    (
        "cancelled acquire or release leaves a stuck lock",
        &[
            "field_cancelled_acquire_leaves_a_stuck_lock",
            "field_cancelled_release_leaves_a_stuck_lock",
            "field_cancelled_acquire_through_the_api",
        ],
    ),
    (
        "guard drop does nothing under tokio",
        &["field_dropped_guard_keeps_the_lock"],
    ),
    (
        "acquire loops for ever on any error",
        &["field_acquire_loops_for_ever_on_an_error"],
    ),
    (
        "fencing token restarts at 1 when the lock record is deleted",
        &["field_token_restarts_when_the_record_is_deleted"],
    ),
    (
        "lease expires while queued and the lock is granted all the same",
        &["field_granted_after_its_queue_entry_expired"],
    ),
    (
        "two guards on one session both acquire",
        &["field_two_claims_of_one_keeper_both_hold"],
    ),
    (
        "crashed reader blocks writers",
        &["field_crashed_reader_blocks_writers"],
    ),
    (
        "broken pooled connection poisons other locks",
        &["field_cancelled_request_poisons_other_locks"],
    ),
    (
        "two-lock deadlock by order",
        &["field_two_locks_in_opposite_order_deadlock"],
    ),
    (
        "unlock returns false with no error",
        &[
            "field_unlock_says_nothing",
            "field_unlock_tells_what_became_of_it",
        ],
    ),
    (
        "crashed holder keeps a database lock for a minute",
        &["field_crashed_holder_keeps_the_lock"],
    ),
];

pub(super) async fn field_wakeup_lost_between_try_and_subscribe(s: Subject) {
    let (a, b) = s.clients();
    for round in 0..40u64 {
        let holding = a.claim("race");
        a.granted(&holding).await;
        let wish = b.claim("race").with_enqueue(true);
        // The release races with subscribe and try, a little later in every round.
        let releaser = {
            let (a, holding) = (a.clone(), holding.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(round * 25)).await;
                assert!(a.release(&holding).await);
            })
        };
        let subscription = b.subscribe_to(&wish).await;
        while !matches!(b.attempt(&wish).await, Attempt::Granted(_)) {
            // Nothing but a hint wakes it.
            hinted(&subscription).await;
        }
        releaser.await.expect("the release succeeds");
        assert!(b.release(&wish).await);
    }
}

pub(super) async fn field_silent_reacquire_after_expiry(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.with_lease("silent", SHORT);
    a.granted(&claim).await;
    pass(SHORT + Duration::from_millis(20)).await;
    assert_eq!(a.renew(&claim, LONG).await, Renewed::NotHeld);
    // The failed renewal left nothing behind that keeps others out.
    b.granted(&b.claim("silent")).await;
}

pub(super) async fn field_cancelled_acquire_leaves_a_stuck_lock(s: Subject) {
    let (a, b) = s.clients();
    for polls in 0..12 {
        let wish = a.claim("cancelled").with_enqueue(true);
        drop_after(polls, a.store.try_acquire(&wish)).await;
        a.withdraw(&wish).await;
        free_again(&b, "cancelled").await;
    }
}

/// Somebody else can hold it. The dropped request may be under way still, so not at once.
async fn free_again(client: &Client, text: &str) {
    let claim = client.claim(text);
    client.eventually(&claim).await;
    assert!(client.release(&claim).await);
}

pub(super) async fn field_cancelled_release_leaves_a_stuck_lock(s: Subject) {
    let (a, b) = s.clients();
    for polls in 0..12 {
        let claim = a.claim("cancelled");
        a.eventually(&claim).await;
        let release = Release::new(claim.name.clone(), claim.id);
        drop_after(polls, a.store.release(&release)).await;
        // Whether it happened is unknown; to ask again is harmless either way.
        a.release(&claim).await;
        free_again(&b, "cancelled").await;
    }
}

pub(super) async fn field_cancelled_request_poisons_other_locks(s: Subject) {
    let (a, b) = s.clients();
    for polls in 0..8 {
        drop_after(polls, a.store.try_acquire(&a.with_lease("mine", SHORT))).await;
        drop_after(polls, a.store.list("")).await;
        drop_after(polls, a.store.renew(&[])).await;
        for client in [&a, &b] {
            let other = client.claim("other");
            client.granted(&other).await;
            assert!(client.release(&other).await);
        }
    }
}

pub(super) async fn field_token_restarts_when_the_record_is_deleted(s: Subject) {
    let (a, b) = s.clients();
    // A long run puts the token ahead of the clock: only memory of it keeps the next one above.
    let claim = a.claim("deleted").with_reserve(900_000);
    let first = a.granted(&claim).await;
    assert!(a.release(&claim).await);
    // Enough other names to make a store forget idle ones.
    for number in 0..4_200 {
        let other = b.claim(&format!("other {number}"));
        b.granted(&other).await;
        assert!(b.release(&other).await);
    }
    let second = b.granted(&b.claim("deleted")).await;
    assert!(second.token.get() >= first.token.get() + u64::from(first.tokens));
}

pub(super) async fn field_granted_after_its_queue_entry_expired(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("too late");
    a.granted(&holding).await;
    let sleeper = b.queued(b.claim("too late")).await;
    let next = a.queued(a.claim("too late")).await;
    assert!(a.release(&holding).await);
    // The sleeper was granted the lock and does not say anything until it went to the next.
    a.eventually(&next).await;
    b.busy(&sleeper).await;
    assert!(!b.release(&sleeper).await);
    assert!(a.release(&next).await);
}

pub(super) async fn field_two_claims_of_one_keeper_both_hold(s: Subject) {
    let (a, _) = s.clients();
    let (one, two) = (a.claim("session"), a.claim("session"));
    a.granted(&one).await;
    a.busy(&two).await;
    a.granted(&one).await;
    assert!(a.release(&one).await);
    a.granted(&two).await;
    a.busy(&one).await;
}

pub(super) async fn field_unlock_says_nothing(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.with_lease("typed", SHORT);
    a.granted(&claim).await;
    b.eventually(&b.claim("typed")).await;
    assert!(!a.release(&claim).await, "it had expired, and is told so");
    let broken = a.claim("typed too");
    a.granted(&broken).await;
    b.break_lock(&broken.name, "stuck").await;
    assert!(!a.release(&broken).await, "it was broken, and is told so");
}

pub(super) async fn field_crashed_holder_keeps_the_lock(s: Subject) {
    let (a, b) = s.clients();
    let before = Moment::now();
    let claim = a.with_lease("crashed", Duration::from_millis(500));
    a.granted(&claim).await;
    // Its process is alive and connected, but nobody renews: the lease decides.
    b.eventually(&b.claim("crashed")).await;
    let took = Moment::now().since(before);
    assert!(took >= claim.lease && took < SOON, "{took:?}");
}

pub(super) async fn field_crashed_reader_blocks_writers(s: Subject) {
    let (a, b) = s.clients();
    let crashed = a.with_mode("readers", Mode::Read).with_lease(SHORT);
    let alive = b.with_mode("readers", Mode::Read);
    a.granted(&crashed).await;
    b.granted(&alive).await;
    // Each reader has a lease of its own: renewing one must not keep the other.
    assert_eq!(b.renew(&alive, LONG).await, Renewed::Renewed);
    pass(SHORT + Duration::from_millis(20)).await;
    b.busy(&b.with_mode("readers", Mode::Write)).await;
    assert!(b.release(&alive).await);
    b.granted(&b.with_mode("readers", Mode::Write)).await;
    assert!(!a.release(&crashed).await);
}
