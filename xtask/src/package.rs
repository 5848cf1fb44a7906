//! `cargo xtask package`: the crates as they would be published, each built from what is in its package alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::steps::{self, Steps};
use crate::tools::{cargo, root};

/// What cargo says of the workspace.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    /// The registries it may go to; `None` is any.
    publish: Option<Vec<String>>,
    rust_version: Option<String>,
    license: Option<String>,
    description: Option<String>,
    readme: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
}

/// Packs and builds every crate that is published.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

/// The steps of it.
pub fn all(steps: &mut Steps) -> Result<(), String> {
    let host = host(&steps.output("which machine this is", Command::new("rustc").arg("-vV"))?)?;
    // The steps below are offline, and on a new machine nothing was downloaded yet.
    let fetch = ["fetch", "--locked", "--target", &host];
    steps.command("download what crates need", cargo().args(fetch))?;
    let args = ["metadata", "--format-version", "1", "--locked", "--offline"];
    // Of this machine: what others need was not fetched.
    let mut command = cargo();
    command.args(args).args(["--filter-platform", &host]);
    let said = steps.output("what there is to publish", &mut command)?;
    let metadata: Metadata = serde_json::from_str(&said).map_err(|e| e.to_string())?;
    steps.step("metadata", || complete(&metadata))?;
    steps.step("the oldest Rust", || old_enough(&metadata))?;
    steps.step("forget older packages", || forget(&root().join(FOLDER)))?;
    let mut package = cargo();
    // Offline: what was fetched for the workspace is all that packages need, and they need each other from here.
    package.args(["package", "--locked", "--offline", "--allow-dirty"]);
    package.args(["--target-dir", FOLDER]);
    for krate in metadata.published() {
        package.args(["--package", &krate.name]);
    }
    steps.command("package, and build from the packages", &mut package)
}

/// Where packages are built, below the folder of the workspace.
const FOLDER: &str = "target/packages";

/// Has cargo build our own packages anew. It takes a package of a version that it has built before for the same.
fn forget(folder: &Path) -> Result<(), String> {
    let Ok(built) = std::fs::read_dir(folder.join("debug/.fingerprint")) else {
        return Ok(());
    };
    for one in built.flatten() {
        if one.file_name().to_string_lossy().starts_with("lockkeeper") {
            let path = one.path();
            std::fs::remove_dir_all(&path).map_err(|e| format!("{path:?}: {e}"))?;
        }
    }
    Ok(())
}

impl Metadata {
    fn published(&self) -> impl Iterator<Item = &Package> {
        let ours = |package: &&Package| self.workspace_members.contains(&package.id);
        self.packages
            .iter()
            .filter(ours)
            .filter(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty()))
    }
}

/// The kind of machine, as `rustc -vV` says it.
fn host(said: &str) -> Result<String, String> {
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not say for which machine it is".into())
}

/// That every published crate says what it is.
fn complete(metadata: &Metadata) -> Result<(), String> {
    let mut count = 0;
    for package in metadata.published() {
        let readme = package.readme.as_deref();
        let said = [
            ("a description", package.description.is_some()),
            ("a licence", package.license.is_some()),
            (
                "a readme",
                readme.is_some_and(|file| !Path::new(file).starts_with("..")),
            ),
            ("keywords", (1..=5).contains(&package.keywords.len())),
            ("categories", (1..=5).contains(&package.categories.len())),
        ];
        if let Some((what, _)) = said.iter().find(|(_, there)| !there) {
            return Err(format!("{} lacks {what}", package.name));
        }
        println!("{} {}", package.name, package.version);
        count += 1;
    }
    match count {
        0 => Err("no crate is published".to_owned()),
        _ => Ok(()),
    }
}

/// That no dependency needs a newer Rust than we say that we do.
fn old_enough(metadata: &Metadata) -> Result<(), String> {
    let ours = metadata
        .published()
        .filter_map(|package| package.rust_version.as_deref());
    let oldest = ours.filter_map(version).min();
    let oldest = oldest.ok_or("no crate says which Rust it needs")?;
    let newer = metadata.packages.iter().filter(|package| {
        let needs = package.rust_version.as_deref().and_then(version);
        needs.is_some_and(|needs| needs > oldest)
    });
    let newer: Vec<String> = newer
        .map(|package| format!("{} {}", package.name, package.version))
        .collect();
    let (major, minor) = oldest;
    if newer.is_empty() {
        println!("all build with Rust {major}.{minor}");
        Ok(())
    } else {
        Err(format!(
            "these need a newer Rust than {major}.{minor}: {}",
            newer.join(", ")
        ))
    }
}

/// Major and minor of a version such as `1.88` or `1.88.0`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(more: &str, rust_of_dependency: &str) -> Metadata {
        let text = format!(
            r#"{{"workspace_members":["ours","inner"],"packages":[
            {{"id":"ours","name":"ours","version":"1.0.0","rust_version":"1.88","license":"MIT","description":"d",
              "readme":"README.md","keywords":["k"],"categories":[{more}]}},
            {{"id":"inner","name":"inner","version":"1.0.0","publish":[],"keywords":[],"categories":[]}},
            {{"id":"dep","name":"dep","version":"2.0.0","rust_version":"{rust_of_dependency}","keywords":[],"categories":[]}}]}}"#
        );
        serde_json::from_str(&text).expect("metadata")
    }

    #[test]
    fn only_our_own_packages_are_built_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let built = folder.path().join("debug/.fingerprint");
        assert_eq!(forget(folder.path()), Ok(()), "nothing was built yet");
        for name in ["lockkeeper-1f", "lockkeeper-cli-2e", "tokio-3d"] {
            std::fs::create_dir_all(built.join(name)).expect("a folder");
        }
        assert_eq!(forget(folder.path()), Ok(()));
        let left = std::fs::read_dir(&built).expect("a folder");
        let left: Vec<_> = left.flatten().map(|one| one.file_name()).collect();
        assert_eq!(left, ["tokio-3d"]);
    }

    #[test]
    fn the_host_is_read() {
        let said = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\n";
        assert_eq!(host(said), Ok("x86_64-unknown-linux-gnu".to_owned()));
        assert!(host("").is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(complete(&metadata("\"c\"", "1.60")), Ok(()));
        let lacks = complete(&metadata("", "1.60"));
        assert_eq!(lacks, Err("ours lacks categories".to_owned()));
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_named() {
        for fits in ["1.9", "1.88", "1.88.0", "1.60.1"] {
            assert_eq!(old_enough(&metadata("\"c\"", fits)), Ok(()), "{fits}");
        }
        let told = old_enough(&metadata("\"c\"", "1.89")).expect_err("too new");
        assert!(told.contains("dep 2.0.0"), "{told}");
    }
}
