//! `cargo xtask interop old`: this Lockkeeper beside the command of an earlier commit, on one store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{self, Steps};
use crate::tools::{cargo, root, succeed};

/// The last commit before stores kept labels: its SQLite file has version 1, and its Redis records have no label.
const COMMIT: &str = "1b0dd7e9defc60558f9e83369aa3b5ddfcf664cc";

/// Builds the earlier command, runs the tests with it, and sums up.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

fn all(steps: &mut Steps) -> Result<(), String> {
    let place = root().join("target/interop/old");
    let source = place.join(COMMIT);
    steps.step("the earlier source", || extract(&source))?;
    let target = place.join("target");
    steps.command("build the earlier command", &mut build(&source, &target))?;
    let mut command = cargo();
    command.args(["test", "-p", "lockkeeper-testkit", "--features", "interop"]);
    command.args(["--test", "interop_old"]);
    command.env("LOCKKEEPER_OLD", target.join("debug/lockkeeper"));
    steps.command("both orders", &mut command)
}

/// Unpacks the commit, unless an earlier run has.
fn extract(source: &Path) -> Result<(), String> {
    if source.exists() {
        return Ok(());
    }
    let draft: PathBuf = source.with_extension("draft");
    let _ = fs::remove_dir_all(&draft);
    fs::create_dir_all(&draft).map_err(|e| format!("{draft:?}: {e}"))?;
    let archive = draft.with_extension("tar");
    let mut pack = Command::new("git");
    pack.current_dir(root()).args(["archive", "--output"]);
    let packed = succeed(pack.arg(&archive).arg(COMMIT));
    packed.map_err(|e| format!("{e}; the whole history is needed: git fetch --unshallow"))?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(&archive).arg("-C").arg(&draft);
    succeed(&mut unpack)?;
    let _ = fs::remove_file(&archive);
    // Whole or not there at all.
    fs::rename(&draft, source).map_err(|e| format!("{source:?}: {e}"))
}

fn build(source: &Path, target: &Path) -> Command {
    let mut command = cargo();
    command.args(["build", "--locked", "-p", "lockkeeper-cli", "--bin"]);
    command.args(["lockkeeper", "--manifest-path"]);
    command.arg(source.join("Cargo.toml"));
    command.arg("--target-dir").arg(target);
    command
}
