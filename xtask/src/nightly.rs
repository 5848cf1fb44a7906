//! `cargo xtask nightly`: what takes too long for every change.

use crate::steps::{self, Steps};
use crate::tools::cargo;
use crate::{packages, programs};

/// The tests that `cargo xtask test` ignores, and as many histories of a quorum with faults by chance as asked for. Each
/// history prints its seed.
pub fn run(histories: u64) -> Result<(), String> {
    steps::run(|steps| all(steps, histories))
}

fn all(steps: &mut Steps, histories: u64) -> Result<(), String> {
    steps.step("what the tests need", packages::ensure)?;
    programs::test(steps, &["--ignored"])?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--test", "quorum_faults"]);
    command.args(["mixed::", "--", "--nocapture"]);
    command.env("LOCKKEEPER_HISTORIES", histories.to_string());
    steps.command(&format!("{histories} histories of a quorum"), &mut command)
}
