//! Every verb in every mode, as the memory store does it: the rules, and every short cut beside them.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::Clock;
use lockkeeper::store::Store;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::differential::{Subject, compare, seed};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::common::open;

const KEEPERS: usize = 3;

/// A server whose clock stands until the test moves it, and some stores on it.
async fn standing() -> (PostgresServer, Subject) {
    let (clock, wall) = (Clock::simulated(), WallClock::new());
    wall.stand_at(Duration::from_micros(clock.unix_micros()));
    let server = PostgresServer::start_with(PostgresOptions {
        environment: wall.environment(),
        ..PostgresOptions::default()
    });
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    // The suite asks for longer leases than are usual.
    let url = format!("{}&max_lease=24h", server.url());
    for _ in 0..KEEPERS {
        stores.push(Arc::new(open(&url).await));
    }
    let subject = Subject::new(stores, clock, move |micros| {
        wall.stand_at(Duration::from_micros(micros));
    });
    (server, subject.on_their_own_clock())
}

async fn compare_all(verbs: usize) {
    let (server, subject) = standing().await;
    compare(&subject, seed(), verbs).await;
    let left = server.sql(
        "SELECT name FROM lockkeeper.lock WHERE claim IS NOT NULL OR shared > 0 \
         UNION ALL SELECT name FROM lockkeeper.hold UNION ALL SELECT name FROM lockkeeper.waiter \
         UNION ALL SELECT name FROM lockkeeper.arrival",
    );
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_verbs_of_all_modes_are_answered_as_by_memory() {
    compare_all(20_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `cargo xtask nightly` runs it"]
async fn many_random_verbs_are_answered_as_by_memory() {
    compare_all(200_000).await;
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
    let server = PostgresServer::shared();
    let url = format!("{}&schema={}", server.url(), PostgresServer::fresh_schema());
    let mut random = Random::seeded(seed());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let keeper = Lockkeeper::connect(&url).await.expect("connects");
        let random = Random::seeded(random.next_u64());
        tasks.spawn(takes_everything(keeper, random));
    }
    for outcome in tasks.join_all().await {
        outcome.expect("no acquire fails");
    }
}
