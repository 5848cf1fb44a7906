//! Which clients of Redisson's a break means. Their part is played by the commands that their scripts run.

use std::time::Duration;

use crate::claims::{break_all, break_of};
use crate::common::*;
use lockkeeper::store::Store;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Attempt, BreakOutcome, BreakTarget, Claim, Holder, Mode};
use lockkeeper_testkit::servers::redis::RedisServer;

const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
const JAVA_TOO: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:43";
const SOON: Duration = Duration::from_secs(10);

async fn break_claim(store: &RedisStore, text: &str, id: &str) -> BreakOutcome {
    let request = break_of(&claim(text, Mode::Exclusive))
        .with_target(BreakTarget::Claim(id.parse().expect("an id")));
    store.break_lock(&request).await.expect("answers")
}

fn ids(holders: &[Holder]) -> Vec<String> {
    holders.iter().map(|held| held.claim.to_string()).collect()
}

#[track_caller]
fn ended(outcome: &BreakOutcome) -> Vec<String> {
    match outcome {
        BreakOutcome::Ended(holders) => ids(holders),
        other => panic!("it should end something, was {other:?}"),
    }
}

#[track_caller]
fn instead(outcome: &BreakOutcome) -> Vec<String> {
    match outcome {
        BreakOutcome::NotHeld(holders) => ids(holders),
        other => panic!("it should end nothing, was {other:?}"),
    }
}

/// Is granted when those who listened as Java's clients do have had their turn.
async fn in_turn(store: &RedisStore, claim: &Claim) {
    until("it is granted", async || {
        matches!(store.try_acquire(claim).await, Ok(Attempt::Granted(_)))
    })
    .await;
}

fn java_reads(server: &RedisServer, key: &str, id: &str, count: u32) {
    server.command(&["HSET", key, "mode", "read", id, &count.to_string()]);
    for number in 1..=count {
        let timeout = format!("{{{key}}}:{id}:rwlock_timeout:{number}");
        server.command(&["SET", &timeout, "1", "PX", "30000"]);
    }
    server.command(&["PEXPIRE", key, "30000"]);
}

#[tokio::test]
async fn a_lock_of_java_is_broken_by_its_holders_name() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.command(&["HSET", "order", JAVA, "2"]);
    server.command(&["PEXPIRE", "order", "30000"]);
    let mut listener = server.listen("redisson_lock__channel:{order}");
    let other = break_claim(&store, "order", JAVA_TOO).await;
    assert_eq!(instead(&other), [JAVA]);
    assert_eq!(server.strings(&["HGET", "order", JAVA]), ["2"]);
    assert_eq!(ended(&break_claim(&store, "order", JAVA).await), [JAVA]);
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    let held = claim("order", Mode::Exclusive);
    in_turn(&store, &held).await;
    // What ended is not there any more; a break of all says whom it ended.
    let late = break_claim(&store, "order", JAVA).await;
    assert_eq!(instead(&late), [held.id.to_string()]);
    assert_eq!(release(&store, &held).await, Ok(true));
    server.command(&["HSET", "order", JAVA, "1"]);
    assert_eq!(ids(&break_all(&store, &held).await), [JAVA]);
}

#[tokio::test]
async fn one_reader_of_javas_is_broken_and_no_other() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    java_reads(&server, "book", JAVA, 1);
    java_reads(&server, "book", JAVA_TOO, 3);
    let ours = claim("book", Mode::Read);
    granted(&store, &ours).await;
    assert_eq!(
        ended(&break_claim(&store, "book", JAVA_TOO).await),
        [JAVA_TOO]
    );
    assert_eq!(server.strings(&["HEXISTS", "book", JAVA]), ["1"]);
    let keys = server.keys();
    assert!(!keys.iter().any(|key| key.contains(JAVA_TOO)), "{keys:?}");
    busy(&store, &claim("book", Mode::Write)).await;
    let mine = ours.id.to_string();
    assert_eq!(ended(&break_claim(&store, "book", &mine).await), [mine]);
    assert_eq!(server.strings(&["HGET", "book", "mode"]), ["read"]);
    busy(&store, &claim("book", Mode::Write)).await;
    let mut listener = server.listen("redisson_rwlock:{book}");
    assert_eq!(ended(&break_claim(&store, "book", JAVA).await), [JAVA]);
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    in_turn(&store, &claim("book", Mode::Write)).await;
}

#[tokio::test]
async fn a_writer_of_javas_is_broken_with_what_it_reads() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    java_reads(&server, "page", JAVA, 1);
    server.command(&[
        "HSET",
        "page",
        "mode",
        "write",
        &format!("{JAVA}:write"),
        "1",
    ]);
    let waits = waiting("page", Mode::Read);
    busy(&store, &waits).await;
    let mut listener = server.listen("redisson_rwlock:{page}");
    let broken = ended(&break_claim(&store, "page", JAVA).await);
    assert!(broken.iter().all(|id| id == JAVA), "{broken:?}");
    // The next in line has it; it is asked no more.
    granted(&store, &waits).await;
    assert!(!server.keys().iter().any(|key| key.contains(JAVA)));
    // Java's readers may join it.
    assert_eq!(listener.next(SOON).as_deref(), Some("1"));
    assert_eq!(release(&store, &waits).await, Ok(true));
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
}

/// As `RPermitExpirableSemaphore` writes them, for half a minute. An id has 16 bytes.
fn java_takes_permits(server: &RedisServer, key: &str, free: u32, numbers: std::ops::Range<u32>) {
    server.command(&["SET", key, &free.to_string()]);
    for number in numbers {
        let ends = (server_micros(server) / 1_000 + 30_000).to_string();
        let id = format!("permit of java {number}");
        server.command(&["ZADD", &format!("{{{key}}}:timeout"), &ends, &id]);
    }
}

#[tokio::test]
async fn permits_of_javas_are_broken_with_ours_and_counted_beside_them() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    java_takes_permits(&server, "pool", 5, 0..2);
    let mode = Mode::Permit { limit: 9, count: 3 };
    let ours = claim("pool", mode);
    granted(&store, &ours).await;
    let shown = |holders: &[Holder]| -> Vec<String> {
        let shown = |held: &Holder| format!("{} {}", held.process.program, held.mode);
        holders.iter().map(shown).collect()
    };
    let us = format!("{} {mode}", lockkeeper::store::Process::current().program);
    let both = [us, "Redisson clients 2 of 7 permits".to_owned()];
    let info = store.inspect(&name("pool")).await.expect("answers");
    let info = info.expect("it is known");
    assert_eq!(shown(&info.holders), both);
    assert_eq!(info.free_permits, Some(2));
    // The end of theirs, not of ours.
    let left = info.holders[1].remaining.expect("they end");
    assert!(left > Duration::from_secs(20) && left <= Duration::from_secs(30));
    assert_eq!(
        (info.holders[1].token, info.holders[1].since),
        (None, None),
        "{info:?}"
    );
    // A break of another claim ends neither.
    match break_claim(&store, "pool", JAVA).await {
        BreakOutcome::NotHeld(holders) => assert_eq!(shown(&holders), both),
        other => panic!("it should end nothing, was {other:?}"),
    }
    assert_eq!(server.strings(&["GET", "pool"]), ["2"]);
    assert_eq!(shown(&break_all(&store, &ours).await), both);
    assert_eq!(server.strings(&["GET", "pool"]), ["7"]);
    let info = store.inspect(&name("pool")).await.expect("answers");
    assert_eq!(info.expect("it is known").free_permits, Some(7));
}

/// An `RSemaphore`, a latch and a counter of an application look the same: a number.
#[tokio::test]
async fn a_number_is_not_broken_and_nothing_is_left_of_that() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.command(&["SET", "pool", "-1"]);
    let request = claim("pool", Mode::Exclusive);
    assert!(break_all(&store, &request).await.is_empty());
    assert_eq!(server.strings(&["GET", "pool"]), ["-1"]);
    assert_eq!(server.keys(), ["pool"]);
    let info = store.inspect(&name("pool")).await.expect("answers");
    let info = info.expect("it is known");
    assert_eq!((info.holders.len(), info.free_permits), (0, Some(0)));
    assert!(store.list("").await.expect("lists").is_empty());
}

#[tokio::test]
async fn a_break_of_a_free_name_leaves_no_key() {
    let server = RedisServer::start();
    for options in ["", "?dialect=plain"] {
        let store = open(&format!("{}{options}", server.url())).await;
        assert!(
            break_all(&store, &claim("typo", Mode::Exclusive))
                .await
                .is_empty()
        );
        assert_eq!(server.keys(), Vec::<String>::new(), "{options}");
    }
}
