//! `cargo xtask interop PEER`: Lockkeeper against clients in other languages, which come from their registries.

use std::process::Command;

use crate::packages::on_path;
use crate::steps::Steps;
use crate::tools::{cargo, root};

/// A client in another language.
struct Peer {
    /// What it is called on the command line.
    name: &'static str,
    /// The commands that it needs, and the Debian packages that have them.
    needs: &'static [(&'static str, &'static str)],
    /// How it is built, in `interop/NAME`, and where what it needs comes from.
    build: &'static [&'static str],
    registry: &'static str,
    /// The tests that drive it.
    test: &'static str,
}

const PEERS: &[Peer] = &[Peer {
    name: "redisson",
    needs: &[
        ("java", "default-jdk-headless"),
        ("javac", "default-jdk-headless"),
        ("mvn", "maven"),
        ("redis-server", "redis-server"),
    ],
    build: &["mvn", "--quiet", "--batch-mode", "package"],
    registry: "Maven Central",
    test: "interop_redisson",
}];

/// Builds a peer, runs its tests, and sums up.
pub fn run(name: &str) -> Result<(), String> {
    let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
        let known: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
        let known = known.join(", ");
        return Err(format!("{name:?} is no peer; there are: {known}"));
    };
    let mut steps = Steps::default();
    let result = all(&mut steps, peer);
    if let Err(reason) = &result {
        println!("\n{reason}");
    }
    steps.summary();
    result.map_err(|_| "a step failed".into())
}

fn all(steps: &mut Steps, peer: &Peer) -> Result<(), String> {
    steps.step("what the peer needs", || needs(peer))?;
    let (command, arguments) = peer.build.split_first().ok_or("nothing to build")?;
    let mut build = Command::new(command);
    build.args(arguments);
    build.current_dir(root().join("interop").join(peer.name));
    steps.command("build the peer", &mut build).map_err(|reason| {
        format!(
            "{reason}\nIf what failed is a download: {} has to be reachable, directly or through a proxy or mirror \
             that {command} is configured for. Nothing of this is needed by `cargo xtask test`.",
            peer.registry
        )
    })?;
    // Few at a time, since each starts a server and a virtual machine; then, alone, those that measure.
    steps.command(
        "both directions",
        &mut test(peer, &["--test-threads=2", "--skip=load::"]),
    )?;
    let load = ["--test-threads=1", "--nocapture", "load::"];
    steps.command("load", &mut test(peer, &load))
}

fn test(peer: &Peer, arguments: &[&str]) -> Command {
    let mut command = cargo();
    command.args([
        "test",
        "--package",
        "lockkeeper-testkit",
        "--features",
        "interop",
    ]);
    command.args(["--test", peer.test, "--"]).args(arguments);
    command
}

fn needs(peer: &Peer) -> Result<(), String> {
    let missing: Vec<_> = peer
        .needs
        .iter()
        .filter(|(command, _)| !on_path(command))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let commands: Vec<_> = missing.iter().map(|(command, _)| *command).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    Err(format!(
        "missing: {}; on Debian run: apt-get install {}",
        commands.join(", "),
        packages.join(" ")
    ))
}
