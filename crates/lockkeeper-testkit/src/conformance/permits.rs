//! Semaphores: permits add up to the limit and never beyond.

use lockkeeper::store::{Claim, Mode};

use super::Subject;
use super::client::{Client, SHORT};
use super::crowd::take_turns;

fn permits(client: &Client, text: &str, limit: u32, count: u32) -> Claim {
    client.with_mode(text, Mode::Permit { limit, count })
}

pub(super) async fn permits_add_up_to_the_limit(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&permits(&a, "pool", 3, 1)).await;
    let two = permits(&b, "pool", 3, 2);
    b.granted(&two).await;
    a.busy(&permits(&a, "pool", 3, 1)).await;
    assert!(b.release(&two).await);
    a.busy(&permits(&a, "pool", 3, 3)).await;
    a.granted(&permits(&a, "pool", 3, 2)).await;
    b.busy(&permits(&b, "pool", 3, 1)).await;
}

pub(super) async fn the_smallest_limit_counts(s: Subject) {
    let (a, b) = s.clients();
    let careful = permits(&a, "limits", 2, 1);
    a.granted(&careful).await;
    b.granted(&permits(&b, "limits", 9, 1)).await;
    b.busy(&permits(&b, "limits", 9, 1)).await;
    // With the careful one gone, the larger limit holds.
    assert!(a.release(&careful).await);
    b.granted(&permits(&b, "limits", 9, 7)).await;
    a.busy(&permits(&a, "limits", 2, 1)).await;
}

pub(super) async fn a_released_permit_is_free_at_once(s: Subject) {
    let (a, b) = s.clients();
    for _ in 0..3 {
        let [one, two] = [&a, &b].map(|client| permits(client, "freed", 2, 1));
        a.granted(&one).await;
        b.granted(&two).await;
        assert!(a.release(&one).await);
        assert!(!a.release(&one).await);
        let three = permits(&b, "freed", 2, 1);
        b.granted(&three).await;
        assert!(b.release(&two).await);
        assert!(b.release(&three).await);
    }
}

pub(super) async fn an_expired_permit_is_free(s: Subject) {
    let (a, b) = s.clients();
    b.granted(&permits(&b, "expires", 2, 1)).await;
    let short = permits(&a, "expires", 2, 1).with_lease(SHORT);
    a.granted(&short).await;
    b.eventually(&permits(&b, "expires", 2, 1)).await;
    assert!(!a.release(&short).await);
    a.busy(&permits(&a, "expires", 2, 1)).await;
}

pub(super) async fn permits_do_not_mix_with_locks(s: Subject) {
    let (a, b) = s.clients();
    let lock = a.claim("mixed");
    a.granted(&lock).await;
    b.busy(&permits(&b, "mixed", 5, 1)).await;
    assert!(a.release(&lock).await);
    b.granted(&permits(&b, "mixed", 5, 1)).await;
    a.busy(&a.claim("mixed")).await;
}

pub(super) async fn a_large_wish_is_not_starved(s: Subject) {
    let (a, b) = s.clients();
    let three = permits(&a, "large", 4, 3);
    a.granted(&three).await;
    let all = b.queued(permits(&b, "large", 4, 4)).await;
    a.busy(&permits(&a, "large", 4, 1)).await;
    let one = a.queued(permits(&a, "large", 4, 1)).await;
    assert!(a.release(&three).await);
    b.granted(&all).await;
    a.busy(&one).await;
    assert!(b.release(&all).await);
    a.granted(&one).await;
}

pub(super) async fn freed_permits_go_to_all_who_fit(s: Subject) {
    let (a, b) = s.clients();
    let all = permits(&a, "fit", 4, 4);
    a.granted(&all).await;
    let one = b.queued(permits(&b, "fit", 4, 1)).await;
    let two = a.queued(permits(&a, "fit", 4, 2)).await;
    let three = b.queued(permits(&b, "fit", 4, 3)).await;
    assert!(a.release(&all).await);
    a.granted(&two).await;
    b.granted(&one).await;
    b.busy(&three).await;
    assert!(a.release(&two).await);
    b.granted(&three).await;
}

pub(super) async fn permits_are_never_oversold_in_a_crowd(s: Subject) {
    let some = |client: &Client, number| permits(client, "crowded", 4, 1 + number as u32 % 3);
    take_turns(s.crowd(12), 10, some).await;
}
