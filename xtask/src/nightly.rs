//! `cargo xtask nightly`: what takes too long for every change.

use crate::packages;
use crate::steps::{self, Steps};
use crate::tools::cargo;

/// Histories of a quorum with faults by chance, as many as asked for. Each prints its seed.
pub fn run(histories: u64) -> Result<(), String> {
    steps::run(|steps| all(steps, histories))
}

fn all(steps: &mut Steps, histories: u64) -> Result<(), String> {
    steps.step("what the tests need", packages::ensure)?;
    let test = [
        "test",
        "-p",
        "lockkeeper-testkit",
        "--test",
        "quorum_faults",
    ];
    let mut command = cargo();
    command.args(test).args(["mixed::", "--", "--nocapture"]);
    command.env("LOCKKEEPER_HISTORIES", histories.to_string());
    steps.command(&format!("{histories} histories of a quorum"), &mut command)
}
