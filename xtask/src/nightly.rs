//! `cargo xtask nightly`: what takes too long for every change.

use std::time::Duration;

use crate::running::LIMIT;
use crate::steps::{self, Steps};
use crate::test::{clippy, features};
use crate::tools::{FUZZ_TARGETS, cargo, fuzz_plainly, root};
use crate::{package, packages, programs};

/// How many of the histories of every store those of one store in particular are: a quorum's exclusive locks with clocks that
/// differ, and ZooKeeper's sequence numbers near their end.
const IN_PARTICULAR: u64 = 4;

/// How much longer the histories may take for each that is asked for.
const A_HISTORY: Duration = Duration::from_secs(60);

/// The tests that `cargo xtask test` ignores, and as many histories of each store with faults by chance as asked for. Each
/// history prints its seed.
pub fn run(histories: u64) -> Result<(), String> {
    steps::run(|steps| all(steps, histories))
}

fn all(steps: &mut Steps, histories: u64) -> Result<(), String> {
    steps.step("what the tests need", packages::ensure)?;
    package::all(steps)?;
    // Without TLS and without the quorum: what needs them is refused, and the rest works.
    let alone = ["test", "-p", "lockkeeper", "--lib", "--no-default-features"];
    let alone = [&alone[..], &["--features", "redis"]].concat();
    steps.command("test: redis alone", cargo().args(alone))?;
    let library = ["-p", "lockkeeper", "--all-targets", "--no-default-features"];
    for feature in features(&root().join("crates/lockkeeper/Cargo.toml"))? {
        let title = format!("clippy with tests: {feature} alone");
        let args = [&library[..], &["--features", &feature]].concat();
        steps.command(&title, &mut clippy(&args))?;
    }
    for target in FUZZ_TARGETS {
        steps.command(&format!("fuzz: {target}"), &mut fuzz_plainly(target, 1))?;
    }
    // The histories follow, with no other program beside them: on a busy machine some come to nothing.
    let histories_are_later = ["--skip=every_rule_holds", "--skip=the_numbers_end"];
    programs::test(steps, &[&["--ignored"], &histories_are_later[..]].concat())?;
    steps.limit(LIMIT + A_HISTORY * u32::try_from(histories).unwrap_or(u32::MAX));
    let test = ["test", "--workspace", "--test"];
    let mut play = |title: &str, parts: [&str; 2], histories: u64| {
        let mut command = cargo();
        command.args(test).args(parts);
        command.args(["--", "--nocapture", "--include-ignored"]);
        command.env("LOCKKEEPER_HISTORIES", histories.to_string());
        steps.command(&format!("{histories} histories of {title}"), &mut command)
    };
    play("each store", ["histories", "every_rule_holds"], histories)?;
    let fewer = histories.div_ceil(IN_PARTICULAR);
    play(
        "a quorum and its clocks",
        ["quorum_faults", "mixed::"],
        fewer,
    )?;
    play(
        "ZooKeeper at the end of its numbers",
        ["histories", "the_numbers_end"],
        fewer,
    )
}
