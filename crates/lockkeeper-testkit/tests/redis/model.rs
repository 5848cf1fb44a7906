//! Every verb in every mode, on one name after the other and beside each other, as the memory store does it.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::Store;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::differential::{Subject, compare, seed};
use lockkeeper_testkit::random::Random;
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
    let url = format!("{}{options}", server.url());
    for _ in 0..KEEPERS {
        stores.push(Arc::new(open(&url).await));
    }
    let subject = Subject::new(stores, clock, move |micros| {
        wall.stand_at(Duration::from_micros(micros));
    });
    (server, subject.on_their_own_clock())
}

async fn compare_redisson(verbs: usize) {
    let (server, subject) = standing("").await;
    compare(&subject, seed(), verbs).await;
    let left: Vec<String> = server.keys();
    let left: Vec<&String> = left
        .iter()
        .filter(|key| {
            !key.starts_with("redisson_lock_token:") && !key.starts_with("lockkeeper_broken:")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn compare_plain(verbs: usize) {
    let (_server, subject) = standing("?dialect=plain").await;
    compare(&subject, seed(), verbs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_verbs_of_all_modes_are_answered_as_by_memory() {
    compare_redisson(100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_verbs_of_the_plain_dialect_are_answered_as_by_memory() {
    compare_plain(30_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `cargo xtask nightly` runs it"]
async fn a_million_random_verbs_are_answered_as_by_memory() {
    compare_redisson(1_000_000).await;
    compare_plain(300_000).await;
}

/// What keepers of one process each do with one name, until the time is over.
async fn takes_everything(
    keeper: Lockkeeper,
    mut random: Random,
    end: Moment,
) -> Result<u32, Error> {
    let (lock, book) = (keeper.lock("mixed")?, keeper.rwlock("mixed")?);
    let (fair, pool) = (keeper.lock("mixed")?.fair()?, keeper.semaphore("mixed", 3)?);
    let mut grants = 0;
    while Moment::now() < end {
        let pause = Duration::from_micros(random.below(500));
        let hold = tokio::time::sleep(pause);
        match random.below(5) {
            0 => drop((lock.acquire().await?, hold.await)),
            1 => drop((fair.acquire().await?, hold.await)),
            2 => drop((book.read().await?, hold.await)),
            3 => drop((book.write().await?, hold.await)),
            _ => drop((pool.acquire(1 + random.below(3) as u32).await?, hold.await)),
        }
        grants += 1;
    }
    Ok(grants)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acquire_fails_where_all_modes_meet_on_one_name() {
    let server = RedisServer::start();
    let mut random = Random::seeded(seed());
    let end = Moment::now() + Duration::from_secs(3);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
        let random = Random::seeded(random.next_u64());
        tasks.spawn(takes_everything(keeper, random, end));
    }
    let mut grants = 0;
    for outcome in tasks.join_all().await {
        grants += outcome.expect("no acquire fails");
    }
    assert!(grants > 60, "{grants} grants");
}
