//! What is measured: the programs of `bench/peers`, and how they are built and started.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers::{self, Need};
use crate::tools::{cargo, root, succeed};

use super::machine::pinned;

/// One row of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub name: &'static str,
    pub kit: Kit,
    /// What the program is told beyond the server.
    pub variant: Option<&'static str>,
    /// Whether it takes part in the scenarios over several independent servers.
    pub quorum: bool,
    /// How it waits, and what was set.
    pub settings: &'static str,
}

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kit {
    Lockkeeper,
    Rust,
    Python,
    Node,
    Go,
    Java,
}

pub const OURS: &str = "Lockkeeper";
pub const OURS_OFF: &str = "Lockkeeper, hand-off off";
pub const OURS_PLAIN: &str = "Lockkeeper plain";
pub const RSLOCK: &str = "rslock";
pub const REDLOCK: &str = "redlock";
pub const CURATOR: &str = "Curator";
pub const KAZOO: &str = "kazoo";

pub const ON_REDIS: &[Peer] = &[
    Peer {
        name: OURS,
        kit: Kit::Lockkeeper,
        variant: Some("default"),
        quorum: true,
        settings: "defaults: dialect `redisson`, queue with direct grant, hand-off to 512 local tasks or for 5 ms",
    },
    Peer {
        name: OURS_OFF,
        kit: Kit::Lockkeeper,
        variant: Some("off"),
        quorum: false,
        settings: "`HandOff::OFF`: every release goes to the server",
    },
    Peer {
        name: OURS_PLAIN,
        kit: Kit::Lockkeeper,
        variant: Some("plain"),
        quorum: true,
        settings: "`dialect=plain`: no queue, tries about every 25 ms; hand-off as above",
    },
    Peer {
        name: "Lockkeeper plain, hand-off off",
        kit: Kit::Lockkeeper,
        variant: Some("plain-off"),
        quorum: false,
        settings: "`dialect=plain` and `HandOff::OFF`",
    },
    Peer {
        name: RSLOCK,
        kit: Kit::Rust,
        variant: None,
        quorum: true,
        settings: "defaults (three tries, up to 200 ms apart) by `acquire`, which starts over until it has the lock",
    },
    Peer {
        name: "redis-py",
        kit: Kit::Python,
        variant: Some("redis-py"),
        quorum: false,
        settings: "`Lock` with its defaults: tries every 100 ms; threads; with hiredis; up to 1,000 connections",
    },
    Peer {
        name: "python-redis-lock",
        kit: Kit::Python,
        variant: Some("python-redis-lock"),
        quorum: false,
        settings: "defaults: waits in BLPOP; threads; with hiredis; up to 1,000 connections",
    },
    Peer {
        name: REDLOCK,
        kit: Kit::Node,
        variant: None,
        quorum: true,
        settings: "defaults (200 to 300 ms between tries) with `retryCount: -1`, without limit; ioredis",
    },
    Peer {
        name: "redsync",
        kit: Kit::Go,
        variant: None,
        quorum: true,
        settings: "defaults (50 to 250 ms between tries) without a limit to the tries; go-redis with up to 100 connections",
    },
    Peer {
        name: "Redisson",
        kit: Kit::Java,
        variant: Some("redisson"),
        quorum: false,
        settings: "`RLock.lock()` with its defaults: renewed by its watchdog, woken by pub/sub; threads",
    },
];

pub const ON_ZOOKEEPER: &[Peer] = &[
    Peer {
        name: OURS,
        kit: Kit::Lockkeeper,
        variant: Some("default"),
        quorum: false,
        settings: "defaults: a watch on the node before, hand-off to 512 local tasks or for 5 ms",
    },
    Peer {
        name: OURS_OFF,
        kit: Kit::Lockkeeper,
        variant: Some("off"),
        quorum: false,
        settings: "`HandOff::OFF`: every release goes to the server",
    },
    Peer {
        name: CURATOR,
        kit: Kit::Java,
        variant: Some("curator"),
        quorum: false,
        settings: "`InterProcessMutex` with its defaults: a watch on the node before; threads",
    },
    Peer {
        name: KAZOO,
        kit: Kit::Python,
        variant: Some("kazoo"),
        quorum: false,
        settings: "`Lock` with its defaults: a watch on the node before; threads",
    },
];

impl Peer {
    pub fn is_ours(&self) -> bool {
        self.kit == Kit::Lockkeeper
    }

    /// With the URL of a server, or those of several, separated by commas.
    pub fn command(&self, urls: &str) -> Command {
        let mut command = self.kit.command();
        command.arg(urls).args(self.variant);
        command
    }
}

impl Kit {
    const ALL: [Kit; 6] = [
        Kit::Lockkeeper,
        Kit::Rust,
        Kit::Python,
        Kit::Node,
        Kit::Go,
        Kit::Java,
    ];

    /// The programs of these peers.
    pub fn of(peers: &[Peer]) -> impl Iterator<Item = Kit> {
        let used = |kit: &Kit| peers.iter().any(|peer| peer.kit == *kit);
        Kit::ALL.into_iter().filter(used)
    }

    fn need(self) -> Option<Need> {
        match self {
            Kit::Lockkeeper | Kit::Rust => None,
            Kit::Python => Some(Need::Python),
            Kit::Node => Some(Need::Node),
            Kit::Go => Some(Need::Go),
            Kit::Java => Some(Need::Java),
        }
    }

    /// Builds the program, or says what is in the way.
    pub fn build(self) -> Result<(), String> {
        if let Some(missing) = self.need().and_then(Need::missing) {
            return Err(missing);
        }
        let source = |folder| root().join("bench/peers").join(folder);
        let target = self.target();
        match self {
            Kit::Lockkeeper => {
                let build = ["build", "--release", "-p", "lockkeeper-bench-peer"];
                succeed(cargo().args(build))
            }
            Kit::Rust => {
                let manifest = source("rust").join("Cargo.toml");
                succeed(
                    cargo()
                        .args(["build", "--release", "--locked", "--manifest-path"])
                        .arg(manifest)
                        .arg("--target-dir")
                        .arg(target),
                )
            }
            Kit::Python => peers::python(&source("python"), &target),
            Kit::Node => peers::node(&source("node"), &target),
            Kit::Go => peers::go(&source("go"), &target),
            Kit::Java => peers::java(&source("java"), &target, &[]),
        }
    }

    fn command(self) -> Command {
        let target = self.target();
        let program = |path: &str| pinned(target.join(path));
        match self {
            Kit::Lockkeeper => program("lockkeeper-bench-peer"),
            Kit::Rust => program("release/rslock-bench-peer"),
            Kit::Python => {
                let mut python = program("bin/python");
                python.arg(root().join("bench/peers/python/peer.py"));
                python
            }
            Kit::Node => {
                let mut node = pinned("node");
                node.arg(target.join("peer.js"));
                node
            }
            Kit::Go => program("peer"),
            Kit::Java => {
                let mut java = pinned("java");
                java.arg("-cp").arg(class_path(&target)).arg("Peer");
                java
            }
        }
    }

    fn target(self) -> PathBuf {
        let target = root().join("target");
        match self {
            Kit::Lockkeeper => target.join("release"),
            Kit::Rust => target.join("bench/rust"),
            Kit::Python => target.join("bench/python"),
            Kit::Node => target.join("bench/node"),
            Kit::Go => target.join("bench/go"),
            Kit::Java => target.join("bench/java"),
        }
    }
}

fn class_path(target: &Path) -> String {
    let (classes, libraries) = (target.join("classes"), target.join("libraries/*"));
    format!("{}:{}", classes.display(), libraries.display())
}
