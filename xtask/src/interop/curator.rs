//! `cargo xtask interop curator`: the ZooKeeper store beside Curator itself, kazoo and go-zookeeper.

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
    let mut command = cargo();
    command.args(["test", "-p", "lockkeeper-testkit", "--features", "interop"]);
    command.args(["--test", "interop_curator", "--", "--test-threads=2"]);
    command.env("LOCKKEEPER_INTEROP_ZOOKEEPER", &target);
    steps.command("both directions", &mut command)
}
