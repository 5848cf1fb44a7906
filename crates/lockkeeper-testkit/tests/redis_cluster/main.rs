//! The Redis store on a real cluster: the conformance suite here, and what only a cluster has in the modules.
//!
//! The suite's cases share one cluster, each with a prefix of its own.

#[path = "../support/claims.rs"]
mod claims;
#[path = "../redis/common.rs"]
#[allow(dead_code, reason = "shared with the tests of a single server")]
mod common;
mod failover;
mod migration;
mod refusals;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use common::open;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::redis_cluster::RedisCluster;

/// The cluster of the tests that harm none. It ends with the process.
static CALM: LazyLock<RedisCluster> = LazyLock::new(RedisCluster::start);

/// A prefix that no other test has.
fn prefix() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    format!("case{}:", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The calm cluster. It takes some seconds to start.
async fn calm() -> &'static RedisCluster {
    let started = tokio::task::spawn_blocking(|| LazyLock::force(&CALM));
    started.await.expect("a cluster")
}

/// The URL of the calm cluster for a user of this name, who may do everything but what `rules` take away.
async fn url_of(user: &str, rules: &[&str]) -> String {
    let cluster = calm().await;
    let all = ["ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"];
    cluster.everywhere(&[&all, rules].concat());
    let url = cluster.url();
    url.replace("://", &format!("://{user}:secret@"))
}

async fn subject_at(url: &str, options: &str) -> Subject {
    let url = format!("{url}?prefix={}{options}", prefix());
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store))
        .with_other(Arc::new(other))
        .refusing(|name| !braces_agree(name))
}

/// Whether all keys of a name are in one slot: it has no braces, or encloses a part of itself.
fn braces_agree(name: &str) -> bool {
    match name.split_once('{') {
        None => !name.contains('}'),
        Some((_, rest)) => rest.find('}').is_some_and(|at| at > 0),
    }
}

async fn redisson() -> Subject {
    subject_at(&calm().await.url(), "").await
}

async fn plain() -> Subject {
    subject_at(&calm().await.url(), "&dialect=plain").await
}

/// Redisson's clients find out in this way whether there are sharded channels, and so do we.
async fn without_sharded_channels() -> Subject {
    let url = url_of("unsharded", &["-pubsub|shardnumsub"]).await;
    subject_at(&url, "").await
}

lockkeeper_testkit::conformance_tests!(on_a_cluster, redisson);
lockkeeper_testkit::conformance_tests!(on_a_plain_cluster, plain);
lockkeeper_testkit::conformance_tests!(
    on_an_unsharded_cluster,
    without_sharded_channels,
    transport
);
