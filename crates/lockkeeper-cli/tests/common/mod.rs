//! What the tests of the command share: a store of their own, and waiting for things to happen.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use lockkeeper_testkit::program;
#[allow(unused_imports, reason = "each test program uses a part of it")]
pub use lockkeeper_testkit::program::{
    Done, PATIENCE, eventually, feed, finish, first_line, until, until_in,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};
use tempfile::TempDir;

/// A shell script that begins like this and never ends by itself. It waits in `wait`, which a signal always ends: a `read`
/// misses the signal that comes just before it. The child that it waits for hears no signal, so that the shell gets to its
/// trap at once, and ends with the shell, whenever that ends: there is a writer before the child opens its end.
pub fn for_ever(begin: &str) -> String {
    let signals = "INT TERM HUP QUIT USR1 USR2 ALRM";
    format!(
        "mkfifo ever; exec 3<> ever; trap \"\" {signals}; cat < ever > /dev/null 2>&1 3>&- & trap - {signals}; \
         {begin}; while :; do wait; done"
    )
}

/// A folder with a store in it.
pub struct Place {
    folder: TempDir,
    store: Option<String>,
}

impl Place {
    pub fn new() -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Place {
            folder,
            store: None,
        }
    }

    /// A folder, and a store elsewhere.
    pub fn on(store: String) -> Place {
        let store = Some(store);
        Place {
            store,
            ..Place::new()
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn url(&self) -> String {
        let own = || format!("sqlite:{}", self.path("locks.db").display());
        self.store.clone().unwrap_or_else(own)
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

/// `lockkeeper` with these arguments and no store in its environment. It speaks English, whatever the language here.
pub fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(args).env_remove("LOCKKEEPER_STORE");
    command.env("LC_ALL", "C");
    command
}

/// The same command where the system speaks Chinese.
pub fn in_chinese(command: &mut Command) -> &mut Command {
    command.env_remove("LC_ALL").env_remove("LC_MESSAGES");
    command.env("LANG", "zh_CN.UTF-8")
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
    program::alive(pid.as_raw())
}
