//! Rows of names that are not used any more.

use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper::{Lockkeeper, Token};
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;
use std::sync::Arc;
use std::time::Duration;

use crate::claims::{claim_for, release, until};
use crate::common::open;
use crate::tidying_support::{OLD, one_keeper_forgets_all, short_keepers_forget};

/// Tables in which so many names were used two hours ago. Some of them were never let go of, and some have the rows of a reader or a waiter
/// that died.
fn aged(url: &str, schema: &str, names: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    drop(runtime.block_on(open(url)));
    fill(PostgresServer::shared(), schema, names);
}

fn fill(server: &PostgresServer, schema: &str, names: usize) {
    let old = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 7200000000";
    server.sql(&format!(
        "INSERT INTO {schema}.lock (name, version, tail, waited, shared, token, claim, mode, first, tokens, lease, expires, since) \
         SELECT 'old-' || n, n, 1, n % 5 = 1, CASE WHEN n % 5 = 2 THEN 1 ELSE 0 END, t, CASE WHEN n % 5 = 3 THEN '\\x00'::bytea END, 1, t, 1, \
         1000000, t + 1000000, t FROM (SELECT generate_series(1, {names}) AS n, {old} AS t) AS x; \
         INSERT INTO {schema}.waiter SELECT name, 1, '\\x01'::bytea, 1, 0, 0, 1, 1, token, token, NULL FROM {schema}.lock WHERE waited; \
         INSERT INTO {schema}.hold SELECT name, '\\x02'::bytea, 2, 0, 0, token, 1, 1, token, token, NULL FROM {schema}.lock WHERE shared > 0"
    ));
}

fn count(schema: &str, table: &str) -> usize {
    let counted = PostgresServer::shared().sql(&format!("SELECT count(*) FROM {schema}.{table}"));
    counted[0].parse().expect("a number")
}

async fn prepared(names: usize) -> (String, String) {
    let schema = PostgresServer::fresh_schema();
    let url = format!("{}&schema={schema}", PostgresServer::shared().url());
    let made = (url.clone(), schema.clone());
    let aged = tokio::task::spawn_blocking(move || aged(&url, &schema, names));
    aged.await.expect("no panic");
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_forgets_names_that_are_not_used_any_more() {
    let (url, schema) = prepared(OLD).await;
    let keeper = Lockkeeper::connect(&url).await.expect("connects");
    one_keeper_forgets_all(&keeper, || count(&schema, "lock")).await;
    assert_eq!((count(&schema, "waiter"), count(&schema, "hold")), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_keepers_forget_names_too() {
    let (url, schema) = prepared(400).await;
    short_keepers_forget(&url, 400, || count(&schema, "lock")).await;
}

/// A row that a transaction of a user keeps is passed over, and the others go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_kept_is_passed_over() {
    let (url, schema) = prepared(200).await;
    let keeps = format!(
        "BEGIN; SELECT name FROM {schema}.lock WHERE name = 'old-100' FOR UPDATE; SELECT pg_sleep(600)"
    );
    let seen =
        format!("SELECT name FROM {schema}.lock WHERE name = 'old-100' FOR UPDATE SKIP LOCKED");
    let server = PostgresServer::shared();
    let kept = tokio::task::spawn_blocking(move || server.try_sql(&keeps));
    until("the row is kept", async || server.sql(&seen).is_empty()).await;
    let keeper = Lockkeeper::connect(&url).await.expect("connects");
    let lock = keeper.lock("used").expect("a lock");
    until("the others are gone", async || {
        for _ in 0..100 {
            drop(lock.acquire().await.expect("acquires"));
        }
        count(&schema, "lock") == 2
    })
    .await;
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%{schema}.lock%pg_sleep(600)%' AND pid <> pg_backend_pid()"
    );
    server.sql(&end);
    assert!(kept.await.expect("no panic").is_err());
}

/// While a transaction of an administrator keeps the row of `meta`, nothing is forgotten, and no request waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_meta_that_is_kept_is_not_waited_for() {
    // The server writes down who waits for a lock for longer than the first of these.
    let settings = [("deadlock_timeout", "2ms"), ("log_lock_waits", "on")];
    let server = Arc::new(PostgresServer::start_with(PostgresOptions {
        settings: settings.map(|(a, b)| (a.into(), b.into())).into(),
        ..PostgresOptions::default()
    }));
    let url = server.url();
    drop(open(&url).await);
    fill(&server, "lockkeeper", 400);
    let kept = tokio::task::spawn_blocking({
        let server = server.clone();
        move || {
            server
                .try_sql("BEGIN; SELECT one FROM lockkeeper.meta FOR UPDATE; SELECT pg_sleep(120)")
        }
    });
    let row = "SELECT one FROM lockkeeper.meta FOR UPDATE SKIP LOCKED";
    until("the row is kept", async || server.sql(row).is_empty()).await;
    // A client that connects meanwhile is not kept out either.
    let keeper = Lockkeeper::connect(&url).await.expect("connects");
    let lock = keeper.lock("used").expect("a lock");
    for _ in 0..64 {
        drop(lock.acquire().await.expect("acquires"));
    }
    let waits: Vec<String> = server.log().lines().map(str::to_owned).collect();
    let waits = waits.iter().filter(|line| line.contains("still waiting"));
    assert_eq!(waits.collect::<Vec<_>>(), Vec::<&String>::new());
    let count = || server.sql("SELECT count(*) FROM lockkeeper.lock");
    assert_eq!(count(), ["401"]);
    server.sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(120)%' AND pid <> pg_backend_pid()",
    );
    assert!(kept.await.expect("no panic").is_err());
    until("all are forgotten", async || {
        for _ in 0..16 {
            drop(lock.acquire().await.expect("acquires"));
        }
        count() == ["1"]
    })
    .await;
}

/// A name that was forgotten gets tokens above those it had, though the server's clock was set back since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_forgotten_name_grow() {
    let wall = WallClock::new();
    let server = PostgresServer::start_with(PostgresOptions {
        environment: wall.environment(),
        ..PostgresOptions::default()
    });
    let store = open(&server.url()).await;
    let lease = Duration::from_secs(30);
    let granted = async |name: &str| -> Token {
        let claim = claim_for(lease, name, Mode::Exclusive);
        let attempt = store.try_acquire(&claim).await;
        let Ok(Attempt::Granted(grant)) = attempt else {
            panic!("{attempt:?}")
        };
        assert_eq!(release(&store, &claim).await, Ok(true));
        grant.token
    };
    let before = granted("forgotten").await;
    let count = || server.sql("SELECT count(*) FROM lockkeeper.lock WHERE name = 'forgotten'");
    assert_eq!(count(), ["1"]);
    wall.ahead(Duration::from_secs(7_200));
    until("it is forgotten", async || {
        for _ in 0..50 {
            granted("used").await;
        }
        count() == ["0"]
    })
    .await;
    wall.behind(Duration::from_secs(3_600));
    let after = until_granted(&store, lease).await;
    assert!(after > before, "{after} after {before}");
}

/// The connection is made anew when the clock was set back.
async fn until_granted(store: &dyn Store, lease: Duration) -> Token {
    let mut token = None;
    until("it is granted", async || {
        let claim = claim_for(lease, "forgotten", Mode::Exclusive);
        if let Ok(Attempt::Granted(grant)) = store.try_acquire(&claim).await {
            token = Some(grant.token);
        }
        token.is_some()
    })
    .await;
    token.expect("a token")
}
