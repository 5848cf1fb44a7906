//! The second connection, which the caller's runtime drives: what uses it, what must not, and how it ends.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::until;
use lockkeeper::clock::Moment;
use lockkeeper::{HandOff, Lockkeeper, blocking};
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::replicated::Replicated;

/// More verbs than a runtime asks for before it gets a lane.
const MANY: usize = 20;

async fn keeper(url: &str) -> Lockkeeper {
    let builder = Lockkeeper::builder().url(url).hand_off(HandOff::OFF);
    let builder = builder.lease(Duration::from_secs(2));
    builder.connect().await.expect("connects")
}

async fn pair(keeper: &Lockkeeper, name: &str) {
    let guard = keeper.lock(name).expect("a lock").acquire().await;
    let released = guard.expect("acquires").release().await;
    released.expect("releases");
}

/// Our connections to a server, and the last command of each.
fn ours(server: &RedisServer) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]);
    let ours = clients.lines().filter(|line| line.contains(" resp=3"));
    let last = ours.filter_map(|line| line.split_once(" cmd=")?.1.split_once(' '));
    last.map(|(last, _)| last.to_owned()).collect()
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

/// Polls once what nobody waits for then.
fn begin(future: impl Future) {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
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

#[tokio::test]
async fn a_blocked_runtime_keeps_its_locks_and_its_requests() {
    let server = RedisServer::start();
    let url = format!("{}?response_timeout=1s", server.url());
    let keeper = with_lane(&url, &server).await;
    let guard = keeper.lock("kept").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let lock = keeper.lock("asked for").expect("a lock");
    let mut asked = Box::pin(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    // Longer than the lease and the time-out.
    let end = Moment::now() + Duration::from_secs(5);
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

#[tokio::test]
async fn a_dropped_guard_is_released_while_the_runtime_is_blocked() {
    let server = RedisServer::start();
    let keeper = with_lane(&server.url(), &server).await;
    let lock = keeper.lock("dropped").expect("a lock");
    let lock = lock.ttl(Duration::from_secs(300)).expect("a lease");
    let guard = lock.acquire().await.expect("acquires");
    assert!(is_held(&server, "dropped"));
    drop(guard);
    blocks_until("it is released", || !is_held(&server, "dropped"));
}

#[tokio::test]
async fn threads_that_block_need_no_runtime() {
    let server = RedisServer::start();
    let keeper = blocking::Lockkeeper::connect(&server.url()).expect("connects");
    give_lane(keeper.asynchronous(), &server).await;
    // On the thread that would drive the lane.
    let guard = keeper.lock("blocking").expect("a lock").acquire();
    let released = guard.expect("acquires").release();
    released.expect("releases");
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

#[tokio::test]
async fn a_withdrawal_does_not_overtake_the_try_it_undoes() {
    let server = RedisServer::start();
    for dialect in ["redisson", "plain"] {
        let url = format!("{}?dialect={dialect}", server.url());
        let keeper = with_lane(&url, &server).await;
        let name = format!("cancelled {dialect}");
        let lock = keeper
            .lock(&name)
            .expect("a lock")
            .ttl(Duration::from_secs(30));
        let lock = lock.expect("a lease");
        begin(lock.acquire());
        // The try is on its way out of this runtime, which does not go on; the keeper's thread does.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!is_held(&server, &name));
        let later = Moment::now() + Duration::from_secs(1);
        let mut seen_free = Moment::now();
        while Moment::now() < later {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if !is_held(&server, &name) {
                seen_free = Moment::now();
            }
        }
        assert!(
            Moment::now().since(seen_free) < Duration::from_millis(500),
            "the try came after its withdrawal, and is held"
        );
    }
}

#[test]
fn a_keeper_outlives_the_runtime_it_was_made_in() {
    let server = RedisServer::start();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all();
        builder.build().expect("a runtime")
    };
    let first = runtime();
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
    runtime().block_on(async {
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
