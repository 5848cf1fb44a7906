//! The engine over a memory store: order, hand-off, re-entry, leases, closing.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Fault, LEASE, MS, SHORT, Tampered, Verb, acquired, eventually};
use lockkeeper::*;

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
async fn one_at_a_time_and_few_requests_for_many_tasks() {
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
async fn where_others_had_the_lock_the_first_try_queues() {
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
async fn a_first_try_that_queued_leaves_the_queue_when_its_patience_ends() {
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
        eventually("nobody waits", async || {
            let info = us.inspect("x").await.expect("works").expect("known");
            info.waiters == 0
        })
        .await;
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
async fn a_keeper_lets_go_although_its_own_tasks_wait() {
    let store = Tampered::new();
    let bound = HandOff {
        count: 3,
        time: LEASE,
    };
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
    eventually("the other is queued", async || {
        let info = busy.inspect("x").await.expect("inspected");
        info.is_some_and(|info| info.waiters == 1)
    })
    .await;
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
        eventually("it is queued", async || {
            let info = keepers[0].inspect("x").await.expect("inspected");
            info.is_some_and(|info| info.waiters == i + 1)
        })
        .await;
    }
    first.release().await.expect("released");
    while running.join_next().await.is_some() {}
    assert_eq!(*order.lock().expect("order"), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn owners_re_enter_and_others_do_not() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    let (me, you) = (Owner::new(), Owner::new());
    let outer = lock.as_owner(&me).acquire().await.expect("acquired");
    let requests = store.count(Verb::Acquire);
    let inner = lock
        .as_owner(&me)
        .try_acquire()
        .await
        .expect("works")
        .expect("re-entered");
    assert_eq!(
        store.count(Verb::Acquire),
        requests,
        "re-entry asks no store"
    );
    assert_eq!((inner.token(), inner.depth()), (outer.token(), 2));
    let info = keeper.inspect("x").await.expect("works").expect("known");
    assert_eq!(info.holders[0].depth, Some(2));
    assert!(
        lock.as_owner(&you)
            .try_acquire()
            .await
            .expect("works")
            .is_none()
    );
    assert!(lock.try_acquire().await.expect("works").is_none());
    // A second keeper of the same process is another client altogether.
    let other = store.keeper(LEASE).await;
    let foreign = other.lock("x").expect("a name").as_owner(&me);
    assert!(foreign.try_acquire().await.expect("works").is_none());
    assert_eq!(
        outer.release().await,
        Ok(ReleaseOutcome::StillHeld { depth: 1 })
    );
    assert!(
        lock.as_owner(&you)
            .try_acquire()
            .await
            .expect("works")
            .is_none()
    );
    assert_eq!(inner.release().await, Ok(ReleaseOutcome::Released));
    assert!(
        lock.as_owner(&you)
            .try_acquire()
            .await
            .expect("works")
            .is_some()
    );
}

#[tokio::test]
async fn re_entry_has_a_limit() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name").as_owner(&Owner::new());
    let mut guards = Vec::new();
    let error = loop {
        match lock.acquire().await {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::LimitExceeded { limit, .. } if limit == guards.len() as u64));
}

#[tokio::test]
async fn a_renewed_lease_outlives_a_blocked_runtime() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    let guard = acquired(&keeper).await;
    std::thread::sleep(SHORT * 3); // blocks the only thread of this runtime
    assert!(guard.is_held());
    assert!(store.count(Verb::Renew) >= 3);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn a_fixed_lease_ends_and_says_so_before_others_get_in() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let other = store.keeper(LEASE).await;
    let fixed = keeper
        .lock("x")
        .and_then(|l| l.lease(SHORT))
        .expect("a lock");
    let guard = fixed.acquire().await.expect("acquired");
    let next = tokio::spawn(async move {
        let guard = acquired(&other).await;
        (lockkeeper::clock::Moment::now(), guard)
    });
    guard.at_risk().await;
    assert!(guard.is_held());
    guard.lost().await;
    let lost = lockkeeper::clock::Moment::now();
    assert!(!guard.is_held() && !guard.ensure(Duration::ZERO));
    assert!(guard.extend(SHORT).await.is_err());
    let (granted, _next) = next.await.expect("no panic");
    assert!(lost < granted);
    assert_eq!(store.count(Verb::Renew), 0);
    match guard.release().await.expect("answered") {
        ReleaseOutcome::NotHeld { now_held_by, .. } => assert!(now_held_by.is_some()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn extending_moves_the_deadline_and_is_never_shortened() {
    let keeper = Tampered::new().keeper(SHORT).await;
    let fixed = keeper
        .lock("x")
        .and_then(|l| l.lease(SHORT))
        .expect("a lock");
    let guard = fixed.acquire().await.expect("acquired");
    assert!(!guard.ensure(LEASE / 2));
    guard.extend(LEASE).await.expect("extended");
    assert!(guard.ensure(LEASE / 2));
    guard.extend(SHORT).await.expect("extended");
    assert!(guard.ensure(LEASE / 2));
    assert!(guard.extend(MS(1)).await.is_err(), "a lease out of range");
}

#[tokio::test]
async fn a_broken_lock_is_lost_with_its_reason_and_local_waiters_go_on() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.expect("acquired").token() }
    });
    tokio::task::yield_now().await;
    let held_by = keeper.break_lock("x", "it hangs").await.expect("broken");
    assert_eq!(held_by[0].claim, guard.claim());
    guard.lost().await;
    // The first guard is still alive: the next in line gets its turn all the same.
    assert!(waiter.await.expect("no panic") > guard.token());
    assert!(matches!(
        guard.run(std::future::pending::<()>()).await,
        Err(Error::Lost { .. })
    ));
    match guard.release().await.expect("answered") {
        ReleaseOutcome::NotHeld { broken, .. } => {
            assert_eq!(broken.expect("was broken").reason, "it hangs");
        }
        other => panic!("{other:?}"),
    }
    assert!(
        keeper.break_lock("x", "  ").await.is_err(),
        "needs a reason"
    );
}

#[tokio::test]
async fn a_break_is_noticed_although_the_store_did_not_answer_at_first() {
    let store = Tampered::new();
    let keeper = store.keeper(Duration::from_secs(120)).await;
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    store.set(Verb::Renew, Some(Fault::Refused));
    keeper.break_lock("x", "it hangs").await.expect("broken");
    eventually("it looked", async || store.count(Verb::Renew) > 0).await;
    store.set(Verb::Renew, None);
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost());
    assert!(lost.await.is_ok(), "long before its renewal");
}

#[tokio::test]
async fn a_break_is_noticed_long_before_the_next_renewal() {
    let store = Tampered::new();
    let keeper = store.keeper(Duration::from_secs(3600)).await;
    let other = store.keeper(LEASE).await;
    let fixed = keeper
        .lock("fixed")
        .and_then(|l| l.lease(Duration::from_secs(3600)));
    let guards = [
        keeper
            .lock("renewed")
            .expect("a name")
            .acquire()
            .await
            .expect("acquired"),
        fixed.expect("a lock").acquire().await.expect("acquired"),
        keeper
            .rwlock("read")
            .expect("a name")
            .read()
            .await
            .expect("reads"),
    ];
    let untouched = keeper
        .lock("untouched")
        .expect("a name")
        .acquire()
        .await
        .expect("acquired");
    for guard in guards {
        other
            .break_lock(guard.name(), "a test")
            .await
            .expect("broken");
        let lost = tokio::time::timeout(LEASE, guard.lost()).await;
        assert!(lost.is_ok(), "{guard:?}");
    }
    assert!(untouched.is_held());
}

#[tokio::test]
async fn re_entering_a_lost_lock_is_an_error() {
    let keeper = Tampered::new().keeper(SHORT).await;
    let lock = keeper.lock("x").expect("a name").as_owner(&Owner::new());
    let guard = lock.acquire().await.expect("acquired");
    keeper.break_lock("x", "a test").await.expect("broken");
    guard.lost().await;
    assert!(matches!(lock.acquire().await, Err(Error::Lost { .. })));
    drop(guard);
    assert!(lock.try_acquire().await.expect("works").is_some());
}

#[tokio::test]
async fn a_closed_keeper_acquires_nothing_and_keeps_what_it_has() {
    let keeper = Tampered::new().keeper(SHORT).await;
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    keeper.close().await;
    assert_eq!(lock.try_acquire().await.err(), Some(Error::Closed));
    tokio::time::sleep(SHORT * 2).await;
    assert!(guard.is_held(), "renewed all the same");
}

#[tokio::test]
async fn closing_ends_every_wait() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let held = acquired(&keeper).await;
    let mut waiting = tokio::task::JoinSet::new();
    for fair in [false, true] {
        let lock = keeper.lock("x").expect("a name");
        let lock = if fair {
            lock.fair().expect("fair")
        } else {
            lock
        };
        waiting.spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
        let reader = keeper.rwlock("x").expect("a name");
        waiting.spawn(async move { reader.read().await.map(|guard| guard.token()) });
    }
    eventually("they wait", async || {
        keeper
            .inspect("x")
            .await
            .expect("works")
            .expect("known")
            .waiters
            == 2
    })
    .await;
    keeper.close().await;
    while let Some(ended) = waiting.join_next().await {
        assert_eq!(ended.expect("no panic"), Err(Error::Closed));
    }
    drop(held);
    eventually("nothing is left", async || store.inner.in_use() == (0, 0)).await;
}

#[tokio::test]
async fn a_guard_dropped_on_a_plain_thread_releases() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let guard = acquired(&keeper).await;
    drop(keeper);
    std::thread::spawn(move || drop(guard))
        .join()
        .expect("no panic");
    eventually("it is free", async || store.inner.in_use().0 == 0).await;
}

#[tokio::test]
async fn the_last_guard_ends_the_keepers_thread() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let guard = acquired(&keeper).await;
    drop(keeper);
    assert_eq!(Arc::strong_count(&store), 2);
    drop(guard);
    eventually("nobody uses the store", async || {
        Arc::strong_count(&store) == 1
    })
    .await;
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
                    let patience = Duration::from_micros((i * 7 + round * 13 + k * 3) % 400);
                    let guard = if round % 2 == 0 {
                        lock.acquire_within(patience).await.expect("works")
                    } else {
                        let acquire = tokio::time::timeout(patience, lock.acquire());
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
