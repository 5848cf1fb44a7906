//! What the tests of the command share: a store of their own, and waiting for things to happen.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod crowd;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};
use tempfile::TempDir;

/// How long things that should happen soon may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A shell script that begins like this and never ends by itself. It waits in `wait`, which a signal always ends: a `read`
/// misses the signal that comes just before it. The child that it waits for hears no signal, so that the shell gets to its
/// trap at once, and ends with the shell.
pub fn for_ever(begin: &str) -> String {
    let signals = "INT TERM HUP QUIT USR1 USR2 ALRM";
    format!(
        "mkfifo ever; trap \"\" {signals}; cat < ever > /dev/null 2>&1 & trap - {signals}; exec 3> ever; \
         {begin}; while :; do wait; done"
    )
}

/// A folder with a store in it.
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Place { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// The program once more, under another name.
    pub fn copy_of_lockkeeper(&self, name: &str) -> PathBuf {
        let copy = self.path(name);
        // By another process: a file that this one writes cannot be run while a child that another test has just forked
        // still has it open.
        let cp = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_lockkeeper"))
            .arg(&copy)
            .status();
        assert!(cp.is_ok_and(|cp| cp.success()), "cp");
        copy
    }

    /// `lockkeeper` with these arguments, on this place's store.
    pub fn lockkeeper(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("LOCKKEEPER_STORE", self.url());
        command.current_dir(self.folder.path());
        command
    }

    /// Runs `lockkeeper` to its end.
    pub fn done(&self, args: &[&str]) -> Done {
        finish(&mut self.lockkeeper(args))
    }

    /// Starts `lockkeeper run ARGS NAME -- sh -c SCRIPT`, and waits until the script has written its process id.
    pub fn hold(&self, args: &[&str], name: &str, script: &str) -> Holder {
        let file = self.path(&format!("pid-{}", name.replace('/', "-")));
        let _ = std::fs::remove_file(&file);
        let script = format!(
            "echo $$ > '{0}.new'; mv '{0}.new' '{0}'; {script}",
            file.display()
        );
        let args = [&["run"], args, &[name, "--", "sh", "-c", &script]].concat();
        let lockkeeper = self
            .lockkeeper(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("lockkeeper starts");
        let read = || std::fs::read_to_string(&file).ok()?.trim().parse().ok();
        let command = eventually("the command runs", || read().map(Pid::from_raw));
        Holder {
            lockkeeper,
            ended: false,
            command,
            guardian: getpgid(Some(command)).expect("the command's group"),
        }
    }

    /// What `show --json` says.
    pub fn show(&self, name: &str) -> serde_json::Value {
        self.done(&["show", name, "--json"]).code(0).json()
    }
}

/// `lockkeeper` with these arguments and no store in its environment.
pub fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(args).env_remove("LOCKKEEPER_STORE");
    command
}

/// Runs a command to its end, with nothing to read.
pub fn finish(command: &mut Command) -> Done {
    let output = command.stdin(Stdio::null()).output();
    Done(output.expect("lockkeeper starts"))
}

/// Runs a command to its end, with this to read.
pub fn feed(command: &mut Command, input: &str) -> Done {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lockkeeper starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    Done(child.wait_with_output().expect("it ends"))
}

/// The first line that a program prints; nobody reads what follows.
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

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Checks that standard error is one line of ours with this in it.
    #[track_caller]
    pub fn says(self, text: &str) -> Done {
        let err = self.err();
        assert!(err.starts_with("lockkeeper: "), "{err:?}");
        assert_eq!(err.lines().count(), 1, "{err:?}");
        assert!(err.contains(text), "{err:?} says {text:?}");
        self
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out()).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// A `lockkeeper run` that holds a lock.
pub struct Holder {
    pub lockkeeper: Child,
    /// Whether it was waited for.
    ended: bool,
    /// The command that it runs.
    pub command: Pid,
    pub guardian: Pid,
}

impl Holder {
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.lockkeeper.id().cast_signed())
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("lockkeeper is there");
    }

    /// Waits for its end.
    pub fn done(mut self) -> Done {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        // What it prints here is short: it fits into the pipes, so one after the other will do.
        let pipes = (self.lockkeeper.stdout.take(), self.lockkeeper.stderr.take());
        pipes.0.map(|mut pipe| pipe.read_to_end(&mut stdout));
        pipes.1.map(|mut pipe| pipe.read_to_end(&mut stderr));
        let status = self.lockkeeper.wait().expect("it ends");
        self.ended = true;
        Done(Output {
            status,
            stdout,
            stderr,
        })
    }
}

impl Drop for Holder {
    /// A test that fails leaves nothing running: the guardian ends the command.
    fn drop(&mut self) {
        if !self.ended {
            let _ = kill(self.guardian, Signal::SIGCONT);
            let _ = self.lockkeeper.kill();
            let _ = self.lockkeeper.wait();
        }
    }
}

/// Whether a process runs, also if stopped. One that is dead but not yet buried does not.
pub fn alive(pid: Pid) -> bool {
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
pub fn until_in(file: &std::path::Path, text: &str) {
    let what = format!("{text:?} in {file:?}");
    until(&what, || {
        std::fs::read_to_string(file).is_ok_and(|found| found.contains(text))
    });
}
