//! Callers on runtimes that are blocked, or end: what drives the connections to the nodes is the keeper's own thread.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{LEASE, claim, is_granted, open, release, renew, until};
use lockkeeper::clock::Moment;
use lockkeeper::store::{Mode, NodeState, Renewed, Store};
use lockkeeper::{Lock, Lockkeeper, blocking};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::RedisServer;

#[path = "../support/runtimes.rs"]
mod support;

use support::*;

/// Longer than any answer takes, even here.
const PATIENT: &str = "120s&node_timeout=10s";
/// Nodes are behind soon, and their connections stay.
const HASTY: &str = "120s&node_timeout=500ms&response_timeout=10s";

/// How many connections of ours a node has.
fn ours(node: &RedisServer) -> usize {
    let clients = node.command(&["CLIENT", "LIST"]);
    clients
        .lines()
        .filter(|line| line.contains(" resp=3"))
        .count()
}

/// Begins to acquire, and drops it: with answers of none, some and all nodes, by the round.
async fn begin_to_acquire(lock: &Lock, round: u32, pause: Duration) {
    let mut context = Context::from_waker(Waker::noop());
    let mut acquire = Box::pin(lock.acquire());
    let mut left = round % 4;
    while left > 0 && acquire.as_mut().poll(&mut context).is_pending() {
        left -= 1;
        tokio::time::sleep(pause * (round % 7)).await;
    }
}

fn states(keeper: &Lockkeeper) -> Vec<NodeState> {
    let nodes = keeper.nodes().into_iter();
    nodes.map(|status| status.state).collect()
}

async fn all_are_up(keeper: &Lockkeeper) {
    until("all are up", async || {
        states(keeper).iter().all(|state| *state == NodeState::Up)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_has_one_connection_to_a_node_however_often_it_asks() {
    let nodes = Independent::start(3);
    for dialect in ["redisson", "plain"] {
        let url = nodes.url_at_once(&format!("{PATIENT}&dialect={dialect}&prefix={dialect}:"));
        let keeper = keeper(&url).await;
        for _ in 0..10 * MANY {
            pair(&keeper, "often").await;
        }
        assert!(nodes.servers().iter().all(|node| ours(node) == 1));
        keeper.close().await;
        drop(keeper);
        let gone = async || nodes.servers().iter().all(|node| ours(node) == 0);
        until("no connection is left", gone).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_drops_a_guard_finds_it_released() {
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once(PATIENT)).await;
    // With a lease of its own each try is the store's to decide.
    let lock = keeper.lock("in order").expect("a lock");
    let lock = lock.fixed_lease(Duration::from_secs(100)).expect("a lease");
    for round in 0..200 {
        let guard = lock.try_acquire().await.expect("answers");
        assert!(guard.is_some(), "overtook the release in round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_anywhere_leaves_nothing() {
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once(PATIENT)).await;
    let lock = keeper.lock("cancelled").expect("a lock");
    let lock = lock.with_lease(Duration::from_secs(100)).expect("a lease");
    let mut context = Context::from_waker(Waker::noop());
    for round in 0..300_u32 {
        begin_to_acquire(&lock, round, Duration::from_micros(60)).await;
        if round % 3 == 0 {
            // Also a release that nobody waits for.
            let guard = lock.acquire().await.expect("acquires");
            let mut release = Box::pin(guard.release());
            let _ = release.as_mut().poll(&mut context);
        }
    }
    until("nothing is left", async || {
        nodes.count_key("cancelled") == 0
    })
    .await;
    // Not even something that is under way.
    keeper.close().await;
    assert_eq!(nodes.count_key("cancelled"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_is_asked_nothing_until_it_answers() {
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once(HASTY)).await;
    nodes.servers()[2].pause();
    until("it is behind", async || {
        pair(&keeper, "first").await;
        states(&keeper)[2] == NodeState::Behind
    })
    .await;
    for _ in 0..100 {
        pair(&keeper, "more").await;
    }
    let before = states(&keeper)[2].clone();
    nodes.servers()[2].resume();
    assert_eq!(before, NodeState::Behind);
    all_are_up(&keeper).await;
    until("nothing is left", async || {
        nodes.count_key("first") + nodes.count_key("more") == 0
    })
    .await;
    let keys = nodes.servers()[2].keys();
    let asked = keys.iter().any(|key| key.contains("more"));
    assert!(!asked, "it was asked: {keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtime_keeps_its_locks_and_its_requests() {
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once(HASTY)).await;
    let guard = keeper.lock("kept").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let lock = keeper.lock("asked for").expect("a lock");
    let lock = lock.with_lease(Duration::from_secs(100)).expect("a lease");
    let mut asked = Box::pin(lock.try_acquire());
    let mut context = Context::from_waker(Waker::noop());
    // Else the answers may be there before they are looked for.
    nodes.servers().iter().for_each(RedisServer::pause);
    assert!(asked.as_mut().poll(&mut context).is_pending());
    // Longer than the lease, and than a node may take.
    let end = block_both_threads(Duration::from_secs(4));
    nodes.servers().iter().for_each(RedisServer::resume);
    while Moment::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        assert!(guard.is_held());
    }
    let other = asked.await.expect("what was asked for before is answered");
    let other = other.expect("nobody else has it");
    other.release().await.expect("releases");
    guard.release().await.expect("releases");
}

#[test]
fn threads_that_block_need_no_runtime() {
    in_time(|| {
        let nodes = Independent::start(3);
        let keeper = blocking::Lockkeeper::connect(&nodes.url_at_once(PATIENT)).expect("connects");
        let runtime = runtime(2);
        runtime.block_on(pair(keeper.asynchronous(), "first"));
        on_all_threads(&runtime, 2, move |number| {
            let guard = keeper.lock(&format!("{number}")).expect("a lock").acquire();
            guard.expect("acquires").release().expect("releases");
        });
    });
}

#[test]
fn tasks_may_block_all_threads_of_their_runtime() {
    in_time(|| {
        let nodes = Independent::start(3);
        let runtime = runtime(2);
        let keeper = runtime.block_on(keeper(&nodes.url_at_once(PATIENT)));
        on_all_threads(&runtime, 2, move |number| {
            let lock = keeper.lock(&format!("{number}")).expect("a lock");
            let guard = block_on(lock.acquire()).expect("acquires");
            block_on(guard.release()).expect("releases");
        });
    });
}

/// A runtime that ends in the middle of what its tasks ask leaves nothing, and the keeper goes on.
#[test]
fn a_runtime_that_ends_under_a_request_leaves_nothing() {
    let after = runtime(2);
    for round in 0..5_u64 {
        let nodes = Independent::start(3);
        let url = nodes.url_at_once(PATIENT);
        let runtime = runtime(2);
        let keeper = runtime.block_on(keeper(&url));
        for number in 0..4 {
            let lock = keeper.lock(&format!("ends {number}")).expect("a lock");
            let lock = lock.with_lease(Duration::from_secs(100)).expect("a lease");
            runtime.spawn(async move {
                while let Ok(guard) = lock.acquire().await {
                    let _ = guard.release().await;
                }
            });
        }
        std::thread::sleep(Duration::from_millis(20 + round));
        drop(runtime);
        after.block_on(async {
            for number in 0..4 {
                let lock = keeper.lock(&format!("ends {number}")).expect("a lock");
                let guard = lock.acquire_within(Duration::from_secs(20)).await;
                let guard = guard.expect("works").expect("it is let go of");
                guard.release().await.expect("releases");
            }
            all_are_up(&keeper).await;
            keeper.close().await;
        });
        after.block_on(until("nothing is left", async || {
            (0..4).all(|number| nodes.count_key(&format!("ends {number}")) == 0)
        }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_its_scripts_is_told_them_again() {
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once(PATIENT)).await;
    let lock = keeper.lock("forgotten").expect("a lock");
    let lock = lock.with_lease(Duration::from_secs(100)).expect("a lease");
    let forget = || {
        for node in nodes.servers() {
            node.command(&["SCRIPT", "FLUSH"]);
        }
    };
    for round in 0..60 {
        forget();
        begin_to_acquire(&lock, round, Duration::from_micros(100)).await;
        let guard = lock.acquire_within(Duration::from_secs(20)).await;
        let guard = guard.expect("works").expect("nothing is left in the way");
        forget();
        guard.release().await.expect("releases");
    }
    // The last node may be told after the majority has answered.
    until("nothing is left", async || {
        nodes.count_key("forgotten") == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtime_with_much_under_way_keeps_its_locks() {
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once(HASTY)).await;
    // A busy machine has the nodes paused for longer than the keeper's usual lease.
    let lease = Duration::from_secs(10);
    let lock = keeper.lock("kept").expect("a lock").with_lease(lease);
    let guard = lock.expect("a lease").acquire().await.expect("acquires");
    let locks: Vec<_> = (0..5_000)
        .map(|number| keeper.lock(&format!("{number}")).expect("a lock"))
        .collect();
    let mut context = Context::from_waker(Waker::noop());
    nodes.servers().iter().for_each(RedisServer::pause);
    let asked: Vec<_> = locks
        .iter()
        .map(|lock| {
            let mut asked = Box::pin(tokio::task::unconstrained(lock.try_acquire()));
            let _ = asked.as_mut().poll(&mut context);
            asked
        })
        .collect();
    // Longer than the lease.
    let end = block_both_threads(lease + Duration::from_secs(2));
    nodes.servers().iter().for_each(RedisServer::resume);
    while Moment::now() < end {
        std::thread::sleep(Duration::from_millis(50));
        assert!(guard.is_held());
    }
    drop(asked);
    // All that is taken back now may keep the nodes busy for longer than they have.
    if let Err(error) = guard.release().await {
        assert!(error.is_transient(), "{error}");
    }
    until("nothing is left", async || nodes.count_key("kept") == 0).await;
    all_are_up(&keeper).await;
}

/// A renewal is under way when its hold is released, and finds it gone. What it sends then must not come before the release.
#[test]
fn a_renewal_that_meets_the_release_does_not_make_it_a_loss() {
    // As with a keeper: the runtime that renews is not the one that releases.
    let (callers, keepers) = (runtime(2), runtime(1));
    for dialect in ["redisson", "plain"] {
        let nodes = Independent::start(3);
        let [first, second, third] = nodes.servers() else {
            panic!("there are three");
        };
        let slow = Proxy::to(second.port());
        let url = Independent::url_of([first.port(), slow.port(), third.port()]);
        let url = format!("{url}?quarantine=off&max_lease={PATIENT}&dialect={dialect}");
        let store = Arc::new(keepers.block_on(open(&url)));
        callers.block_on(async {
            // Just a majority has it.
            third.command(&["SET", "held", "by another"]);
            let held = claim("held", Mode::Exclusive);
            assert!(is_granted(&store, &held).await);
            store.settled().await;
            slow.hold_after("held", 0);
            let (of, what) = (store.clone(), held.clone());
            let releases = tokio::spawn(async move { release(&of, &what).await });
            until(
                "the first node let go, and the second has yet to hear of it",
                async || slow.stopped() > 0 && first.command(&["EXISTS", "held"]).contains(":0"),
            )
            .await;
            let of = store.clone();
            let renews = keepers.spawn(async move {
                let renewed = renew(&of, &held, LEASE).await;
                // What it sent has come when this is answered.
                of.inspect(&held.name).await.expect("answers");
                renewed
            });
            slow.heal();
            assert_eq!(renews.await.expect("ends"), Ok(Renewed::NotHeld));
            let was_held = releases.await.expect("ends");
            assert_eq!(was_held, Ok(true), "{dialect}");
            assert_eq!(nodes.count_key("held"), 1, "the other's");
        });
    }
}
