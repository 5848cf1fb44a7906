//! A laboratory that is open.

use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Place, first_line, until};

/// Whether the page shows how a chapter has ended, as the browser sees it. While the page is drawn anew there is nothing.
pub const ENDED: &str = "document.querySelector('#verdict')?.hidden === false";

/// `lockkeeper lab`, until it is dropped.
pub struct Lab {
    child: Child,
    pub port: u16,
}

impl Lab {
    /// Starts this command, which is to open a page.
    pub fn start(command: &mut Command) -> Lab {
        if !command.get_args().any(|argument| argument == "lab") {
            command.arg("lab");
        }
        let mut child = command
            .args(["--listen", "0", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("lockkeeper starts");
        let line = first_line(&mut child);
        let opened: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let url = opened["url"].as_str().expect("an address");
        let port = url.strip_prefix("http://127.0.0.1:").expect("loopback");
        let port = port.parse().expect("a port");
        Lab { child, port }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Presses Ctrl-C, and waits for the end.
    pub fn interrupt(mut self) -> ExitStatus {
        kill(self.pid(), Signal::SIGINT).expect("it runs");
        until(
            "Ctrl-C ends it, unless whoever started us ignores that",
            || self.child.try_wait().expect("it is ours").is_some(),
        );
        self.child.wait().expect("it ends")
    }

    /// The processes that it has started, and theirs.
    pub fn descendants(&self) -> Vec<Pid> {
        descendants(self.pid())
    }
}

fn descendants(of: Pid) -> Vec<Pid> {
    let output = Command::new("ps").args(["-eo", "pid=,ppid="]).output();
    let output = String::from_utf8_lossy(&output.expect("ps").stdout).into_owned();
    let pairs: Vec<(i32, i32)> = output
        .lines()
        .filter_map(|line| {
            let (pid, parent) = line.trim().split_once(' ')?;
            Some((pid.parse().ok()?, parent.trim().parse().ok()?))
        })
        .collect();
    let mut found = vec![of.as_raw()];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(
            pairs
                .iter()
                .filter(|pair| pair.1 == parent)
                .map(|pair| pair.0),
        );
        at += 1;
    }
    found.into_iter().skip(1).map(Pid::from_raw).collect()
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = kill(self.pid(), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// A `lockkeeper run` that holds a lock, or waits for it, until it is dropped.
pub struct Run(Child);

impl Run {
    /// Whatever the name is.
    pub fn start(place: &Place, args: &[&str], name: &str) -> Run {
        let args = [&["run"], args, &[name, "--", "sleep", "600"]].concat();
        let mut command = place.lockkeeper(&args);
        let child = command.stdin(Stdio::null()).spawn();
        Run(child.expect("lockkeeper starts"))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
