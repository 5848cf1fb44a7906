//! `cargo xtask test`: everything the project checks about itself, in the order in which it fails fastest.

use std::path::Path;
use std::process::Command;

use crate::packages;
use crate::steps::{self, Steps};
use crate::tools::{FUZZ_TARGETS, cargo, fuzz_plainly};

/// Runs every step until one fails, then sums up.
pub fn run(quick: bool) -> Result<(), String> {
    steps::run(|steps| all(steps, quick))
}

fn all(steps: &mut Steps, quick: bool) -> Result<(), String> {
    steps.step("what the tests need", packages::ensure)?;
    steps.command("format", cargo().args(["fmt", "--all", "--check"]))?;
    // All features, so that what only `cargo xtask interop` runs is compiled as well.
    let everything = ["--workspace", "--all-features"];
    steps.command("clippy", &mut clippy(&everything))?;
    if !quick {
        let library = ["-p", "lockkeeper", "--no-default-features"];
        steps.command("clippy: no features", &mut clippy(&library))?;
        for feature in features(&crate::tools::root().join("crates/lockkeeper/Cargo.toml"))? {
            let title = format!("clippy: {feature} alone");
            let args = [&library[..], &["--features", &feature]].concat();
            steps.command(&title, &mut clippy(&args))?;
        }
    }
    // Tests start these programs, also across crates, where cargo would not build them by itself.
    steps.command("build", cargo().args(["build", "--workspace", "--bins"]))?;
    let test = ["test", "--workspace", "--no-fail-fast"];
    let tests = ["--lib", "--bins", "--tests"];
    steps.command(
        "build tests",
        cargo().args(test).args(tests).arg("--no-run"),
    )?;
    // The whole workspace in both, or its dependencies would be built twice.
    let (mut testkit, mut others) = (cargo(), cargo());
    testkit.args(test);
    others.args(test).args(&tests[..2]);
    let crates = crate::tools::root().join("crates");
    let folders = std::fs::read_dir(&crates).map_err(|e| format!("{crates:?}: {e}"))?;
    for folder in folders.flatten() {
        let command = match folder.file_name() == "lockkeeper-testkit" {
            true => &mut testkit,
            false => &mut others,
        };
        for name in targets(&folder.path())? {
            command.args(["--test", &name]);
        }
    }
    steps.both(
        ("tests of the testkit", &mut testkit),
        ("other tests", &mut others),
    )?;
    steps.command("documentation tests", cargo().args(test).arg("--doc"))?;
    if quick {
        return Ok(());
    }
    for example in examples()? {
        let run = ["run", "--quiet", "-p", "lockkeeper", "--example", &example];
        steps.command(&format!("example: {example}"), cargo().args(run))?;
    }
    let doc = ["doc", "--workspace", "--no-deps"];
    steps.command(
        "rustdoc",
        cargo().args(doc).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    for target in FUZZ_TARGETS {
        steps.command(&format!("fuzz: {target}"), &mut fuzz_plainly(target, 1))?;
    }
    Ok(())
}

/// The test targets of a crate, but not those that its manifest keeps for another `cargo xtask` command.
fn targets(krate: &Path) -> Result<Vec<String>, String> {
    let manifest = krate.join("Cargo.toml");
    let manifest = std::fs::read_to_string(&manifest).map_err(|e| format!("{manifest:?}: {e}"))?;
    let Ok(files) = std::fs::read_dir(krate.join("tests")) else {
        return Ok(Vec::new());
    };
    let paths = files.flatten().map(|file| file.path());
    let paths = paths.filter(|path| {
        path.join("main.rs").is_file() || path.extension().is_some_and(|it| it == "rs")
    });
    let names = paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<_> = names
        .filter(|name| !manifest.contains(&format!("[[test]]\nname = \"{name}\"")))
        .collect();
    names.sort();
    Ok(names)
}

/// The library's examples, each of which checks itself.
fn examples() -> Result<Vec<String>, String> {
    let folder = crate::tools::root().join("crates/lockkeeper/examples");
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
    let names = files.flatten().map(|file| file.path());
    let mut names: Vec<_> = names
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn clippy(args: &[&str]) -> Command {
    let mut command = cargo();
    command.arg("clippy").args(args);
    command.args(["--all-targets", "--", "-D", "warnings"]);
    command
}

/// The features a manifest declares, but not what is on by default.
fn features(manifest: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(manifest).map_err(|e| format!("{manifest:?}: {e}"))?;
    Ok(feature_names(&text))
}

fn feature_names(manifest: &str) -> Vec<String> {
    let mut lines = manifest.lines().skip_while(|line| *line != "[features]");
    lines.next();
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().trim_matches('"').to_owned())
        .filter(|name| !name.starts_with('#') && name != "default")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_the_manifest() {
        let manifest = "[package]\nname = \"x\"\n[features]\ndefault = [\"a\"]\n# why = this\na = []\nb = [\"a\"]\n[x]\nc = 1";
        assert_eq!(feature_names(manifest), ["a", "b"]);
    }
}
