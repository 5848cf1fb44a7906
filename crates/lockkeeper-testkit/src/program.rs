//! Any program as a test sees it: run to its end, and what it has printed; and waiting for what it does.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long things that should happen soon may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command to its end, with nothing to read.
#[track_caller]
pub fn finish(command: &mut Command) -> Done {
    let output = command.stdin(Stdio::null()).output();
    Done(output.expect("the program starts"))
}

/// Runs a command to its end, with this to read.
#[track_caller]
pub fn feed(command: &mut Command, input: &str) -> Done {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    Done(child.wait_with_output().expect("it ends"))
}

/// The first line that a program prints; nobody reads what follows.
#[track_caller]
pub fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    line
}

/// A program that has ended.
#[derive(Debug)]
pub struct Done(pub Output);

impl Done {
    /// Checks the exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Done {
        assert_eq!(self.0.status.code(), Some(code), "{self:#?}");
        self
    }

    /// What it printed to standard output.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// What it printed to standard error.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Checks that standard error is one line of the command with this in it.
    #[track_caller]
    pub fn says(self, text: &str) -> Done {
        let err = self.err();
        assert!(err.starts_with("lockkeeper: "), "{err:?}");
        assert_eq!(err.lines().count(), 1, "{err:?}");
        assert!(err.contains(text), "{err:?} says {text:?}");
        self
    }

    /// Its standard output, which is JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out()).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// Whether a process runs, also if stopped. One that is dead but not yet buried does not.
#[track_caller]
pub fn alive(pid: i32) -> bool {
    let status = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .expect("ps");
    let state = String::from_utf8_lossy(&status.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

/// Waits until something is there.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until something is true.
#[track_caller]
pub fn until(what: &str, mut look: impl FnMut() -> bool) {
    eventually(what, || look().then_some(()));
}

/// Waits until a file has this in it.
#[track_caller]
pub fn until_in(file: &Path, text: &str) {
    let what = format!("{text:?} in {file:?}");
    until(&what, || {
        std::fs::read_to_string(file).is_ok_and(|found| found.contains(text))
    });
}
