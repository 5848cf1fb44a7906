//! Servers that are no cluster, clusters that are down, and URLs of the wrong kind.

use lockkeeper::Error;
use lockkeeper_testkit::servers::ports::free_port;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

use crate::calm;
use crate::common::*;

async fn refusal(url: &str) -> String {
    match connect(url).await {
        Err(error @ (Error::Refused { .. } | Error::Unavailable { .. })) => error.to_string(),
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_scheme_is_told_with_the_right_one() {
    let cluster = calm().await;
    let port = cluster.masters()[0];
    let text = refusal(&format!("redis://127.0.0.1:{port}")).await;
    assert!(
        text.contains(&format!("redis+cluster://127.0.0.1:{port}")),
        "{text}"
    );
    let alone = RedisServer::start();
    let text = refusal(&format!("redis+cluster://127.0.0.1:{}", alone.port())).await;
    assert!(
        text.contains(&format!("redis://127.0.0.1:{}", alone.port())),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeds_that_do_not_answer_are_each_told() {
    let text = refusal("redis+cluster://127.0.0.1:1,127.0.0.1:2").await;
    assert!(
        text.contains("127.0.0.1:1: ") && text.contains("127.0.0.1:2: "),
        "{text}"
    );
    // One that answers is enough.
    let cluster = calm().await;
    let port = cluster.masters()[0];
    let store = open(&format!("redis+cluster://127.0.0.1:1,127.0.0.1:{port}")).await;
    let held = claim("seed", lockkeeper::store::Mode::Exclusive);
    granted(&store, &held).await;
    assert_eq!(release(&store, &held).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_told_in_words() {
    let node = RedisServer::start_with(RedisOptions {
        lines: vec![
            "cluster-enabled yes".into(),
            format!("cluster-port {}", free_port()),
        ],
        ..RedisOptions::default()
    });
    let url = format!("redis+cluster://127.0.0.1:{}", node.port());
    let text = refusal(&url).await;
    assert!(text.contains("serves no slots"), "{text}");
    node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "100"]);
    let text = refusal(&url).await;
    assert!(
        text.contains("cluster_state:fail") && text.contains("101 of 16384"),
        "{text}"
    );
    node.command(&["CLUSTER", "ADDSLOTSRANGE", "101", "16383"]);
    until("it is content", async || connect(&url).await.is_ok()).await;
    // It goes down while it is in use.
    let store = open(&url).await;
    let held = claim("down", lockkeeper::store::Mode::Exclusive);
    granted(&store, &held).await;
    node.command(&["CLUSTER", "DELSLOTS", "1"]);
    until(
        "it is down, in words",
        async || match lockkeeper::store::Store::try_acquire(&store, &held).await {
            Err(error @ Error::Unavailable { .. }) => error.to_string().contains("cluster is down"),
            _ => false,
        },
    )
    .await;
    node.command(&["CLUSTER", "ADDSLOTS", "1"]);
    until("it is up again", async || {
        matches!(release(&store, &held).await, Ok(true))
    })
    .await;
}
