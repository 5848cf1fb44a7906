//! `cargo xtask interop redisson`: the redisson dialect beside Redisson itself.

use std::path::Path;
use std::process::Command;

use crate::peers::{self, Need};
use crate::steps::{self, Steps};
use crate::tools::{cargo, root};

/// The last Redisson of its third major version: many services have not moved on. `pom.xml` names the one of today.
const OLDER: &str = "3.52.0";

/// Builds the peers, runs their tests, and sums up.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

fn all(steps: &mut Steps) -> Result<(), String> {
    let source = root().join("interop/redisson");
    let target = root().join("target/interop/redisson");
    let (newest, older) = (target.join("newest"), target.join(OLDER));
    steps.step("what the peers need", || {
        peers::check(&[Need::Redis, Need::Java])
    })?;
    steps.step("Redisson", || peers::java(&source, &newest, &[]))?;
    let version = format!("-Dredisson.version={OLDER}");
    let title = format!("Redisson {OLDER}");
    steps.step(&title, || peers::java(&source, &older, &[&version]))?;
    // Few at a time, since each starts a server and a virtual machine; then, alone, those that measure.
    let both = ["--test-threads=2", "--skip=load::"];
    steps.command("both directions", &mut test(&newest, &both))?;
    let title = format!("both directions, {title}");
    steps.command(&title, &mut test(&older, &both))?;
    let load = ["--test-threads=1", "--nocapture", "load::"];
    steps.command("load", &mut test(&newest, &load))
}

fn test(peer: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["test", "-p", "lockkeeper-testkit", "--features", "interop"]);
    command.args(["--test", "interop_redisson", "--"]);
    command.args(arguments);
    command.env("LOCKKEEPER_INTEROP_REDISSON", peer);
    command
}
