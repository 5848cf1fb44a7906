//! Programs in other languages, with their libraries from the registries: what they need and how they are built.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::packages::on_path;
use crate::tools::succeed;

/// Something that has to be on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Redis,
    ZooKeeper,
    Python,
    Go,
    Node,
    Java,
}

impl Need {
    /// What is missing and what to do; `None` if nothing is.
    pub fn missing(self) -> Option<String> {
        let (there, what, remedy) = match self {
            Need::Redis => (
                on_path("redis-server"),
                "redis-server",
                "on Debian: apt-get install redis-server",
            ),
            Need::ZooKeeper => (
                Path::new("/usr/share/java/zookeeper.jar").exists(),
                "ZooKeeper",
                "on Debian: apt-get install zookeeper",
            ),
            Need::Python => (
                works("python3", &["-c", "import venv, ensurepip"]),
                "python3 with venv and pip",
                "on Debian: apt-get install python3 python3-venv python3-pip",
            ),
            Need::Go => (
                works("go", &["version"]),
                "go",
                "see https://go.dev/doc/install; interop/plain/go/go.mod says which version",
            ),
            Need::Node => (
                works("node", &["--version"]) && works("npm", &["--version"]),
                "node with npm",
                "on Debian: apt-get install nodejs npm; version 20 or newer",
            ),
            Need::Java => (
                works("javac", &["-version"]) && works("mvn", &["--version"]),
                "a JDK with Maven",
                "on Debian: apt-get install default-jdk-headless maven; version 17 or newer",
            ),
        };
        (!there).then(|| format!("{what} is missing; {remedy}"))
    }
}

/// Names everything that is missing, at once.
pub fn check(needs: &[Need]) -> Result<(), String> {
    let missing: Vec<_> = needs.iter().filter_map(|need| need.missing()).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(missing.join("\n"))
    }
}

/// A virtual environment in `target` with what `source/requirements.txt` names.
pub fn python(source: &Path, target: &Path) -> Result<(), String> {
    if !target.join("bin/python").exists() {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(target))?;
    }
    let mut pip = Command::new(target.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "-r"]);
    pip.arg(source.join("requirements.txt"));
    from(
        &mut pip,
        "PyPI",
        "pip's settings, such as PIP_INDEX_URL, name another one",
    )
}

/// The program `target/peer`.
pub fn go(source: &Path, target: &Path) -> Result<(), String> {
    fs::create_dir_all(target).map_err(|error| format!("{target:?}: {error}"))?;
    let mut go = Command::new("go");
    go.args(["build", "-mod=readonly", "-o"])
        .arg(target.join("peer"))
        .arg(".")
        .current_dir(source);
    from(&mut go, "the Go module proxy", "GOPROXY names another one")
}

/// The scripts of `source` beside their modules, or Node would not find them.
pub fn node(source: &Path, target: &Path) -> Result<(), String> {
    fs::create_dir_all(target).map_err(|error| format!("{target:?}: {error}"))?;
    let files = fs::read_dir(source).map_err(|error| format!("{source:?}: {error}"))?;
    for file in files.flatten().filter(|file| file.path().is_file()) {
        fs::copy(file.path(), target.join(file.file_name()))
            .map_err(|error| format!("{file:?}: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(target);
    from(
        &mut npm,
        "the npm registry",
        "`npm config set registry` names another one",
    )
}

/// The package that `source/pom.xml` describes, with the libraries that it needs, in `target`. Settings are `-Dname=value`.
pub fn java(source: &Path, target: &Path, settings: &[&str]) -> Result<(), String> {
    let mut maven = Command::new("mvn");
    maven
        .args(["--batch-mode", "--quiet", "package"])
        .arg(format!("-Dpeer.target={}", target.display()))
        .args(settings)
        .current_dir(source);
    from(
        &mut maven,
        "Maven Central",
        "a mirror in ~/.m2/settings.xml replaces it",
    )
}

/// Runs what needs a registry.
fn from(command: &mut Command, registry: &str, otherwise: &str) -> Result<(), String> {
    succeed(command).map_err(|error| {
        format!(
            "{error}\nits output is above. If {registry} cannot be reached from here: {otherwise}"
        )
    })
}

fn works(command: &str, arguments: &[&str]) -> bool {
    Command::new(command)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
