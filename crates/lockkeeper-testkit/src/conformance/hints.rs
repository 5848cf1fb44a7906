//! Being told that it may be one's turn.

use std::time::Duration;

use lockkeeper::store::{Interest, Renewed};

use super::Subject;
use super::client::{hinted, hinted_at_all};

pub(super) async fn a_hint_comes_to_whoever_is_granted(s: Subject) {
    let (a, b) = s.clients();
    for _ in 0..20 {
        let holding = a.claim("told");
        a.granted(&holding).await;
        let wish = b.claim("told");
        let subscription = b.subscribe_to(&wish).await;
        let waiting = b.queued(wish).await;
        assert!(a.release(&holding).await);
        hinted(&subscription).await;
        b.granted(&waiting).await;
        assert!(b.release(&waiting).await);
    }
}

pub(super) async fn a_hint_goes_to_nobody_else(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("alone");
    a.granted(&holding).await;
    let (first, second) = (b.claim("alone"), b.claim("alone"));
    let to_first = b.subscribe_to(&first).await;
    let to_second = b.subscribe_to(&second).await;
    let first = b.queued(first).await;
    let second = b.queued(second).await;
    assert!(a.release(&holding).await);
    hinted(&to_first).await;
    b.granted(&first).await;
    assert!(!hinted_at_all(&to_second).await, "it is not its turn");
    assert!(b.release(&first).await);
    hinted(&to_second).await;
    b.granted(&second).await;
}

pub(super) async fn a_hint_from_before_the_wait_counts(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("early");
    a.granted(&holding).await;
    let wish = b.claim("early");
    let subscription = b.subscribe_to(&wish).await;
    let waiting = b.queued(wish).await;
    assert!(a.release(&holding).await);
    b.granted(&waiting).await;
    // Nobody was waiting when it came; it is not gone.
    hinted(&subscription).await;
}

pub(super) async fn a_watched_name_hints_at_changes(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("watched");
    let interest = Interest::Name(claim.name.clone());
    let subscription = b.subscribe(interest).await;
    a.granted(&claim).await;
    hinted(&subscription).await;
    assert!(a.release(&claim).await);
    hinted(&subscription).await;
}

pub(super) async fn a_break_hints_the_keeper_that_held(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("broken");
    let subscription = a.subscribe(Interest::Keeper(claim.id.keeper)).await;
    a.granted(&claim).await;
    b.break_lock(&claim.name, "a test").await;
    hinted(&subscription).await;
    // Asking after the hold tells.
    assert_eq!(a.renew(&claim, Duration::ZERO).await, Renewed::NotHeld);
}

/// A watcher that looks at a name at each hint about it would otherwise wake itself for ever.
pub(super) async fn looking_hints_nobody(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("looked at");
    a.granted(&claim).await;
    let interest = Interest::Name(claim.name.clone());
    let subscription = a.subscribe(interest).await;
    while hinted_at_all(&subscription).await {}
    for client in [&a, &b] {
        client.inspect(&claim.name).await;
        client.list("").await;
    }
    assert!(!hinted_at_all(&subscription).await);
}
