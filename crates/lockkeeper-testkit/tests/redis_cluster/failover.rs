//! Masters that are killed under those who hold and wait.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Mode, Renewed, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::redis_cluster::{ClusterOptions, RedisCluster};

use crate::common::*;

/// A cluster whose replicas take over soon, but not because the machine was busy for a moment.
async fn quick() -> RedisCluster {
    let start = || {
        RedisCluster::start_with(ClusterOptions {
            node_timeout: Duration::from_secs(4),
            ..ClusterOptions::default()
        })
    };
    tokio::task::spawn_blocking(start).await.expect("a cluster")
}

/// Two names on different masters.
fn apart(cluster: &RedisCluster) -> (String, String) {
    let first = cluster.master_of("here");
    let mut others = (0..).map(|number| format!("there{number}"));
    let other = others.find(|name| cluster.master_of(name) != first);
    ("here".into(), other.expect("there is one"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_its_own_slots_a_while_and_the_others_nothing() {
    let cluster = quick().await;
    let url = format!("{}?response_timeout=1s", cluster.url());
    let (one, two) = (open(&url).await, open(&url).await);
    let (here, there) = apart(&cluster);
    let held = claim(&here, Mode::Exclusive);
    let grant = granted(&one, &held).await;
    let elsewhere = claim(&there, Mode::Exclusive);
    granted(&one, &elsewhere).await;
    let next = waiting(&here, Mode::Exclusive);
    let subscription = subscribe(&two, &next).await;
    busy(&two, &next).await;
    tokio::task::block_in_place(|| cluster.wait_until_copied(&here));
    let old = cluster.kill_master_of(&here);
    let renewals = [&held, &elsewhere].map(renewal);
    // The other master's slots go on, in the same batch. That of the dead one is unknown, until a replica serves it.
    let renewed = one.renew(&renewals).await.expect("a part answers");
    assert_eq!(renewed[1], Renewed::Renewed);
    assert_ne!(renewed[0], Renewed::NotHeld);
    until("its names are unavailable", async || {
        let answer = one.try_acquire(&claim(&here, Mode::Exclusive)).await;
        matches!(answer, Err(Error::Unavailable { .. }))
    })
    .await;
    let new = tokio::task::block_in_place(|| cluster.successor_of(&here, old));
    until("the new master renews", async || {
        matches!(one.renew(&renewals).await, Ok(answers) if answers == [Renewed::Renewed; 2])
    })
    .await;
    // The waiter is told to look, is still in the line, and has its channel at the new master.
    let told = tokio::time::timeout(Duration::from_secs(20), subscription.hint());
    assert!(told.await.is_ok(), "it is told to look");
    until("its channel is at the new master", async || {
        let channels = cluster.strings(new, &["PUBSUB", "SHARDCHANNELS"]);
        channels
            .iter()
            .any(|channel| channel.starts_with("lockkeeper_wake:{here}"))
    })
    .await;
    busy(&two, &next).await;
    assert_eq!(release(&one, &held).await, Ok(true));
    let later = granted(&two, &next).await;
    assert!(later.token > grant.token);
    assert_eq!(release(&two, &next).await, Ok(true));
    // The old master comes back as a replica, which nobody asks.
    tokio::task::block_in_place(|| {
        cluster.revive(old);
        cluster.wait_until_ok();
    });
    let again = granted(&one, &claim(&here, Mode::Exclusive)).await;
    assert!(again.token > later.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keepers_go_on_when_a_replica_has_taken_over() {
    let cluster = quick().await;
    let keeper = async || {
        let url = format!("{}?response_timeout=1s", cluster.url());
        let builder = Lockkeeper::builder()
            .url(&url)
            .lease(Duration::from_secs(30));
        builder.connect().await.expect("connects")
    };
    let (one, two) = (keeper().await, keeper().await);
    let guard = one.lock("here").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let token = guard.token();
    let lock = two.lock("here").expect("a lock");
    let waiter = tokio::spawn(async move {
        let guard = lock.acquire().await?;
        let token = guard.token();
        guard.release().await.map(|_| token)
    });
    until("it waits", async || {
        let info = one.inspect("here").await.expect("answers");
        info.is_some_and(|info| info.waiters == 1)
    })
    .await;
    tokio::task::block_in_place(|| cluster.wait_until_copied("here"));
    let killed = Moment::now();
    let old = cluster.kill_master_of("here");
    until("its names are unavailable", async || {
        matches!(one.inspect("here").await, Err(Error::Unavailable { .. }))
    })
    .await;
    tokio::task::block_in_place(|| cluster.successor_of("here", old));
    assert!(guard.is_held(), "its lease goes on");
    until("the holder can let go", async || {
        one.inspect("here").await.is_ok()
    })
    .await;
    guard.release().await.expect("releases");
    let later = tokio::time::timeout(Duration::from_secs(30), waiter).await;
    let later = later
        .expect("in time")
        .expect("finishes")
        .expect("acquires");
    assert!(later > token, "tokens grow");
    let took = Moment::now().since(killed);
    assert!(took < Duration::from_secs(60), "{took:?}");
}
