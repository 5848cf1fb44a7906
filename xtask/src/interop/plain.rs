//! `cargo xtask interop plain`: the plain dialect beside redis-py, redsync and redlock.

use std::path::Path;

use crate::peers::{self, Need};
use crate::steps::{self, Steps};
use crate::tools::{cargo, root};

/// Installs the peers, runs the tests with them, and sums up.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

fn all(steps: &mut Steps) -> Result<(), String> {
    let source = root().join("interop/plain");
    let target = root().join("target/interop/plain");
    steps.step("what the peers need", || {
        peers::check(&[Need::Redis, Need::Python, Need::Go, Need::Node])
    })?;
    steps.step("redis-py", || {
        peers::python(&source.join("python"), &target.join("python"))
    })?;
    steps.step("redsync", || {
        peers::go(&source.join("go"), &target.join("go"))
    })?;
    steps.step("redlock", || {
        peers::node(&source.join("node"), &target.join("node"))
    })?;
    tests(steps, &target)
}

fn tests(steps: &mut Steps, peers: &Path) -> Result<(), String> {
    let test = ["test", "-p", "lockkeeper-testkit", "--features", "interop"];
    let mut command = cargo();
    command.args(test).args(["--test", "interop_plain"]);
    command.env("LOCKKEEPER_INTEROP_PLAIN", peers);
    steps.command("tests", &mut command)
}
