//! What the store and its two threads share: the session, and whom to tell about what happened in it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::fault::Fault;
use super::file::Pause;
use super::liveness::{Peer, Pulse};
use super::session::{Effects, Session, Tx};
use super::verbs;
use super::wake::Outbox;
use super::worker::Job;
use crate::Error;
use crate::store::Release;
use crate::store::common::HintBoard;

/// The log is copied back after about this many pages.
const TIDY_PAGES: usize = 1000;
/// Idle fences are looked for after this many new names.
const TIDY_NAMES: usize = 4096;

/// A verb of the contract, run inside a transaction.
pub(super) type Verb<A, T> = fn(&mut Tx<'_>, &A) -> Result<T, Fault>;

#[derive(Debug)]
pub(super) struct Core {
    pub path: PathBuf,
    pub hints: HintBoard,
    session: Mutex<Session>,
    /// Held while the log is copied back, and before the session.
    copying: Mutex<()>,
    outbox: Outbox,
    jobs: Sender<Job>,
    /// Verbs that were given to the worker and have not ended. While there are any, new ones line up behind
    /// them: none is overtaken, so none starves and no withdrawal comes before its acquire.
    queued: AtomicUsize,
    /// Pages written since the log was last copied back.
    pages: AtomicUsize,
    /// Names seen for the first time since idle fences were last forgotten.
    names: AtomicUsize,
    stopping: AtomicBool,
}

impl Core {
    pub fn new(path: PathBuf, session: Session, outbox: Outbox, jobs: Sender<Job>) -> Core {
        Core {
            path,
            hints: HintBoard::default(),
            session: Mutex::new(session),
            copying: Mutex::new(()),
            outbox,
            jobs,
            queued: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            names: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// The session, if nobody else has it or waits for it.
    fn free_session(&self) -> Option<MutexGuard<'_, Session>> {
        if self.queued.load(SeqCst) > 0 {
            return None;
        }
        match self.session.try_lock() {
            Ok(session) => Some(session),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Ends a lease here and now if surely nobody waits for it. False if it has to be done the long way.
    pub fn release_unwaited(&self, release: &Release) -> bool {
        let session = self.free_session().filter(|_| release.requeue.is_none());
        let ended =
            session.map(|mut session| session.release_unwaited(&release.name, release.claim));
        match ended {
            Some(Ok(Some(effects))) => {
                self.deliver(effects);
                true
            }
            // A failed statement changed nothing; the long way says what is wrong.
            _ => false,
        }
    }

    /// Runs a verb here and now; `None` if someone else is writing.
    pub fn run_inline<A: ?Sized, T>(&self, ask: &A, verb: Verb<A, T>) -> Option<Result<T, Error>> {
        let mut session = self.free_session()?;
        let done = session.write(|tx| verb(tx, ask));
        // The claim that is hinted wants it next.
        drop(session);
        match done {
            Ok((answer, effects)) => {
                self.deliver(effects);
                Some(Ok(answer))
            }
            Err(Fault::Locked) => None,
            Err(fault) => Some(Err(fault.explain(&self.path))),
        }
    }

    /// Runs a verb, waiting for other writers. `None` if nobody wanted it any more before it could run.
    pub fn run_patiently<A: ?Sized, T>(
        &self,
        ask: &A,
        verb: impl Fn(&mut Tx<'_>, &A) -> Result<T, Fault>,
        give_up: Instant,
        is_unwanted: impl Fn() -> bool,
    ) -> Option<Result<T, Error>> {
        let mut pause = Pause::default();
        let mut session = self.session();
        let done = loop {
            if is_unwanted() {
                return None;
            }
            match session.write(|tx| verb(tx, ask)) {
                Err(Fault::Locked) if Instant::now() < give_up => pause.sleep(),
                done => break done,
            }
        };
        drop(session);
        Some(match done {
            Ok((answer, effects)) => {
                self.deliver(effects);
                Ok(answer)
            }
            Err(fault) => Err(fault.explain(&self.path)),
        })
    }

    /// Waits for the session. Meanwhile nobody runs a verb inline: tasks that take it again and again at once
    /// would never let a thread that waits for it in.
    pub fn session(&self) -> MutexGuard<'_, Session> {
        self.queued.fetch_add(1, SeqCst);
        let session = self.session.lock();
        self.queued.fetch_sub(1, SeqCst);
        session.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others of this process from copying the log back, or from stopping meanwhile.
    pub fn copying(&self) -> MutexGuard<'_, ()> {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `then` while no thread of this store is inside a transaction or copies the log back.
    pub fn at_rest(&self, then: &mut dyn FnMut()) {
        let _copying = self.copying();
        let _session = self.session();
        then();
    }

    /// Lines a verb up for the worker, which calls [`Core::dequeue`] when it has ended.
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

    /// Ends the worker after the verbs that are lined up.
    pub fn stop_worker(&self) {
        self.stopping.store(true, SeqCst);
        let _ = self.jobs.send(Job::Stop);
    }

    /// Whether what can wait should.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Whether idle fences should be forgotten now.
    pub fn take_new_names(&self) -> bool {
        self.names.load(SeqCst) >= TIDY_NAMES && self.names.swap(0, SeqCst) > 0
    }

    /// Tells everyone concerned what was committed.
    fn deliver(&self, effects: Effects) {
        for (name, claim, peer) in &effects.granted {
            match peer {
                Some(peer) => self.outbox.granted(peer, name, *claim),
                None => self.hints.claim(name, *claim),
            }
        }
        for (claim, peer) in &effects.broken {
            match peer {
                Some(peer) => self.outbox.broken(peer, *claim),
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
            self.names.fetch_add(effects.new_names, SeqCst);
        }
        if effects.wrote == 0 {
            return;
        }
        let before = self.pages.fetch_add(effects.wrote, SeqCst);
        if before + effects.wrote >= TIDY_PAGES && self.pages.swap(0, SeqCst) >= TIDY_PAGES {
            let _ = self.jobs.send(Job::Tidy);
        }
    }

    /// Frees what dead stores held. What cannot be done now is left to the next time.
    pub fn bury_dead(&self) -> Result<(), Fault> {
        let others = self.session().others()?;
        for peer in others.iter().filter(|peer| peer.is_dead()) {
            self.bury(peer)?;
        }
        Ok(())
    }

    fn bury(&self, peer: &Arc<Peer>) -> Result<(), Fault> {
        tracing::debug!(process = %peer.process, "freeing what a dead process held");
        loop {
            let (done, effects) = self.session().write(|tx| verbs::bury(tx, &peer.id))?;
            self.deliver(effects);
            if done {
                peer.remove_files();
                return Ok(());
            }
        }
    }

    /// The same, and also forgets stores of which nothing is left, not even their file.
    pub fn bury_all(&self) -> Result<(), Fault> {
        self.bury_dead()?;
        let others = self.session().others()?;
        for peer in others {
            if peer.pulse() == Pulse::Unknown {
                self.session().write(|tx| verbs::leave(tx, &peer.id))?;
            }
        }
        Ok(())
    }
}
