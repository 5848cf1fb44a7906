//! What cannot be a quorum, and what a quorum cannot do.

use crate::common::*;
use lockkeeper::store::quorum::Quorum;
use lockkeeper::store::{Interest, LatchOp, LatchRequest, Mode, NodeState, Store};
use lockkeeper::{Error, Lockkeeper, Name};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::replicated::Replicated;

#[tokio::test]
async fn a_replica_is_no_node() {
    let replicated = Replicated::start(1);
    let nodes = Independent::start(2);
    let mut ports: Vec<u16> = nodes.servers().iter().map(RedisServer::port).collect();
    ports.push(replicated.servers()[1].port());
    let store = open(&Independent::url_of(ports)).await;
    let down = &states(&store)[2];
    assert!(
        matches!(down, NodeState::Down { reason } if reason.contains("replica")),
        "{down:?}"
    );
    // A master that has one is a node.
    let mut ports: Vec<u16> = nodes.servers().iter().map(RedisServer::port).collect();
    ports.push(replicated.servers()[0].port());
    open(&Independent::url_of(ports)).await;
}

#[tokio::test]
async fn one_server_under_two_names_is_no_two_nodes() {
    let nodes = Independent::start(2);
    let [one, two] = [0, 1].map(|at| nodes.servers()[at].port());
    let url = format!("redlock://127.0.0.1:{one},127.0.0.1:{two},localhost:{one}");
    let error = connect(&url).await.expect_err("the same server");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("the same server"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
    let nodes = Independent::start_with(
        3,
        &RedisOptions {
            password: Some("right".into()),
            ..RedisOptions::default()
        },
    );
    let [a, b, c] = [0, 1, 2].map(|at| nodes.servers()[at].port());
    let hosts = format!("127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}");
    let error = connect(&format!("redlock://:canary@{hosts}")).await;
    let text = format!("{:?}", error.expect_err("a wrong password"));
    assert!(
        text.contains("redlock") && text.contains("127.0.0.1:") && text.contains("password"),
        "{text}"
    );
    assert!(!text.contains("canary"), "{text}");
    let store = open(&format!("redlock://:right@{hosts}?quarantine=off")).await;
    assert!(!format!("{store:?}").contains("right"));
}

#[tokio::test]
async fn nodes_with_different_credentials_come_by_the_builder() {
    let with = |password: &str| RedisOptions {
        password: Some(password.to_owned()),
        ..RedisOptions::default()
    };
    let nodes = Independent::of(["a", "b"].map(|p| RedisServer::start_with(with(p))));
    let third = RedisServer::start();
    let urls = [
        nodes.servers()[0].url(),
        nodes.servers()[1].url(),
        third.unix_url(),
    ];
    let quorum = Quorum::of(urls.iter().map(String::as_str)).expect("three nodes");
    let quorum = quorum.without_quarantine();
    let keeper = Lockkeeper::builder().opener(quorum).url("redlock:");
    let keeper = keeper.connect().await;
    let keeper = keeper.expect("connects");
    let guard = keeper.lock("mixed").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    assert_eq!(guard.votes().expect("votes").len(), 3);
    guard.release().await.expect("releases");
}

#[tokio::test]
async fn what_is_unsound_over_a_quorum_is_refused_with_the_reason() {
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once("120s&node_timeout=10s")).await;
    let fair = keeper.lock("x").expect("a lock").fair();
    assert!(matches!(fair, Err(Error::Unsupported { .. })), "{fair:?}");
    let semaphore = keeper.semaphore("x", 2);
    assert!(matches!(semaphore, Err(Error::Unsupported { .. })));
    assert!(matches!(keeper.latch("x"), Err(Error::Unsupported { .. })));
    let store = open(&nodes.url_at_once("120s&node_timeout=10s")).await;
    for (mode, word) in [
        (Mode::Fair, "order"),
        (Mode::Permit { limit: 2, count: 1 }, "majorities"),
    ] {
        let error = store.try_acquire(&claim("x", mode)).await;
        let text = error.expect_err("unsound").to_string();
        assert!(text.contains(word), "{text}");
    }
    let latch = LatchRequest::new(
        Name::new("x").expect("a name"),
        claim("x", Mode::Exclusive).id,
        LatchOp::Read,
        claim("x", Mode::Exclusive).not_after,
    );
    assert!(matches!(
        store.latch(&latch).await,
        Err(Error::Unsupported { .. })
    ));
    let interest = Interest::Latch(latch.name.clone());
    assert!(matches!(
        store.subscribe(interest).await,
        Err(Error::Unsupported { .. })
    ));
    let plain = open(&nodes.url_at_once("120s&node_timeout=10s&dialect=plain")).await;
    let read = plain.try_acquire(&claim("x", Mode::Read)).await;
    assert!(matches!(read, Err(Error::Unsupported { .. })), "{read:?}");
}
