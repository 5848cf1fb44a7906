//! Callers on runtimes that are blocked, or end: what drives the connection is the keeper's own thread.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::until;
use lockkeeper::blocking;
use lockkeeper::clock::Moment;
use lockkeeper_testkit::servers::redis::RedisServer;
use tokio::runtime::Builder;

#[path = "../support/runtimes.rs"]
mod support;

use support::*;

/// How many connections of ours a server has.
fn ours(server: &RedisServer) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]);
    clients
        .lines()
        .filter(|line| line.contains(" resp=3"))
        .count()
}

/// Whether a lock is held, as its key says.
fn is_held(server: &RedisServer, name: &str) -> bool {
    server.command(&["EXISTS", name]) == ":1\r\n"
}

fn blocks_until(what: &str, check: impl Fn() -> bool) {
    let end = Moment::now() + Duration::from_secs(20);
    while !check() {
        assert!(Moment::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_has_one_connection_however_often_it_asks() {
    let server = RedisServer::start();
    for dialect in ["redisson", "plain"] {
        let url = format!("{}?dialect={dialect}", server.url());
        let keeper = keeper(&url).await;
        for _ in 0..10 * MANY {
            pair(&keeper, "often").await;
        }
        assert_eq!(ours(&server), 1);
        keeper.close().await;
        drop(keeper);
        until("no connection is left", async || ours(&server) == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtime_keeps_its_locks_and_its_requests() {
    let server = RedisServer::start();
    let url = format!("{}?response_timeout=1s", server.url());
    let keeper = keeper(&url).await;
    let guard = keeper.lock("kept").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let lock = keeper.lock("asked for").expect("a lock");
    let mut asked = Box::pin(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    // Else the answer may be there before it is looked for.
    server.pause();
    assert!(asked.as_mut().poll(&mut context).is_pending());
    server.resume();
    // Longer than the lease and the time-out.
    let end = block_both_threads(Duration::from_secs(5));
    while Moment::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        assert!(is_held(&server, "kept"));
        assert!(guard.is_held());
    }
    let other = asked.await.expect("what was asked for before is answered");
    other.release().await.expect("releases");
    guard.release().await.expect("releases");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_guard_is_released_while_the_runtime_is_blocked() {
    let server = RedisServer::start();
    let keeper = keeper(&server.url()).await;
    let lock = keeper.lock("dropped").expect("a lock");
    let lock = lock.with_lease(Duration::from_secs(300)).expect("a lease");
    let guard = lock.acquire().await.expect("acquires");
    assert!(is_held(&server, "dropped"));
    let (block, blocked) = std::sync::mpsc::channel();
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let block = block.clone();
            tokio::spawn(async move {
                block.send(()).expect("somebody waits");
                let _ = ends.recv();
            });
            end
        })
        .collect();
    for _ in 0..2 {
        blocked.recv().expect("both threads are blocked");
    }
    drop(guard);
    blocks_until("it is released", || !is_held(&server, "dropped"));
    drop(ends);
}

#[test]
fn threads_that_block_need_no_runtime() {
    in_time(|| {
        let server = RedisServer::start();
        let keeper = blocking::Lockkeeper::connect(&server.url()).expect("connects");
        let runtime = runtime(2);
        runtime.block_on(pair(keeper.asynchronous(), "first"));
        on_all_threads(&runtime, 2, move |number| {
            let guard = keeper.lock(&format!("{number}")).expect("a lock").acquire();
            guard.expect("acquires").release().expect("releases");
        });
    });
}

#[test]
fn a_task_may_block_the_only_thread_of_its_runtime() {
    in_time(|| {
        let server = RedisServer::start();
        let current = Builder::new_current_thread().enable_all().build();
        for runtime in [runtime(1), current.expect("a runtime")] {
            let url = server.url();
            let blocks = runtime.spawn(async move {
                let keeper = keeper(&url).await;
                for _ in 0..MANY {
                    pair(&keeper, "often").await;
                }
                // Far more than a task may do before it has to yield, which it cannot do here.
                for _ in 0..10 * MANY {
                    block_on(pair(&keeper, "often"));
                }
            });
            runtime.block_on(blocks).expect("finishes");
        }
    });
}

#[test]
fn tasks_may_block_all_threads_of_their_runtime() {
    in_time(|| {
        // Two go out by themselves, and more go out together, or wait for that.
        for threads in [2, 6] {
            let server = RedisServer::start();
            let runtime = runtime(threads);
            let keeper = runtime.block_on(keeper(&server.url()));
            for round in 0..2 {
                let asks = keeper.clone();
                on_all_threads(&runtime, threads, move |number| {
                    let lock = asks.lock(&format!("{round} {number}")).expect("a lock");
                    let guard = block_on(lock.acquire()).expect("acquires");
                    block_on(guard.release()).expect("releases");
                });
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_drops_a_guard_finds_it_released() {
    let server = RedisServer::start();
    let keeper = keeper(&server.url()).await;
    let fair = keeper.lock("in order").expect("a lock").fair();
    let fair = fair.expect("fair");
    for round in 0..200 {
        let guard = fair.try_acquire().await.expect("answers");
        assert!(guard.is_some(), "overtook the release in round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawal_does_not_overtake_the_try_it_undoes() {
    for dialect in ["redisson", "plain"] {
        let server = RedisServer::start();
        let url = format!("{}?dialect={dialect}&response_timeout=8s", server.url());
        let keeper = keeper(&url).await;
        let lock = keeper.lock("cancelled").expect("a lock");
        let lock = lock.with_lease(Duration::from_secs(300)).expect("a lease");
        server.pause();
        let cancelled = tokio::time::timeout(Duration::from_millis(200), lock.acquire()).await;
        assert!(cancelled.is_err(), "the server does nothing");
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.resume();
        pair(&keeper, "second").await;
        // Much sooner than the engine withdraws once more.
        let end = Moment::now() + Duration::from_secs(5);
        while is_held(&server, "cancelled") {
            assert!(Moment::now() < end, "the try came after its withdrawal");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn a_keeper_outlives_the_runtime_it_was_made_in() {
    let server = RedisServer::start();
    let first = runtime(2);
    let builder = blocking::Lockkeeper::builder().url(&server.url());
    let builder = builder.lease(Duration::from_secs(2));
    let threads = builder.connect_blocking().expect("connects");
    let keeper = threads.asynchronous();
    let guard = first.block_on(async {
        let guard = keeper.lock("kept").expect("a lock").acquire().await;
        // Asked for by a task that ends with its runtime.
        let lock = keeper.lock("begun").expect("a lock");
        tokio::spawn(async move { lock.acquire().await.map(|_guard| ()) });
        guard.expect("acquires")
    });
    drop(first);
    runtime(2).block_on(async {
        for _ in 0..MANY {
            pair(keeper, "another runtime").await;
            pair(keeper, "begun").await;
        }
        // Longer than the lease.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(guard.is_held());
        guard.release().await.expect("releases");
    });
    for _ in 0..MANY {
        let guard = threads.lock("a thread").expect("a lock").acquire();
        guard.expect("acquires").release().expect("releases");
    }
    assert_eq!(ours(&server), 1);
    drop(threads);
    blocks_until("no connection is left", || ours(&server) == 0);
}
