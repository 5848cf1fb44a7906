//! Processes of one peer that measure together. `bench/peers/README.md` has what is said between us.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cast::Peer;

/// How long a program may take to connect.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Serialize)]
pub struct Order {
    pub names: Vec<String>,
    pub start_ns: u64,
    pub end_ns: u64,
    pub hold_us: u64,
    pub notes: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Answer {
    pub pairs: Vec<u64>,
    pub all: u64,
    pub waits: BTreeMap<u32, u64>,
    pub held_ns: u64,
    pub notes: Vec<[u64; 3]>,
    pub errors: u64,
    pub error: Option<String>,
}

impl Answer {
    /// Adds what the same tasks did in another window.
    pub fn add(&mut self, other: Answer) {
        self.pairs.resize(other.pairs.len(), 0);
        for (pairs, more) in self.pairs.iter_mut().zip(other.pairs) {
            *pairs += more;
        }
        for (bucket, count) in other.waits {
            *self.waits.entry(bucket).or_default() += count;
        }
        self.all += other.all;
        self.held_ns += other.held_ns;
        self.notes.extend(other.notes);
        self.errors += other.errors;
        self.error = self.error.take().or(other.error);
    }
}

#[derive(Deserialize)]
struct Ready {
    ready: String,
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    /// What it is, as it says itself.
    pub version: String,
}

impl Process {
    /// Starts it; [`Process::ready`] waits until it has connected.
    pub fn start(peer: &Peer, urls: &str) -> Result<Process, String> {
        let mut child = peer
            .command(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("does not start: {error}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("has no pipes".into());
        };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process {
            child,
            stdin,
            lines,
            version: String::new(),
        })
    }

    pub fn ready(&mut self) -> Result<(), String> {
        let Ready { ready } = self.read(STARTS_WITHIN)?;
        self.version = ready;
        Ok(())
    }

    pub fn order(&mut self, order: &Order) -> Result<(), String> {
        let line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        writeln!(self.stdin, "{line}").map_err(|error| format!("takes no order: {error}"))
    }

    pub fn answer(&self, within: Duration) -> Result<Answer, String> {
        self.read(within)
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, within: Duration) -> Result<T, String> {
        let line = self.lines.recv_timeout(within).map_err(|why| match why {
            RecvTimeoutError::Timeout => format!("did not answer within {within:?}"),
            RecvTimeoutError::Disconnected => "ended before its time".to_owned(),
        })?;
        serde_json::from_str(&line).map_err(|error| format!("answers {line:.200?}: {error}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
