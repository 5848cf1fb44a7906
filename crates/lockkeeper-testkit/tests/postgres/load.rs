//! Many at once: what they do to each other, and to the server.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};

use crate::claims::until;

/// A server of which nobody else is a client, and that logs what it is asked.
fn own() -> PostgresServer {
    PostgresServer::start_with(PostgresOptions {
        settings: vec![("log_statement".into(), "all".into())],
        ..PostgresOptions::default()
    })
}

/// How often somebody has begun to listen to a keeper's channel.
fn listens(server: &PostgresServer) -> usize {
    server.log().matches("statement: LISTEN \"lk_").count()
}

/// How many batches each keeper asks for.
const BATCHES: u32 = 8;

/// Some names are shared by all, in batches, and one is taken by everybody: rows are locked in one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_many_keepers_never_deadlock() {
    let server = own();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..12_u64 {
        let url = server.url();
        tasks.spawn(async move {
            let keeper = Lockkeeper::connect(&url).await?;
            for _ in 0..BATCHES {
                let mut batch = tokio::task::JoinSet::new();
                for name in 0..12 {
                    let name = format!("shared {}", (name * 7 + number) % 20);
                    let lock = keeper.lock(&name)?;
                    batch.spawn(async move { lock.acquire().await.map(drop) });
                }
                let hot = keeper.lock("hot")?;
                batch.spawn(async move { hot.acquire().await.map(drop) });
                for outcome in batch.join_all().await {
                    outcome?;
                }
            }
            Ok::<(), lockkeeper::Error>(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome.expect("no acquire fails");
    }
    let trouble = server.sql("SELECT sum(deadlocks) FROM pg_stat_database");
    assert_eq!(trouble, ["0"]);
    let log = server.log();
    assert!(!log.contains("deadlock detected"), "{log}");
}

/// A session that listens is woken by every notification of the database: only keepers that wait do, or hold for long.
#[tokio::test]
async fn idle_keepers_do_not_listen() {
    let server = own();
    let mut idle = Vec::new();
    for _ in 0..5 {
        let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
        drop(
            keeper
                .lock("short")
                .expect("a lock")
                .acquire()
                .await
                .expect("acquires"),
        );
        idle.push(keeper);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(listens(&server), 0);
    let lock = idle[0].lock("long").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    until("a long hold is listened for", async || {
        listens(&server) == 1
    })
    .await;
    // Its break is told, long before it would renew.
    let lost = guard.lost();
    idle[1].break_lock("long", "a test").await.expect("breaks");
    tokio::time::timeout(Duration::from_secs(30), lost)
        .await
        .expect("the loss is told");
}

/// A snapshot of another program keeps old versions of rows: the lock gets slower, and goes on.
#[tokio::test]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
async fn a_snapshot_that_stays_open_stops_nobody() {
    let server = own();
    let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
    let sleeps = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(60); COMMIT";
    let snapshot = tokio::task::spawn_blocking(move || server.sql(sleeps));
    let lock = keeper.lock("hot").expect("a lock");
    let mut slowest = Duration::ZERO;
    while !snapshot.is_finished() {
        let began = Moment::now();
        drop(lock.acquire().await.expect("acquires"));
        slowest = slowest.max(Moment::now().since(began));
    }
    snapshot.await.expect("no panic");
    assert!(slowest < Duration::from_secs(30), "{slowest:?}");
}
