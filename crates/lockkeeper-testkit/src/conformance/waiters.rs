//! The queue, as people see it.

use std::time::{Duration, SystemTime};

use lockkeeper::store::{ClaimId, MAX_LISTED, Mode, Process, Waiter};

use super::Subject;
use super::client::{Client, name};
use super::labels::label;

async fn queue(by: &Client, text: &str) -> Vec<Waiter> {
    let info = by.inspect(&name(text)).await;
    info.map_or_else(Vec::new, |info| info.queue)
}

fn claims(queue: &[Waiter]) -> Vec<ClaimId> {
    queue.iter().map(|waiter| waiter.claim).collect()
}

pub(super) async fn waiters_are_described_in_their_order(s: Subject) {
    let (a, b) = s.clients();
    let before = SystemTime::now() - Duration::from_secs(5);
    a.granted(&a.claim("described")).await;
    assert!(queue(&b, "described").await.is_empty());
    let first = a.claim("described").with_label(label("order 7"));
    let first = a.queued(first).await;
    let second = b.queued(b.claim("described")).await;
    let seen = queue(&a, "described").await;
    assert_eq!(claims(&seen), [first.id, second.id]);
    assert_eq!(seen[0].label, label("order 7"));
    assert_eq!(seen[1].label, None);
    for waiter in &seen {
        assert_eq!(waiter.process, Process::current());
        assert_eq!(waiter.mode, Mode::Exclusive);
        let since = waiter.since.expect("a time");
        assert!(since >= before, "{waiter:?}");
        assert!(since <= SystemTime::now() + Duration::from_secs(5));
    }
    assert!(seen[0].since <= seen[1].since, "{seen:?}");
}

pub(super) async fn trying_again_keeps_place_label_and_time(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&a.claim("again")).await;
    let waiting = b.claim("again").with_label(label("patient"));
    let waiting = b.queued(waiting).await;
    b.queued(b.claim("again")).await;
    let before = queue(&a, "again").await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    b.busy(&waiting).await;
    assert_eq!(queue(&a, "again").await, before);
}

pub(super) async fn a_waiter_that_left_is_not_listed(s: Subject) {
    let (a, b) = s.clients();
    let holding = a.claim("leaves");
    a.granted(&holding).await;
    let first = b.queued(b.claim("leaves")).await;
    let second = b.queued(b.claim("leaves")).await;
    let third = a.queued(a.claim("leaves")).await;
    b.withdraw(&second).await;
    assert_eq!(claims(&queue(&a, "leaves").await), [first.id, third.id]);
    assert!(a.release(&holding).await);
    b.granted(&first).await;
    assert_eq!(claims(&queue(&a, "leaves").await), [third.id]);
}

pub(super) async fn more_waiters_than_are_listed_are_counted(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&a.claim("crowd")).await;
    let mut waiting = Vec::new();
    for _ in 0..MAX_LISTED + 5 {
        waiting.push(b.queued(b.claim("crowd")).await.id);
    }
    let info = a.inspect(&name("crowd")).await.expect("it is held");
    // On a machine that stood still, the first may have left the queue again.
    assert!(info.waiters <= MAX_LISTED + 5, "{}", info.waiters);
    let gone = MAX_LISTED + 5 - info.waiters;
    assert_eq!(
        claims(&info.queue),
        waiting[gone..][..MAX_LISTED.min(info.waiters)]
    );
}

pub(super) async fn a_list_counts_waiters_and_does_not_list_them(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&a.claim("counted")).await;
    b.queued(b.claim("counted")).await;
    let list = a.store.list("counted").await.expect("list answers");
    assert_eq!((list.len(), list[0].waiters), (1, 1));
    assert!(list[0].queue.is_empty(), "{list:?}");
}

pub(super) async fn waiters_of_all_modes_are_listed(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&a.with_mode("modes", Mode::Write)).await;
    let modes = [Mode::Read, Mode::Write, Mode::Exclusive, Mode::Read];
    for mode in modes {
        b.queued(b.with_mode("modes", mode)).await;
    }
    let seen = queue(&a, "modes").await;
    let seen: Vec<Mode> = seen.iter().map(|waiter| waiter.mode).collect();
    assert_eq!(seen, modes);
}

pub(super) async fn a_waiter_for_permits_says_how_many(s: Subject) {
    let (a, b) = s.clients();
    let all = Mode::Permit { limit: 3, count: 3 };
    let two = Mode::Permit { limit: 3, count: 2 };
    a.granted(&a.with_mode("how many", all)).await;
    let waiting = b.queued(b.with_mode("how many", two)).await;
    let seen = queue(&a, "how many").await;
    assert_eq!((seen[0].claim, seen[0].mode), (waiting.id, two));
}

pub(super) async fn fair_waiters_are_listed(s: Subject) {
    let (a, b) = s.clients();
    a.granted(&a.with_mode("fair line", Mode::Fair)).await;
    let mut waiting = Vec::new();
    for client in [&b, &a, &b] {
        waiting.push(
            client
                .queued(client.with_mode("fair line", Mode::Fair))
                .await
                .id,
        );
    }
    let seen = queue(&a, "fair line").await;
    assert_eq!(claims(&seen), waiting);
    assert!(seen.iter().all(|waiter| waiter.mode == Mode::Fair));
}
