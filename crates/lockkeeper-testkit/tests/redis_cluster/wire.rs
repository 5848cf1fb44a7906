//! Slots, channels and connections of a cluster in which nothing fails.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{
    Interest, LatchOp, LatchRequest, Mode, Renewal, Renewed, Store, Subscription,
};
use lockkeeper::{Error, HandOff, Lockkeeper};
use lockkeeper_testkit::servers::certificates::Authority;
use lockkeeper_testkit::servers::redis_cluster::{ClusterOptions, RedisCluster};

use crate::claims::break_all;
use crate::common::*;
use crate::{calm, prefix, url_of};

const SOON: Duration = Duration::from_secs(20);

/// A name for each master, whose key is there.
fn one_each(cluster: &RedisCluster, prefix: &str) -> Vec<(u16, String)> {
    let mut found: Vec<(u16, String)> = Vec::new();
    for number in 0.. {
        let text = format!("n{number}");
        let port = cluster.master_of(&format!("{prefix}{text}"));
        if found.iter().all(|(known, _)| *known != port) {
            found.push((port, text));
        }
        if found.len() == 3 {
            break;
        }
    }
    found
}

async fn hinted(subscription: &Subscription) -> bool {
    let hint = tokio::time::timeout(SOON, subscription.hint());
    hint.await.is_ok()
}

/// Every sharded channel about names of this prefix.
fn channels(cluster: &RedisCluster, prefix: &str) -> Vec<String> {
    let ports = cluster.ports().into_iter();
    let all = ports.flat_map(|port| cluster.strings(port, &["PUBSUB", "SHARDCHANNELS"]));
    all.filter(|channel| channel.contains(prefix)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_spread_over_all_masters() {
    let (cluster, prefix) = (calm().await, prefix());
    let url = url_of("spreader", &[]).await;
    let url = format!("{url}?prefix={prefix}");
    let store = open(&url).await;
    let mut held = Vec::new();
    for number in 0..60 {
        let claim = claim(&format!("spread{number:02}"), Mode::Exclusive);
        granted(&store, &claim).await;
        held.push(claim);
    }
    let mine = format!("{prefix}spread*");
    for port in cluster.masters() {
        let keys = cluster.strings(port, &["KEYS", &mine]);
        assert!(keys.len() >= 5, "{port}: {keys:?}");
        let clients = cluster.command(port, &["CLIENT", "LIST"]);
        let ours = clients.matches("user=spreader").count();
        assert_eq!(ours, 1, "one connection a node: {clients}");
    }
    let listed = store.list("spread").await.expect("lists");
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    let expected: Vec<&str> = held.iter().map(|claim| claim.name.as_str()).collect();
    assert_eq!(names, expected);
    let renewals: Vec<Renewal> = held.iter().map(renewal).collect();
    let renewed = store.renew(&renewals).await.expect("renews");
    assert_eq!(renewed, vec![Renewed::Renewed; 60]);
    for claim in &held {
        assert_eq!(release(&store, claim).await, Ok(true));
    }
    drop(store);
    until("no connection is left", async || {
        let mut ports = cluster.ports().into_iter();
        ports.all(|port| {
            let clients = cluster.command(port, &["CLIENT", "LIST"]);
            !clients.contains("user=spreader")
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_wake_on_every_master_and_leave_no_channel() {
    let (cluster, prefix) = (calm().await, prefix());
    let url = format!("{}?prefix={prefix}", cluster.url());
    let (store, other) = (open(&url).await, open(&url).await);
    for (port, text) in one_each(cluster, &prefix) {
        for mode in [
            Mode::Exclusive,
            Mode::Fair,
            Mode::Write,
            Mode::Permit { limit: 1, count: 1 },
        ] {
            let text = format!("{{{prefix}{text}}}{mode}");
            let held = claim(&text, mode);
            granted(&store, &held).await;
            let next = waiting(&text, mode);
            let subscription = subscribe(&other, &next).await;
            busy(&other, &next).await;
            assert_eq!(channels(cluster, &text).len(), 1, "{port}");
            assert_eq!(release(&store, &held).await, Ok(true));
            // The store hints only when it is told.
            assert!(hinted(&subscription).await, "{port}: {mode}");
            let direct = subscription.granted();
            assert_eq!(direct.is_some(), mode == Mode::Exclusive, "{port}: {mode}");
            let grant = granted(&other, &next).await;
            assert!(direct.is_none_or(|direct| direct.grant == grant));
            assert_eq!(release(&other, &next).await, Ok(true));
            drop(subscription);
            until("its channel is gone", async || {
                channels(cluster, &text).is_empty()
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_died_in_the_line_is_passed_over_at_once() {
    let (cluster, prefix) = (calm().await, prefix());
    let url = format!("{}?prefix={prefix}", cluster.url());
    let (one, two, three) = (open(&url).await, open(&url).await, open(&url).await);
    let held = claim("line", Mode::Exclusive);
    granted(&one, &held).await;
    let dies = waiting("line", Mode::Exclusive);
    let gone = subscribe(&two, &dies).await;
    busy(&two, &dies).await;
    let next = waiting("line", Mode::Exclusive);
    let subscription = subscribe(&three, &next).await;
    busy(&three, &next).await;
    drop((gone, two));
    until("its channel is gone", async || {
        channels(cluster, &prefix).len() == 1
    })
    .await;
    assert_eq!(release(&one, &held).await, Ok(true));
    let info = one.inspect(&held.name).await.expect("answers");
    let holders = info.expect("it is held").holders;
    assert_eq!(holders[0].claim, next.id, "the next holds already");
    assert!(hinted(&subscription).await);
    granted(&three, &next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_in_another_keeper_wakes_promptly() {
    let (cluster, prefix) = (calm().await, prefix());
    let url = format!("{}?prefix={prefix}", cluster.url());
    let keeper = async || {
        let builder = Lockkeeper::builder().url(&url).hand_off(HandOff::OFF);
        builder.connect().await.expect("connects")
    };
    let (one, two) = (keeper().await, keeper().await);
    for (port, text) in one_each(cluster, &prefix) {
        let mut took = Vec::new();
        for _ in 0..11 {
            let guard = one.lock(&text).expect("a lock").acquire().await;
            let guard = guard.expect("acquires");
            let lock = two.lock(&text).expect("a lock");
            let waiter = tokio::spawn(async move {
                let guard = lock.acquire().await.expect("acquires");
                let at = Moment::now();
                guard.release().await.expect("releases");
                at
            });
            until("it waits", async || {
                let info = one.inspect(&text).await.expect("answers");
                info.is_some_and(|info| info.waiters == 1)
            })
            .await;
            let released = Moment::now();
            guard.release().await.expect("releases");
            took.push(waiter.await.expect("finishes").since(released));
        }
        took.sort();
        // A lost hint costs 750 ms or more; a busy machine far less, at least half of the times.
        assert!(took[5] < Duration::from_millis(400), "{port}: {took:?}");
    }
    drop((one, two));
    until("no channel is left", async || {
        channels(cluster, &prefix).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redissons_clients_hear_of_a_release_on_their_sharded_channel() {
    let (cluster, prefix) = (calm().await, prefix());
    let store = open(&format!("{}?prefix={prefix}", cluster.url())).await;
    for (mode, channel, message) in [
        (Mode::Exclusive, "redisson_lock__channel", "0"),
        (Mode::Read, "redisson_rwlock", "0"),
        (Mode::Write, "redisson_rwlock", "1"),
    ] {
        let text = format!("heard{mode}");
        let mut listener = cluster.listen_sharded(&format!("{channel}:{{{prefix}{text}}}"));
        let held = claim(&text, mode);
        granted(&store, &held).await;
        assert_eq!(release(&store, &held).await, Ok(true));
        assert_eq!(listener.next(SOON).as_deref(), Some(message), "{mode}");
    }
}

/// A lock of a Java client, as its script leaves it.
fn java_locks(cluster: &RedisCluster, key: &str) {
    let port = cluster.master_of(key);
    cluster.command(
        port,
        &["HSET", key, "8743c9c0-0795-4907-87fd-6c719a6b4586:7", "1"],
    );
    cluster.command(port, &["PEXPIRE", key, "30000"]);
}

fn java_unlocks(cluster: &RedisCluster, key: &str) {
    let port = cluster.master_of(key);
    assert_eq!(cluster.command(port, &["DEL", key]), ":1\r\n");
    let channel = format!("redisson_lock__channel:{{{key}}}");
    cluster.command(port, &["SPUBLISH", &channel, "0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_holder_wakes_us_and_our_listeners_are_not_taken_for_its_own() {
    let (cluster, prefix) = (calm().await, prefix());
    let url = format!("{}?prefix={prefix}", cluster.url());
    let (one, two) = (open(&url).await, open(&url).await);
    let key = format!("{prefix}java");
    let port = cluster.master_of(&key);
    java_locks(cluster, &key);
    let (first, second) = (
        waiting("java", Mode::Exclusive),
        waiting("java", Mode::Exclusive),
    );
    let heard = subscribe(&one, &first).await;
    busy(&one, &first).await;
    let _heard_too = subscribe(&two, &second).await;
    busy(&two, &second).await;
    let channel = format!("redisson_lock__channel:{{{key}}}");
    until("both listen to its channel", async || {
        cluster.strings(port, &["PUBSUB", "SHARDNUMSUB", &channel]) == [channel.as_str(), "2"]
    })
    .await;
    let drained = tokio::time::timeout(Duration::from_millis(300), heard.hint()).await;
    assert!(drained.is_ok(), "whoever begins to listen looks once more");
    busy(&one, &first).await;
    java_unlocks(cluster, &key);
    assert!(hinted(&heard).await, "its message wakes us");
    granted(&one, &first).await;
    assert_eq!(release(&one, &first).await, Ok(true));
    let turn = format!("lockkeeper_turn:{{{key}}}");
    assert_eq!(cluster.command(port, &["EXISTS", &turn]), ":0\r\n");
    granted(&two, &second).await;
    // With a client of Redisson's there, its turn comes.
    let mut java = cluster.listen_sharded(&channel);
    let third = waiting("java", Mode::Exclusive);
    let _heard = subscribe(&one, &third).await;
    busy(&one, &third).await;
    assert_eq!(release(&two, &second).await, Ok(true));
    assert_eq!(java.next(SOON).as_deref(), Some("0"));
    assert_eq!(cluster.command(port, &["EXISTS", &turn]), ":1\r\n");
}

/// A hold, a renewal and a hand-over on every master.
async fn works_on_every_master(cluster: &RedisCluster, url: &str, prefix: &str) {
    let (one, two) = (open(url).await, open(url).await);
    for (port, text) in one_each(cluster, prefix) {
        let held = claim(&text, Mode::Exclusive);
        granted(&one, &held).await;
        let renewed = one.renew(&[renewal(&held)]).await;
        assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
        let next = waiting(&text, Mode::Exclusive);
        let subscription = subscribe(&two, &next).await;
        busy(&two, &next).await;
        assert_eq!(release(&one, &held).await, Ok(true));
        assert!(hinted(&subscription).await, "{port}");
        granted(&two, &next).await;
        assert_eq!(release(&two, &next).await, Ok(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_masters_replica_confirms() {
    let (cluster, prefix) = (calm().await, prefix());
    let url = format!("{}?prefix={prefix}&replicas=1", cluster.url());
    works_on_every_master(cluster, &url, &prefix).await;
    // Each master has one replica, and so cannot have two confirm.
    let url = format!(
        "{}?prefix={prefix}&replicas=2&replicas_timeout=100ms",
        cluster.url()
    );
    let store = open(&url).await;
    let held = claim("few", Mode::Exclusive);
    until("it is tried, and taken back", async || {
        let error = store.try_acquire(&held).await.expect_err("too few");
        assert!(error.to_string().contains("replicas"), "{error}");
        error.to_string().contains("1 of 2 replicas confirmed")
    })
    .await;
    let info = store.inspect(&held.name).await.expect("answers");
    assert!(info.is_none_or(|info| info.holders.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_may_speak_tls() {
    let authority = Authority::new();
    let identity = authority.issue("node", &["127.0.0.1"]);
    let options = ClusterOptions {
        tls: Some((identity, authority.ca())),
        ..ClusterOptions::default()
    };
    let start = || RedisCluster::start_with(options);
    let cluster = tokio::task::spawn_blocking(start).await;
    let cluster = cluster.expect("a cluster");
    let url = format!("{}?ca={}", cluster.url(), authority.ca().display());
    works_on_every_master(&cluster, &url, "").await;
    let error = connect(&cluster.url())
        .await
        .expect_err("an unknown authority");
    assert!(error.to_string().contains("ca=PATH"), "{error}");
}

/// The user of docs/redis.md, and what it adds for a cluster.
fn documented_user() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let block = |start: &str| {
        let from = page.find(start).expect(start);
        page[from..].split("```").next().expect("a block")
    };
    let rules = [block("ACL SETUSER"), block("+cluster|slots")];
    let rules = rules.iter().flat_map(|rules| rules.split_whitespace());
    rules.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_acl_is_enough() {
    let cluster = calm().await;
    let rules = documented_user();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    cluster.everywhere(&rules);
    let url = cluster.url().replace("://", "://locks:PASSWORD@");
    let keeper = async |prefix: &str| {
        let url = format!("{url}?prefix={prefix}");
        let builder = Lockkeeper::builder().url(&url);
        builder.hand_off(HandOff::OFF).connect().await
    };
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let keeper = keeper("app:").await.expect("connects");
        for _ in 0..3 {
            let keeper = keeper.clone();
            tasks.push(tokio::spawn(async move { use_everything(&keeper).await }));
        }
    }
    for task in tasks {
        task.await.expect("finishes");
    }
    let denied = |port: u16| {
        let log = cluster.strings(port, &["ACL", "LOG"]).join(" ");
        log.contains("locks").then_some(log)
    };
    let denied: Vec<String> = cluster.ports().into_iter().filter_map(denied).collect();
    assert!(denied.is_empty(), "{denied:?}");
    let elsewhere = keeper("other:").await.expect("connects");
    let error = elsewhere.lock("x").expect("a lock").try_acquire().await;
    assert!(matches!(error, Err(Error::Refused { .. })), "{error:?}");
    // A user who may not hear hints is told when connecting.
    let deaf = url_of("deaf", &["resetchannels"]).await;
    let error = connect(&deaf).await;
    assert!(matches!(error, Err(Error::Refused { .. })), "{error:?}");
}

async fn latch(store: &RedisStore, text: &str, op: LatchOp) -> u32 {
    let request = LatchRequest::new(
        name(text),
        claim(text, Mode::Exclusive).id,
        op,
        Moment::now() + LEASE,
    );
    store.latch(&request).await.expect("answers").count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_and_breaks_are_told_across_the_cluster() {
    let (cluster, prefix) = (calm().await, prefix());
    let url = format!("{}?prefix={prefix}", cluster.url());
    let (one, two) = (open(&url).await, open(&url).await);
    let mut names: Vec<String> = one_each(cluster, &prefix)
        .into_iter()
        .map(|n| n.1)
        .collect();
    names.push("{user}:7".into());
    for text in &names {
        latch(&one, text, LatchOp::Set(1)).await;
        let interest = Interest::Latch(name(text));
        let waits = one.subscribe(interest).await.expect("subscribes");
        // A waiter that begins to listen looks once more.
        assert!(hinted(&waits).await);
        assert_eq!(latch(&two, text, LatchOp::CountDown).await, 0);
        assert!(hinted(&waits).await, "{text}");
        let held = claim(text, Mode::Exclusive);
        let told = one.subscribe(Interest::Keeper(held.id.keeper)).await;
        let told = told.expect("subscribes");
        granted(&one, &held).await;
        assert_eq!(break_all(&two, &held).await.len(), 1);
        assert!(hinted(&told).await, "{text}");
        assert_eq!(release(&one, &held).await, Ok(false));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_refused_exactly_where_their_keys_would_part() {
    let cluster = calm().await;
    let store = open(&cluster.url()).await;
    let mut refused = 0;
    for text in [
        "plain", "{", "}", "{}", "}{", "a{}b", "a}b", "{a", "a}", "{a}", "{a}b", "a{b}c", "{{a}}",
        "{}{a}", "}{a}", "{a}{b}", "{a}}", "a{b", "a{b}{", "{ }", "{{}", "{{}}",
    ] {
        // As the documentation has them.
        let (tag, own) = match text.contains('{') {
            true => (text.to_owned(), format!(":{text}")),
            false => (format!("{{{text}}}"), format!("{{{text}}}")),
        };
        let keys = [
            text.to_owned(),
            format!("redisson_lock_token:{tag}"),
            format!("redisson_lock__channel:{tag}"),
            format!("{tag}:timeout"),
            format!("lockkeeper_holders:{own}"),
            format!("lockkeeper_queue:{own}"),
        ];
        let mut slots: Vec<u16> = keys.iter().map(|key| cluster.slot_of(key)).collect();
        slots.dedup();
        let held = claim(text, Mode::Exclusive);
        match store.try_acquire(&held).await {
            Ok(_) => {
                assert_eq!(slots.len(), 1, "{text:?}");
                assert_eq!(release(&store, &held).await, Ok(true), "{text:?}");
            }
            Err(Error::InvalidName { reason, .. }) => {
                assert!(slots.len() > 1, "{text:?}");
                assert!(
                    reason.contains("cluster") && reason.contains("brace"),
                    "{reason}"
                );
                refused += 1;
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
    assert_eq!(refused, 10);
}
