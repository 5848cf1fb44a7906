//! `replicas=N` on a real master with two replicas: what is not confirmed does not count.

use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Mode, Release, Renewed, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::replicated::Replicated;

/// Far more than a WAIT of one second and one that is under way already.
const BOUNDED: Duration = Duration::from_secs(5);

fn url(servers: &Replicated, replicas: u32) -> String {
    let master = &servers.servers()[0];
    format!("{}?replicas={replicas}&replicas_timeout=1s", master.url())
}

/// What is left on the server besides tokens, and markers that are about to expire.
fn left(server: &RedisServer) -> Vec<String> {
    let mut keys = server.keys();
    keys.retain(|key| !key.contains("_token:") && !key.contains("_marker:"));
    keys
}

async fn refused_in_time(store: &RedisStore, text: &str) -> String {
    let before = Moment::now();
    let error = store.try_acquire(&claim(text, Mode::Exclusive)).await;
    assert!(Moment::now().since(before) < BOUNDED);
    let error = error.expect_err("too few replicas confirm");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_on_every_replica_that_is_asked_for() {
    let servers = Replicated::start(2);
    for dialect in ["redisson", "plain"] {
        let store = open(&format!("{}&dialect={dialect}", url(&servers, 2))).await;
        for round in 0..20 {
            let held = claim(&format!("{dialect}{round}"), Mode::Exclusive);
            granted(&store, &held).await;
            // At once: nothing is waited for here.
            for replica in &servers.servers()[1..] {
                let there = replica.command(&["EXISTS", held.name.as_str()]);
                assert_eq!(there, ":1\r\n", "{dialect}, round {round}");
            }
            assert_eq!(release(&store, &held).await, Ok(true));
        }
    }
    until("markers expire", async || {
        let keys = servers.servers()[0].keys();
        !keys.iter().any(|key| key.contains("_marker:"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_stopped_replica_nothing_is_granted_and_nothing_left() {
    let servers = Replicated::start(2);
    for dialect in ["redisson", "plain"] {
        let strict = open(&format!("{}&dialect={dialect}", url(&servers, 2))).await;
        let relaxed = open(&format!("{}&dialect={dialect}", url(&servers, 1))).await;
        servers.servers()[1].pause();
        let text = refused_in_time(&strict, "strict").await;
        assert!(
            text.contains("1 of 2 replicas confirmed within 1s"),
            "{text}"
        );
        assert_eq!(left(&servers.servers()[0]), [""; 0], "{dialect}");
        // One replica is enough for the other.
        let held = claim("relaxed", Mode::Exclusive);
        granted(&relaxed, &held).await;
        assert_eq!(release(&relaxed, &held).await, Ok(true));
        servers.servers()[1].resume();
        let held = claim("strict", Mode::Exclusive);
        until("it is granted again", async || {
            strict.try_acquire(&held).await.is_ok()
        })
        .await;
        assert_eq!(release(&strict, &held).await, Ok(true));
        assert_eq!(left(&servers.servers()[0]), [""; 0], "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_not_confirmed_does_not_count() {
    let servers = Replicated::start(2);
    let store = open(&url(&servers, 2)).await;
    let held = claim("renewed", Mode::Exclusive);
    granted(&store, &held).await;
    let renewal = [renewal(&held)];
    assert_eq!(store.renew(&renewal).await, Ok(vec![Renewed::Renewed]));
    servers.servers()[2].pause();
    let error = store.renew(&renewal).await.expect_err("not confirmed");
    assert!(error.is_transient(), "{error:?}");
    assert!(error.to_string().contains("1 of 2 replicas"), "{error}");
    servers.servers()[2].resume();
    until("it is renewed again", async || {
        store.renew(&renewal).await == Ok(vec![Renewed::Renewed])
    })
    .await;

    // A guard learns it; if such renewals counted, it never would.
    let keeper = Lockkeeper::builder()
        .url(&url(&servers, 2))
        .lease(Duration::from_secs(3))
        .connect()
        .await
        .expect("connects");
    let lock = keeper.lock("guarded").expect("a lock");
    let guard = lock.acquire().await.expect("free");
    servers.servers()[2].pause();
    let lost = tokio::time::timeout(Duration::from_secs(30), guard.lost()).await;
    lost.expect("told that it is lost");
    assert!(!guard.is_held());
    servers.servers()[2].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_claim_is_granted_once_it_is_confirmed() {
    let servers = Replicated::start(2);
    let store = open(&url(&servers, 2)).await;
    let held = claim("passed on", Mode::Exclusive);
    granted(&store, &held).await;
    // A waiter that is made the holder by a release, and confirms.
    let wish = waiting("passed on", Mode::Exclusive);
    let subscription = subscribe(&store, &wish).await;
    busy(&store, &wish).await;
    assert_eq!(release(&store, &held).await, Ok(true));
    let hint = tokio::time::timeout(Duration::from_secs(10), subscription.hint()).await;
    hint.expect("a hint");
    assert_eq!(subscription.granted(), None, "no replica confirmed it");
    servers.servers()[1].pause();
    let error = store.try_acquire(&wish).await.expect_err("not confirmed");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(left(&servers.servers()[0]), [""; 0]);
    servers.servers()[1].resume();
    until("it is granted again", async || {
        store.try_acquire(&wish).await.is_ok()
    })
    .await;
    // A release that queues the next claim, and grants it there and then.
    let next = waiting("passed on", Mode::Exclusive);
    let requeue = Release::new(wish.name.clone(), wish.id).with_requeue(Some(next.clone()));
    servers.servers()[1].pause();
    let released = store.release(&requeue).await.expect("released");
    assert!(released.was_held);
    assert_eq!(released.regrant, None, "it was not confirmed");
    servers.servers()[1].resume();
    until("the next claim has it", async || {
        store.try_acquire(&next).await.is_ok()
    })
    .await;
    assert_eq!(release(&store, &next).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_replicas_holds_up_nobody_and_many_share_one_wait() {
    let servers = Replicated::start(1);
    let url = format!(
        "{}?replicas=1&replicas_timeout=10s",
        servers.servers()[0].url()
    );
    let store = std::sync::Arc::new(open(&url).await);
    let held = claim("held", Mode::Exclusive);
    granted(&store, &held).await;
    servers.servers()[1].pause();
    let mut waiting = Vec::new();
    for number in 0..50 {
        let (store, claim) = (store.clone(), claim(&format!("n{number}"), Mode::Exclusive));
        waiting.push(tokio::spawn(async move { store.try_acquire(&claim).await }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    // The main connection does not wait: behind a WAIT it would be ten seconds.
    let before = Moment::now();
    for _ in 0..20 {
        store.inspect(&held.name).await.expect("answers");
        busy(&store, &claim("held", Mode::Exclusive)).await;
    }
    assert!(Moment::now().since(before) < BOUNDED);
    assert_eq!(release(&store, &held).await, Ok(true));
    servers.servers()[1].resume();
    let before = Moment::now();
    for task in waiting {
        task.await.expect("finishes").expect("confirmed in time");
    }
    // One by one it would have been fifty times the replica's return.
    assert!(Moment::now().since(before) < BOUNDED);
    let waits = servers.servers()[0].calls_of("wait");
    assert!((1..20).contains(&waits), "{waits} WAITs for 51 grants");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_confirm_is_told_when_connecting() {
    let server = RedisServer::start();
    let error = connect(&format!("{}?replicas=1", server.url())).await;
    let error = error.expect_err("it has no replica");
    assert!(error.to_string().contains("replicas=1"), "{error}");
    let servers = Replicated::start(1);
    let master = &servers.servers()[0];
    let all = ["ACL", "SETUSER", "hasty", "on", ">pw", "~*", "&*", "+@all"];
    master.command(&[&all[..], &["-wait"]].concat());
    let url = format!("redis://hasty:pw@127.0.0.1:{}", master.port());
    open(&url).await;
    let error = connect(&format!("{url}?replicas=1")).await;
    let error = error.expect_err("it may not WAIT");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("+wait"), "{error}");
    // Two connections could be to two servers.
    master.command(&[&all[..], &["-info"]].concat());
    open(&url).await;
    let error = connect(&format!("{url}?replicas=1")).await;
    let error = error.expect_err("it may not look");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("+info"), "{error}");
    let renamed = RedisServer::start_with(RedisOptions {
        lines: vec!["rename-command WAIT \"\"".into()],
        ..RedisOptions::default()
    });
    renamed.command(&["REPLICAOF", "NO", "ONE"]);
    let follower = RedisServer::start();
    follower.command(&["REPLICAOF", "127.0.0.1", &renamed.port().to_string()]);
    until("it has a replica", async || {
        renamed.info("connected_slaves").as_deref() == Some("1")
    })
    .await;
    let error = connect(&format!("{}?replicas=1", renamed.url())).await;
    let error = error.expect_err("it has no WAIT");
    assert!(error.to_string().contains("does not have"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_for_waiting_is_made_again() {
    let servers = Replicated::start(1);
    let store = open(&url(&servers, 1)).await;
    for _ in 0..3 {
        let master = &servers.servers()[0];
        let clients = master.command(&["CLIENT", "LIST"]);
        let waiter = clients.lines().find(|line| line.contains(" cmd=wait "));
        let waiter = waiter.expect("one connection waits for replicas");
        let id = waiter.split(['=', ' ']).nth(1).expect("an id");
        assert_eq!(master.command(&["CLIENT", "KILL", "ID", id]), ":1\r\n");
        let held = claim("again", Mode::Exclusive);
        until("it is granted", async || {
            store.try_acquire(&held).await.is_ok()
        })
        .await;
        assert_eq!(release(&store, &held).await, Ok(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_connecting_leaves_no_connection() {
    let servers = Replicated::start(1);
    let url = url(&servers, 1);
    let mut stopped = 0;
    for step in 0..60 {
        let url = url.clone();
        let task = tokio::spawn(async move { connect(&url).await });
        tokio::task::block_in_place(|| std::thread::sleep(Duration::from_micros(step * 50)));
        task.abort();
        stopped += u32::from(task.await.is_err());
    }
    assert!(stopped > 5, "only {stopped} were stopped on their way");
    until("no connection of ours is left", async || {
        let clients = servers.servers()[0].command(&["CLIENT", "LIST"]);
        !clients.contains(" resp=3")
    })
    .await;
}
