//! What is on the nodes, as other clients see it.

use std::time::Duration;

use crate::common::*;
use lockkeeper::store::{Attempt, Mode, Renewed, Store};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";

fn has(server: &RedisServer, parts: &[&str], expected: &str) {
    assert_eq!(server.command(parts), expected, "{parts:?}");
}

#[tokio::test]
async fn a_lock_is_a_lock_of_redissons_on_every_node() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=10s")).await;
    let held = claim("order:42", Mode::Exclusive);
    assert!(is_granted(&store, &held).await);
    until("it is everywhere", async || {
        renew(&store, &held, LEASE).await.expect("renews");
        nodes.count_key("order:42") == 3
    })
    .await;
    let id = held.id.to_string();
    for server in nodes.servers() {
        has(server, &["HGET", "order:42", &id], "$7\r\n1 60000\r\n");
        let left: i64 = server.strings(&["PTTL", "order:42"])[0]
            .parse()
            .expect("ms");
        assert!((1..=60_000).contains(&left), "{left}");
        has(
            server,
            &["EXISTS", "redisson_lock_token:{order:42}"],
            ":1\r\n",
        );
        has(
            server,
            &["TTL", "redisson_lock_token:{order:42}"],
            ":-1\r\n",
        );
    }
    let mut listeners: Vec<_> = nodes
        .servers()
        .iter()
        .map(|server| server.listen("redisson_lock__channel:{order:42}"))
        .collect();
    assert_eq!(release(&store, &held).await, Ok(true));
    for listener in &mut listeners {
        let message = listener.next(Duration::from_secs(10));
        assert_eq!(message.as_deref(), Some("0"));
    }
    until("it is gone", async || nodes.count_key("order:42") == 0).await;
}

#[tokio::test]
async fn a_redisson_client_on_a_majority_excludes_us_and_wakes_us() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=10s")).await;
    for server in &nodes.servers()[..2] {
        server.command(&["HSET", "java", JAVA, "1"]);
        server.command(&["PEXPIRE", "java", "60000"]);
    }
    let wish = claim("java", Mode::Exclusive);
    let Ok(Attempt::Busy { free_in }) = store.try_acquire(&wish).await else {
        panic!("a Redisson client holds it");
    };
    assert!(free_in.is_some_and(|left| left <= Duration::from_secs(60)));
    // What was taken on the third node is let go of.
    until("nothing is left", async || nodes.count_key("java") == 2).await;
    let info = store.inspect(&wish.name).await.expect("answers");
    let holders = info.expect("it is held").holders;
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].claim.to_string(), JAVA);
    let interest = lockkeeper::store::Interest::Claim(wish.name.clone(), wish.id);
    let subscription = store.subscribe(interest).await.expect("subscribes");
    while tokio::time::timeout(Duration::from_millis(200), subscription.hint())
        .await
        .is_ok()
    {}
    for server in &nodes.servers()[..2] {
        server.command(&["DEL", "java"]);
        server.command(&["PUBLISH", "redisson_lock__channel:{java}", "0"]);
    }
    let hint = tokio::time::timeout(Duration::from_secs(10), subscription.hint()).await;
    assert!(hint.is_ok(), "it is never told");
    assert!(is_granted(&store, &wish).await);
    // And one that holds on a minority only does not.
    nodes.servers()[0].command(&["HSET", "few", JAVA, "1"]);
    let few = claim("few", Mode::Exclusive);
    assert!(is_granted(&store, &few).await);
    assert_eq!(release(&store, &few).await, Ok(true));
    assert_eq!(nodes.count_key("few"), 1, "theirs is not ours to end");
}

#[tokio::test]
async fn a_plain_lock_is_the_recipe_that_others_know() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=10s&dialect=plain")).await;
    let held = claim("plain", Mode::Exclusive);
    assert!(is_granted(&store, &held).await);
    for server in nodes
        .servers()
        .iter()
        .filter(|s| s.command(&["EXISTS", "plain"]) == ":1\r\n")
    {
        has(server, &["TYPE", "plain"], "+string\r\n");
        has(
            server,
            &["SET", "plain", "mine", "NX", "PX", "1000"],
            "$-1\r\n",
        );
    }
    assert_eq!(release(&store, &held).await, Ok(true));
    until("it is gone", async || nodes.count_key("plain") == 0).await;
    for server in &nodes.servers()[..2] {
        has(
            server,
            &["SET", "plain", "theirs", "NX", "PX", "60000"],
            "+OK\r\n",
        );
    }
    assert!(!is_granted(&store, &claim("plain", Mode::Exclusive)).await);
    until("nothing is left", async || nodes.count_key("plain") == 2).await;
    for server in &nodes.servers()[..2] {
        has(server, &["GET", "plain"], "$6\r\ntheirs\r\n");
    }
}

#[tokio::test]
async fn a_key_that_is_no_lock_counts_as_held() {
    let nodes = Independent::start(3);
    for dialect in ["redisson", "plain"] {
        let store =
            open(&nodes.url_at_once(&format!("120s&node_timeout=10s&dialect={dialect}"))).await;
        for (name, make) in [
            ("list", &["RPUSH", "list", "x"][..]),
            ("text", &["SET", "text", "x"]),
            ("hash", &["HSET", "hash", "x", "y"]),
        ] {
            for server in nodes.servers() {
                server.command(make);
            }
            let wish = claim(name, Mode::Exclusive);
            assert!(!is_granted(&store, &wish).await, "{dialect} {name}");
            assert_eq!(release(&store, &wish).await, Ok(false));
            assert_eq!(nodes.count_key(name), 3);
        }
    }
}

/// As long as it has none, nobody else can have the name: a request that only asks must not end it.
#[tokio::test]
async fn a_hold_whose_keys_lost_their_ends_gets_them_back_from_a_renewal_only() {
    let nodes = Independent::start(3);
    for (dialect, mode) in [
        ("plain", Mode::Exclusive),
        ("redisson", Mode::Exclusive),
        ("redisson", Mode::Read),
        ("redisson", Mode::Write),
    ] {
        let case = format!("{dialect} {mode}");
        let options = format!("120s&node_timeout=10s&dialect={dialect}");
        let store = open(&nodes.url_at_once(&options)).await;
        let held = claim(&case, mode);
        assert!(is_granted(&store, &held).await);
        until("it is everywhere", async || {
            renew(&store, &held, LEASE).await.expect("renews");
            nodes.count_key(&case) == 3
        })
        .await;
        let own = format!("{{{case}}}:{}:rwlock_timeout:1", held.id);
        let keys = [case.as_str(), &own];
        let keys = &keys[..if mode == Mode::Exclusive { 1 } else { 2 }];
        for (server, key) in nodes
            .servers()
            .iter()
            .flat_map(|s| keys.iter().map(move |k| (s, k)))
        {
            assert_eq!(server.command(&["PERSIST", key]), ":1\r\n", "{key}");
        }
        let asked = renew(&store, &held, Duration::ZERO).await;
        assert_eq!(asked, Ok(Renewed::Renewed), "{case}");
        for key in keys {
            assert_eq!(nodes.count_key(key), 3, "{key}");
        }
        assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
        until("all end again", async || {
            let mut all = nodes.servers().iter().flat_map(|server| {
                let left = |key: &&str| server.strings(&["PTTL", key])[0].clone();
                keys.iter().map(left)
            });
            all.all(|left| (1..=60_000).contains(&left.parse::<i64>().expect("ms")))
        })
        .await;
        assert_eq!(release(&store, &held).await, Ok(true), "{case}");
        until("it is gone", async || nodes.count_key(&case) == 0).await;
    }
}

#[tokio::test]
async fn a_reader_of_redissons_that_died_is_not_shown_beside_one_that_lives() {
    const DEAD: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a02:7";
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=10s")).await;
    for server in nodes.servers() {
        server.command(&["HSET", "book", "mode", "read", JAVA, "1", DEAD, "1"]);
        server.command(&["PEXPIRE", "book", "60000"]);
        let lives = format!("{{book}}:{JAVA}:rwlock_timeout:1");
        server.command(&["SET", &lives, "1", "PX", "60000"]);
    }
    let wish = claim("book", Mode::Write);
    let info = store.inspect(&wish.name).await.expect("answers");
    let holders = info.expect("it is held").holders;
    let holders: Vec<String> = holders.iter().map(|h| h.claim.to_string()).collect();
    assert_eq!(holders, [JAVA]);
    assert!(!is_granted(&store, &wish).await);
}
