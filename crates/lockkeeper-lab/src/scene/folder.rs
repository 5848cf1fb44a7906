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
        let end = Instant::now() + PATIENCE;
        while std::fs::remove_dir_all(&self.0).is_err() && self.0.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_while_somebody_makes_files_in_it() {
        for _ in 0..20 {
            let folder = Folder::new().expect("a folder");
            let path = folder.path().to_owned();
            let place = path.clone();
            let makes = std::thread::spawn(move || {
                for number in 0.. {
                    if std::fs::write(place.join(number.to_string()), "").is_err()
                        || number > 20_000
                    {
                        return;
                    }
                }
            });
            drop(folder);
            makes.join().expect("no panic");
            assert!(!path.exists(), "{path:?} is left");
        }
    }
}
