//! The wall clock of a process that runs, for a test to set.
//!
//! The library `clock_shim.c` is preloaded into it.

use std::time::Duration;

use super::shim::Shim;

/// Where the numbers stand that `clock_shim.c` reads.
const SHIFT: usize = 0;
const STANDS: usize = 1;

/// A clock that starts out right.
#[derive(Debug)]
pub struct WallClock(Shim);

impl WallClock {
    /// Compiles the library.
    ///
    /// # Panics
    /// When there is no C compiler, or it does not compile.
    pub fn new() -> WallClock {
        let source = include_str!("clock_shim.c");
        WallClock(Shim::compile(source, 2, "LOCKKEEPER_CLOCK"))
    }

    /// Sets the clock this much ahead of the right time.
    pub fn ahead(&self, by: Duration) {
        self.0.set(SHIFT, by.as_nanos() as i64);
    }

    /// Sets the clock this much behind the right time.
    pub fn behind(&self, by: Duration) {
        self.0.set(SHIFT, -(by.as_nanos() as i64));
    }

    /// Stops the clock at this time since 1970. A clock that stands can be set forward in the same way.
    pub fn stand_at(&self, time: Duration) {
        self.0.set(STANDS, time.as_nanos() as i64);
    }

    /// What a process needs in its environment to have this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        self.0.environment()
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock::new()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
