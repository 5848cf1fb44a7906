//! Readers and writers, permits, latches, and several kinds on one name.

use std::time::Duration;

use super::*;
use crate::common::{busy, claim, granted, open, release, until};
use lockkeeper::clock::Moment;
use lockkeeper::store::{Mode, Store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_reader_does_not_keep_a_writer_out() {
    let server = RedisServer::start();
    let (store, keeper) = (open(&server.url()).await, keeper(&server).await);
    let zombie = claim("book", Mode::Read).with_lease(Duration::from_millis(800));
    granted(&store, &zombie).await;
    let alive = keeper.rwlock("book").expect("a lock").read().await;
    let alive = alive.expect("reads");
    // The living reader's release must not wait for the zombie's hash entry, nor the writer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let_go(alive).await;
    let writer = keeper.rwlock("book").expect("a lock");
    let before = Moment::now();
    let writer = soon("the writer's turn", writer.write()).await;
    assert!(Moment::now().since(before) < Duration::from_secs(5));
    assert_eq!(release(&store, &zombie).await, Ok(false));
    let_go(writer.expect("writes")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_with_different_leases_end_each_by_its_own() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let reader = |lease| claim("book", Mode::Read).with_lease(lease);
    let (short, long) = (Duration::from_millis(600), Duration::from_secs(20));
    // Long first, then short: the key must not end with the short one. And the other way round.
    for leases in [[long, short], [short, long]] {
        let readers = leases.map(reader);
        for reader in &readers {
            granted(&store, reader).await;
        }
        tokio::time::sleep(short * 2).await;
        busy(&store, &claim("book", Mode::Write)).await;
        for reader in &readers {
            assert_eq!(release(&store, reader).await, Ok(reader.lease == long));
        }
        let writer = claim("book", Mode::Write);
        granted(&store, &writer).await;
        assert_eq!(release(&store, &writer).await, Ok(true));
    }
    // A writer that reads on keeps others out by the longer of the two.
    let writer = claim("book", Mode::Write).with_lease(short);
    granted(&store, &writer).await;
    let mut beside = claim("book", Mode::Read)
        .with_lease(long)
        .with_beside(Some(writer.id))
        .with_label(None);
    beside.id.keeper = writer.id.keeper;
    granted(&store, &beside).await;
    tokio::time::sleep(short * 2).await;
    busy(&store, &claim("book", Mode::Write)).await;
    let other = claim("book", Mode::Read);
    granted(&store, &other).await;
    assert_eq!(release(&store, &other).await, Ok(true));
    assert_eq!(release(&store, &beside).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_and_who_writes_is_told_and_can_be_broken() {
    let server = RedisServer::start();
    let keeper = keeper(&server).await;
    let book = keeper.rwlock("book").expect("a lock");
    let modes = async || {
        let info = keeper.inspect("book").await.expect("answers");
        let holders = info.map(|info| info.holders).unwrap_or_default();
        holders.iter().map(|holder| holder.mode).collect::<Vec<_>>()
    };
    let reader = book.read().await.expect("reads");
    assert_eq!(modes().await, [Mode::Read]);
    let_go(reader).await;
    let writer = book.write().await.expect("writes");
    assert_eq!(modes().await, [Mode::Write]);
    let reader = writer.downgrade().await.expect("reads on");
    assert_eq!(modes().await, [Mode::Read]);
    let ended = keeper.break_lock("book", "stuck").await.expect("breaks");
    assert_eq!(ended.len(), 1);
    soon("the loss", reader.lost()).await;
    assert!(modes().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_permit_wakes_a_waiter() {
    let server = RedisServer::start();
    let (store, keeper) = (open(&server.url()).await, keeper(&server).await);
    let lease = Duration::from_secs(2);
    let crashed = (claim("pool", Mode::Permit { limit: 1, count: 1 })).with_lease(lease);
    let before = Moment::now();
    granted(&store, &crashed).await;
    let pool = keeper.semaphore("pool", 1).expect("a semaphore");
    let guard = soon("a permit", pool.acquire(1)).await.expect("acquires");
    let took = Moment::now().since(before);
    assert!(
        took >= lease && took < lease + Duration::from_secs(3),
        "{took:?}"
    );
    assert_eq!(release(&store, &crashed).await, Ok(false));
    assert!(guard.is_held());
    let_go(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_taken_and_given_back_all_or_none() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let pool = one.semaphore("pool", 5).expect("a semaphore");
    let elsewhere = two.semaphore("pool", 5).expect("a semaphore");
    let three = pool.acquire(3).await.expect("acquires");
    assert!(elsewhere.try_acquire(3).await.expect("answers").is_none());
    let two_more = elsewhere.try_acquire(2).await.expect("answers");
    assert!(pool.try_acquire(1).await.expect("answers").is_none());
    assert_eq!(server.strings(&["GET", "pool"]), ["0"]);
    // A longer lease for what is held.
    three
        .extend(Duration::from_secs(120))
        .await
        .expect("extends");
    assert!(three.deadline().remaining() > Duration::from_secs(60));
    let waiter = tokio::spawn(async move { elsewhere.acquire(4).await });
    let_go(two_more.expect("free")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiter.is_finished(), "two are not four");
    let_go(three).await;
    let four = soon("four permits", waiter).await.expect("finishes");
    let_go(four.expect("acquires")).await;
    assert!(one.semaphore("none", 0).is_err());
    assert!(pool.try_acquire(6).await.is_err(), "there are five");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_times_out_lets_all_go_and_can_be_set_again() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let gate = one.latch("gate").expect("a latch");
    assert!(gate.set(2).await.expect("sets"));
    assert!(!gate.set(5).await.expect("answers"), "it is set already");
    let patience = Duration::from_millis(200);
    let before = Moment::now();
    assert!(!gate.wait_within(patience).await.expect("answers"));
    assert!(Moment::now().since(before) >= patience);
    let mut waiters = Vec::new();
    for keeper in [&one, &two, &two, &one, &two] {
        let gate = keeper.latch("gate").expect("a latch");
        waiters.push(tokio::spawn(async move { gate.wait().await }));
    }
    let elsewhere = two.latch("gate").expect("a latch");
    assert_eq!(elsewhere.count_down().await.expect("counts"), 1);
    assert_eq!(gate.count_down().await.expect("counts"), 0);
    for waiter in waiters {
        soon("the gate", waiter)
            .await
            .expect("finishes")
            .expect("waits");
    }
    assert_eq!(gate.count_down().await.expect("counts"), 0);
    // Again, and this time it is opened by decree.
    assert!(gate.set(3).await.expect("sets"));
    let waiter = tokio::spawn(async move { elsewhere.wait().await });
    assert!(gate.open().await.expect("opens"));
    soon("the gate", waiter)
        .await
        .expect("finishes")
        .expect("waits");
    until("nothing is left", async || server.keys().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_on_one_name_exclude_each_other() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let permit = Mode::Permit { limit: 2, count: 1 };
    let all = [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write, permit];
    for mode in all {
        let held = claim("mixed", mode);
        granted(&store, &held).await;
        for other in all {
            let shares = mode == other && matches!(mode, Mode::Read | Mode::Permit { .. });
            let wish = claim("mixed", other);
            match shares {
                true => {
                    granted(&store, &wish).await;
                    assert_eq!(release(&store, &wish).await, Ok(true));
                }
                false => drop(busy(&store, &wish).await),
            }
        }
        assert_eq!(release(&store, &held).await, Ok(true), "{mode}");
        let info = store.inspect(&held.name).await.expect("answers");
        assert!(info.is_none_or(|info| info.holders.is_empty()), "{mode}");
    }
}
