//! Keys of an application that have the name of a lock: they are refused with a sentence, and never changed.

use lockkeeper::Error;
use lockkeeper::store::{Mode, Store};
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::claims::break_of;
use crate::common::*;

/// Puts data of an application at the name `data`. `mode` and `read` are what a lock for reading has.
const DATA: [&[&str]; 8] = [
    &["SET", "data", "{\"name\": \"a customer\"}"],
    &["SET", "data", "draft"],
    &["HSET", "data", "name", "a customer", "age", "42"],
    &["HSET", "data", "mode", "read", "page", "12"],
    &["HSET", "data", "canary-field", "a secret"],
    &["RPUSH", "data", "first", "second"],
    &["SADD", "data", "one"],
    &["ZADD", "data", "1", "one"],
];

/// A hash of what the key has.
fn dump(server: &RedisServer) -> Vec<String> {
    let script = "return redis.sha1hex(redis.call('DUMP', KEYS[1]))";
    server.strings(&["EVAL", script, "1", "data"])
}

#[track_caller]
fn refused<T: std::fmt::Debug>(what: &[&str], outcome: Result<T, Error>) {
    match outcome {
        Err(Error::Refused { reason, .. }) => {
            assert!(reason.contains("something else"), "{what:?}: {reason}");
            // Only the name is the caller's own: the data are none of an error's business.
            assert!(!reason.contains("canary"), "{what:?}: {reason}");
        }
        other => panic!("{what:?}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_an_application_is_refused_and_kept() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for data in DATA {
        server.command(data);
        let before = dump(&server);
        let wish = claim("data", Mode::Exclusive);
        refused(data, store.break_lock(&break_of(&wish)).await);
        assert_eq!(dump(&server), before, "{data:?}");
        for mode in [Mode::Exclusive, Mode::Read, Mode::Write, Mode::Fair] {
            let wish = claim("data", mode).with_enqueue(true);
            refused(data, store.try_acquire(&wish).await);
        }
        refused(data, store.inspect(&wish.name).await);
        store.withdraw(&wish.name, wish.id).await.expect("answers");
        assert_eq!(release(&store, &wish).await, Ok(false), "{data:?}");
        assert!(store.list("").await.expect("answers").is_empty());
        assert_eq!(dump(&server), before, "{data:?}");
        server.command(&["DEL", "data"]);
    }
}

/// They look like the holds of some client, so only a break, which would delete them, has to know better.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_an_application_are_not_broken() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let data = ["HSET", "data", "canary-field:12", "3"];
    server.command(&data);
    let before = dump(&server);
    let wish = claim("data", Mode::Exclusive);
    refused(&data, store.break_lock(&break_of(&wish)).await);
    assert_eq!(dump(&server), before);
}

/// It may be permits of a Java client, so only what is no claim for permits is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_of_which_nobody_has_a_permit_is_refused_and_kept() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let number = ["SET", "data", "42"];
    server.command(&number);
    let before = dump(&server);
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write, Mode::Fair] {
        for enqueue in [false, true] {
            let wish = claim("data", mode).with_enqueue(enqueue);
            refused(&number, store.try_acquire(&wish).await);
        }
    }
    assert_eq!(dump(&server), before);
    // As permits it works, and then there is somebody to wait for.
    let permit = claim(
        "data",
        Mode::Permit {
            limit: 42,
            count: 2,
        },
    );
    granted(&store, &permit).await;
    let wish = claim("data", Mode::Exclusive).with_enqueue(true);
    busy(&store, &wish).await;
    assert_eq!(release(&store, &permit).await, Ok(true));
    refused(&number, store.try_acquire(&wish).await);
    store.withdraw(&wish.name, wish.id).await.expect("answers");
    assert_eq!(dump(&server), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_took_the_place_of_a_hold_is_kept() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for data in DATA {
        let (held, next) = (
            claim("data", Mode::Exclusive),
            claim("data", Mode::Exclusive),
        );
        granted(&store, &held).await;
        busy(&store, &next.clone().with_enqueue(true)).await;
        server.command(&["DEL", "data"]);
        server.command(data);
        let before = dump(&server);
        assert_eq!(release(&store, &held).await, Ok(false), "{data:?}");
        refused(data, store.break_lock(&break_of(&held)).await);
        store.withdraw(&next.name, next.id).await.expect("answers");
        assert_eq!(dump(&server), before, "{data:?}");
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_break_keeps_data_and_ends_locks() {
    let server = RedisServer::start();
    let store = open(&format!("{}?dialect=plain", server.url())).await;
    let wish = claim("data", Mode::Exclusive);
    for data in DATA {
        server.command(data);
        let before = dump(&server);
        refused(data, store.break_lock(&break_of(&wish)).await);
        assert_eq!(dump(&server), before, "{data:?}");
        server.command(&["DEL", "data"]);
    }
    // What a cache keeps for a while is no lock either, also where it has twenty bytes.
    for text in [
        "a customer's name",
        "user=42\nname=abcdefg",
        "订单号：12345678",
    ] {
        server.command(&["SET", "data", text, "PX", "60000"]);
        refused(&["SET"], store.break_lock(&break_of(&wish)).await);
        assert_eq!(server.strings(&["EXISTS", "data"]), ["1"], "{text}");
    }
    // As redis-py, redsync and node-redlock write them; the first without an end.
    for peers in [
        &["SET", "data", "d1e8a7c29f0b11ee8c990242ac120002"][..],
        &["SET", "data", "8mQ0Xy3ZbJw1c9n2rT5uVw==", "PX", "60000"],
        &[
            "SET",
            "data",
            "f47ac10b-58cc-4372-a567-0e02b2c3d479",
            "PX",
            "60000",
        ],
    ] {
        server.command(peers);
        store.break_lock(&break_of(&wish)).await.expect("breaks");
        assert_eq!(server.strings(&["EXISTS", "data"]), ["0"], "{peers:?}");
    }
    // As rslock writes it. Without an end it may be anything.
    let bytes = r"return redis.call('SET', KEYS[1], '\255\254\0 \128' .. string.rep('x', 15))";
    server.command(&["EVAL", bytes, "1", "data"]);
    refused(&["EVAL"], store.break_lock(&break_of(&wish)).await);
    server.command(&["PEXPIRE", "data", "60000"]);
    store.break_lock(&break_of(&wish)).await.expect("breaks");
    assert_eq!(server.strings(&["EXISTS", "data"]), ["0"]);
}
