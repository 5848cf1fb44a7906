//! `cargo xtask test`: everything the project checks about itself, in the order in which it fails fastest.

use std::path::Path;
use std::process::Command;

use crate::languages;
use crate::packages;
use crate::programs;
use crate::steps::{self, Steps};
use crate::tools::cargo;

/// Runs every step until one fails, then sums up.
pub fn run(quick: bool) -> Result<(), String> {
    steps::run(|steps| all(steps, quick))
}

fn all(steps: &mut Steps, quick: bool) -> Result<(), String> {
    steps.step("what the tests need", packages::ensure)?;
    steps.command("format", cargo().args(["fmt", "--all", "--check"]))?;
    let root = crate::tools::root();
    steps.step("languages", || languages::check(&root))?;
    // All features, so that what only `cargo xtask interop` runs is compiled as well.
    let everything = ["--workspace", "--all-targets", "--all-features"];
    steps.command("clippy", &mut clippy(&everything))?;
    if !quick {
        // Its tests are linted above; with one feature alone, in `nightly`.
        let library = ["-p", "lockkeeper", "--lib", "--no-default-features"];
        steps.command("clippy: no features", &mut clippy(&library))?;
        for feature in features(&root.join("crates/lockkeeper/Cargo.toml"))? {
            let title = format!("clippy: {feature} alone");
            let args = [&library[..], &["--features", &feature]].concat();
            steps.command(&title, &mut clippy(&args))?;
        }
    }
    // Tests start these programs, also across crates, where cargo would not build them by itself.
    steps.command("build", cargo().args(["build", "--workspace", "--bins"]))?;
    programs::test(steps, &[])?;
    let doc_tests = ["test", "--workspace", "--no-fail-fast", "--doc"];
    steps.command("documentation tests", cargo().args(doc_tests))?;
    if quick {
        return Ok(());
    }
    programs::examples(steps)?;
    // The library by itself: the other crates enable its `internals`, to which no page of its own may lead.
    for (title, crates) in [
        ("rustdoc: library", &["-p", "lockkeeper"][..]),
        ("rustdoc", &["--workspace", "--exclude", "lockkeeper"]),
    ] {
        let doc = [&["doc", "--no-deps"], crates].concat();
        let strict = ("RUSTDOCFLAGS", "-D warnings");
        steps.command(title, cargo().args(doc).env(strict.0, strict.1))?;
    }
    Ok(())
}

/// Lints what these arguments name; a warning is an error.
pub fn clippy(args: &[&str]) -> Command {
    let mut command = cargo();
    command.arg("clippy").args(args);
    command.args(["--", "-D", "warnings"]);
    command
}

/// The features a manifest declares, but not what is on by default.
pub fn features(manifest: &Path) -> Result<Vec<String>, String> {
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
