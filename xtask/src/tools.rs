//! Calls cargo, and the cargo commands that not everyone has installed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::packages::{on_path, says};
use crate::running::{self, LIMIT};

/// The fuzz targets, one a parser. See `fuzz/`.
pub const FUZZ_TARGETS: &[&str] = &[
    "url",
    "redis_url",
    "redlock_url",
    "redis_answer",
    "redis_grant",
    "zookeeper_answer",
    "duration",
    "name",
];

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// The cargo that runs us, in the folder of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs each fuzz target under libFuzzer if cargo-fuzz and a nightly compiler are there, else without
/// coverage guidance.
pub fn fuzz(seconds: u32) -> Result<(), String> {
    let guided = on_path("cargo-fuzz") && has_nightly();
    if !guided {
        println!(
            "cargo-fuzz or a nightly compiler is missing, so inputs are random instead of guided by coverage; \
             for the real thing: rustup toolchain install nightly && cargo install cargo-fuzz"
        );
    }
    for target in FUZZ_TARGETS {
        println!("\n==> {target}");
        let mut command = if guided {
            let mut command = Command::new("rustup");
            command.current_dir(root());
            command.args(["run", "nightly", "cargo", "fuzz", "run", target, "--"]);
            command.arg(format!("-max_total_time={seconds}"));
            command
        } else {
            fuzz_plainly(target, seconds)
        };
        let limit = LIMIT + Duration::from_secs(seconds.into());
        succeed_within(&mut command, limit)?;
    }
    Ok(())
}

/// Builds a fuzz target as a plain program, which tries the seeds and then random inputs.
pub fn fuzz_plainly(target: &str, seconds: u32) -> Command {
    let mut command = cargo();
    command
        .args(["run", "--quiet", "--manifest-path"])
        .arg("fuzz/Cargo.toml")
        .args(["--target-dir", "target", "--bin", target, "--"])
        .arg(format!("{seconds}"));
    command
}

/// Runs cargo-deny.
pub fn deny() -> Result<(), String> {
    if !on_path("cargo-deny") {
        return Err("cargo-deny is missing; install it: cargo install cargo-deny --locked".into());
    }
    succeed(cargo().args(["deny", "check"]))
}

/// Takes the pictures of the documentation, in a real browser.
pub fn screenshots() -> Result<(), String> {
    // Without the font boxes stand where Chinese should, and nobody is told.
    let has_chinese = says("fc-list", &[":lang=zh"]).is_some_and(|fonts| !fonts.trim().is_empty());
    if !has_chinese || !on_path("pngquant") {
        return Err(
            "the pictures need pngquant and a Chinese font; on Debian: apt-get install pngquant fonts-noto-cjk"
                .into(),
        );
    }
    let package = ["test", "-p", "lockkeeper-lab"];
    succeed(
        cargo()
            .args(package)
            .args(["--features", "screenshots", "--test", "screenshots"]),
    )
}

fn has_nightly() -> bool {
    Command::new("rustup")
        .args(["run", "nightly", "rustc", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command that has to succeed.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    succeed_within(command, LIMIT)
}

fn succeed_within(command: &mut Command, limit: Duration) -> Result<(), String> {
    let result = running::run(command, limit, || ());
    result.map_err(|reason| format!("{command:?}: {reason}"))
}
