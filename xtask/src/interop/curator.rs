//! `cargo xtask interop curator`: the ZooKeeper store beside Curator itself.

use crate::peers::{self, Need};
use crate::steps::{self, Steps};
use crate::tools::{cargo, root};

/// Builds the peer, runs its tests, and sums up.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

fn all(steps: &mut Steps) -> Result<(), String> {
    let source = root().join("interop/curator");
    steps.step("what the peer needs", || {
        peers::check(&[Need::ZooKeeper, Need::Java])
    })?;
    steps.step("build the peer", || {
        peers::java(&source, &source.join("target"))
    })?;
    let mut command = cargo();
    command.args(["test", "-p", "lockkeeper-testkit", "--features", "interop"]);
    command.args(["--test", "interop_curator", "--", "--test-threads=2"]);
    steps.command("both directions", &mut command)
}
