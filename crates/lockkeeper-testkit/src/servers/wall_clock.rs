//! The wall clock of a process that runs, for a test to set.
//!
//! A small library (`clock_shim.c`) is compiled and preloaded into the process. It needs a C compiler, as the
//! embedded SQLite does.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Where the numbers stand in the file that `clock_shim.c` reads.
const SHIFT: u64 = 0;
const STANDS: u64 = 8;

/// A clock that starts out right.
#[derive(Debug)]
pub struct WallClock {
    folder: tempfile::TempDir,
}

impl WallClock {
    /// Compiles the library.
    ///
    /// # Panics
    /// When there is no C compiler, or it does not compile.
    pub fn new() -> WallClock {
        let clock = WallClock {
            folder: tempfile::tempdir().expect("a folder"),
        };
        let source = clock.file("shim.c");
        fs::write(&source, include_str!("clock_shim.c")).expect("writes");
        fs::write(clock.file("setting"), [0; 16]).expect("writes");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]);
        cc.arg(clock.file("shim.so")).arg(&source);
        let output = cc
            .output()
            .expect("cc is installed; see `cargo xtask test`");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the shim does not compile: {said}");
        clock
    }

    /// Sets the clock this much ahead of the right time.
    pub fn ahead(&self, by: Duration) {
        self.set(SHIFT, by.as_nanos() as i64);
    }

    /// Sets the clock this much behind the right time.
    pub fn behind(&self, by: Duration) {
        self.set(SHIFT, -(by.as_nanos() as i64));
    }

    /// Stops the clock at this time since 1970. A clock that stands can be set forward in the same way.
    pub fn stand_at(&self, time: Duration) {
        self.set(STANDS, time.as_nanos() as i64);
    }

    /// What a process needs in its environment to have this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.display().to_string();
        vec![
            ("LD_PRELOAD".into(), text(self.file("shim.so"))),
            ("LOCKKEEPER_CLOCK".into(), text(self.file("setting"))),
        ]
    }

    fn set(&self, place: u64, nanos: i64) {
        let file = fs::File::options().write(true).open(self.file("setting"));
        let file = file.expect("opens");
        // One write of eight bytes into a mapped page: a reader sees the old number or the new one.
        let written = file.write_all_at(&nanos.to_ne_bytes(), place);
        written.expect("writes");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_the_time_it_is_given() {
        let clock = WallClock::new();
        let seconds = || {
            let mut date = Command::new("date");
            date.arg("+%s").envs(clock.environment());
            let output = date.output().expect("runs");
            let text = String::from_utf8(output.stdout).expect("text");
            text.trim().parse::<i64>().expect("a number")
        };
        let right = seconds();
        clock.ahead(Duration::from_secs(100_000));
        assert!((99_990..100_900).contains(&(seconds() - right)));
        clock.behind(Duration::from_secs(100_000));
        assert!((-100_010..-99_100).contains(&(seconds() - right)));
        clock.stand_at(Duration::from_secs(1_800_000_000));
        assert_eq!(seconds(), 1_800_000_000);
    }
}
