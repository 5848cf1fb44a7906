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
use super::file::PATIENCE;
use super::verbs;
use crate::Error;

/// A log of this many pages is started over even if writers have to wait for it.
const MAX_LOG_PAGES: i64 = 6000;
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
    };
    thread::Builder::new()
        .name("lockkeeper-work".into())
        .spawn(move || work(&core, &mut log, &jobs))
        .map_err(|error| refused(format!("no thread can be started: {error}")))
}

fn work(core: &Core, log: &mut Log, jobs: &Receiver<Job>) {
    forget_idle(core);
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Verb(run) => run(core),
            Job::Tidy => {
                if let Err(fault) = log.tidy(core) {
                    tracing::debug!(?fault, "the log was not copied back");
                }
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
        // Whoever gets the answer may go on without the worker.
        drop(queued);
        if let Some(done) = done {
            let _ = reply.send(done);
        }
    })))?;
    answer.await.unwrap_or_else(|_| {
        Err(Error::OutcomeUnknown {
            store: STORE,
            reason: "its worker thread ended".into(),
        })
    })
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
    /// When writers were last kept out, and for how long.
    last_stop: Instant,
    cost: Duration,
}

impl Log {
    /// Copies the log back, so that it can start over and stays small.
    fn tidy(&mut self, core: &Core) -> Result<(), Fault> {
        let (pages, _) = self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
        // New pages came in meanwhile, so the log would go on growing: keep the writers out while the last of
        // them are copied, but for no more than a twentieth of the time.
        let pays = self.last_stop.elapsed() > self.cost * 20;
        if !pays && pages < MAX_LOG_PAGES {
            return Ok(());
        }
        let begun = Instant::now();
        let mut session = core.session();
        let (pages, copied) = self.checkpoint("PRAGMA wal_checkpoint(RESTART)")?;
        if pages == copied {
            // The next to write starts the log over and has to sync its head: rather this thread than a task.
            session.write(verbs::turn_log)?;
        }
        (self.last_stop, self.cost) = (Instant::now(), begun.elapsed());
        Ok(())
    }

    /// How many pages the log has, and how many of them are copied.
    fn checkpoint(&self, how: &str) -> Result<(i64, i64), Fault> {
        let answer = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        Ok(self.conn.query_row(how, [], answer)?)
    }
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
