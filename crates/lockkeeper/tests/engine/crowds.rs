//! Many tasks and several keepers: order, hand-off.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::*;

use crate::common::{LEASE, MS, Tampered, Verb, acquired, eventually, waiters};

/// Something that breaks when two are in it.
#[derive(Default)]
struct Room {
    taken: AtomicBool,
    gate: FenceGate,
    entries: AtomicU32,
}

impl Room {
    async fn enter(&self, token: Token) {
        assert!(!self.taken.swap(true, SeqCst), "two holders at once");
        assert!(self.gate.highest() < token, "tokens went back");
        assert!(self.gate.admit(token));
        tokio::task::yield_now().await;
        self.entries.fetch_add(1, SeqCst);
        self.taken.store(false, SeqCst);
    }
}

/// Many tasks of each keeper enter the room many times under one lock.
async fn crowd(keepers: &[Lockkeeper], tasks: usize, rounds: u32) -> Arc<Room> {
    let room = Arc::<Room>::default();
    let mut running = tokio::task::JoinSet::new();
    for keeper in keepers {
        for _ in 0..tasks {
            let (lock, room) = (keeper.lock("room").expect("a name"), room.clone());
            running.spawn(async move {
                for _ in 0..rounds {
                    let guard = lock.acquire().await.expect("acquired");
                    room.enter(guard.token()).await;
                    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
                }
            });
        }
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
    room
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_exclude_each_other_with_few_requests() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let room = crowd(std::slice::from_ref(&keeper), 64, 100).await;
    assert_eq!(room.entries.load(SeqCst), 6_400);
    let requests = store.count(Verb::Acquire) + store.count(Verb::Release);
    assert!(
        requests < 1_280,
        "{requests} requests for 6,400 acquisitions"
    );
    keeper.close().await;
    assert_eq!(store.inner.in_use(), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keepers_exclude_each_other_with_and_without_hand_off() {
    for hand_off in [HandOff::default(), HandOff::OFF] {
        let store = Tampered::new();
        let mut keepers = Vec::new();
        for _ in 0..4 {
            let builder = Lockkeeper::builder()
                .store(store.clone())
                .hand_off(hand_off);
            keepers.push(builder.connect().await.expect("connects"));
        }
        let room = crowd(&keepers, 16, 20).await;
        assert_eq!(room.entries.load(SeqCst), 1_280);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_a_release_queued_asks_once_when_it_is_granted() {
    let store = Tampered::new();
    let mut keepers = Vec::new();
    for _ in 0..2 {
        let builder = Lockkeeper::builder().store(store.clone());
        let builder = builder.hand_off(HandOff::OFF);
        keepers.push(builder.connect().await.expect("connects"));
    }
    let room = crowd(&keepers, 8, 100).await;
    assert_eq!(room.entries.load(SeqCst), 1_600);
    let (tries, releases) = (store.count(Verb::Acquire), store.count(Verb::Release));
    assert_eq!(releases, 1_600);
    // And once in a while a waiter looks by itself.
    assert!(tries < 2_000, "{tries} tries for 1,600 acquisitions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_try_queues_if_the_last_one_found_the_lock_busy() {
    let store = Tampered::new();
    let keepers = [store.keeper(LEASE).await, store.keeper(LEASE).await];
    let mut running = tokio::task::JoinSet::new();
    for keeper in &keepers {
        let lock = keeper.lock("x").expect("a name");
        running.spawn(async move {
            for _ in 0..100 {
                let guard = lock.acquire().await.expect("acquired");
                // By then the other waits.
                tokio::time::sleep(MS(2)).await;
                guard.release().await.expect("released");
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
    // One that queues and one that confirms, of which a lock that is free needs only the first.
    let tries = store.count(Verb::Acquire);
    assert!(tries < 500, "{tries} tries for 200 acquisitions");
}

#[tokio::test]
async fn a_first_try_that_queued_leaves_the_queue_when_it_times_out() {
    let store = Tampered::new();
    let (us, them) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let (ours, theirs) = (
        us.lock("x").expect("a name"),
        them.lock("x").expect("a name"),
    );
    let held = theirs.acquire().await.expect("acquired");
    for _ in 0..2 {
        let timed_out = ours.acquire_within(MS(20)).await.expect("works");
        assert!(timed_out.is_none(), "it is held");
        eventually("nobody waits", async || waiters(&us).await == 0).await;
    }
    // One that gave up at once, and one that is dropped in the middle.
    assert!(ours.try_acquire().await.expect("works").is_none());
    let mut acquire = Box::pin(ours.acquire());
    assert!(tokio::time::timeout(MS(20), &mut acquire).await.is_err());
    drop(acquire);
    held.release().await.expect("released");
    us.close().await;
    assert_eq!(store.inner.in_use(), (0, 0));
}

#[tokio::test]
async fn a_keeper_releases_although_its_own_tasks_wait() {
    let store = Tampered::new();
    let bound = HandOff::new(3, LEASE);
    let busy = Lockkeeper::builder().store(store.clone()).hand_off(bound);
    let busy = busy.connect().await.expect("connects");
    let other = store.keeper(LEASE).await;
    let order = Arc::<Mutex<Vec<&str>>>::default();
    let first = acquired(&busy).await;
    let mut running = tokio::task::JoinSet::new();
    let mut queue = |keeper: &Lockkeeper, who: &'static str| {
        let (lock, order) = (keeper.lock("x").expect("a name"), order.clone());
        running.spawn(async move {
            let guard = lock.acquire().await.expect("acquired");
            order.lock().expect("order").push(who);
            guard.release().await.expect("released");
        });
    };
    queue(&other, "other");
    eventually("the other is queued", async || waiters(&busy).await == 1).await;
    for _ in 0..6 {
        queue(&busy, "busy");
    }
    tokio::task::yield_now().await;
    first.release().await.expect("released");
    while running.join_next().await.is_some() {}
    let order = order.lock().expect("order");
    let at = order
        .iter()
        .position(|who| *who == "other")
        .expect("had its turn");
    assert!(at <= 3, "{order:?}");
}

#[tokio::test]
async fn fair_locks_are_first_come_first_served_across_keepers() {
    let store = Tampered::new();
    let keepers = [store.keeper(LEASE).await, store.keeper(LEASE).await];
    let fair = |i: usize| {
        keepers[i % 2]
            .lock("x")
            .and_then(|l| l.fair())
            .expect("fair")
    };
    let first = fair(0).acquire().await.expect("acquired");
    let order = Arc::<Mutex<Vec<usize>>>::default();
    let mut running = tokio::task::JoinSet::new();
    for i in 0..8 {
        let (lock, order) = (fair(i), order.clone());
        running.spawn(async move {
            let guard = lock.acquire().await.expect("acquired");
            order.lock().expect("order").push(i);
            guard.release().await.expect("released");
        });
        let queued = async || waiters(&keepers[0]).await == i + 1;
        eventually("it is queued", queued).await;
    }
    first.release().await.expect("released");
    while running.join_next().await.is_some() {}
    assert_eq!(*order.lock().expect("order"), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_give_up_at_random_leave_the_lock_to_the_others() {
    let store = Tampered::new();
    let room = Arc::<Room>::default();
    let mut running = tokio::task::JoinSet::new();
    for k in 0..2u64 {
        let keeper = store.keeper(LEASE).await;
        for i in 0..24u64 {
            let (lock, room) = (keeper.lock("room").expect("a name"), room.clone());
            running.spawn(async move {
                for round in 0..40u64 {
                    // Some give up by their own deadline, some are dropped from outside.
                    let timeout = Duration::from_micros((i * 7 + round * 13 + k * 3) % 400);
                    let guard = if round % 2 == 0 {
                        lock.acquire_within(timeout).await.expect("works")
                    } else {
                        let acquire = tokio::time::timeout(timeout, lock.acquire());
                        acquire.await.ok().map(|guard| guard.expect("works"))
                    };
                    if let Some(guard) = guard {
                        room.enter(guard.token()).await;
                        if round % 3 == 0 {
                            guard.release().await.expect("released");
                        }
                    }
                }
            });
        }
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
    assert!(room.entries.load(SeqCst) > 0);
    eventually("nothing is left", async || store.inner.in_use() == (0, 0)).await;
}
