//! What the tests of the laboratory share: a store of their own, and waiting for things to happen.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod crowd;

use std::path::{Path, PathBuf};
use std::process::Command;

#[allow(unused_imports, reason = "each test program uses a part of it")]
pub use lockkeeper_testkit::program::{Done, PATIENCE, alive, finish, first_line, until};
use tempfile::TempDir;

/// The program with the laboratory and the shop.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lockkeeper-lab");

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

    /// `lockkeeper-lab` with these arguments, on this place's store.
    pub fn lab(&self, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("LOCKKEEPER_STORE", self.url());
        command.current_dir(self.folder.path());
        command
    }

    /// The command `lockkeeper` with these arguments, on this place's store.
    pub fn lockkeeper(&self, args: &[&str]) -> Command {
        let program = Path::new(PROGRAM).with_file_name("lockkeeper");
        assert!(program.exists(), "build it: cargo build -p lockkeeper-cli");
        let mut command = Command::new(program);
        command.args(args).env("LOCKKEEPER_STORE", self.url());
        command.env("LC_ALL", "C");
        command
    }
}

/// `lockkeeper-lab` with these arguments and no store in its environment. It speaks English, whatever the language here.
pub fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).env_remove("LOCKKEEPER_STORE");
    command.env("LC_ALL", "C");
    command
}

/// The same command where the system speaks Chinese.
pub fn in_chinese(command: &mut Command) -> &mut Command {
    command.env_remove("LC_ALL").env_remove("LC_MESSAGES");
    command.env("LANG", "zh_CN.UTF-8")
}
