//! A server that answers what was not asked, or tells what nobody wants to hear: the connection ends, whichever it is.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Mode, Store};
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

const PUSHES: [&str; 5] = [
    ">3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n",
    ">3\r\n$12\r\npunsubscribe\r\n$1\r\nx\r\n:0\r\n",
    ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
    ">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n",
    ">2\r\n$10\r\ninvalidate\r\n_\r\n",
];

/// A server behind a proxy, and a store that reaches it that way.
async fn behind_a_proxy() -> (RedisServer, Proxy, RedisStore) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = open(&format!("redis://127.0.0.1:{}/0", proxy.port())).await;
    (server, proxy, store)
}

/// A URL of a server whose connections outlive a machine that stands still for a while.
fn patient(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/0?response_timeout=6s")
}

/// The connections of ours that the server has.
fn ours(server: &RedisServer) -> BTreeSet<String> {
    let clients = server.command(&["CLIENT", "LIST"]);
    let ours = clients.lines().filter(|line| line.contains(" resp=3"));
    let ids = ours.filter_map(|line| line.split("id=").nth(1)?.split(' ').next());
    ids.map(str::to_owned).collect()
}

/// Waits until all of them are others.
async fn reconnects(what: &str, server: &RedisServer, happens: impl FnOnce()) {
    let before = ours(server);
    happens();
    until(what, async || {
        let now = ours(server);
        !now.is_empty() && now.is_disjoint(&before)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ping_is_answered_by_its_own_echo_only() {
    let (server, proxy, store) = behind_a_proxy().await;
    for (number, reply) in [
        "+PONG\r\n",
        "$1\r\n1\r\n",
        ":1\r\n",
        "_\r\n",
        ",nan\r\n",
        "-ERR no\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let happens = || proxy.answer("PING", 1, reply);
        reconnects(reply, &server, happens).await;
        granted(&store, &claim(&number.to_string(), Mode::Exclusive)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_is_not_left() {
    for reply in [
        "-BUSY Redis is busy running a script.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
    ] {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let store = open(&patient(proxy.port())).await;
        granted(&store, &claim("before", Mode::Exclusive)).await;
        let before = ours(&server);
        proxy.answer("PING", 2, reply);
        until("it was asked", async || proxy.has_passed()).await;
        // The next ones are answered by the server.
        let answered = server.calls_of("ping");
        until("it was asked again", async || {
            server.calls_of("ping") >= answered + 2
        })
        .await;
        assert_eq!(ours(&server), before, "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_save_is_not_left() {
    let server = RedisServer::start_with(RedisOptions {
        lines: vec!["save 900 1".into()],
        ..RedisOptions::default()
    });
    let store = open(&patient(server.port())).await;
    let held = claim("before", Mode::Exclusive);
    granted(&store, &held).await;
    let before = ours(&server);
    std::fs::remove_dir_all(server.folder().join("data")).expect("it can be removed");
    server.command(&["BGSAVE"]);
    // The only ones that are refused.
    until("its PINGs are refused", async || {
        let errors = server.command(&["INFO", "errorstats"]);
        let refused = errors.split_once("errorstat_MISCONF:count=");
        let refused = refused.and_then(|(_, rest)| rest.lines().next()?.parse::<u32>().ok());
        refused.is_some_and(|refused| refused >= 3)
    })
    .await;
    let error = release(&store, &held).await.expect_err("it is refused");
    assert!(error.to_string().contains("cannot write to its disk"));
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(ours(&server), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_each_connection_is_left_alone_for_longer_and_longer() {
    let (server, proxy, _store) = behind_a_proxy().await;
    let (before, began) = (server.calls_of("hello"), Moment::now());
    proxy.answer("PING", usize::MAX, "+PONG\r\n");
    until("it is connected for the 14th time", async || {
        server.calls_of("hello") >= before + 14
    })
    .await;
    let took = Moment::now().since(began);
    // Each pause is anything up to its longest, so that 13 of them take 4 s on average. They take less than this once in
    // 30 million times; pauses that do not grow take 0.2 s.
    assert!(took > Duration::from_millis(500), "14 within {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_nobody_asked_for_ends_the_connection() {
    let (server, proxy, store) = behind_a_proxy().await;
    for (number, push) in PUSHES.into_iter().enumerate() {
        reconnects(push, &server, || proxy.inject(push)).await;
        granted(&store, &claim(&number.to_string(), Mode::Exclusive)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_after_such_a_push_is_believed() {
    let (_server, proxy, store) = behind_a_proxy().await;
    let (held, wish) = (claim("y", Mode::Exclusive), claim("x", Mode::Exclusive));
    granted(&store, &held).await;
    // A client that takes the push for a reply gives the second request the grant that follows.
    for _ in 0..8 {
        proxy.answer("EVALSHA", 1, &format!("{}:1\r\n:1\r\n", PUSHES[0]));
        let (first, second) = tokio::join!(release(&store, &held), store.try_acquire(&wish));
        assert!(first.is_err() || second.is_err(), "{first:?} {second:?}");
        for error in [first.err(), second.err()].into_iter().flatten() {
            assert!(error.to_string().contains("nobody asked for"), "{error}");
        }
        until("it is connected again", async || {
            store.inspect(&wish.name).await.is_ok()
        })
        .await;
        until("it is withdrawn", async || {
            store.withdraw(&wish.name, wish.id).await.is_ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_show_any_time() {
    let (server, proxy, store) = behind_a_proxy().await;
    for time in [
        "18446744073709551615",
        "18446744073709",
        "9223372036854775807",
    ] {
        let reply = format!("*2\r\n${}\r\n{time}\r\n$6\r\n999999\r\n", time.len());
        proxy.answer("TIME", 1, &reply);
        reconnects(time, &server, || proxy.cut()).await;
        until("it was asked", async || proxy.has_passed()).await;
        granted(&store, &claim(time, Mode::Exclusive)).await;
    }
}
