//! Redisson's line of fair waiters: it has an end while ours stand in it, and that drops nobody.

use crate::common::*;
use lockkeeper::store::{Mode, Store};
use lockkeeper_testkit::servers::redis::RedisServer;

const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
const LINE: &str = "redisson_lock_queue:{fair}";
const TIMES: &str = "redisson_lock_timeout:{fair}";
const TOKEN: &str = "redisson_lock_token:{fair}";

/// In ms; -1: no end.
fn stays(server: &RedisServer, key: &str) -> i64 {
    server.strings(&["PTTL", key])[0].parse().expect("ms")
}

/// A Java client joins the line, and waits for this long from now, in ms.
fn java_waits(server: &RedisServer, wait: u64) {
    let until = server_micros(server) / 1_000 + wait;
    server.command(&["RPUSH", LINE, JAVA]);
    server.command(&["ZADD", TIMES, &until.to_string(), JAVA]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_the_dead_leave_has_an_end_but_the_token() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(&store, &claim("fair", Mode::Fair)).await;
    for _ in 0..3 {
        busy(&store, &waiting("fair", Mode::Fair)).await;
    }
    // Holder and waiters are killed: nobody releases, withdraws or asks again.
    drop(store);
    let keys = server.keys();
    assert!(keys.iter().any(|key| key == LINE) && keys.iter().any(|key| key == TIMES));
    for key in keys.iter().filter(|key| *key != TOKEN) {
        assert!(stays(&server, key) > 0, "{key} stays for ever");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_waiter_that_was_passed_over_is_soon_forgotten() {
    let server = RedisServer::start();
    let (store, dies) = (open(&server.url()).await, open(&server.url()).await);
    let held = claim("fair", Mode::Fair);
    granted(&store, &held).await;
    busy(&dies, &waiting("fair", Mode::Fair)).await;
    let ours = "lockkeeper_queue:{fair}";
    assert!(stays(&server, ours) > 60_000, "as long as Redisson's line");
    drop(dies);
    let listens = || {
        server
            .strings(&["PUBSUB", "CHANNELS", "lockkeeper_wake:*"])
            .len()
    };
    until("its connection has ended", async || listens() == 1).await;
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(stays(&server, LINE), -2, "nobody is in Redisson's line");
    assert!(stays(&server, ours) <= 10_000, "{}", stays(&server, ours));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_line_outlives_every_java_waiter_in_it() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(&store, &claim("fair", Mode::Fair)).await;
    const DAY: u64 = 24 * 3_600 * 1_000;
    java_waits(&server, DAY);
    assert_eq!(stays(&server, LINE), -1, "as Redisson leaves it");
    let ours = waiting("fair", Mode::Fair);
    busy(&store, &ours).await;
    for key in [LINE, TIMES] {
        assert!(stays(&server, key) > DAY as i64, "{key}");
    }
    // What is longer is not made shorter.
    let long = 30 * DAY as i64;
    for key in [LINE, TIMES] {
        server.command(&["PEXPIRE", key, &long.to_string()]);
    }
    busy(&store, &ours).await;
    for key in [LINE, TIMES] {
        assert!(stays(&server, key) > long - DAY as i64, "{key}");
    }
    // However long they wait.
    server.command(&["ZADD", TIMES, "9223372036854775807", JAVA]);
    busy(&store, &ours).await;
    // Without ours the line is theirs again.
    store
        .withdraw(&ours.name, ours.id)
        .await
        .expect("withdrawn");
    assert_eq!(server.strings(&["LRANGE", LINE, "0", "-1"]), [JAVA]);
    for key in [LINE, TIMES] {
        assert_eq!(stays(&server, key), -1, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_line_has_an_end_for_as_long_as_one_of_ours_is_in_it() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let held = claim("fair", Mode::Fair);
    granted(&store, &held).await;
    let [first, second] = [(); 2].map(|()| waiting("fair", Mode::Fair));
    busy(&store, &first).await;
    busy(&store, &second).await;
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(server.strings(&["LLEN", LINE]), ["1"]);
    assert!(stays(&server, LINE) > 0 && stays(&server, TIMES) > 0);
    // A dead one that only Redisson's line remembers does not make it last for ever.
    store
        .withdraw(&second.name, second.id)
        .await
        .expect("withdrawn");
    server.command(&["RPUSH", LINE, JAVA]);
    server.command(&["ZADD", TIMES, "1", JAVA]);
    let plain = waiting("fair", Mode::Exclusive);
    busy(&store, &plain).await;
    store
        .withdraw(&plain.name, plain.id)
        .await
        .expect("withdrawn");
    assert_eq!(server.strings(&["EXISTS", LINE, TIMES]), ["0"]);
}
