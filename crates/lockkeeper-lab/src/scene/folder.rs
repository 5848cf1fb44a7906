//! The folder of a scene, which goes with the last that uses it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

/// What the names of folders begin with.
const PREFIX: &str = "lockkeeper-lab-";
/// A file in each of them, which its owner keeps locked: the kernel unlocks it however the owner ends.
const OWNER: &str = ".owner";

/// How long something may still be writing into it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A temporary folder that is removed also while somebody who is about to end makes files in it: a stock that is being
/// opened goes on with that, though the chapter was interrupted.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked.
    _owner: File,
}

impl Folder {
    /// A new one.
    pub fn new() -> io::Result<Folder> {
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
            let owner = File::create_new(folder.path().join(OWNER))?;
            // One that sweeps at this moment may have come before us.
            if flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok()
                && owner.metadata()?.nlink() > 0
            {
                let path = folder.keep();
                return Ok(Folder {
                    path,
                    _owner: owner,
                });
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the folders that this user's laboratories left behind when they were killed. One that is locked is in use, and
/// one without the file is not known to be ours.
pub fn sweep() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Of the entry itself: a link is no folder.
        let folder = entry.metadata();
        let folder = folder.is_ok_and(|of| of.is_dir() && of.uid() == geteuid().as_raw());
        if !ours || !folder {
            continue;
        }
        let mut open = OpenOptions::new();
        open.read(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let Ok(owner) = open.open(entry.path().join(OWNER)) else {
            continue;
        };
        if flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&entry.path(), |folder| std::fs::remove_dir_all(folder));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.path, |folder| std::fs::remove_dir_all(folder));
    }
}

/// Tries to remove a folder until it is gone. What appears between the look at its files and its own removal makes that fail.
fn remove(folder: &Path, mut attempt: impl FnMut(&Path) -> io::Result<()>) {
    let end = Instant::now() + PATIENCE;
    while attempt(folder).is_err() && folder.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it() {
        let folder = Folder::new().expect("a folder");
        let path = folder.path().to_owned();
        std::fs::create_dir(path.join("inner")).expect("makes");
        std::fs::write(path.join("inner/file"), "").expect("writes");
        drop(folder);
        assert!(!path.exists(), "{path:?} is left");
    }

    #[test]
    fn it_goes_though_a_file_is_made_while_it_is_removed() {
        let folder = Folder::new().expect("a folder");
        let mut files = ["stock.db", "stock.db-wal"].iter();
        let mut failed = 0;
        remove(folder.path(), |path| {
            std::fs::remove_dir_all(path)?;
            // The same as one that appears when all others are gone and the folder is still there.
            if let Some(file) = files.next() {
                std::fs::create_dir(path)?;
                std::fs::write(path.join(file), "")?;
                failed += 1;
                return std::fs::remove_dir(path);
            }
            Ok(())
        });
        assert_eq!(failed, 2);
        assert!(!folder.path().exists());
    }
}
