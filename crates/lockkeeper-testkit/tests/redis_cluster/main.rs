//! The Redis store on a real cluster: the conformance suite here, and what only a cluster has in the modules.
//!
//! The suite's cases share one cluster, each with a prefix of its own.

#[path = "../redis/common.rs"]
#[allow(dead_code, reason = "shared with the tests of a single server")]
mod common;

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

async fn subject(options: &str) -> Subject {
    let cluster = tokio::task::spawn_blocking(|| CALM.url()).await;
    let url = cluster.expect("a cluster");
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
    subject("").await
}

async fn plain() -> Subject {
    subject("&dialect=plain").await
}

lockkeeper_testkit::conformance_tests!(on_a_cluster, redisson);
lockkeeper_testkit::conformance_tests!(on_a_plain_cluster, plain);
