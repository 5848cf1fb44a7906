//! The second connection to each node, which the caller's runtime drives: what uses it, and how it ends.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::{LEASE, claim, is_granted, open, release, renew, until};
use crate::lanes::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Mode, NodeState, Renewed, Store};
use lockkeeper::{Lock, Lockkeeper, blocking};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::RedisServer;

/// Longer than any answer takes, even here.
const PATIENT: &str = "120s&node_timeout=10s";
/// Nodes are behind soon, and their connections stay.
const HASTY: &str = "120s&node_timeout=500ms&response_timeout=10s";

/// Our connections to a node: their ids, what each said last, and whether it is a lane, which hears nothing.
fn ours(node: &RedisServer) -> Vec<(String, String, bool)> {
    let clients = node.command(&["CLIENT", "LIST"]);
    let ours = clients.lines().filter(|line| line.contains(" resp=3"));
    let word = |line: &str, key: &str| {
        let mut words = line.split(' ');
        words.find_map(|word| word.strip_prefix(key).map(str::to_owned))
    };
    let connection = |line| Some((word(line, "id=")?, word(line, "cmd=")?, word(line, "sub=")?));
    let ours = ours.filter_map(|line| connection(line.trim_start_matches("txt:")));
    ours.map(|(id, last, sub)| (id, last, sub == "0")).collect()
}

fn is_lane_used(node: &RedisServer) -> bool {
    let ours = ours(node);
    let scripts = ours.iter().filter(|(_, last, _)| last == "evalsha");
    ours.len() == 2 && scripts.clone().count() == 1 && scripts.clone().all(|(.., lane)| *lane)
}

/// Waits until lanes carry what tasks ask these nodes.
async fn lanes_are_used(keeper: &Lockkeeper, nodes: &[RedisServer]) {
    until("there are lanes, and they are used", async || {
        let Ok(guard) = keeper.lock("warm-up").expect("a lock").acquire().await else {
            return false;
        };
        let _ = guard.release().await;
        nodes.iter().all(is_lane_used)
    })
    .await;
}

async fn give_lanes(keeper: &Lockkeeper, nodes: &Independent) {
    for _ in 0..MANY {
        pair(keeper, "warm-up").await;
    }
    lanes_are_used(keeper, nodes.servers()).await;
}

async fn with_lanes(url: &str, nodes: &Independent) -> Lockkeeper {
    let keeper = keeper(url).await;
    give_lanes(&keeper, nodes).await;
    keeper
}

fn kill_lane(node: &RedisServer) {
    for (id, ..) in ours(node).iter().filter(|(.., lane)| *lane) {
        node.command(&["CLIENT", "KILL", "ID", id]);
    }
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
async fn who_asks_often_gets_a_lane_to_every_node_and_leaves_none() {
    let nodes = Independent::start(3);
    for dialect in ["redisson", "plain"] {
        let url = nodes.url_at_once(&format!("{PATIENT}&dialect={dialect}&prefix={dialect}:"));
        let seldom = keeper(&url).await;
        pair(&seldom, "seldom").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(nodes.servers().iter().all(|node| ours(node).len() == 1));
        drop(seldom);
        let gone = async || nodes.servers().iter().all(|node| ours(node).is_empty());
        until("no connection is left", gone).await;
        let keeper = with_lanes(&url, &nodes).await;
        keeper.close().await;
        drop(keeper);
        until("no connection is left", gone).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_drops_a_guard_finds_it_released() {
    let nodes = Independent::start(3);
    let keeper = with_lanes(&nodes.url_at_once(PATIENT), &nodes).await;
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
    let keeper = with_lanes(&nodes.url_at_once(PATIENT), &nodes).await;
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
async fn a_lane_that_breaks_under_a_request_is_in_doubt_and_comes_back() {
    let nodes = Independent::start(3);
    let keeper = with_lanes(&nodes.url_at_once(PATIENT), &nodes).await;
    for node in nodes.servers() {
        node.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    }
    let lock = keeper.lock("in doubt").expect("a lock");
    let lock = lock.with_lease(Duration::from_secs(100)).expect("a lease");
    let asked = tokio::spawn(async move { lock.try_acquire().await.map(|guard| guard.is_some()) });
    for node in nodes.servers() {
        let waits = async || node.info("blocked_clients").as_deref().map(str::trim) == Some("1");
        until("the request is there", waits).await;
        kill_lane(node);
    }
    let answer = tokio::time::timeout(Duration::from_secs(8), asked).await;
    let answer = answer.expect("sooner than a node may take").expect("ends");
    assert!(answer.is_err(), "{answer:?}");
    // The main connections are as they were, or its nodes would be down.
    all_are_up(&keeper).await;
    for node in nodes.servers() {
        node.command(&["CLIENT", "UNPAUSE"]);
    }
    until("nothing is left", async || nodes.count_key("in doubt") == 0).await;
    lanes_are_used(&keeper, nodes.servers()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarted_empty_sits_out_although_it_had_a_lane() {
    let mut nodes = Independent::start(3);
    let longest = Duration::from_secs(4);
    nodes.wait_out_quarantine(longest);
    let keeper = with_lanes(&nodes.url("4s&node_timeout=2s"), &nodes).await;
    tokio::task::block_in_place(|| nodes.server(1).restart_empty());
    let sits_out = |keeper: &Lockkeeper| matches!(states(keeper)[1], NodeState::SittingOut { .. });
    until("it sits out", async || {
        // What is lost with the old connections it is told of later, also while it sits out.
        pair(&keeper, "in between").await;
        sits_out(&keeper)
    })
    .await;
    // Neither over the old lane nor over a new one.
    let mut pairs = 0;
    while sits_out(&keeper) {
        pair(&keeper, "meanwhile").await;
        pairs += 1;
        let keys = nodes.servers()[1].keys();
        let asked = keys.iter().any(|key| key.contains("meanwhile"));
        assert!(!asked || !sits_out(&keeper), "it was asked: {keys:?}");
    }
    assert!(pairs > MANY, "it was not asked for long enough: {pairs}");
    lanes_are_used(&keeper, nodes.servers()).await;
    until("it votes again", async || {
        pair(&keeper, "afterwards").await;
        let keys = nodes.servers()[1].keys();
        keys.iter().any(|key| key.contains("afterwards"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_is_behind_on_both_connections() {
    let nodes = Independent::start(3);
    let keeper = with_lanes(&nodes.url_at_once(HASTY), &nodes).await;
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
    lanes_are_used(&keeper, nodes.servers()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_lane_ends_while_it_is_behind_comes_back() {
    let nodes = Independent::start(3);
    let keeper = with_lanes(&nodes.url_at_once(HASTY), &nodes).await;
    let node = &nodes.servers()[2];
    node.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    until("it is behind", async || {
        pair(&keeper, "first").await;
        states(&keeper)[2] == NodeState::Behind
    })
    .await;
    kill_lane(node);
    node.command(&["CLIENT", "UNPAUSE"]);
    all_are_up(&keeper).await;
    lanes_are_used(&keeper, nodes.servers()).await;
    until("nothing is left", async || nodes.count_key("first") == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtime_keeps_its_locks_and_its_requests() {
    let nodes = Independent::start(3);
    let keeper = with_lanes(&nodes.url_at_once(HASTY), &nodes).await;
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
    lanes_are_used(&keeper, nodes.servers()).await;
}

#[test]
fn threads_that_block_need_no_runtime() {
    in_time(|| {
        let nodes = Independent::start(3);
        let keeper = blocking::Lockkeeper::connect(&nodes.url_at_once(PATIENT)).expect("connects");
        let runtime = runtime(2);
        runtime.block_on(give_lanes(keeper.asynchronous(), &nodes));
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
        let url = nodes.url_at_once("120s&node_timeout=500ms&response_timeout=1s");
        let runtime = runtime(2);
        let keeper = runtime.block_on(with_lanes(&url, &nodes));
        let asks = keeper.clone();
        on_all_threads(&runtime, 2, move |number| {
            let lock = asks.lock(&format!("{number}")).expect("a lock");
            let guard = block_on(lock.acquire()).expect("acquires");
            // In doubt, as with nodes that are silent.
            if let Err(error) = block_on(guard.release()) {
                assert!(error.is_transient(), "{error}");
            }
        });
        runtime.block_on(async {
            let left = async || nodes.count_key("0") + nodes.count_key("1") == 0;
            until("they are let go of", left).await;
            lanes_are_used(&keeper, nodes.servers()).await;
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
        let keeper = runtime.block_on(with_lanes(&url, &nodes));
        for number in 0..4 {
            let lock = keeper.lock(&format!("ends {number}")).expect("a lock");
            let lock = lock.with_lease(Duration::from_secs(100)).expect("a lease");
            runtime.spawn(async move {
                // In doubt once the lanes have ended.
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
    let keeper = with_lanes(&nodes.url_at_once(PATIENT), &nodes).await;
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

/// What nobody reads on the lanes does not count against what keeps the locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_runtime_with_much_under_way_keeps_its_locks() {
    let nodes = Independent::start(3);
    let keeper = with_lanes(&nodes.url_at_once(HASTY), &nodes).await;
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

/// A renewal is under way when its hold is released, and finds it gone. What it sends then is on the main connections, and
/// must not come before a release that is still on a lane.
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
            until("there are lanes, and they are used", async || {
                let warm_up = claim("warm-up", Mode::Exclusive);
                assert!(is_granted(&store, &warm_up).await);
                assert_eq!(release(&store, &warm_up).await, Ok(true));
                nodes.servers().iter().all(is_lane_used)
            })
            .await;
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
            assert_eq!(renews.await.expect("ends"), Ok(Renewed::NotHeld));
            slow.heal();
            let was_held = releases.await.expect("ends");
            assert_eq!(was_held, Ok(true), "{dialect}");
            assert_eq!(nodes.count_key("held"), 1, "the other's");
        });
    }
}
