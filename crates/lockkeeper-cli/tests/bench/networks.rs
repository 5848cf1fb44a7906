//! On SQL servers and on ZooKeeper.

use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use super::servers::targets;
use super::{bench, check_figure, check_nothing_held, scenarios};

const SOME: [&str; 8] = [
    // A pair waits for several commits: on a busy machine half a second may see none.
    "--seconds",
    "2",
    "--scenario",
    "serial",
    "--scenario",
    "contended",
    "--scenario",
    "handoff",
];

/// Every figure stands beside a reference of its server.
fn check(store: &str, raw: &str, ping: &str) {
    let report = bench(store, &SOME);
    let figures = scenarios(&report);
    let names: Vec<_> = figures.iter().map(|one| &one["scenario"]).collect();
    assert_eq!(names, ["serial", "serial", "contended", "handoff"]);
    for figure in &figures[..3] {
        check_figure(figure);
    }
    let what = |at: usize| figures[at]["reference"]["what"].as_str().unwrap();
    assert!(what(0).contains(raw), "{}", what(0));
    assert!(what(3).contains(ping), "{}", what(3));
    assert!(figures[3]["handoff_us"]["p50"].as_f64() > Some(0.0));
    check_nothing_held(store);
}

/// Busy keepers stand beside themselves alone.
fn check_idle(store: &str) {
    let some = ["--seconds", "2", "--scenario", "idle", "--idle", "20"];
    let report = bench(store, &some);
    let [figure] = scenarios(&report) else {
        panic!("{report:#}");
    };
    check_figure(figure);
    assert_eq!(
        (&figure["tasks"], &figure["names"]),
        (&10.into(), &5.into())
    );
    assert!(figure["reference"]["wait_p99_us"].as_f64() > Some(0.0));
    assert_eq!(targets(figure), ["wait p99 ratio", "pairs ratio"]);
    check_nothing_held(store);
}

#[test]
fn postgresql_stands_beside_bare_commits_and_keeps_no_table_of_them() {
    let server = PostgresServer::start_with(PostgresOptions {
        fsync: true,
        ..PostgresOptions::default()
    });
    check(&server.url(), "bare UPDATE commits", "SELECT 1");
    check_idle(&server.url());
    let tables = server.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'bench%'");
    assert_eq!(tables, ["0"]);
}

#[test]
fn mariadb_stands_beside_bare_commits_and_keeps_no_table_of_them() {
    let server = MariaDbServer::start();
    check(&server.url(), "bare UPDATE commits", "SELECT 1");
    check_idle(&server.url());
    let tables = server.sql(
        "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'lockkeeper_bench%'",
    );
    assert_eq!(tables.trim(), "0");
}

#[test]
fn zookeeper_stands_beside_its_nodes_and_keeps_none_of_them() {
    let server = ZooKeeperServer::start();
    check(&server.url("bench"), "create and delete", "committed write");
    assert_eq!(server.ephemerals(), 0);
}
