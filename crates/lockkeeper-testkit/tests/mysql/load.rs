//! Many at once: what they do to each other, and to the server.

use std::time::Duration;

use crate::common::*;
use crate::turns::take_turns;
use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper::store::mysql::raw::RawConnection;
use lockkeeper::url::StoreUrl;
use lockkeeper_testkit::servers::mariadb::{MariaDbOptions, MariaDbServer};
use lockkeeper_testkit::servers::slow_disk::SlowDisk;

/// Many keepers want one lock while every sync of the server's disk takes so long. Everybody gets in, and nobody loses a lease.
async fn slow_syncs_cost_nobody_a_lease(sync: Duration, keepers: u32, options: &[&str]) {
    let disk = SlowDisk::new();
    let server = MariaDbServer::start_with(MariaDbOptions {
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        environment: disk.environment(),
        ..MariaDbOptions::default()
    });
    let url = format!("{}?{}", server.url(), &PATIENT[1..]);
    let long = Lockkeeper::builder()
        .url(&url)
        .lease(Duration::from_secs(15))
        .connect()
        .await
        .expect("connects");
    let long = long.lock("long").expect("a lock");
    let long = long.acquire().await.expect("acquires");
    disk.takes(sync);
    let waited = take_turns(&url, keepers, 2, Duration::from_millis(100)).await;
    assert!(long.is_held());
    println!("figure: with {options:?} they waited {waited:?}");
    // Turns of two or three commits each.
    let slowest = waited.last().expect("some");
    assert!(*slowest < Duration::from_secs(180), "{waited:?}");
}

/// A grant is over before it is told, and a hold before it is confirmed, unless the keepers take into account how slow commits are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
async fn commits_of_half_a_second_cost_nobody_a_lease() {
    slow_syncs_cost_nobody_a_lease(Duration::from_millis(500), 16, &[]).await;
}

/// Here a commit keeps its rows from others until it is in both logs, one after the other. Sixteen keepers would give up: `docs/sql.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
async fn commits_of_half_a_second_to_two_logs_cost_nobody_a_lease() {
    let options = ["--log-bin", "--sync-binlog=1"];
    slow_syncs_cost_nobody_a_lease(Duration::from_millis(250), 4, &options).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_keepers_on_one_name_make_no_deadlock() {
    let server = MariaDbServer::start();
    let url = format!("{}?{}", server.url(), &PATIENT[1..]);
    take_turns(&url, 64, 1, Duration::ZERO).await;
    let status = server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
    assert_eq!(status, "Innodb_deadlocks\t0");
}

/// Under load nothing of ours takes a second longer than a statement that does nothing, and no transaction stands open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_is_long_and_no_transaction_idles() {
    let server = MariaDbServer::start_as(&[
        "--slow-query-log=1",
        "--long-query-time=1",
        "--log-output=TABLE",
    ]);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let keeper = keeper(&server.url()).await;
        for task in 0..4 {
            let lock = keeper.lock(if task == 0 { "all" } else { "some" });
            let lock = lock.expect("a lock");
            let own = keeper.lock(&format!("own-{number}-{task}"));
            let own = own.expect("a lock");
            tasks.spawn(async move {
                for _ in 0..20 {
                    drop(lock.acquire().await.expect("acquires"));
                    drop(own.acquire().await.expect("acquires"));
                }
            });
        }
    }
    let idle = StoreUrl::parse(&server.url()).expect("a URL");
    let idle = RawConnection::connect(&idle).await.expect("connects");
    let mut slowest = Duration::ZERO;
    // The server ends one that stands for a second.
    let stands = "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p \
         ON p.id = t.trx_mysql_thread_id WHERE p.user = 'keeper' AND p.command = 'Sleep' \
         AND trx_started < SYSDATE() - INTERVAL 2 SECOND";
    while !tasks.is_empty() {
        let began = Moment::now();
        idle.run("DO 0").await.expect("it does nothing");
        slowest = slowest.max(Moment::now().since(began));
        assert_eq!(server.sql(stands), "0");
        while tasks.try_join_next().is_some() {}
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("figure: the slowest statement that does nothing took {slowest:?}");
    // It sees those that are long.
    server.sql("SELECT SLEEP(1.1)");
    let seen = "SELECT COUNT(*) FROM mysql.slow_log WHERE sql_text LIKE 'SELECT SLEEP%'";
    assert_eq!(server.sql(seen), "1");
    // Several that do nothing may be as slow one after the other.
    let allowed = (Duration::from_secs(1) + 3 * slowest).as_secs_f64();
    let long = format!(
        "SELECT query_time, sql_text FROM mysql.slow_log WHERE user_host LIKE 'keeper%' \
         AND TIME_TO_SEC(query_time) > {allowed}"
    );
    assert_eq!(server.sql(&long), "");
}
