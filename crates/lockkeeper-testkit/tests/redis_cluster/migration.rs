//! Slots that move to another master while locks in them are held, waited for and renewed.

use std::sync::LazyLock;
use std::time::Duration;

use lockkeeper::store::{Attempt, Mode, Renewed, Store};
use lockkeeper::{Error, HandOff, Lockkeeper};
use lockkeeper_testkit::servers::redis_cluster::RedisCluster;

use crate::common::*;
use crate::prefix;

/// The cluster of these tests, one at a time.
static MOVING: LazyLock<RedisCluster> = LazyLock::new(RedisCluster::start);
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn moving() -> (&'static RedisCluster, tokio::sync::MutexGuard<'static, ()>) {
    let started = tokio::task::spawn_blocking(|| LazyLock::force(&MOVING));
    (started.await.expect("a cluster"), TURN.lock().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_and_its_line_move_with_their_slot() {
    let (cluster, _turn) = moving().await;
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}", cluster.url());
    let (one, two) = (open(&url).await, open(&url).await);
    for mode in [
        Mode::Exclusive,
        Mode::Fair,
        Mode::Permit { limit: 1, count: 1 },
    ] {
        let text = format!("moved{mode}");
        let key = format!("{prefix}{text}");
        let held = claim(&text, mode);
        let grant = granted(&one, &held).await;
        let next = waiting(&text, mode);
        let subscription = subscribe(&two, &next).await;
        busy(&two, &next).await;
        let before = cluster.errors("MOVED");
        let to = cluster.migrate_slot_of(&key);
        assert_eq!(cluster.master_of(&key), to);
        assert_eq!(
            one.renew(&[renewal(&held)]).await,
            Ok(vec![Renewed::Renewed])
        );
        assert!(
            cluster.errors("MOVED") > before,
            "it was sent to the new master"
        );
        // Its old channel went with the slot. It is told to look again, and hears hints from the new node.
        let wake = format!("lockkeeper_wake:{{{key}}}");
        until("its channel is at the new node", async || {
            let channels = cluster.strings(to, &["PUBSUB", "SHARDCHANNELS"]);
            channels.iter().any(|channel| channel.starts_with(&wake))
        })
        .await;
        busy(&two, &next).await;
        while tokio::time::timeout(Duration::from_millis(300), subscription.hint())
            .await
            .is_ok()
        {}
        assert_eq!(release(&one, &held).await, Ok(true));
        let hint = tokio::time::timeout(Duration::from_secs(20), subscription.hint());
        assert!(
            hint.await.is_ok(),
            "{mode}: the hint comes from the new node"
        );
        let later = granted(&two, &next).await;
        assert!(later.token > grant.token);
        assert_eq!(release(&two, &next).await, Ok(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_is_split_its_locks_wait_and_nothing_runs_half() {
    let (cluster, _turn) = moving().await;
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}&response_timeout=500ms", cluster.url());
    let store = open(&url).await;
    let key = format!("{prefix}split");
    let held = claim("split", Mode::Exclusive);
    let grant = granted(&store, &held).await;
    let migration = cluster.begin_migration(&key);
    migration.move_key(&key);
    let before = cluster.errors("TRYAGAIN");
    // The hash is there, the record is here: no node can say anything.
    for answer in [
        store
            .try_acquire(&claim("split", Mode::Exclusive))
            .await
            .map(|_| ()),
        store.renew(&[renewal(&held)]).await.map(|_| ()),
        release(&store, &held).await.map(|_| ()),
        store.inspect(&name("split")).await.map(|_| ()),
    ] {
        match answer {
            Err(Error::Unavailable { reason, .. }) => {
                assert!(reason.contains("moving"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(cluster.errors("TRYAGAIN") > before, "it was tried");
    // A client that waits long enough gets its answer when the slot has arrived.
    let patient = open(&format!(
        "{}?prefix={prefix}&response_timeout=10s",
        cluster.url()
    ))
    .await;
    let wanted = claim("split", Mode::Exclusive);
    let waits = tokio::spawn(async move { patient.try_acquire(&wanted).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    migration.finish();
    let answer = waits.await.expect("finishes");
    assert!(matches!(answer, Ok(Attempt::Busy { .. })), "{answer:?}");
    assert_eq!(
        store.renew(&[renewal(&held)]).await,
        Ok(vec![Renewed::Renewed])
    );
    assert_eq!(release(&store, &held).await, Ok(true));
    let next = granted(&store, &claim("split", Mode::Exclusive)).await;
    assert!(next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_every_key_a_script_names_does_not_run_it_half() {
    let (cluster, _turn) = moving().await;
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}&response_timeout=500ms", cluster.url());
    let store = open(&url).await;
    // A fair waiter: the name, its record, both lines and the token are all there.
    let held = claim("half", Mode::Fair);
    granted(&store, &held).await;
    let next = waiting("half", Mode::Fair);
    let _subscription = subscribe(&store, &next).await;
    busy(&store, &next).await;
    let migration = cluster.begin_migration(&format!("{prefix}half"));
    match release(&store, &held).await {
        Err(Error::Unavailable { reason, .. }) => assert!(reason.contains("moving"), "{reason}"),
        other => panic!("it may not have run: {other:?}"),
    }
    migration.finish();
    assert_eq!(
        release(&store, &held).await,
        Ok(true),
        "nothing was changed"
    );
    granted(&store, &next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_arrived_is_asked_for_at_the_new_node() {
    let (cluster, _turn) = moving().await;
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}&dialect=plain", cluster.url());
    let store = open(&url).await;
    let key = format!("{prefix}asked");
    let held = claim("asked", Mode::Exclusive);
    let grant = granted(&store, &held).await;
    let migration = cluster.begin_migration(&key);
    while migration.move_keys(10) > 0 {}
    let before = cluster.errors("ASK");
    assert_eq!(
        store.renew(&[renewal(&held)]).await,
        Ok(vec![Renewed::Renewed])
    );
    let other = store.try_acquire(&claim("asked", Mode::Exclusive)).await;
    assert!(matches!(other, Ok(Attempt::Busy { .. })), "{other:?}");
    assert_eq!(release(&store, &held).await, Ok(true));
    assert!(
        cluster.errors("ASK") >= before + 3,
        "it was sent there each time"
    );
    migration.finish();
    let next = granted(&store, &claim("asked", Mode::Exclusive)).await;
    assert!(next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keepers_exclude_each_other_while_their_slot_moves_round() {
    let (cluster, _turn) = moving().await;
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}", cluster.url());
    let key = format!("{prefix}round");
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut workers = Vec::new();
    for _ in 0..3 {
        let builder = Lockkeeper::builder().url(&url).hand_off(HandOff::OFF);
        let keeper = builder.connect().await.expect("connects");
        let (inside, stopped) = (inside.clone(), stopped.clone());
        workers.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            while !*stopped.borrow() {
                let guard = keeper.lock("round").expect("a lock").acquire().await;
                let guard = guard.expect("acquires");
                let others = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                assert_eq!(others, 0, "two are inside");
                tokens.push(guard.token());
                tokio::time::sleep(Duration::from_millis(2)).await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                // While the slot is split this may have to be left to the lease.
                let _ = guard.release().await;
            }
            tokens
        }));
    }
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| cluster.migrate_slot_of(&key));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.send_replace(true);
    let mut all = Vec::new();
    for worker in workers {
        let tokens = worker.await.expect("finishes");
        assert!(tokens.len() > 5, "each has its turns: {}", tokens.len());
        assert!(tokens.is_sorted(), "tokens grow");
        all.extend(tokens);
    }
    all.sort();
    let many = all.len();
    all.dedup();
    assert_eq!(all.len(), many, "no token twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agreed_fail_over_loses_nothing() {
    let (cluster, _turn) = moving().await;
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}", cluster.url());
    let (one, two) = (open(&url).await, open(&url).await);
    let key = format!("{prefix}agreed");
    let held = claim("agreed", Mode::Exclusive);
    let grant = granted(&one, &held).await;
    let next = waiting("agreed", Mode::Exclusive);
    let subscription = subscribe(&two, &next).await;
    busy(&two, &next).await;
    let to = tokio::task::block_in_place(|| cluster.fail_over(&key));
    tokio::task::block_in_place(|| cluster.wait_until_ok());
    assert_eq!(
        one.renew(&[renewal(&held)]).await,
        Ok(vec![Renewed::Renewed])
    );
    let wake = format!("lockkeeper_wake:{{{key}}}");
    until("its channel is at the new master", async || {
        let channels = cluster.strings(to, &["PUBSUB", "SHARDCHANNELS"]);
        channels.iter().any(|channel| channel.starts_with(&wake))
    })
    .await;
    busy(&two, &next).await;
    assert_eq!(release(&one, &held).await, Ok(true));
    let hint = tokio::time::timeout(Duration::from_secs(20), subscription.hint());
    assert!(hint.await.is_ok());
    assert!(granted(&two, &next).await.token > grant.token);
}
