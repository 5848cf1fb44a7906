//! The command `lockkeeper` of an earlier commit.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

/// The earlier command on a store.
pub fn old(store: &str) -> Command {
    let path = std::env::var_os("LOCKKEEPER_OLD");
    let path = path.expect("`cargo xtask interop old` builds the command and runs these tests");
    let mut command = Command::new(path);
    command.env("LOCKKEEPER_STORE", store);
    command
}

/// What its command does: says that it runs, until its input ends.
const HELD: &str = "echo held $LOCKKEEPER_TOKEN; cat";

/// Runs the earlier command to its end. Returns its exit code and all that it printed.
pub fn run_old(store: &str, arguments: &[&str]) -> (i32, String) {
    let command = &mut old(store);
    let command = command.args(arguments).stdin(Stdio::null());
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it runs");
    let said = [stdout, stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (status.code().unwrap_or(-1), said)
}

/// The earlier `lockkeeper run`, while its command runs. Dropping it kills both.
pub struct OldRun {
    run: Child,
    /// Its fencing token.
    pub token: u64,
}

impl OldRun {
    /// Waits until it holds `name`.
    pub fn holding(store: &str, name: &str) -> OldRun {
        let mut command = old(store);
        command.args(["run", name, "--", "sh", "-c", HELD]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = command.spawn().expect("it starts");
        let said = run.stdout.as_mut().expect("piped");
        let mut line = String::new();
        let read = BufReader::new(said).read_line(&mut line);
        read.expect("it says that it holds");
        let token = line.trim_end().strip_prefix("held ");
        let token = token.and_then(|token| token.parse().ok());
        let token = token.unwrap_or_else(|| panic!("it should hold: {line:?}"));
        OldRun { run, token }
    }

    /// Lets its command end, and waits until it has released.
    pub fn end(mut self) {
        drop(self.run.stdin.take());
        let mut rest = String::new();
        let said = self.run.stdout.as_mut().expect("piped");
        said.read_to_string(&mut rest).expect("it ends");
        assert!(self.run.wait().expect("it ends").success());
    }
}

impl Drop for OldRun {
    fn drop(&mut self) {
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}
