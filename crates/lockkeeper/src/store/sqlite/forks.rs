//! A process that was forked from one with an open store is refused a store of its own.
//!
//! SQLite remembers for each process which locks of a file it has. A fork copies that memory, but the kernel gives the
//! child none of the locks: a connection of the child would rely on locks that are not there, and the parent's last
//! connection would delete the log under it. Besides, a mutex of SQLite may be locked by a thread that the child does not have.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::fault::refused;
use crate::Error;

/// The process that opened stores, and how many it has open. One atomic word and not a mutex, which a fork may copy while it
/// is locked. Connections that other code makes with SQLite are not counted.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Counts a store as open, from before its first connection until after its last.
#[derive(Debug)]
pub(super) struct OpenStore {
    by: u32,
}

impl OpenStore {
    /// Counts a store of this process.
    ///
    /// # Errors
    /// [`Error::Refused`] if this process was forked from one that had a store open.
    pub fn count() -> Result<OpenStore, Error> {
        let by = std::process::id();
        match OPEN.fetch_update(SeqCst, SeqCst, |open| add(open, by)) {
            Ok(_) => Ok(OpenStore { by }),
            Err(_) => Err(refused(
                "this process was forked from one that had a sqlite: store open, and SQLite does not survive a fork: \
                 exec, or connect only after the fork"
                    .into(),
            )),
        }
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        // A fork drops a copy of its parent's: that one stays counted.
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
