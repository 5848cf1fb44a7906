//! The folder of a scene, which goes with the last that uses it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long something may still be writing into it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A temporary folder that is removed also while somebody who is about to end makes files in it: a stock that is being
/// opened goes on with that, though the chapter was interrupted.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one.
    pub fn new() -> io::Result<Folder> {
        let folder = tempfile::Builder::new()
            .prefix("lockkeeper-lab-")
            .tempdir()?;
        Ok(Folder(folder.keep()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.0, |folder| std::fs::remove_dir_all(folder));
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
