//! Ends a process when this one is gone, however it went.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that waits until its standard input closes, which it does when we die, and then kills a process and
/// removes its folder.
#[derive(Debug)]
pub struct Leash(Child);

impl Leash {
    /// Ties a process of this id to ours.
    ///
    /// # Panics
    /// When there is no shell.
    pub fn on(pid: u32, folder: &Path) -> Leash {
        let shell = Command::new("sh")
            .args(["-c", "read _; kill -9 $0; rm -rf \"$1\"", &pid.to_string()])
            .arg(folder)
            // Ctrl-C ends us, and must leave somebody to end the process.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Leash(shell.expect("a shell"))
    }

    /// Ties a folder to our process alone.
    ///
    /// # Panics
    /// When there is no shell.
    pub fn over(folder: &Path) -> Leash {
        let shell = Command::new("sh")
            .args(["-c", "read _; rm -rf \"$0\""])
            .arg(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Leash(shell.expect("a shell"))
    }
}

impl Drop for Leash {
    /// Lets the process go: its id may soon be another's.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
