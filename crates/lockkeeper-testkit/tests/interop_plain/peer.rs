//! A peer of `interop/plain` as a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use serde_json::{Value, json};

/// How long a peer may take for an answer that is not waited for on purpose.
const PATIENCE: Duration = Duration::from_secs(180);

/// The library whose locks they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Python,
    Go,
    Node,
    /// Lockkeeper in a process of its own; it only knows `load`.
    Ours,
}

/// Who, on how many independent servers.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub kind: Kind,
    pub nodes: usize,
}

impl From<Kind> for Setting {
    fn from(kind: Kind) -> Setting {
        Setting { kind, nodes: 1 }
    }
}

impl Kind {
    fn command(self) -> (PathBuf, Vec<PathBuf>) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/plain");
        match self {
            Kind::Python => (
                installed("python/bin/python"),
                vec![source.join("python/peer.py")],
            ),
            Kind::Go => (installed("go/peer"), vec![]),
            // Beside its modules, or Node would not find them.
            Kind::Node => ("node".into(), vec![installed("node/peer.js")]),
            Kind::Ours => (env!("CARGO_BIN_EXE_plain-load").into(), vec![]),
        }
    }
}

/// Where `cargo xtask interop plain` put something.
fn installed(file: &str) -> PathBuf {
    let folder = std::env::var_os("LOCKKEEPER_INTEROP_PLAIN");
    let folder = folder.expect("run this test by `cargo xtask interop plain`");
    let path = Path::new(&folder).join(file);
    assert!(
        path.exists(),
        "{path:?} is missing; run `cargo xtask interop plain`"
    );
    path
}

/// A running peer. Dropping it kills it.
#[derive(Debug)]
pub struct Peer {
    kind: Kind,
    process: Taker,
}

impl Peer {
    pub fn start(kind: Kind, nodes: &Independent) -> Peer {
        let (program, arguments) = kind.command();
        let urls: Vec<String> = nodes.servers().iter().map(RedisServer::url).collect();
        let urls = urls.join(",");
        let mut arguments: Vec<&str> = arguments
            .iter()
            .map(|path| path.to_str().expect("a path in UTF-8"))
            .collect();
        arguments.push(&urls);
        let process = Taker::start(&program, &arguments)
            .unwrap_or_else(|error| panic!("{program:?} does not start: {error}"));
        Peer { kind, process }
    }

    /// Sends an order without waiting for its answer.
    pub fn order(&mut self, order: &Value) {
        self.process
            .tell(&order.to_string())
            .expect("the peer listens");
    }

    /// The answer, if it comes in time.
    pub fn answer_within(&self, time: Duration) -> Option<bool> {
        let line = self.process.line_within(time)?;
        let answer: Value = serde_json::from_str(&line).expect("an answer in JSON");
        match answer["ok"].as_bool() {
            Some(ok) if answer.get("error").is_none() => Some(ok),
            _ => panic!("{:?} answers {line}", self.kind),
        }
    }

    pub fn answer(&self) -> bool {
        let answer = self.answer_within(PATIENCE);
        answer.unwrap_or_else(|| panic!("{:?} never answers", self.kind))
    }

    fn ask(&mut self, order: Value) -> bool {
        self.order(&order);
        self.answer()
    }

    pub fn try_acquire(&mut self, name: &str, ttl: Duration) -> bool {
        self.ask(acquire(name, ttl, Duration::ZERO))
    }

    pub fn release(&mut self, name: &str) -> bool {
        self.ask(json!({ "do": "release", "name": name }))
    }

    pub fn extend(&mut self, name: &str, ttl: Duration) -> bool {
        self.ask(json!({ "do": "extend", "name": name, "ttl_ms": millis(ttl) }))
    }

    /// Whether the lock is still its own.
    pub fn owns(&mut self, name: &str) -> bool {
        self.ask(json!({ "do": "owned", "name": name }))
    }

    /// Whether anybody has the lock.
    pub fn sees_locked(&mut self, name: &str) -> bool {
        self.ask(json!({ "do": "locked", "name": name }))
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("it can be killed");
    }
}

pub fn acquire(name: &str, ttl: Duration, wait: Duration) -> Value {
    json!({ "do": "acquire", "name": name, "ttl_ms": millis(ttl), "wait_ms": millis(wait) })
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}
