//! Every verb in every mode, on one name after the other and beside each other, as the memory store does it.

use std::sync::Arc;

use crate::common::*;
use lockkeeper::clock::Clock;
use lockkeeper::store::Store;
use lockkeeper_testkit::differential::{Subject, compare, seed};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

const KEEPERS: usize = 3;

/// A server whose clock stands until the test moves it, and some stores on it.
async fn standing(options: &str) -> (RedisServer, Subject) {
    let (clock, wall) = (Clock::simulated(), WallClock::new());
    wall.stand_at(Duration::from_micros(clock.unix_micros()));
    let server = RedisServer::start_with(RedisOptions {
        environment: wall.environment(),
        ..RedisOptions::default()
    });
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..KEEPERS {
        let store = open(&format!("{}{options}", server.url())).await;
        stores.push(Arc::new(store));
    }
    let subject = Subject::new(stores, clock, move |micros| {
        wall.stand_at(Duration::from_micros(micros));
    });
    (server, subject)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_verbs_of_all_modes_are_answered_as_by_memory() {
    let (server, subject) = standing("").await;
    compare(&subject, seed(), 100_000).await;
    let left: Vec<String> = server.keys();
    let left: Vec<&String> = left
        .iter()
        .filter(|key| {
            !key.starts_with("redisson_lock_token:") && !key.starts_with("lockkeeper_broken:")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_verbs_of_the_plain_dialect_are_answered_as_by_memory() {
    let (_server, subject) = standing("?dialect=plain").await;
    compare(&subject, seed(), 30_000).await;
}
