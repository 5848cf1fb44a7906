//! What a store remembers of watches: nothing of those that have fired, or that nobody needs any more.

use std::time::Duration;

use lockkeeper::store::{Interest, Mode, Store};
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use super::claims::{claim_for, release, until};
use super::common::{busy, granted, in_the_end, open};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn hand_offs_leave_nothing_behind() {
    let server = ZooKeeperServer::start();
    let stores = [open(&server.url("x")).await, open(&server.url("x")).await];
    let mut held = claim_for(LEASE, "a", Mode::Exclusive);
    granted(&stores[0], &held).await;
    for turn in 1..=1_000 {
        let (now, next) = (&stores[(turn - 1) % 2], &stores[turn % 2]);
        let claim = claim_for(LEASE, "a", Mode::Exclusive).with_enqueue(true);
        // The holder may be gone before the waiter watches it, or after that.
        let (tried, released) = tokio::join!(next.try_acquire(&claim), release(now, &held));
        assert!(released.expect("releases"));
        tried.expect("answers");
        in_the_end(next, &claim).await;
        held = claim;
    }
    let last = &stores[0];
    assert!(release(last, &held).await.expect("releases"));
    until("no watch is remembered", async || {
        stores
            .iter()
            .map(|store| store.watched_paths())
            .sum::<usize>()
            == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_leave_nothing_behind() {
    let server = ZooKeeperServer::start();
    let store = open(&server.url("x")).await;
    let held = claim_for(LEASE, "n0", Mode::Exclusive);
    granted(&store, &held).await;
    for number in 0..1_000 {
        let name = claim_for(LEASE, &format!("n{number}"), Mode::Exclusive).name;
        for interest in [Interest::Name(name.clone()), Interest::Latch(name)] {
            drop(store.subscribe(interest).await.expect("subscribes"));
        }
    }
    assert!(release(&store, &held).await.expect("releases"));
    assert_eq!(store.watched_paths(), 0);
    // One that stays does not need the folders that are not there.
    let kept = Interest::Name(held.name.clone());
    let kept = store.subscribe(kept).await.expect("subscribes");
    assert_eq!(store.watched_paths(), 1);
    drop(kept);
}

/// Another holds the only permit all the time, so nothing happens at the folder of permits.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_for_permits_that_give_up_leave_nothing_behind() {
    let server = ZooKeeperServer::start();
    let (store, other) = (open(&server.url("x")).await, open(&server.url("x")).await);
    let mode = Mode::Permit { limit: 1, count: 1 };
    let held = claim_for(LEASE, "a", mode);
    granted(&other, &held).await;
    for _ in 0..100 {
        let claim = claim_for(LEASE, "a", mode).with_enqueue(true);
        busy(&store, &claim).await;
        store
            .withdraw(&claim.name, claim.id)
            .await
            .expect("withdraws");
    }
    assert_eq!(store.watched_paths(), 0);
    assert!(release(&other, &held).await.expect("releases"));
}
