//! What the server refuses only once a script runs: nobody is told that nothing was there, and nothing stays half done.

use std::sync::Arc;
use std::time::Duration;

use crate::claims::renewal_for;
use crate::common::*;
use lockkeeper::Error;
use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Claim, LatchOp, LatchRequest, Mode, Renewed, Store};
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::replicated::Replicated;

const DIALECTS: [&str; 2] = ["redisson", "plain"];

async fn renew(store: &RedisStore, held: &Claim) -> Result<Vec<Renewed>, Error> {
    store.renew(&[renewal(held)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_the_server_refuses_is_no_hold_that_ended() {
    let server = RedisServer::start();
    for dialect in DIALECTS {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        let held = claim("refused", Mode::Exclusive);
        granted(&store, &held).await;
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        let outcome = release(&store, &held).await;
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        let error = outcome.expect_err("it takes no changes");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("replicas"), "{error}");
        assert_eq!(release(&store, &held).await, Ok(true), "{dialect}");

        granted(&store, &held).await;
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let error = release(&store, &held).await;
        let error = error.expect_err("it is a replica");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("replica now"), "{error}");
        server.command(&["REPLICAOF", "NO", "ONE"]);
        until("it is used again", async || {
            release(&store, &held).await == Ok(true)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_acl_forbids_midway_is_no_hold_that_ended() {
    let server = RedisServer::start();
    let all = ["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all"];
    server.command(&all);
    let url = format!("redis://poor:pw@127.0.0.1:{}", server.port());
    let store = open(&url).await;
    let held = claim("forbidden", Mode::Exclusive);
    granted(&store, &held).await;
    server.command(&[&all[..], &["-hdel", "-hmget"]].concat());
    for outcome in [
        release(&store, &held).await.map(|_| ()),
        renew(&store, &held).await.map(|_| ()),
    ] {
        let error = outcome.expect_err("forbidden");
        assert!(error.to_string().contains("ACL"), "{error}");
    }
    server.command(&all);
    assert_eq!(renew(&store, &held).await, Ok(vec![Renewed::Renewed]));
    assert_eq!(release(&store, &held).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_was_refused_midway_is_not_held_for_ever() {
    let server = RedisServer::start();
    let all = ["ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all"];
    server.command(&[&all[..], &["-pexpire"]].concat());
    let url = format!("redis://poor:pw@127.0.0.1:{}", server.port());
    let store = open(&url).await;
    for mode in [
        Mode::Exclusive,
        Mode::Fair,
        Mode::Read,
        Mode::Write,
        Mode::Permit { limit: 2, count: 1 },
    ] {
        let error = store.try_acquire(&claim("half", mode)).await;
        let error = error.expect_err("it cannot end");
        assert!(error.to_string().contains("ACL"), "{mode}: {error}");
        let keys = server.keys();
        let left = keys.iter().filter(|key| !key.contains("_token:"));
        assert_eq!(left.collect::<Vec<_>>(), [""; 0], "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_whose_key_lost_its_end_gets_one() {
    let server = RedisServer::start();
    let left = || {
        let left = server.command(&["PTTL", "endless"]);
        left.trim_matches([':', '\r', '\n'])
            .parse::<i64>()
            .expect("a time")
    };
    for dialect in DIALECTS {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        let held = claim("endless", Mode::Exclusive);
        granted(&store, &held).await;
        assert_eq!(server.command(&["PERSIST", "endless"]), ":1\r\n");
        // A request that only asks changes nothing.
        let asked = store.renew(&[renewal_for(Duration::ZERO, &held)]).await;
        assert_eq!(asked, Ok(vec![Renewed::Renewed]), "{dialect}");
        assert_eq!(left(), -1, "{dialect}");
        // A holder that renews takes care of it.
        assert_eq!(renew(&store, &held).await, Ok(vec![Renewed::Renewed]));
        assert!((1..=30_000).contains(&left()), "{dialect}: {}", left());
        if dialect == "redisson" {
            // A dead one cannot.
            server.command(&["PERSIST", "endless"]);
            busy(&store, &claim("endless", Mode::Exclusive)).await;
            assert!((1..=60_000).contains(&left()), "{}", left());
        }
        assert_eq!(release(&store, &held).await, Ok(true), "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_replicas_a_full_memory_costs_nobody_the_connection() {
    let servers = Replicated::start(1);
    let master = &servers.servers()[0];
    for dialect in DIALECTS {
        let url = format!("{}?replicas=1&dialect={dialect}", master.url());
        let store = open(&url).await;
        let held = claim("full", Mode::Exclusive);
        granted(&store, &held).await;
        let connections = master.info("total_connections_received");
        master.command(&["CONFIG", "SET", "maxmemory", "1"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let other = store.try_acquire(&claim("other", Mode::Exclusive)).await;
        let other = other.expect_err("memory is full").to_string();
        assert!(other.contains("memory"), "{other}");
        for _ in 0..5 {
            let renewed = renew(&store, &held).await;
            assert_eq!(renewed, Ok(vec![Renewed::Renewed]), "{dialect}");
        }
        assert_eq!(release(&store, &held).await, Ok(true), "{dialect}");
        master.command(&["CONFIG", "SET", "maxmemory", "0"]);
        let used = |count: Option<String>| count.and_then(|n| n.parse::<u64>().ok());
        let made = used(master.info("total_connections_received")).expect("a count")
            - used(connections).expect("a count");
        // Those of this test itself: one for each command.
        assert!(made <= 4, "{made} new connections");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_became_something_else_costs_the_others_no_renewal() {
    let server = RedisServer::start();
    let [redisson, plain] = DIALECTS.map(|dialect| format!("{}?dialect={dialect}", server.url()));
    for (url, mode) in [
        (&plain, Mode::Exclusive),
        (&redisson, Mode::Exclusive),
        (&redisson, Mode::Fair),
        (&redisson, Mode::Read),
        (&redisson, Mode::Write),
        (&redisson, Mode::Permit { limit: 2, count: 1 }),
    ] {
        let store = open(url).await;
        let (lost, kept) = (claim("lost", mode), claim("kept", mode));
        granted(&store, &lost).await;
        granted(&store, &kept).await;
        let renewals = [&lost, &kept].map(renewal);
        for key in ["lost", "{lost}:timeout"] {
            server.command(&["DEL", key]);
            server.command(&["RPUSH", key, "somebody's"]);
        }
        let renewed = store.renew(&renewals).await;
        let expected = vec![Renewed::NotHeld, Renewed::Renewed];
        assert_eq!(renewed, Ok(expected), "{mode}");
        server.command(&["FLUSHALL"]);
    }
}

/// `delete` of a Redisson client, and then a lock that takes the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_java_deleted_is_open_although_a_lock_has_its_name() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let latch = async |op| {
        let request = LatchRequest::new(
            name("gate"),
            claim("gate", Mode::Exclusive).id,
            op,
            Moment::NEVER,
        );
        store.latch(&request).await.expect("answers").count
    };
    assert_eq!(latch(LatchOp::Set(2)).await, 2);
    assert_eq!(server.command(&["DEL", "gate"]), ":1\r\n");
    let held = claim("gate", Mode::Exclusive);
    granted(&store, &held).await;
    assert_eq!(latch(LatchOp::Read).await, 0);
    assert_eq!(latch(LatchOp::Set(1)).await, 1);
    assert_eq!(latch(LatchOp::CountDown).await, 0);
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(server.keys(), ["redisson_lock_token:{gate}"]);
}

/// Tries that go out together, to a server that does not answer for a moment.
async fn together(server: &RedisServer, store: &Arc<RedisStore>) -> Vec<Error> {
    server.pause();
    let claims: Vec<Claim> = (0..40)
        .map(|number| claim(&format!("together:{number}"), Mode::Exclusive))
        .collect();
    let tries: Vec<_> = claims
        .iter()
        .map(|claim| {
            let (store, claim) = (store.clone(), claim.clone());
            tokio::spawn(async move { store.try_acquire(&claim).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.resume();
    let mut refused = Vec::new();
    for outcome in tries {
        let outcome = outcome.await.expect("no panic");
        refused.push(outcome.expect_err("it takes no changes"));
    }
    refused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_the_server_refuses_is_refused_for_each() {
    let server = RedisServer::start();
    for dialect in DIALECTS {
        let store = Arc::new(open(&format!("{}?dialect={dialect}", server.url())).await);
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        for error in together(&server, &store).await {
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            assert!(error.to_string().contains("too few replicas"), "{error}");
        }
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        assert_eq!(server.keys(), [""; 0], "{dialect}");

        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        for error in together(&server, &store).await {
            // One that was under way when the connection was given up is in doubt.
            assert!(error.is_transient(), "{error:?}");
        }
        server.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(server.keys(), [""; 0], "{dialect}");
        let held = claim("together:1", Mode::Exclusive);
        until("it is used again", async || {
            store.try_acquire(&held).await.is_ok()
        })
        .await;
        assert_eq!(release(&store, &held).await, Ok(true));
        server.command(&["FLUSHALL"]);
    }
}
