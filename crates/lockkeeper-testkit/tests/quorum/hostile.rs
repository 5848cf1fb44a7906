//! Nodes that say what nobody asked for, and nodes whose tokens can grow no more.

use std::collections::BTreeSet;

use crate::common::*;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::RedisServer;

/// The connections of ours that a node has.
fn ours(server: &RedisServer) -> BTreeSet<String> {
    let clients = server.command(&["CLIENT", "LIST"]);
    let ours = clients.lines().filter(|line| line.contains(" resp=3"));
    let ids = ours.filter_map(|line| line.split("id=").nth(1)?.split(' ').next());
    ids.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_says_what_nobody_asked_for_is_connected_to_anew() {
    let nodes = Independent::start(3);
    let server = &nodes.servers()[1];
    let proxy = Proxy::to(server.port());
    let ports = [0, 1, 2].map(|at| match at {
        1 => proxy.port(),
        at => nodes.servers()[at].port(),
    });
    let url = Independent::url_of(ports);
    let store = open(&format!("{url}?quarantine=off&max_lease=120s")).await;
    let strange: [(&str, &dyn Fn()); 2] = [
        ("a push", &|| {
            proxy.inject(">3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n")
        }),
        ("a wrong echo", &|| proxy.answer("PING", 1, "+PONG\r\n")),
    ];
    for (what, happens) in strange {
        let before = ours(server);
        happens();
        until(what, async || {
            let now = ours(server);
            !now.is_empty() && now.is_disjoint(&before)
        })
        .await;
        let held = claim(what, Mode::Exclusive);
        until("it is granted", async || {
            let attempt = store.try_acquire(&held).await;
            matches!(attempt, Ok(Attempt::Granted(_)))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_tokens_can_grow_no_more_say_so() {
    for (dialect, key) in [
        ("redisson", "redisson_lock_token:{x}"),
        ("plain", "lockkeeper_token:{x}"),
    ] {
        let nodes = Independent::start(3);
        let store = open(&nodes.url_at_once(&format!("120s&dialect={dialect}"))).await;
        let set = |token: &str| {
            for server in nodes.servers() {
                server.command(&["SET", key, token]);
            }
        };
        set("9007199254740993");
        let error = store.try_acquire(&claim("x", Mode::Exclusive)).await;
        let text = error.expect_err("it cannot be granted").to_string();
        assert!(text.contains("2^53"), "{text}");
        for server in nodes.servers() {
            assert_eq!(server.strings(&["GET", key]), ["9007199254740993"]);
            assert_eq!(server.strings(&["EXISTS", "x"]), ["0"]);
        }
        set("1700000000000000");
        assert!(is_granted(&store, &claim("x", Mode::Exclusive)).await);
    }
}
