//! The second connection, which the caller's runtime drives: what uses it, what must not, and how it ends.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{open, until};
use crate::lanes::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::{Lockkeeper, blocking};
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::replicated::Replicated;
use tokio::runtime::Builder;

/// Our connections to a server, and the last command of each.
fn ours(server: &RedisServer) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]);
    let ours = clients.lines().filter(|line| line.contains(" resp=3"));
    let last = ours.filter_map(|line| line.split_once(" cmd=")?.1.split_once(' '));
    last.map(|(last, _)| last.to_owned()).collect()
}

/// As a keeper does, with a runtime of its own for it: tasks of others that ask often get a lane.
pub async fn open_apart(url: &str) -> RedisStore {
    // It ends with the process.
    let runtime = Box::leak(Box::new(runtime(1)));
    let url = url.to_owned();
    let opened = runtime.spawn(async move { open(&url).await });
    opened.await.expect("it runs")
}

/// A keeper whose runtime has a lane.
async fn with_lane(url: &str, server: &RedisServer) -> Lockkeeper {
    let keeper = keeper(url).await;
    give_lane(&keeper, server).await;
    keeper
}

async fn give_lane(keeper: &Lockkeeper, server: &RedisServer) {
    for _ in 0..MANY {
        pair(keeper, "warm-up").await;
    }
    lane_is_used(keeper, server).await;
}

/// Waits until a second connection carries what tasks ask for.
async fn lane_is_used(keeper: &Lockkeeper, server: &RedisServer) {
    until("there is a lane, and it is used", async || {
        let Ok(guard) = keeper.lock("warm-up").expect("a lock").acquire().await else {
            return false;
        };
        let _ = guard.release().await;
        // The main connection says nothing but PING then.
        let ours = ours(server);
        ours.len() == 2 && ours.iter().filter(|last| *last == "evalsha").count() == 1
    })
    .await;
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
async fn who_asks_often_gets_a_second_connection_and_leaves_none() {
    let server = RedisServer::start();
    for dialect in ["redisson", "plain"] {
        let url = format!("{}?dialect={dialect}", server.url());
        let seldom = keeper(&url).await;
        pair(&seldom, "seldom").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(ours(&server).len(), 1);
        seldom.close().await;
        drop(seldom);
        until("no connection is left", async || ours(&server).is_empty()).await;
        let keeper = with_lane(&url, &server).await;
        keeper.close().await;
        drop(keeper);
        until("no connection is left", async || ours(&server).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtime_keeps_its_locks_and_its_requests() {
    let server = RedisServer::start();
    let url = format!("{}?response_timeout=1s", server.url());
    let keeper = with_lane(&url, &server).await;
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
    lane_is_used(&keeper, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_guard_is_released_while_the_runtime_is_blocked() {
    let server = RedisServer::start();
    let keeper = with_lane(&server.url(), &server).await;
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
        runtime.block_on(give_lane(keeper.asynchronous(), &server));
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
            let url = format!("{}?response_timeout=1s", server.url());
            let runtime = runtime(threads);
            let keeper = runtime.block_on(with_lane(&url, &server));
            for round in 0..2 {
                let asks = keeper.clone();
                on_all_threads(&runtime, threads, move |number| {
                    let lock = asks.lock(&format!("{round} {number}")).expect("a lock");
                    let guard = block_on(lock.acquire()).expect("acquires");
                    // In doubt, as with a server that is silent.
                    if let Err(error) = block_on(guard.release()) {
                        assert!(error.is_transient(), "{error}");
                    }
                });
                for number in 0..threads {
                    let name = format!("{round} {number}");
                    blocks_until("it is let go of", || !is_held(&server, &name));
                }
                runtime.block_on(lane_is_used(&keeper, &server));
            }
        }
    });
}

#[test]
fn a_lane_needs_no_timers() {
    let server = RedisServer::start();
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_io().build();
    let runtime = runtime.expect("a runtime");
    let keeper = runtime.block_on(keeper(&server.url()));
    blocks_until("there is a lane, and it is used", || {
        runtime.block_on(pair(&keeper, "no timers"));
        let ours = ours(&server);
        ours.len() == 2 && ours.iter().filter(|last| *last == "evalsha").count() == 1
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_drops_a_guard_finds_it_released() {
    let server = RedisServer::start();
    let keeper = with_lane(&server.url(), &server).await;
    let fair = keeper.lock("in order").expect("a lock").fair();
    let fair = fair.expect("fair");
    for round in 0..200 {
        let guard = fair.try_acquire().await.expect("answers");
        assert!(guard.is_some(), "overtook the release in round {round}");
    }
}

/// Among many there always is one whose release is under way on the main connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_never_pause_get_to_the_lane_as_well() {
    let server = RedisServer::start();
    let keeper = keeper(&server.url()).await;
    let mut all = tokio::task::JoinSet::new();
    for number in 0..64 {
        let keeper = keeper.clone();
        all.spawn(async move {
            loop {
                // As names of a cluster that are to be together.
                pair(&keeper, &format!("{{busy}} {number}")).await;
            }
        });
    }
    let mut in_a_row = 0;
    until("nothing but the lane is used", async || {
        let ours = ours(&server);
        // In the order in which they came.
        in_a_row = match &ours[..] {
            [main, lane] if main == "ping" && lane == "evalsha" => in_a_row + 1,
            _ => 0,
        };
        in_a_row == 20
    })
    .await;
    all.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_withdrawal_does_not_overtake_the_try_it_undoes() {
    for dialect in ["redisson", "plain"] {
        let server = RedisServer::start();
        let url = format!("{}?dialect={dialect}&response_timeout=8s", server.url());
        let keeper = with_lane(&url, &server).await;
        let lock = keeper.lock("cancelled").expect("a lock");
        let lock = lock.with_lease(Duration::from_secs(300)).expect("a lease");
        server.pause();
        // A server reads first from whom it first heard: from the main connection.
        let looks = tokio::spawn({
            let keeper = keeper.clone();
            async move { keeper.inspect("first").await }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let cancelled = tokio::time::timeout(Duration::from_millis(200), lock.acquire()).await;
        assert!(cancelled.is_err(), "the server does nothing");
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.resume();
        looks.await.expect("finishes").expect("answers");
        // It goes the way of the try, and comes after it.
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
    first.block_on(give_lane(keeper, &server));
    let guard = first.block_on(async {
        let guard = keeper.lock("kept").expect("a lock").acquire().await;
        // Asked for by a task that ends with its runtime.
        let lock = keeper.lock("begun").expect("a lock");
        tokio::spawn(async move { lock.acquire().await.map(|_guard| ()) });
        guard.expect("acquires")
    });
    drop(first);
    blocks_until("the lane has ended", || ours(&server).len() == 1);
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
    // There is nobody to drive a lane.
    assert_eq!(ours(&server).len(), 1);
    drop(threads);
    blocks_until("no connection is left", || ours(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_comes_back() {
    let mut server = RedisServer::start();
    let keeper = with_lane(&server.url(), &server).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    lane_is_used(&keeper, &server).await;
    tokio::task::block_in_place(|| server.restart());
    lane_is_used(&keeper, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_follows_a_fail_over() {
    let servers = tokio::task::block_in_place(Replicated::with_sentinels);
    let old = tokio::task::block_in_place(|| servers.master());
    let keeper = with_lane(&servers.url(), &servers.servers()[old]).await;
    let new = tokio::task::block_in_place(|| servers.fail_over());
    assert_ne!(old, new);
    lane_is_used(&keeper, &servers.servers()[new]).await;
    assert!(ours(&servers.servers()[old]).is_empty());
}
