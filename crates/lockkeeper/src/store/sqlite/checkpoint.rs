//! Checkpoints: the write-ahead log (`-wal`) is copied back into the database, so that it can start over and stays small.
//!
//! SQLite would do this inside a commit, and a task would wait for it. Here the worker does, over a connection of its own.
//! A process that is stopped while it has SQLite's write lock stops every other, so nearly all is copied without that lock.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::core::Core;
use super::fault::Fault;
use super::file::{LOG_LIMIT, PAGE_SIZE, sibling};
use super::file_status::FileStatus;
use super::verbs;
use crate::SETUP_TARGET;

/// A log of this many pages is started over even if writers of other processes have to wait for it.
const MAX_LOG_PAGES: i64 = 6000;
/// What a page takes in the log, with its head.
const PAGE_IN_LOG: u64 = PAGE_SIZE as u64 + 24;
/// A log of this size that cannot start over is warned of, and again each time that it has doubled.
const LARGE_LOG: u64 = 16 << 20;

pub(super) struct Checkpointer {
    conn: Connection,
    /// When writers of this store were last kept out, and for how long.
    last_pause: Instant,
    paused_for: Duration,
    /// From which size on to warn of the log.
    warn_at: u64,
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// Another process had a lock that this needs. If it was the lock of a checkpoint, nothing was counted.
    is_busy: bool,
    /// How many pages the log has, and how many of them are copied; -1 if nothing was counted.
    pages: i64,
    copied: i64,
}

impl Checkpoint {
    /// Whether all of the log is copied, so that it can start over.
    fn is_whole(self) -> bool {
        !self.is_busy && self.pages == self.copied
    }
}

impl Checkpointer {
    pub fn new(conn: Connection) -> Result<Checkpointer, Fault> {
        // Only to start the log over, when writers of other processes have to wait as well.
        conn.busy_timeout(Duration::from_millis(50))?;
        Ok(Checkpointer {
            conn,
            last_pause: Instant::now(),
            paused_for: Duration::ZERO,
            warn_at: LARGE_LOG,
        })
    }

    /// Copies the log back if its file is longer than it is cut to when it starts over: what kept an earlier store from
    /// that may be gone.
    pub fn run_if_long(&mut self, core: &Core) {
        if log_bytes(core) > u64::from(LOG_LIMIT) + PAGE_IN_LOG {
            self.run(core);
        }
    }

    /// Copies the log back.
    pub fn run(&mut self, core: &Core) {
        if let Err(fault) = self.try_run(core) {
            tracing::debug!(?fault, "the log was not copied back");
        }
    }

    fn try_run(&mut self, core: &Core) -> Result<(), Fault> {
        let _checkpoint = core.checkpoint();
        let before = self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
        // While another process copies, to keep writers out gains nothing. They are kept out for no more than a twentieth
        // of the time.
        if before.is_busy || self.last_pause.elapsed() <= self.paused_for * 20 {
            self.warn_if_large(core, before);
            return Ok(());
        }
        let begun = Instant::now();
        let copied = self.copy_rest(core, before);
        (self.last_pause, self.paused_for) = (Instant::now(), begun.elapsed());
        self.warn_if_large(core, copied?);
        Ok(())
    }

    /// Keeps writers of this store out, copies what came in since `before`, and has the log start over.
    fn copy_rest(&self, core: &Core, before: Checkpoint) -> Result<Checkpoint, Fault> {
        let mut session = core.session();
        // Now only other processes add to the log.
        let mut now = self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
        // The last pages of a long log are copied under the write lock, if other processes add to it all the time. If
        // nothing more could be copied, a reader is in the way, and the lock would not help.
        if now.pages > now.copied && now.copied > before.copied && now.pages >= MAX_LOG_PAGES {
            now = self.checkpoint("PRAGMA wal_checkpoint(RESTART)")?;
        }
        if now.is_whole() && now.pages > 0 {
            // The next write starts the log over and syncs its head. So this thread writes, and no task waits for the disk.
            session.write(verbs::restart_log)?;
        }
        Ok(now)
    }

    /// Warns of a log that grows because it cannot start over, and names the processes that keep it from that.
    fn warn_if_large(&mut self, core: &Core, last: Checkpoint) {
        if last.is_whole() {
            self.warn_at = LARGE_LOG;
            return;
        }
        // By the file: while another process copies, no pages are counted.
        let bytes = log_bytes(core);
        if bytes < self.warn_at {
            return;
        }
        self.warn_at = bytes * 2;
        tracing::warn!(
            target: SETUP_TARGET,
            "the log of {:?} has grown to {} MiB, because {}, and the log shrinks",
            core.path,
            bytes >> 20,
            why_it_grows(&FileStatus::of(&core.path), last.is_busy),
        );
    }

    fn checkpoint(&self, pragma: &str) -> Result<Checkpoint, Fault> {
        let answer = |row: &rusqlite::Row<'_>| {
            Ok(Checkpoint {
                is_busy: row.get(0)?,
                pages: row.get(1)?,
                copied: row.get(2)?,
            })
        };
        Ok(self.conn.query_row(pragma, [], answer)?)
    }
}

fn log_bytes(core: &Core) -> u64 {
    let file = std::fs::metadata(sibling(&core.path, "-wal"));
    file.map_or(0, |file| file.len())
}

/// Which process does what, and what to do about it.
fn why_it_grows(status: &FileStatus, is_busy: bool) -> String {
    if let Some(user) = &status.checkpointer {
        let (state, remedy) = (user.state, user.remedy());
        return format!("{user} {state} while it copies the log back; {remedy}");
    }
    let mut readers: Vec<String> = status.readers.iter().map(ToString::to_string).collect();
    if readers.is_empty() && is_busy {
        return "some program copies it back all the time; let it finish, or end it".to_owned();
    }
    if readers.is_empty() {
        readers.push("some program".to_owned());
    }
    let readers = readers.join(" and ");
    format!("{readers} has a read transaction open there; end that")
}
