//! `cargo xtask interop redisson`: the redisson dialect beside Redisson itself.

use std::process::Command;

use crate::peers::{self, Need};
use crate::steps::{self, Steps};
use crate::tools::{cargo, root};

/// Builds the peer, runs its tests, and sums up.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

fn all(steps: &mut Steps) -> Result<(), String> {
    let source = root().join("interop/redisson");
    steps.step("what the peer needs", || {
        peers::check(&[Need::Redis, Need::Java])
    })?;
    steps.step("build the peer", || {
        peers::java(&source, &source.join("target"))
    })?;
    // Few at a time, since each starts a server and a virtual machine; then, alone, those that measure.
    steps.command(
        "both directions",
        &mut test(&["--test-threads=2", "--skip=load::"]),
    )?;
    let load = ["--test-threads=1", "--nocapture", "load::"];
    steps.command("load", &mut test(&load))
}

fn test(arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["test", "-p", "lockkeeper-testkit", "--features", "interop"]);
    command.args(["--test", "interop_redisson", "--"]);
    command.args(arguments);
    command
}
