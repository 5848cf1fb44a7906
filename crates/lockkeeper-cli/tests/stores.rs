//! The verbs of the command on the stores that have a server of their own kind.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Place, bare, finish};
use lockkeeper_testkit::servers::etcd::EtcdServer;
use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A lock is held, listed, shown, watched, waited for and broken.
fn verbs(url: String) {
    let place = Place::on(url);
    let ran = place.done(&["run", "x", "--", "echo", "ran"]).code(0);
    assert_eq!(ran.out(), "ran\n");
    let mut watch = place
        .lockkeeper(&["watch", "x", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut until = |event: &str| loop {
        let line = lines.next().expect("more to come").expect("text");
        let line: Value = serde_json::from_str(&line).expect("JSON lines");
        if line["event"] == event {
            return;
        }
    };
    until("free");
    let holder = place.hold(&["--lease", "5s"], "x", "exec sleep 600");
    until("acquired");
    let listed = place.done(&["ls", "--json"]).code(0).json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["held"]),
        (&"x".into(), &true.into())
    );
    let info = place.show("x");
    assert_eq!(info["holders"][0]["pid"], holder.lockkeeper.id());
    place
        .done(&["run", "--no-wait", "x", "--", "true"])
        .code(75);
    let mut waiter = place
        .lockkeeper(&["run", "x", "--", "sleep", "600"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    until("waiting");
    let broken = place.done(&["break", "x", "--reason", "why not", "--json"]);
    assert_eq!(
        broken.code(0).json()["broken"][0]["pid"],
        holder.lockkeeper.id()
    );
    until("broken");
    holder.done().code(76);
    until("acquired");
    kill(Pid::from_raw(waiter.id().cast_signed()), Signal::SIGTERM).expect("there");
    waiter.wait().expect("ends");
    until("released");
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGINT).expect("there");
    assert_eq!(watch.wait().expect("ends").code(), Some(130));
    assert!(place.done(&["ls"]).code(0).out().contains("no lock"));
}

#[test]
fn the_verbs_on_postgres() {
    verbs(PostgresServer::start().url());
}

#[test]
fn the_verbs_on_mysql() {
    verbs(MariaDbServer::start().url());
}

#[test]
fn the_verbs_on_zookeeper() {
    verbs(ZooKeeperServer::start().url("locks"));
}

#[test]
fn the_verbs_on_etcd() {
    verbs(EtcdServer::start().url("locks"));
}

#[test]
fn a_database_that_may_lose_commits_is_warned_about() {
    let warned = |fsync: bool, synchronous: &str| {
        let server = PostgresServer::start_with(PostgresOptions {
            fsync,
            settings: vec![("synchronous_commit".into(), synchronous.into())],
            ..PostgresOptions::default()
        });
        let done =
            finish(bare(&["run", "x", "--", "echo", "mine"]).env("LOCKKEEPER_STORE", server.url()));
        let done = done.code(0);
        assert_eq!(done.out(), "mine\n");
        done.err()
    };
    assert_eq!(warned(true, "on"), "");
    let told = warned(false, "off");
    for warning in ["fsync is off", "synchronous_commit is off by default"] {
        assert!(
            told.contains(&format!("lockkeeper: warning: {warning}")),
            "{told}"
        );
    }
}

#[test]
fn a_mysql_server_that_may_lose_commits_is_warned_about() {
    let warned = |flush: &str| {
        let server =
            MariaDbServer::start_as(&[&format!("--innodb-flush-log-at-trx-commit={flush}")]);
        // The first use would sit out.
        let url = format!("{}?sit_out=never", server.url());
        let done = finish(bare(&["run", "x", "--", "echo", "mine"]).env("LOCKKEEPER_STORE", url));
        let done = done.code(0);
        assert_eq!(done.out(), "mine\n");
        done.err()
    };
    assert_eq!(warned("1"), "");
    let told = warned("2");
    let warning = "lockkeeper: warning: commits do not wait for the disk";
    assert!(told.contains(warning), "{told}");
}
