//! `cargo xtask interop curator`: the ZooKeeper store beside Curator itself, kazoo and go-zookeeper, and on a newer server than the
//! system's.

use crate::peers::{self, Need};
use crate::steps::{self, Steps};
use crate::tools::{cargo, root};

/// Builds the peers, runs their tests, and sums up.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

fn all(steps: &mut Steps) -> Result<(), String> {
    let source = root().join("interop/curator");
    let others = root().join("interop/zookeeper");
    let target = root().join("target/interop/zookeeper");
    steps.step("what the peers need", || {
        peers::check(&[Need::ZooKeeper, Need::Java, Need::Python, Need::Go])
    })?;
    steps.step("Curator", || {
        peers::java(&source, &source.join("target"), &[])
    })?;
    steps.step("kazoo", || {
        peers::python(&others.join("python"), &target.join("python"))
    })?;
    steps.step("go-zookeeper", || {
        peers::go(&others.join("go"), &target.join("go"))
    })?;
    let server = target.join("server");
    steps.step("a newer ZooKeeper", || {
        peers::java(&others.join("server"), &server, &[])
    })?;
    for (place, named) in [("", None), (", on ZooKeeper 3.9", Some(&server))] {
        let mut command = cargo();
        command.args(["test", "-p", "lockkeeper-testkit", "--features", "interop"]);
        command.args(["--test", "interop_curator", "--", "--test-threads=2"]);
        command.env("LOCKKEEPER_INTEROP_ZOOKEEPER", &target);
        command.envs(named.map(|server| ("LOCKKEEPER_ZOOKEEPER", server)));
        steps.command(&format!("both directions{place}"), &mut command)?;
    }
    // All of it: what is on the wire and what ends a session is the server's.
    let mut suite = cargo();
    suite.args(["test", "-p", "lockkeeper-testkit", "--test", "zookeeper"]);
    suite.args(["--", "--include-ignored"]);
    suite.env("LOCKKEEPER_ZOOKEEPER", &server);
    steps.command("the store's tests, on ZooKeeper 3.9", &mut suite)
}
