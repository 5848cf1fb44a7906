//! A lock over a quorum is a `RedissonRedLock` on the same nodes: in both directions.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Error, Lockkeeper, LossCause};
use lockkeeper_testkit::servers::independent::Independent;
use serde_json::json;

use crate::peer::{Object, Peer, java_over, rust_over};
use crate::site::*;

const NAME: &str = "job";

struct Quorum {
    peer: Peer,
    keeper: Lockkeeper,
    url: String,
    nodes: Independent,
}

impl Quorum {
    async fn start(nodes: usize, lease: Duration) -> Quorum {
        let nodes = Independent::start(nodes);
        // Nothing restarts here.
        let url = nodes.url_at_once("30s");
        let keeper = Lockkeeper::builder().url(&url).lease(lease);
        Quorum {
            peer: Peer::over(nodes.servers(), lease).await,
            keeper: keeper.connect().await.expect("connects"),
            url,
            nodes,
        }
    }

    fn java(&self) -> Object<'_> {
        self.peer.object("a", "red", NAME)
    }

    /// Redisson counts what it took on each node, so that nothing may be left on any.
    async fn is_free(&self) {
        until("it is free on every node", async || {
            self.nodes.count_key(NAME) == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_exclude_and_wake_each_other() {
    for nodes in [3, 5] {
        let quorum = Quorum::start(nodes, LEASE).await;
        let (java, lock) = (quorum.java(), quorum.keeper.lock(NAME).expect("a lock"));
        java.does("lock").await;
        assert!(lock.try_acquire().await.expect("answers").is_none());
        let mut waits = {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        };
        let early = tokio::time::timeout(A_WHILE, &mut waits).await;
        assert!(early.is_err(), "ours has to wait");
        let released = Moment::now();
        java.does("unlock").await;
        let guard = waits.await.expect("finishes").expect("acquires");
        let took = Moment::now().since(released);
        assert!(took < SOON, "{took:?}");

        assert!(!java.gets_it().await, "ours holds it");
        let mut waits = java.ask("lock", json!({}));
        assert!(waits.waits_for(A_WHILE).await);
        release(guard).await;
        // Redisson may be in a pause of its own making: it takes its locks one after the other.
        let got = tokio::time::timeout(3 * SOON, waits.value()).await;
        got.expect("let in");
        assert!(lock.try_acquire().await.expect("answers").is_none());
        java.does("unlock").await;
        quorum.is_free().await;
    }
}

/// A minority of either side's nodes does not matter to anyone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stays_out_while_the_other_holds_most_nodes() {
    let quorum = Quorum::start(5, LEASE).await;
    let (java, lock) = (quorum.java(), quorum.keeper.lock(NAME).expect("a lock"));
    java.does("lock").await;
    // It is forgotten by two, which vote at once: there is no quarantine here. The other three say no.
    for node in &quorum.nodes.servers()[..2] {
        node.command(&["DEL", NAME]);
    }
    assert!(lock.try_acquire().await.expect("answers").is_none());
    java.does("unlock").await;
    quorum.is_free().await;

    let guard = lock.acquire().await.expect("acquires");
    // Most were enough to acquire: the others may be later.
    until("every node keeps it", async || {
        quorum.nodes.count_key(NAME) == 5
    })
    .await;
    for node in &quorum.nodes.servers()[3..] {
        node.command(&["DEL", NAME]);
    }
    assert!(!java.gets_it().await, "ours holds most nodes");
    assert!(guard.is_held());
    release(guard).await;
    quorum.is_free().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ended_is_nobodys_and_a_late_release_frees_nothing() {
    let quorum = Quorum::start(3, LEASE).await;
    let (java, lock) = (quorum.java(), quorum.keeper.lock(NAME).expect("a lock"));
    let asked = Moment::now();
    java.does_with("lock", json!({ "lease": 2_000 })).await;
    let guard = lock.acquire().await.expect("acquires");
    let waited = Moment::now().since(asked);
    assert!(waited >= Duration::from_millis(1_900), "{waited:?}");
    // Most nodes were enough for us. By now the old lease is over on the last of them, too.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = quorum.nodes.count_key(NAME);
    // A lock of many says nothing when it holds none of them.
    java.does("unlock").await;
    assert!(before >= 2 && quorum.nodes.count_key(NAME) >= before);
    release(guard).await;

    let fixed = lock.fixed_lease(Duration::from_secs(2)).expect("a lease");
    let guard = fixed.acquire().await.expect("acquires");
    java.does("lock").await;
    assert!(!guard.is_held(), "we knew before Java could get it");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = quorum.nodes.count_key(NAME);
    match guard.release().await {
        Err(Error::Lost { cause, .. }) => assert_eq!(cause, LossCause::LeaseOver),
        other => panic!("its lease is over, not {other:?}"),
    }
    assert!(before >= 2 && quorum.nodes.count_key(NAME) >= before);
    java.does("unlock").await;
    quorum.is_free().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_in_nobodys_way() {
    let lease = Duration::from_secs(4);
    let mut quorum = Quorum::start(3, lease).await;
    quorum.java().does("lock").await;
    let lock = quorum.keeper.lock(NAME).expect("a lock");
    let killed = Moment::now();
    quorum.peer.kill();
    release(lock.acquire().await.expect("acquires")).await;
    let took = Moment::now().since(killed);
    assert!(took < SOME_TIME, "{took:?}");

    let arguments = ["hold", "--kind", "lock", "--name", NAME, "--lease", "4s"];
    let mut taker = rust_over(&quorum.url, &arguments);
    taker.expect("held");
    quorum.peer = Peer::over(quorum.nodes.servers(), lease).await;
    let java = quorum.java();
    let mut waiting = java.ask("lock", json!({}));
    assert!(waiting.waits_for(A_WHILE).await);
    let killed = Moment::now();
    taker.kill().expect("killed");
    waiting.value().await;
    let took = Moment::now().since(killed);
    assert!(took < SOME_TIME, "{took:?}");
    java.does("unlock").await;
    quorum.is_free().await;
}

/// A node that is gone is not missed: neither by the one that holds, nor by the one that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_go_on_without_a_node() {
    let mut quorum = Quorum::start(3, LEASE).await;
    quorum.nodes.server(2).kill();
    let (java, lock) = (quorum.java(), quorum.keeper.lock(NAME).expect("a lock"));
    let guard = lock.acquire().await.expect("acquires");
    let brief = json!({ "wait": 3_000, "lease": 20_000 });
    assert_eq!(java.does_with("tryLock", brief).await, false);
    release(guard).await;
    // Redisson gives a node that does not answer several seconds.
    let patient = json!({ "wait": 40_000, "lease": 60_000 });
    assert_eq!(java.does_with("tryLock", patient).await, true);
    assert!(lock.try_acquire().await.expect("answers").is_none());
}

/// Two processes a side add to one counter: reading, pausing and writing under the lock.
#[test]
fn no_update_is_lost_of_four_processes() {
    const ROUNDS: &str = "100";
    let nodes = Independent::start(3);
    let url = nodes.url_at_once("30s");
    let counter = nodes.servers()[0].url();
    let add = ["add", "--name", "total", "--rounds", ROUNDS];
    let add = [&add[..], &["--counter", "counter"]].concat();
    let theirs = [&add[..], &["--kind", "red", "--pause", "1"]].concat();
    let ours = ["--kind", "lock", "--pause", "1ms"];
    let ours = [&add[..], &ours, &["--counter-at", &counter]].concat();
    let mut takers = Vec::new();
    for _ in 0..2 {
        takers.push(java_over(nodes.servers(), &theirs));
        takers.push(rust_over(&url, &ours));
    }
    takers.iter().for_each(|taker| drop(taker.expect("ready")));
    for taker in &mut takers {
        taker.tell("go").expect("it listens");
    }
    for taker in &mut takers {
        assert_eq!(taker.expect("added"), ROUNDS);
        assert!(taker.wait().expect("it ends"), "it succeeds");
    }
    let counted = nodes.servers()[0].strings(&["GET", "counter"]);
    assert_eq!(counted, ["400"], "additions were lost");
}
