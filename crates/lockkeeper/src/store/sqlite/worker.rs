//! The worker: a thread for what must not hold up a task. It runs the verbs that have to wait for another writer, in the
//! order in which they came, and between them copies the log back into the database and forgets idle fences.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::checkpoint::Checkpointer;
use super::core::{Core, Verb};
use super::fault::{STORE, refused};
use super::file::BUSY_TIMEOUT;
use super::verbs;
use crate::Error;

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

/// Starts the thread, which copies the log back over a connection of its own. It ends after [`Core::stop_worker`].
pub(super) fn start(
    core: Arc<Core>,
    log: Connection,
    jobs: Receiver<Job>,
) -> Result<JoinHandle<()>, Error> {
    let mut checkpointer = Checkpointer::new(log).map_err(|fault| fault.explain(&core.path))?;
    thread::Builder::new()
        .name("lockkeeper-work".into())
        .spawn(move || work(&core, &mut checkpointer, &jobs))
        .map_err(|error| refused(format!("no thread can be started: {error}")))
}

fn work(core: &Core, checkpointer: &mut Checkpointer, jobs: &Receiver<Job>) {
    checkpointer.run_if_long(core);
    forget_idle_fences(core);
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Verb(run) => run(core),
            Job::Tidy => {
                checkpointer.run(core);
                if core.take_many_new_names() {
                    forget_idle_fences(core);
                }
            }
            Job::Stop => return,
        }
    }
}

/// Has the worker run a verb, and waits for its answer.
///
/// A verb whose caller is dropped while it is queued never runs; dropped later, its outcome is unknown.
pub(super) async fn run<A, T>(core: &Core, ask: &A, verb: Verb<A, T>) -> Result<T, Error>
where
    A: ToOwned + ?Sized + 'static,
    A::Owned: Send + 'static,
    T: Send + 'static,
{
    let ask = ask.to_owned();
    let deadline = Instant::now() + BUSY_TIMEOUT;
    let (reply, answer) = oneshot::channel();
    core.enqueue(Job::Verb(Box::new(move |core| {
        let queued = QueuedVerb(core);
        let ask = std::borrow::Borrow::borrow(&ask);
        let done = core.run_blocking(ask, verb, deadline, || reply.is_closed());
        // Before the reply: its receiver may then run its next verb inline.
        drop(queued);
        if let Some(done) = done {
            let _ = reply.send(done);
        }
    })))?;
    answer
        .await
        .unwrap_or_else(|_| Err(Error::outcome_unknown(STORE, "its worker thread ended")))
}

/// Takes a verb off the queue when it has ended, also by a panic.
struct QueuedVerb<'c>(&'c Core);

impl Drop for QueuedVerb<'_> {
    fn drop(&mut self) {
        self.0.dequeue();
    }
}

/// Forgets idle fences if there are many.
fn forget_idle_fences(core: &Core) {
    let idle = core.session().idle_fences();
    if !matches!(idle, Ok(idle) if idle > MAX_IDLE_FENCES) {
        return;
    }
    let soon = || Instant::now() + Duration::from_millis(100);
    let mut after = Some(String::new());
    while let Some(name) = after.filter(|_| !core.is_stopping()) {
        after = match core.run_blocking(name.as_str(), verbs::forget_fences, soon(), || false) {
            Some(Ok(next)) => next,
            _ => None,
        };
    }
}
