//! Exclusion, re-entry, leases and renewal of plain locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use super::*;
use crate::common::until;
use lockkeeper::clock::Moment;
use lockkeeper::{Error, LossCause, Owner};

/// Clients that each add one under the lock, so often. A lost update shows in the sum.
async fn crowd(clients: u32, rounds: u32) {
    let server = RedisServer::start();
    let sum = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (keeper, sum) = (keeper(&server).await, sum.clone());
        tasks.push(tokio::spawn(async move {
            let lock = keeper.lock("crowd").expect("a lock");
            for _ in 0..rounds {
                let guard = lock.acquire().await.expect("acquires");
                let before = sum.load(SeqCst);
                tokio::task::yield_now().await;
                sum.store(before + 1, SeqCst);
                let_go(guard).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("finishes");
    }
    assert_eq!(sum.load(SeqCst), clients * rounds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_sixteen_clients_and_a_hundred_exclude_each_other() {
    crowd(1, 100).await;
    crowd(16, 100).await;
    crowd(100, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_contenders_one_wins_and_has_the_highest_token() {
    let server = RedisServer::start();
    let mut highest = None;
    for _ in 0..10 {
        let mut tasks = Vec::new();
        for _ in 0..10 {
            let keeper = keeper(&server).await;
            tasks.push(tokio::spawn(async move {
                let lock = keeper.lock("winner").expect("a lock");
                lock.try_acquire().await.expect("answers")
            }));
        }
        let mut won = Vec::new();
        for task in tasks {
            won.extend(task.await.expect("finishes"));
        }
        assert_eq!(won.len(), 1);
        let winner = won.remove(0);
        assert!(Some(winner.token()) > highest);
        highest = Some(winner.token());
        let_go(winner).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_re_enters_and_nobody_else_does() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let owner = Owner::new();
    let lock = one.lock("nested").expect("a lock").as_owner(&owner);
    let outer = lock.acquire().await.expect("acquires");
    let inner = lock.try_acquire().await.expect("answers").expect("own");
    assert_eq!((inner.depth(), inner.token()), (2, outer.token()));
    // A second lock object is the same lock.
    let same = one.lock("nested").expect("a lock").as_owner(&owner);
    let third = same.try_acquire().await.expect("answers").expect("own");
    assert_eq!(third.depth(), 3);
    let elsewhere = two.lock("nested").expect("a lock");
    assert!(elsewhere.try_acquire().await.expect("answers").is_none());
    let info = two.inspect("nested").await.expect("answers");
    assert_eq!(info.expect("held").holders.len(), 1);
    for (guard, left) in [(third, 2), (inner, 1)] {
        let outcome = guard.release().await.expect("answers");
        assert_eq!(outcome, ReleaseOutcome::StillHeld { depth: left });
        assert!(elsewhere.try_acquire().await.expect("answers").is_none());
    }
    let_go(outer).await;
    assert!(elsewhere.try_acquire().await.expect("answers").is_some());
}

/// A task without an owner cannot re-enter, through whatever lock object, and is not stuck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_owner_a_second_acquire_is_refused() {
    let server = RedisServer::start();
    let keeper = keeper(&server).await;
    let guard = keeper.lock("once").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    for lock in [keeper.lock("once"), keeper.lock("once")] {
        let lock = lock.expect("a lock");
        assert!(lock.try_acquire().await.expect("answers").is_none());
        let patience = Duration::from_millis(30);
        let fair = lock.fair().expect("a lock");
        assert!(
            fair.acquire_within(patience)
                .await
                .expect("answers")
                .is_none()
        );
    }
    let_go(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entering_again_does_not_stretch_the_lease() {
    let server = RedisServer::start();
    let keeper = keeper(&server).await;
    let lock = keeper
        .lock("nested")
        .expect("a lock")
        .as_owner(&Owner::new());
    let lock = lock.fixed_lease(Duration::from_secs(40)).expect("a lease");
    let outer = lock.acquire().await.expect("acquires");
    let inner = lock.acquire().await.expect("acquires");
    assert!(
        ttl(&server, "nested") <= 40_000,
        "Redisson's writer has 80 s here"
    );
    drop(inner);
    let_go(outer).await;
    // And the next hold has its own lease, not one of before.
    let short = keeper.lock("nested").expect("a lock");
    let short = short.fixed_lease(Duration::from_secs(10)).expect("a lease");
    let guard = short.acquire().await.expect("acquires");
    assert!(ttl(&server, "nested") <= 10_000);
    let_go(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_goes_to_the_waiter_in_time() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let lease = Duration::from_secs(1);
    let lock = one.lock("ends").expect("a lock").fixed_lease(lease);
    let before = Moment::now();
    let guard = lock.expect("a lease").acquire().await.expect("acquires");
    let lock = two.lock("ends").expect("a lock");
    let next = soon("the next hold", lock.acquire())
        .await
        .expect("acquires");
    let took = Moment::now().since(before);
    assert!(took >= lease && took < Duration::from_secs(5), "{took:?}");
    let outcome = guard.release().await;
    let Err(Error::Lost {
        cause: LossCause::LeaseOver,
        now_held_by: Some(holder),
        ..
    }) = outcome
    else {
        panic!("it was over, and somebody has it, not {outcome:?}");
    };
    assert_eq!(holder.pid, std::process::id());
    assert!(next.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_holder_keeps_it_for_ten_leases() {
    let server = RedisServer::start();
    // A machine that stands still for as long as this ends it, rightly.
    let lease = Duration::from_secs(2);
    let holder = keeper_at(&server.url(), lease).await;
    let other = keeper_at(&server.url(), lease).await;
    let book = holder.rwlock("book").expect("a lock");
    let pool = holder.semaphore("pool", 1).expect("a semaphore");
    let mut guards = vec![
        holder.lock("lock").expect("a lock").acquire().await,
        book.write().await.map(Guard::from),
        pool.acquire(1).await,
    ];
    let end = Moment::now() + lease * 10;
    while Moment::now() < end {
        tokio::time::sleep(lease / 2).await;
        let lock = other.lock("lock").expect("a lock");
        assert!(lock.try_acquire().await.expect("answers").is_none());
        let book = other.rwlock("book").expect("a lock");
        assert!(book.try_read().await.expect("answers").is_none());
        let pool = other.semaphore("pool", 1).expect("a semaphore");
        assert!(pool.try_acquire(1).await.expect("answers").is_none());
    }
    for guard in guards.drain(..) {
        let_go(guard.expect("acquires")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_locking_does_not_stop_a_later_renewal() {
    let server = RedisServer::start();
    let lease = Duration::from_secs(1);
    let keeper = keeper_at(&server.url(), lease).await;
    let owner = Owner::new();
    let lock = keeper.lock("nested").expect("a lock").as_owner(&owner);
    for _ in 0..3 {
        let outer = lock.acquire().await.expect("acquires");
        drop(lock.acquire().await.expect("acquires"));
        let_go(outer).await;
    }
    let outer = lock.acquire().await.expect("acquires");
    drop(lock.acquire().await.expect("acquires"));
    tokio::time::sleep(lease * 3).await;
    assert!(outer.is_held());
    let_go(outer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_locks_are_renewed_in_few_requests() {
    let server = RedisServer::start();
    // A machine that stalls for most of a second still renews them.
    let lease = Duration::from_secs(3);
    let keeper = keeper_at(&server.url(), lease).await;
    let mut guards = Vec::new();
    for number in 0..300 {
        let lock = keeper.lock(&format!("many {number}")).expect("a lock");
        guards.push(lock.acquire().await.expect("acquires"));
    }
    let before = server.calls_of("evalsha");
    tokio::time::sleep(lease * 3).await;
    let sent = server.calls_of("evalsha") - before;
    assert!(guards.iter().all(Guard::is_held));
    // Nine rounds of 300 by then, 64 in a request. A round split in two by its start costs twice that.
    assert!((9..200).contains(&sent), "{sent} requests");
    for guard in guards {
        let_go(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_at_most_three_seconds_takes_three_seconds() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let guard = one.lock("busy").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let patience = Duration::from_secs(3);
    let before = Moment::now();
    let lock = two.lock("busy").expect("a lock");
    let fair = lock.fair().expect("a lock");
    let (plain, fair) = tokio::join!(lock.acquire_within(patience), fair.acquire_within(patience));
    let took = Moment::now().since(before);
    assert!(plain.expect("answers").is_none() && fair.expect("answers").is_none());
    assert!(
        took >= patience && took < patience + Duration::from_secs(2),
        "{took:?}"
    );
    until("nobody waits", async || {
        let info = one.inspect("busy").await.expect("answers");
        info.is_some_and(|info| info.waiters == 0)
    })
    .await;
    let_go(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_lock_is_lost_and_watched() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let watch = two.watch("broken").await.expect("watches");
    let guard = one.lock("broken").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    soon("it was seen to be taken", watch.hint()).await;
    two.break_lock("broken", "stuck").await.expect("breaks");
    soon("the loss", guard.lost()).await;
    soon("it was seen to be broken", watch.hint()).await;
    assert!(!guard.is_held());
    assert!(matches!(guard.extend(SOON).await, Err(Error::Lost { .. })));
}
