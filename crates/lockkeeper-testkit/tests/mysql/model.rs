//! Every verb in every mode, on one name after the other and beside each other, as the memory store does it.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Clock;
use lockkeeper::store::Store;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::differential::{Subject, compare, seed};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::mariadb::{MariaDbOptions, MariaDbServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

/// A server whose clock stands until the test moves it, and some stores on it.
async fn standing() -> (MariaDbServer, Subject) {
    let (clock, wall) = (Clock::simulated(), WallClock::new());
    wall.stand_at(Duration::from_micros(clock.unix_micros()));
    let server = MariaDbServer::start_with(MariaDbOptions {
        environment: wall.environment(),
        ..MariaDbOptions::default()
    });
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..3 {
        // The sequences ask for leases of any length.
        stores.push(Arc::new(
            open(&format!("{}?max_lease=24h", server.url())).await,
        ));
    }
    let subject = Subject::new(stores, clock, move |micros| {
        wall.stand_at(Duration::from_micros(micros));
    });
    (server, subject.on_their_own_clock())
}

async fn compare_with_memory(verbs: usize) {
    let (_server, subject) = standing().await;
    let report = compare(&subject, seed(), verbs).await;
    assert!(report.verbs >= verbs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_verbs_of_all_modes_are_answered_as_by_memory() {
    compare_with_memory(8_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `cargo xtask nightly` runs it"]
async fn many_random_verbs_are_answered_as_by_memory() {
    compare_with_memory(200_000).await;
}

/// How often each keeper takes the name.
const TURNS: u32 = 20;

/// What keepers of one process each do with one name.
async fn takes_everything(keeper: Lockkeeper, mut random: Random) -> Result<(), Error> {
    let (lock, book) = (keeper.lock("mixed")?, keeper.rwlock("mixed")?);
    let (fair, pool) = (keeper.lock("mixed")?.fair()?, keeper.semaphore("mixed", 3)?);
    for _ in 0..TURNS {
        let pause = Duration::from_micros(random.below(500));
        let hold = tokio::time::sleep(pause);
        match random.below(5) {
            0 => drop((lock.acquire().await?, hold.await)),
            1 => drop((fair.acquire().await?, hold.await)),
            2 => drop((book.read().await?, hold.await)),
            3 => drop((book.write().await?, hold.await)),
            _ => drop((pool.acquire(1 + random.below(3) as u32).await?, hold.await)),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acquire_fails_where_all_modes_meet_on_one_name() {
    let url = fresh();
    let mut random = Random::seeded(seed());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let keeper = keeper(&url).await;
        let random = Random::seeded(random.next_u64());
        tasks.spawn(takes_everything(keeper, random));
    }
    for outcome in tasks.join_all().await {
        outcome.expect("no acquire fails");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_in_batches_by_several_keepers_make_no_deadlock() {
    let url = fresh();
    let before = deadlocks();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let keeper = Arc::new(keeper(&url).await);
        for name in 0..40 {
            let keeper = keeper.clone();
            tasks.spawn(async move {
                for _ in 0..3 {
                    let lock = keeper.lock(&format!("name-{name}")).expect("a lock");
                    drop(in_time("a lock", lock.acquire()).await.expect("acquires"));
                }
            });
        }
    }
    tasks.join_all().await;
    let found = deadlocks() - before;
    assert!(found <= 2, "{found} deadlocks");
}

fn deadlocks() -> u64 {
    let status = shared().sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
    let number = status
        .split('\t')
        .next_back()
        .and_then(|text| text.parse().ok());
    number.expect("a number")
}
