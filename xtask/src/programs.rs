//! The tests and examples of the workspace: cargo builds the programs, and we run them.
//!
//! All of the workspace is built at once: for one crate alone its dependencies would be compiled again, with fewer
//! features.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use serde::Deserialize;

use crate::steps::Steps;
use crate::tools::{cargo, root};

/// How many test programs run at the same time.
const AT_ONCE: usize = 3;
/// How many tests of a program run at the same time, for each processor. Most tests wait for a lease, a server or a child
/// process more than they work.
const TESTS: usize = 2;

/// Those that take longest, which start first: else one of them would be alone at the end.
const LONGEST: &[&str] = &[
    "redis_faults",
    "quorum_faults",
    "mysql",
    "lab",
    "lab_page",
    "shop",
    "postgres",
    "redis_cluster",
    "quorum",
    "redis",
];

/// What cargo says of a program that it built.
#[derive(Debug, Deserialize)]
struct Program {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// Builds every test program, and runs them all with these arguments.
pub fn test(steps: &mut Steps, args: &[&str]) -> Result<(), String> {
    let build = ["test", "--no-run", "--tests"];
    let mut programs = built(steps, "build tests", &build)?;
    programs.retain(|program| program.profile.test);
    check(&programs, LONGEST)?;
    programs.sort_by_key(|program| {
        let place = LONGEST.iter().position(|name| *name == program.target.name);
        (place.unwrap_or(LONGEST.len()), title(program))
    });
    let threads = TESTS * thread::available_parallelism().map_or(1, |cores| cores.get());
    let commands = programs.iter().filter_map(|program| {
        let mut command = Command::new(&program.executable);
        // As cargo does it.
        command.current_dir(program.manifest_path.parent()?);
        command.env("RUST_TEST_THREADS", threads.to_string());
        command.args(args);
        Some((title(program), command))
    });
    steps.several("tests", AT_ONCE, commands.collect())
}

/// Builds the examples, and runs each: it checks itself.
pub fn examples(steps: &mut Steps) -> Result<(), String> {
    let mut programs = built(steps, "build examples", &["build", "--examples"])?;
    programs.retain(|program| program.is("example"));
    check(&programs, &[])?;
    programs.sort_by(|a, b| a.target.name.cmp(&b.target.name));
    for program in programs {
        let title = format!("example: {}", program.target.name);
        let mut command = Command::new(&program.executable);
        steps.command(&title, command.current_dir(root()))?;
    }
    Ok(())
}

fn built(steps: &mut Steps, title: &str, build: &[&str]) -> Result<Vec<Program>, String> {
    let mut command = cargo();
    command.args(build).arg("--workspace");
    command.arg("--message-format=json-render-diagnostics");
    Ok(programs(&steps.output(title, &mut command)?))
}

/// The programs in what cargo printed: one of its lines is about each thing that was built, and about more.
fn programs(said: &str) -> Vec<Program> {
    let lines = said.lines();
    let programs = lines.map(serde_json::from_str);
    programs.filter_map(Result::ok).collect()
}

/// That there are programs, and these among them. What cargo prints is read leniently: if it changes, nothing would be left to
/// fail.
fn check(programs: &[Program], names: &[&str]) -> Result<(), String> {
    if programs.is_empty() {
        return Err("cargo named no program that it built".to_owned());
    }
    let built = |name: &str| programs.iter().any(|program| program.target.name == name);
    match names.iter().find(|name| !built(name)) {
        Some(name) => Err(format!("cargo named no program {name:?}: was it renamed?")),
        None => Ok(()),
    }
}

impl Program {
    fn is(&self, kind: &str) -> bool {
        self.target.kind.iter().any(|its| its == kind)
    }
}

fn title(program: &Program) -> String {
    let folder = program.manifest_path.parent();
    let folder = folder.and_then(|folder| folder.file_name());
    let krate = folder.unwrap_or_default().to_string_lossy();
    if program.is("test") {
        format!("{krate}: {}", program.target.name)
    } else {
        format!("{krate}: unit tests")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_what_cargo_prints() {
        let said = r#"{"reason":"compiler-artifact","manifest_path":"/x/crates/a/Cargo.toml","target":{"kind":["lib"],"name":"a"},"profile":{"test":false},"executable":null}
{"reason":"build-script-executed","package_id":"b"}
not JSON
{"reason":"compiler-artifact","manifest_path":"/x/crates/a/Cargo.toml","target":{"kind":["test"],"name":"t"},"profile":{"test":true},"executable":"/x/target/t-1"}
{"reason":"build-finished","success":true}"#;
        let found = programs(said);
        let titles: Vec<String> = found.iter().map(title).collect();
        assert_eq!(titles, ["a: t"]);
        assert_eq!(check(&found, &["t"]), Ok(()));
        assert!(check(&found, &["t", "u"]).is_err_and(|told| told.contains("\"u\"")));
        assert!(check(&programs("not JSON"), &[]).is_err());
    }
}
