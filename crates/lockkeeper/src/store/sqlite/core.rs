//! What a store, its worker and its watcher share: the session, and the hints about what was committed in it.
//!
//! A verb runs in one of two ways. [`Core::run_inline`] runs it at once on the caller's thread, which is the usual case.
//! If anything else writes just then, the worker runs it by [`Core::run_blocking`], in the order in which verbs came.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::fault::Fault;
use super::file::Pause;
use super::liveness::{Liveness, Peer};
use super::session::{Effects, Session, Tx};
use super::verbs;
use super::wake::HintSender;
use super::worker::Job;
use crate::Error;
use crate::store::Release;
use crate::store::common::HintBoard;

/// The worker copies the log back after about this many pages.
const CHECKPOINT_PAGES: usize = 1000;
/// The worker forgets idle fences after this many new names.
const FORGET_AFTER_NAMES: usize = 4096;

/// A verb of the contract, run inside a transaction.
pub(super) type Verb<A, T> = fn(&mut Tx<'_>, &A) -> Result<T, Fault>;

#[derive(Debug)]
pub(super) struct Core {
    pub path: PathBuf,
    pub hints: HintBoard,
    session: Mutex<Session>,
    /// Locked while the log is copied back. Taken before the session.
    checkpoint: Mutex<()>,
    sender: HintSender,
    jobs: Sender<Job>,
    /// Verbs that were given to the worker and have not ended. While there are any, new ones queue behind
    /// them: none is overtaken, so none starves and no withdrawal comes before its acquire.
    queued: AtomicUsize,
    /// Pages written since the log was last copied back.
    pages: AtomicUsize,
    /// Names with a new fence since idle fences were last forgotten.
    new_names: AtomicUsize,
    stopping: AtomicBool,
}

impl Core {
    pub fn new(path: PathBuf, session: Session, sender: HintSender, jobs: Sender<Job>) -> Core {
        Core {
            path,
            hints: HintBoard::default(),
            session: Mutex::new(session),
            checkpoint: Mutex::new(()),
            sender,
            jobs,
            queued: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            new_names: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// The session, if no other thread has it or waits for it.
    fn try_session(&self) -> Option<MutexGuard<'_, Session>> {
        if self.queued.load(SeqCst) > 0 {
            return None;
        }
        match self.session.try_lock() {
            Ok(session) => Some(session),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends a lease at once if it is certain that nobody waits for it. Returns false if the release needs the whole record.
    pub fn release_uncontended(&self, release: &Release) -> bool {
        let session = self.try_session().filter(|_| release.requeue.is_none());
        let ended =
            session.map(|mut session| session.release_uncontended(&release.name, release.claim));
        match ended {
            Some(Ok(Some(effects))) => {
                self.publish(effects);
                true
            }
            // A failed statement changed nothing; the release by the whole record reports what is wrong.
            _ => false,
        }
    }

    /// Runs a verb at once on this thread. Returns `None` if another thread or process is writing.
    pub fn run_inline<A: ?Sized, T>(&self, ask: &A, verb: Verb<A, T>) -> Option<Result<T, Error>> {
        let mut session = self.try_session()?;
        let done = session.write(|tx| verb(tx, ask));
        // Before the hints: the claim that gets one asks for the session next.
        drop(session);
        match done {
            Ok((answer, effects)) => {
                self.publish(effects);
                Some(Ok(answer))
            }
            Err(Fault::Locked) => None,
            Err(fault) => Some(Err(fault.explain(&self.path))),
        }
    }

    /// Runs a verb, and blocks while another thread or process is writing. Returns `None` if the verb was cancelled
    /// before it could run.
    pub fn run_blocking<A: ?Sized, T>(
        &self,
        ask: &A,
        verb: impl Fn(&mut Tx<'_>, &A) -> Result<T, Fault>,
        deadline: Instant,
        is_cancelled: impl Fn() -> bool,
    ) -> Option<Result<T, Error>> {
        let mut pause = Pause::default();
        let mut session = self.session();
        let done = loop {
            if is_cancelled() {
                return None;
            }
            match session.write(|tx| verb(tx, ask)) {
                Err(Fault::Locked) if Instant::now() < deadline => pause.sleep(),
                done => break done,
            }
        };
        drop(session);
        Some(match done {
            Ok((answer, effects)) => {
                self.publish(effects);
                Ok(answer)
            }
            Err(fault) => Err(fault.explain(&self.path)),
        })
    }

    /// Waits for the session. Meanwhile no verb runs inline: tasks that take the session again and again would never let
    /// the waiting thread have it.
    pub fn session(&self) -> MutexGuard<'_, Session> {
        self.queued.fetch_add(1, SeqCst);
        let session = self.session.lock();
        self.queued.fetch_sub(1, SeqCst);
        session.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps other threads from copying the log back, and [`Core::at_rest`] from beginning.
    pub fn checkpoint(&self) -> MutexGuard<'_, ()> {
        self.checkpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `then` while no thread of this store is inside a transaction or copies the log back.
    pub fn at_rest(&self, then: &mut dyn FnMut()) {
        let _checkpoint = self.checkpoint();
        let _session = self.session();
        then();
    }

    /// Queues a verb for the worker, which calls [`Core::dequeue`] when the verb has ended.
    pub fn enqueue(&self, job: Job) -> Result<(), Error> {
        self.queued.fetch_add(1, SeqCst);
        self.jobs.send(job).map_err(|_| {
            self.dequeue();
            Error::Closed
        })
    }

    pub fn dequeue(&self) {
        self.queued.fetch_sub(1, SeqCst);
    }

    /// Ends the worker after the verbs that are queued.
    pub fn stop_worker(&self) {
        self.stopping.store(true, SeqCst);
        let _ = self.jobs.send(Job::Stop);
    }

    /// Whether the worker is to end soon: then it leaves out what the next store can do.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Whether idle fences should be forgotten now. If so, new names are counted from 0 again.
    pub fn take_many_new_names(&self) -> bool {
        self.new_names.load(SeqCst) >= FORGET_AFTER_NAMES && self.new_names.swap(0, SeqCst) > 0
    }

    /// Sends the hints about what was committed, and has the worker tidy up once there is enough to do.
    fn publish(&self, effects: Effects) {
        for (name, claim, peer) in &effects.granted {
            match peer {
                Some(peer) => self.sender.granted(peer, name, *claim),
                None => self.hints.claim(name, *claim),
            }
        }
        for (claim, peer) in &effects.broken {
            match peer {
                Some(peer) => self.sender.broken(peer, *claim),
                None => self.hints.keeper(claim.keeper),
            }
        }
        for name in &effects.changed {
            self.hints.name(name);
        }
        for name in &effects.latches {
            self.hints.latch(name);
        }
        if effects.new_names > 0 {
            self.new_names.fetch_add(effects.new_names, SeqCst);
        }
        if effects.pages_written == 0 {
            return;
        }
        let before = self.pages.fetch_add(effects.pages_written, SeqCst);
        let pages = before + effects.pages_written;
        if pages >= CHECKPOINT_PAGES && self.pages.swap(0, SeqCst) >= CHECKPOINT_PAGES {
            let _ = self.jobs.send(Job::Tidy);
        }
    }

    /// Frees what dead stores held, which hints the claims that get it. After a fault, what is left is freed the next time.
    pub fn reclaim_dead(&self) -> Result<(), Fault> {
        let others = self.session().others()?;
        for peer in others.iter().filter(|peer| peer.is_dead()) {
            self.reclaim(peer)?;
        }
        Ok(())
    }

    fn reclaim(&self, peer: &Arc<Peer>) -> Result<(), Fault> {
        tracing::debug!(process = %peer.process, "freeing what a dead process held");
        loop {
            let (done, effects) = self.session().write(|tx| verbs::reclaim(tx, &peer.id))?;
            self.publish(effects);
            if done {
                peer.remove_files();
                return Ok(());
            }
        }
    }

    /// Frees what dead stores held, and removes the rows of stores whose files are missing, unless they hold or wait.
    pub fn clean_up(&self) -> Result<(), Fault> {
        self.reclaim_dead()?;
        let others = self.session().others()?;
        for peer in others {
            if peer.liveness() == Liveness::Unknown {
                self.session().write(|tx| verbs::unregister(tx, &peer.id))?;
            }
        }
        Ok(())
    }
}
