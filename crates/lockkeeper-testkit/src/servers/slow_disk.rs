//! A disk that takes its time to sync, for a process that runs.

use std::time::Duration;

use super::shim::Shim;

/// A disk that is as fast as it is, until it is told to be slow.
#[derive(Debug)]
pub struct SlowDisk(Shim);

impl SlowDisk {
    /// Compiles the library `slow_disk_shim.c`.
    ///
    /// # Panics
    /// When there is no C compiler, or it does not compile.
    pub fn new() -> SlowDisk {
        let source = include_str!("slow_disk_shim.c");
        SlowDisk(Shim::compile(source, 1, "LOCKKEEPER_SLOW_DISK"))
    }

    /// Every sync takes this much longer from now on.
    pub fn takes(&self, longer: Duration) {
        self.0.set(0, longer.as_nanos() as i64);
    }

    /// What a process needs in its environment to have this disk.
    pub fn environment(&self) -> Vec<(String, String)> {
        self.0.environment()
    }
}

impl Default for SlowDisk {
    fn default() -> SlowDisk {
        SlowDisk::new()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_sync_takes_as_long_as_it_is_told_to() {
        let disk = SlowDisk::new();
        disk.takes(Duration::from_millis(400));
        let file = tempfile::NamedTempFile::new().expect("a file");
        for data in [&[][..], &["-d"]] {
            let mut sync = Command::new("sync");
            sync.args(data).arg(file.path()).envs(disk.environment());
            let began = Instant::now();
            assert!(sync.status().expect("runs").success());
            assert!(began.elapsed() >= Duration::from_millis(400));
        }
    }
}
