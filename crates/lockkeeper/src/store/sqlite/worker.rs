//! The thread that does what must not hold up a task: verbs that have to wait for another writer, and copying
//! the log back into the database.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::core::{Core, Verb};
use super::fault::{Fault, STORE, refused};
use super::file::{LOG_LIMIT, PAGE_SIZE, PATIENCE};
use super::users::{FileStatus, beside};
use super::verbs;
use crate::{Error, SETUP_TARGET};

/// A log of this many pages is started over even if writers of other processes have to wait for it.
const MAX_LOG_PAGES: i64 = 6000;
/// What a page takes in the log, with its head.
const PAGE_IN_LOG: u64 = PAGE_SIZE as u64 + 24;
/// A log of this size that cannot start over is warned of, and again each time that it has doubled.
const LARGE_LOG: u64 = 16 << 20;
/// How many idle fences to keep.
const MAX_IDLE_FENCES: i64 = 4096;

/// Something for the worker to do.
pub(super) enum Job {
    Verb(Box<dyn FnOnce(&Core) + Send>),
    /// Copy the log back, and forget idle fences.
    Tidy,
    Stop,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// Starts the thread. It ends after [`Core::stop_worker`].
pub(super) fn start(
    core: Arc<Core>,
    log: Connection,
    jobs: Receiver<Job>,
) -> Result<JoinHandle<()>, Error> {
    // Only to start the log over, when writers of other processes have to wait as well.
    let patient = log.busy_timeout(Duration::from_millis(50));
    patient.map_err(|error| Fault::from(error).explain(&core.path))?;
    let mut log = Log {
        conn: log,
        last_stop: Instant::now(),
        cost: Duration::ZERO,
        warn_at: LARGE_LOG,
    };
    thread::Builder::new()
        .name("lockkeeper-work".into())
        .spawn(move || work(&core, &mut log, &jobs))
        .map_err(|error| refused(format!("no thread can be started: {error}")))
}

fn work(core: &Core, log: &mut Log, jobs: &Receiver<Job>) {
    // What kept the log from starting over may be gone by now.
    if log.is_long(core) {
        log.try_to_tidy(core);
    }
    forget_idle(core);
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Verb(run) => run(core),
            Job::Tidy => {
                log.try_to_tidy(core);
                if core.take_new_names() {
                    forget_idle(core);
                }
            }
            Job::Stop => return,
        }
    }
}

/// Has the worker run a verb, and waits for its answer.
///
/// Dropped while the verb is lined up, it never runs; dropped later, its outcome is unknown.
pub(super) async fn run<A, T>(core: &Core, ask: &A, verb: Verb<A, T>) -> Result<T, Error>
where
    A: ToOwned + ?Sized + 'static,
    A::Owned: Send + 'static,
    T: Send + 'static,
{
    let ask = ask.to_owned();
    let give_up = Instant::now() + PATIENCE;
    let (reply, answer) = oneshot::channel();
    core.enqueue(Job::Verb(Box::new(move |core| {
        let queued = Queued(core);
        let ask = std::borrow::Borrow::borrow(&ask);
        let done = core.run_patiently(ask, verb, give_up, || reply.is_closed());
        // The caller that gets the answer may go on without the worker.
        drop(queued);
        if let Some(done) = done {
            let _ = reply.send(done);
        }
    })))?;
    answer
        .await
        .unwrap_or_else(|_| Err(Error::outcome_unknown(STORE, "its worker thread ended")))
}

/// A verb that has not ended, however it ends.
struct Queued<'c>(&'c Core);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.dequeue();
    }
}

/// The log, on a connection of its own: what it takes is no matter to the session.
struct Log {
    conn: Connection,
    /// When writers of this store were last kept out, and for how long.
    last_stop: Instant,
    cost: Duration,
    /// From which size on to warn of it.
    warn_at: u64,
}

impl Log {
    /// Whether the log's file is longer than it is cut to when it starts over.
    fn is_long(&self, core: &Core) -> bool {
        let file = std::fs::metadata(beside(&core.path, "-wal"));
        file.is_ok_and(|file| file.len() > u64::from(LOG_LIMIT) + PAGE_IN_LOG)
    }

    fn try_to_tidy(&mut self, core: &Core) {
        if let Err(fault) = self.tidy(core) {
            tracing::debug!(?fault, "the log was not copied back");
        }
    }

    /// Copies the log back, so that it can start over and stays small.
    ///
    /// A process that is stopped while it has SQLite's write lock stops everybody, so this does nearly all without it:
    /// only in a long log that others add to all the time are the last pages copied under it.
    fn tidy(&mut self, core: &Core) -> Result<(), Fault> {
        let _copying = core.copying();
        let before = self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
        // If another process copies it just now, nothing is gained by keeping writers out. Else they are, for no more than
        // a twentieth of the time.
        if before.is_busy || self.last_stop.elapsed() <= self.cost * 20 {
            self.warn_if_large(core, before);
            return Ok(());
        }
        let begun = Instant::now();
        let copied = self.copy_rest(core, before);
        (self.last_stop, self.cost) = (Instant::now(), begun.elapsed());
        self.warn_if_large(core, copied?);
        Ok(())
    }

    /// Copies what came in since, and has the log start over, while writers of this store are kept out.
    fn copy_rest(&self, core: &Core, before: Checkpoint) -> Result<Checkpoint, Fault> {
        let mut session = core.session();
        // Without our own writers nobody adds more, unless other processes do.
        let mut now = self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
        // What could not be copied at all somebody still reads: to keep writers out would not help.
        if now.pages > now.copied && now.copied > before.copied && now.pages >= MAX_LOG_PAGES {
            now = self.checkpoint("PRAGMA wal_checkpoint(RESTART)")?;
        }
        if now.is_whole() && now.pages > 0 {
            // The next to write starts the log over and has to sync its head: rather this thread than a task.
            session.write(verbs::turn_log)?;
        }
        Ok(now)
    }

    /// Warns of a log that grows because it cannot start over, and names the processes that keep it from that.
    fn warn_if_large(&mut self, core: &Core, last: Checkpoint) {
        if last.is_whole() {
            self.warn_at = LARGE_LOG;
            return;
        }
        // One that another process copies back has pages that nobody counted here.
        let file = std::fs::metadata(beside(&core.path, "-wal"));
        let bytes = file.map_or(0, |file| file.len());
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

    fn checkpoint(&self, how: &str) -> Result<Checkpoint, Fault> {
        let answer = |row: &rusqlite::Row<'_>| {
            Ok(Checkpoint {
                is_busy: row.get(0)?,
                pages: row.get(1)?,
                copied: row.get(2)?,
            })
        };
        Ok(self.conn.query_row(how, [], answer)?)
    }
}

/// What came of copying the log back.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// Another process had a lock that this needs: of those that copy, and then nothing was counted, or another.
    is_busy: bool,
    /// How many pages the log has, and how many of them are copied; -1 if nobody counted.
    pages: i64,
    copied: i64,
}

impl Checkpoint {
    /// Whether all of the log is copied, so that it can start over.
    fn is_whole(self) -> bool {
        !self.is_busy && self.pages == self.copied
    }
}

/// Which process does what, and what to do about it.
fn why_it_grows(status: &FileStatus, is_busy: bool) -> String {
    if let Some(user) = &status.checkpointer {
        let (state, remedy) = (user.state, user.remedy());
        return format!("{user} {state} while it copies the log back; {remedy}");
    }
    let mut who: Vec<String> = status.readers.iter().map(ToString::to_string).collect();
    if who.is_empty() && is_busy {
        return "some program copies it back all the time; let it finish, or end it".to_owned();
    }
    if who.is_empty() {
        who.push("some program".to_owned());
    }
    let who = who.join(" and ");
    format!("{who} has a read transaction open there; end that")
}

/// Forgets idle fences if there are many.
fn forget_idle(core: &Core) {
    let idle = core.session().idle_fences();
    if !matches!(idle, Ok(idle) if idle > MAX_IDLE_FENCES) {
        return;
    }
    let soon = || Instant::now() + Duration::from_millis(100);
    let mut after = Some(String::new());
    while let Some(name) = after.filter(|_| !core.is_stopping()) {
        after = match core.run_patiently(name.as_str(), verbs::forget_fences, soon(), || false) {
            Some(Ok(next)) => next,
            _ => None,
        };
    }
}
