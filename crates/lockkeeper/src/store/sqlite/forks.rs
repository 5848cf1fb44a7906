//! That a process which was forked from one with a store open opens none.
//!
//! SQLite remembers for each process which locks of a file it has. A fork copies that memory, but the kernel gives the
//! child none of the locks: a connection of the child's would rely on locks that are not there, and the parent's last one
//! would delete the log under it. A mutex of SQLite's may be locked by a thread that the child does not have, too.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::fault::refused;
use crate::Error;

/// The process that opened stores, and how many it has open: in one word, as a fork may come at any time and then nobody
/// can wait for a mutex. Connections that other code makes with SQLite are not counted.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// A store that is open, from before its first connection until after its last.
#[derive(Debug)]
pub(super) struct Opened {
    by: u32,
}

impl Opened {
    /// Counts a store of this process.
    ///
    /// # Errors
    /// [`Error::Refused`] if this process was forked from one that had a store open.
    pub fn here() -> Result<Opened, Error> {
        let by = std::process::id();
        match OPEN.fetch_update(SeqCst, SeqCst, |open| add(open, by)) {
            Ok(_) => Ok(Opened { by }),
            Err(_) => Err(refused(
                "this process was forked from one that had a sqlite: store open, and SQLite does not survive a fork: \
                 exec, or connect only after the fork"
                    .into(),
            )),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // The copy that a fork has of its parent's stays counted.
        let ours =
            |open| (process(open) == self.by && self.by == std::process::id()).then(|| open - 1);
        let _ = OPEN.fetch_update(SeqCst, SeqCst, ours);
    }
}

fn process(open: u64) -> u32 {
    (open >> 32) as u32
}

/// One more of this process; `None` if another has some.
fn add(open: u64, by: u32) -> Option<u64> {
    let count = open & u64::from(u32::MAX);
    let may = count == 0 || process(open) == by;
    may.then_some((u64::from(by) << 32) | (count + 1))
}
