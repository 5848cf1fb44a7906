//! Both sides on one cluster, where they wake each other through sharded channels.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper_testkit::servers::redis_cluster::RedisCluster;
use lockkeeper_testkit::servers::wire::Listener;
use serde_json::json;

use crate::peer::Peer;
use crate::site::*;

struct Site {
    // First, so that clients end before their servers.
    peer: Peer,
    keeper: Lockkeeper,
    cluster: RedisCluster,
}

impl Site {
    async fn start() -> Site {
        let cluster = tokio::task::block_in_place(RedisCluster::start);
        let keeper = Lockkeeper::builder().url(&cluster.url()).lease(LEASE);
        Site {
            peer: Peer::in_cluster(&cluster.ports(), LEASE).await,
            keeper: keeper.connect().await.expect("connects"),
            cluster,
        }
    }

    /// How many listen to the sharded channels of Redisson's that start like this.
    fn listeners(&self, channel: &str) -> usize {
        let port = self.cluster.master_of(channel);
        let ask = |parts: &[&str]| self.cluster.strings(port, parts);
        let mut found = ask(&["PUBSUB", "SHARDCHANNELS"]);
        found.retain(|one| one.starts_with(channel));
        let count = |channel: &String| ask(&["PUBSUB", "SHARDNUMSUB", channel]).pop();
        let counts = found.iter().filter_map(count);
        counts.map(|n| n.parse::<usize>().expect("a number")).sum()
    }

    /// Somebody waits, and listens to a sharded channel of Redisson's and to no other.
    async fn listens(&self, channel: &str, many: usize) {
        until("it listens to the sharded channel", async || {
            self.listeners(channel) >= many
        })
        .await;
        let ask = ["PUBSUB", "CHANNELS", "redisson*"];
        let others = self.cluster.each(|server| server.strings(&ask)).concat();
        assert!(others.is_empty(), "{others:?}");
        // A new subscription makes a waiter look once more; then it sleeps.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// Hears what either side publishes there.
    fn hear(&self, channel: &str) -> Listener {
        self.cluster.listen_sharded(channel)
    }

    /// Neither keys but tokens, nor channels.
    async fn nothing_is_left(&self) {
        let end = Moment::now() + Duration::from_secs(20);
        loop {
            let left = self.cluster.each(|server| {
                let mut left = server.keys();
                left.retain(|key| !key.starts_with("redisson_lock_token:"));
                for kind in ["CHANNELS", "SHARDCHANNELS"] {
                    left.extend(server.strings(&["PUBSUB", kind]));
                }
                // Each of our clients has one channel for as long as it is there; those of a name have braces.
                left.retain(|one| !one.starts_with("lockkeeper_wake:") || one.contains('{'));
                left
            });
            let left = left.concat();
            if left.is_empty() {
                return;
            }
            assert!(Moment::now() < end, "{left:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn told(hears: &mut Listener, message: &str, who: &str) {
    let heard = hears.next(SOON);
    assert_eq!(heard.as_deref(), Some(message), "{who}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_the_other_side_through_a_sharded_channel() {
    let site = Site::start().await;
    // A writer that leaves says 1, so that all readers come.
    for (kind, says, ours, we_say, channel) in [
        (
            "lock",
            "0",
            Ours::Lock,
            "0",
            "redisson_lock__channel:{shared}",
        ),
        ("write", "1", Ours::Read, "0", "redisson_rwlock:{shared}"),
        ("read", "0", Ours::Write, "1", "redisson_rwlock:{shared}"),
    ] {
        let java = site.peer.object("a", kind, "shared");
        java.does("lock").await;
        let keeper = site.keeper.clone();
        let waiter = tokio::spawn(async move { ours.acquire(&keeper, "shared").await });
        site.listens(channel, 1).await;
        assert!(!waiter.is_finished(), "{kind}: both have it");
        let mut hears = site.hear(channel);
        java.does("unlock").await;
        told(&mut hears, says, "Java");
        let guard = tokio::time::timeout(SOON, waiter).await;
        let guard = guard.unwrap_or_else(|_| panic!("{kind}: ours is not woken"));
        let mut waits = java.ask("lock", json!({}));
        // The listener above is one of them.
        site.listens(channel, 2).await;
        assert!(waits.waits_for(A_WHILE).await);
        release(guard.expect("finishes")).await;
        told(&mut hears, we_say, "ours");
        let woken = tokio::time::timeout(SOON, waits.value()).await;
        woken.unwrap_or_else(|_| panic!("{kind}: Java is not woken"));
        java.does("unlock").await;
        drop(hears);
        site.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_stand_in_one_fair_line() {
    let site = Site::start().await;
    let port = site.cluster.master_of("line");
    let in_line = async |many: &str| {
        until("it is in the line", async || {
            let length = ["LLEN", "redisson_lock_queue:{line}"];
            site.cluster.strings(port, &length) == [many]
        })
        .await;
    };
    let (first, second) = (
        site.peer.object("a", "fair", "line"),
        site.peer.object("b", "fair", "line"),
    );
    first.does("lock").await;
    let ours = |keeper: Lockkeeper| async move { Ours::Fair.acquire(&keeper, "line").await };
    // Ours, Java, ours.
    let one = tokio::spawn(ours(site.keeper.clone()));
    in_line("1").await;
    let mut waits = second.ask("lock", json!({}));
    in_line("2").await;
    let three = tokio::spawn(ours(site.keeper.clone()));
    in_line("3").await;
    site.listens("redisson_lock__channel:{line}:", 1).await;
    first.does("unlock").await;
    let guard = tokio::time::timeout(SOON, one).await.expect("woken");
    assert!(waits.waits_for(A_WHILE).await);
    release(guard.expect("finishes")).await;
    tokio::time::timeout(SOON, waits.value())
        .await
        .expect("woken");
    assert!(!three.is_finished());
    second.does("unlock").await;
    let guard = tokio::time::timeout(SOON, three).await.expect("woken");
    release(guard.expect("finishes")).await;
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_and_tokens_are_shared() {
    let site = Site::start().await;
    let gate = site.peer.object("a", "latch", "gate");
    let ours = site.keeper.latch("gate").expect("a latch");
    let channel = "redisson_countdownlatch__channel__{gate}";
    for java_opens in [true, false] {
        match java_opens {
            true => assert!(ours.set(2).await.expect("answers")),
            false => {
                let set = gate.does_with("trySetCount", json!({ "count": 2 }));
                assert_eq!(set.await, true);
            }
        }
        let mut hears = site.hear(channel);
        let mut awaits = site
            .peer
            .object("b", "latch", "gate")
            .ask("await", json!({}));
        let latch = ours.clone();
        let waits = tokio::spawn(async move { latch.wait().await });
        site.listens(channel, 3).await;
        match java_opens {
            true => drop(ours.count_down().await.expect("answers")),
            false => drop(gate.does("countDown").await),
        }
        assert!(awaits.waits_for(A_WHILE).await);
        assert!(!waits.is_finished());
        match java_opens {
            true => drop(gate.does("countDown").await),
            false => drop(ours.count_down().await.expect("answers")),
        }
        told(&mut hears, "0", "who opens it");
        let opened = tokio::time::timeout(SOON, waits).await.expect("in time");
        opened.expect("finishes").expect("opens");
        let opened = tokio::time::timeout(SOON, awaits.value()).await;
        opened.expect("in time");
    }
    let java = site.peer.object("a", "fenced", "safe");
    let mut last = 0;
    for _ in 0..3 {
        let token = java.does("lockAndGetToken").await.as_u64();
        assert!(token > Some(last), "{token:?} after {last}");
        last = token.expect("a token");
        java.does("unlock").await;
        let guard = Ours::Lock.acquire(&site.keeper, "safe").await;
        assert!(guard.token().get() > last);
        last = guard.token().get();
        assert_eq!(java.does("getToken").await, last);
        release(guard).await;
    }
    site.nothing_is_left().await;
}
