//! Many at once: what they do to each other, and to the server.

use std::time::Duration;

use crate::common::*;
use crate::turns::take_turns;
use lockkeeper::Lockkeeper;
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
