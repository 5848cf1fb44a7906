//! Token keys: when they end, and that tokens grow all the same.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{all_are_granted, claims, together};
use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Break, BreakTarget, Mode, Renewed, Store};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

const DAY: i64 = 24 * 60 * 60 * 1000;
const MINUTE: i64 = 60 * 1000;
/// How long they stay in the plain dialect by default, in ms.
const MONTH: i64 = 30 * DAY;
const PLAIN: &str = "lockkeeper_token:{n}";
const REDISSON: &str = "redisson_lock_token:{n}";

/// What is left of a key, in ms: -1 if it has no end, -2 if it is not there.
fn left(server: &RedisServer, key: &str) -> i64 {
    server.strings(&["PTTL", key])[0].parse().expect("a number")
}

/// Whether a key has about this long.
fn has_about(server: &RedisServer, key: &str, time: i64) -> bool {
    (time - MINUTE..=time + 1_000).contains(&left(server, key))
}

async fn pair(store: &RedisStore, name: &str) -> u64 {
    let claim = claim(name, Mode::Exclusive);
    let token = granted(store, &claim).await.token.get();
    assert_eq!(release(store, &claim).await, Ok(true));
    token
}

#[tokio::test]
async fn a_plain_token_key_ends_thirty_days_after_its_last_use() {
    let server = RedisServer::start();
    let store = open(&format!("{}?dialect=plain", server.url())).await;
    pair(&store, "n").await;
    assert!(has_about(&server, PLAIN, MONTH), "{}", left(&server, PLAIN));
    // Each use pushes it out, by the short way and by the long one.
    for reserve in [1, 5] {
        server.command(&["PEXPIRE", PLAIN, &DAY.to_string()]);
        let held = claim("n", Mode::Exclusive).with_reserve(reserve);
        granted(&store, &held).await;
        assert!(has_about(&server, PLAIN, MONTH), "{reserve}");
        assert_eq!(release(&store, &held).await, Ok(true));
    }
    granted(&store, &claim("n", Mode::Exclusive)).await;
    server.command(&["PEXPIRE", PLAIN, &DAY.to_string()]);
    let request = Break::new(name("n"), BreakTarget::All, "a test", Moment::NEVER);
    store.break_lock(&request).await.expect("breaks");
    assert!(has_about(&server, PLAIN, MONTH), "a break");
}

#[tokio::test]
async fn redissons_token_key_stays_and_any_does_if_told_so() {
    let server = RedisServer::start();
    for (options, key) in [
        ("", REDISSON),
        ("?token_retention=forever", REDISSON),
        ("?dialect=plain&token_retention=forever", PLAIN),
    ] {
        let store = open(&format!("{}{options}", server.url())).await;
        for _ in 0..3 {
            pair(&store, "n").await;
            assert_eq!(left(&server, key), -1, "{options}");
        }
    }
}

/// By the short way, alone and with others: nobody looks what the key has, and nothing is left without an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_take_the_short_way_and_leave_no_key_without_an_end() {
    const NAMES: usize = 300;
    let server = RedisServer::start();
    let url = format!("{}?dialect=plain&response_timeout=10s", server.url());
    let store = Arc::new(open(&url).await);
    for number in 0..NAMES {
        pair(&store, &format!("order:{number}")).await;
    }
    until("all take the short way", async || {
        let wishes = claims("order", NAMES);
        let [before, shared] = ["get", "mget"].map(|verb| server.calls_of(verb));
        let tries = together(&server, &store, &wishes).await;
        server.resume();
        all_are_granted(tries).await;
        // Three go alone, before there are others to share a script with.
        let short = server.calls_of("get") <= before + 3 && server.calls_of("mget") > shared;
        for held in &wishes {
            assert_eq!(release(&store, held).await, Ok(true));
        }
        short
    })
    .await;
    let keys = server.keys();
    assert_eq!(keys.len(), NAMES);
    let kept = |key: &&String| has_about(&server, key, MONTH);
    assert_eq!(keys.iter().filter(kept).count(), NAMES);
}

/// The server's clock is the only one that matters, also to a client that believes it 31 days behind.
#[tokio::test]
async fn a_name_whose_token_key_ended_gets_a_higher_token() {
    for (options, key) in [
        ("?dialect=plain", PLAIN),
        ("?token_retention=30d", REDISSON),
    ] {
        let clock = WallClock::new();
        let server = RedisServer::start_with(RedisOptions {
            environment: clock.environment(),
            ..RedisOptions::default()
        });
        let store = open(&format!("{}{options}", server.url())).await;
        pair(&store, "n").await;
        let last = pair(&store, "n").await;
        let past = Duration::from_secs(31 * 24 * 60 * 60);
        clock.ahead(past);
        until("its key ended", async || left(&server, key) == -2).await;
        let before = server_micros(&server);
        // Within the second in which the client believes to know the time.
        let token = pair(&store, "n").await;
        assert!(token >= before && before > last, "{token} after {last}");
        assert!(has_about(&server, key, MONTH), "{options}");
    }
}

#[tokio::test]
async fn the_key_of_a_token_ahead_of_the_clock_stays_longer_by_that() {
    let server = RedisServer::start();
    for (options, key, kept) in [
        ("?dialect=plain", PLAIN, MONTH),
        ("?token_retention=30d", REDISSON, MONTH),
    ] {
        let store = open(&format!("{}{options}", server.url())).await;
        pair(&store, "n").await;
        // As after the clock was set back by ten days.
        let ahead = server_micros(&server) + 10 * DAY as u64 * 1_000;
        server.command(&["SET", key, &ahead.to_string()]);
        for (at, reserve) in [1, 1, 7].into_iter().enumerate() {
            let held = claim("n", Mode::Exclusive).with_reserve(reserve);
            let token = granted(&store, &held).await.token.get();
            assert_eq!(token, ahead + 1 + at as u64, "{options}");
            assert!(has_about(&server, key, kept + 10 * DAY), "{options}");
            assert_eq!(release(&store, &held).await, Ok(true));
        }
    }
}

/// A lock may be held for longer than its token key is kept, and `ls` finds it by that key.
#[tokio::test]
async fn the_token_key_of_a_lock_that_is_held_stays() {
    let server = RedisServer::start();
    for (options, key, mode) in [
        ("?dialect=plain", PLAIN, Mode::Exclusive),
        ("?token_retention=30d", REDISSON, Mode::Exclusive),
        ("?token_retention=30d", REDISSON, Mode::Read),
    ] {
        let store = open(&format!("{}{options}", server.url())).await;
        let held = claim("n", mode);
        granted(&store, &held).await;
        let renew = async || {
            let renewal = renewal(&held).with_lease(LEASE);
            assert_eq!(store.renew(&[renewal]).await, Ok(vec![Renewed::Renewed]));
        };
        server.command(&["PEXPIRE", key, &DAY.to_string()]);
        renew().await;
        assert!(has_about(&server, key, MONTH), "{options} {mode:?}");
        // Never to an earlier end.
        server.command(&["PEXPIRE", key, &(2 * MONTH).to_string()]);
        renew().await;
        assert!(has_about(&server, key, 2 * MONTH), "{options} {mode:?}");
        server.command(&["PERSIST", key]);
        renew().await;
        assert_eq!(left(&server, key), -1);
        // It may be of no use.
        server.command(&["DEL", key]);
        renew().await;
        assert_eq!(release(&store, &held).await, Ok(true));
    }
}

/// Clients that say different things: the last decides for how long, and tokens grow.
#[tokio::test]
async fn the_last_to_use_a_name_decides_how_long_its_token_key_stays() {
    let server = RedisServer::start();
    let mut last = 0;
    for (option, time) in [
        ("2h", 2 * 60 * MINUTE),
        ("forever", -1),
        ("30d", MONTH),
        ("2h", 2 * 60 * MINUTE),
    ] {
        let url = format!("{}?dialect=plain&token_retention={option}", server.url());
        let store = open(&url).await;
        let token = pair(&store, "n").await;
        assert!(token > last, "{token} after {last}");
        last = token;
        match time {
            -1 => assert_eq!(left(&server, PLAIN), -1),
            time => assert!(has_about(&server, PLAIN, time), "{option}"),
        }
    }
}
