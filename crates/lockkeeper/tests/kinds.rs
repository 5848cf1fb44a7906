//! Readers and writers, permits, latches and several locks at once, over a memory store.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use common::{Fault, LEASE, MS, Tampered, Verb, eventually, waiters};
use lockkeeper::*;

#[tokio::test]
async fn readers_share_and_writers_do_not() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.rwlock("x").expect("a name");
    let readers: Vec<ReadGuard> = {
        let (a, b, c) = tokio::join!(lock.read(), lock.read(), lock.read());
        [a, b, c].into_iter().map(|r| r.expect("reads")).collect()
    };
    assert!(
        store.count(Verb::Acquire) <= 2,
        "local readers share a hold"
    );
    assert!(lock.try_write().await.expect("works").is_none());
    assert!(lock.try_read().await.expect("works").is_some());
    let other = store.keeper(LEASE).await.rwlock("x").expect("a name");
    assert!(other.try_read().await.expect("works").is_some());
    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.expect("writes") }
    });
    eventually("the writer waits", async || waiters(&keeper).await == 1).await;
    // A reader elsewhere does not overtake the waiting writer.
    assert!(other.try_read().await.expect("works").is_none());
    drop(readers);
    let writer = writer.await.expect("no panic");
    assert!(lock.read_within(MS(10)).await.expect("works").is_none());
    let reader = writer.downgrade().await.expect("downgraded");
    assert!(other.try_write().await.expect("works").is_none());
    assert!(other.try_read().await.expect("works").is_some());
    // Only a writer can be downgraded, which the compiler sees.
    let reader = Guard::from(reader);
    let reader = WriteGuard::try_from(reader).expect_err("it reads");
    let reader = ReadGuard::try_from(reader).expect("it reads");
    assert!(reader.is_held());
}

#[tokio::test]
async fn a_guard_converts_back_by_its_mode() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let lock = keeper.rwlock("x").expect("a name").as_owner(&Owner::new());
    let writer = Guard::from(lock.write().await.expect("writes"));
    let writer = ReadGuard::try_from(writer).expect_err("it writes");
    let writer = WriteGuard::try_from(writer).expect("it writes");
    // It reads what its owner writes: the hold is that of a writer.
    let inner = Guard::from(lock.read().await.expect("reads"));
    let inner = ReadGuard::try_from(inner).expect_err("its mode is that of the first entry");
    drop(writer);
    let inner = WriteGuard::try_from(inner).expect("it writes");
    assert!(inner.downgrade().await.expect("downgraded").is_held());
    let plain = keeper.lock("y").expect("a name").acquire().await;
    let plain = ReadGuard::try_from(plain.expect("acquired")).expect_err("no reader");
    assert!(WriteGuard::try_from(plain).is_err());
}

#[tokio::test]
async fn a_writer_elsewhere_gets_its_turn_among_local_readers() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.rwlock("x").expect("a name");
    let stop = Arc::<AtomicBool>::default();
    // Two readers that always overlap: without a gate the read hold would never end.
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (lock, stop) = (lock.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    let guard = lock.read().await.expect("reads");
                    tokio::time::sleep(MS(3)).await;
                    drop(guard);
                }
            })
        })
        .collect();
    let writer = store.keeper(LEASE).await.rwlock("x").expect("a name");
    let wrote = tokio::time::timeout(Duration::from_secs(20), writer.write()).await;
    wrote
        .expect("in time")
        .expect("writes")
        .release()
        .await
        .expect("released");
    stop.store(true, SeqCst);
    for reader in readers {
        reader.await.expect("no panic");
    }
}

#[tokio::test]
async fn upgrading_fails_at_once() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let lock = keeper.rwlock("x").expect("a name").as_owner(&Owner::new());
    let reader = lock.read().await.expect("reads");
    let again = lock.read().await.expect("reads again");
    assert!(matches!(
        lock.write().await,
        Err(Error::WouldDeadlock { .. })
    ));
    drop((reader, again));
    let writer = lock.write().await.expect("writes");
    let inner = lock.read().await.expect("a writer may read");
    assert_eq!(inner.token(), writer.token());
    let refused = writer.downgrade().await;
    assert!(
        matches!(refused, Err(Error::WouldDeadlock { .. })),
        "re-entered: {refused:?}"
    );
}

#[tokio::test]
async fn no_more_permits_than_there_are() {
    let store = Tampered::new();
    let inside = Arc::<AtomicU32>::default();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let keeper = store.keeper(LEASE).await;
        for i in 0..8 {
            let semaphore = keeper.semaphore("x", 3).expect("a name");
            let inside = inside.clone();
            running.spawn(async move {
                for _ in 0..10 {
                    let count = 1 + i % 3;
                    let guard = semaphore.acquire(count).await.expect("acquired");
                    assert!(inside.fetch_add(count, SeqCst) + count <= 3);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(count, SeqCst);
                    guard.release().await.expect("released");
                }
            });
        }
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
    let keeper = store.keeper(LEASE).await;
    assert!(keeper.semaphore("x", 0).is_err());
    let semaphore = keeper.semaphore("x", 3).expect("a name");
    for count in [0, 4] {
        assert!(matches!(
            semaphore.acquire(count).await,
            Err(Error::InvalidArgument { .. })
        ));
    }
}

#[tokio::test]
async fn multi_locks_in_opposite_order_do_not_deadlock() {
    let store = Tampered::new();
    let mut running = tokio::task::JoinSet::new();
    for names in [["a", "b", "c"], ["c", "b", "a"]] {
        let keeper = store.keeper(LEASE).await;
        running.spawn(async move {
            for _ in 0..50 {
                let multi = keeper.multi_lock(names).expect("names");
                let guard = multi.acquire().await.expect("acquired");
                assert!(guard.is_held());
                guard.release().await.expect("released");
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
}

#[tokio::test]
async fn multi_locks_take_all_or_nothing() {
    let store = Tampered::new();
    let (keeper, other) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let held = other
        .lock("b")
        .expect("a name")
        .acquire()
        .await
        .expect("acquired");
    let multi = keeper.multi_lock(["c", "a", "b", "a"]).expect("names");
    let names: Vec<_> = multi.names().map(|name| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(multi.try_acquire().await.expect("works").is_none());
    assert!(multi.acquire_within(MS(20)).await.expect("works").is_none());
    eventually("a is free again", async || {
        other
            .lock("a")
            .expect("a name")
            .try_acquire()
            .await
            .expect("works")
            .is_some()
    })
    .await;
    held.release().await.expect("released");
    assert!(multi.acquire().await.expect("acquired").is_held());
    assert!(keeper.multi_lock([]).is_err());
}

#[tokio::test]
async fn a_wait_for_a_latch_whose_store_is_away_says_so() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let latch = keeper.latch("x").expect("a name");
    assert!(latch.set(1).await.expect("set"));
    let late = latch.wait_within(MS(50)).await;
    assert_eq!(late, Ok(false), "the store says that it is closed");
    for away in [Fault::Refused, Fault::AnswerLost] {
        store.set(Verb::Other, Some(away));
        let late = latch.wait_within(MS(50)).await;
        assert!(matches!(late, Err(Error::Unavailable { .. })), "{late:?}");
    }
    store.set(Verb::Other, None);
    let late = latch.wait_within(MS(50)).await;
    assert_eq!(late, Ok(false));
}

#[tokio::test]
async fn latches_open_when_counted_down_elsewhere() {
    let store = Tampered::new();
    let (keeper, other) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let latch = keeper.latch("l").expect("a name");
    latch.wait().await.expect("one that was never set is open");
    assert!(latch.set(2).await.expect("set"));
    assert!(!latch.set(5).await.expect("closed already"));
    assert!(!latch.wait_within(MS(10)).await.expect("still closed"));
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let latch = latch.clone();
            tokio::spawn(async move { latch.wait().await })
        })
        .collect();
    let there = other.latch("l").expect("a name");
    assert_eq!(there.count_down().await, Ok(1));
    assert_eq!(there.count_down().await, Ok(0));
    assert_eq!(there.count_down().await, Ok(0));
    for waiter in waiters {
        waiter.await.expect("no panic").expect("opened");
    }
    assert!(latch.set(1).await.expect("set again"));
    assert!(there.open().await.expect("opened"));
}
