//! The same verbs for threads: no runtime, no `async`.
//!
//! Re-entry is by thread, as in Java: a thread that holds a lock may acquire it again. So a guard belongs to
//! its thread and cannot be sent to another; use the asynchronous API with an [`Owner`](crate::Owner) where
//! ownership moves.
//!
//! ```
//! use lockkeeper::blocking::Lockkeeper;
//!
//! let keeper = Lockkeeper::connect("memory:blocking-example")?;
//! let lock = keeper.lock("invoice:9")?;
//! let outer = lock.acquire()?;
//! let inner = lock.acquire()?;                 // the same thread: re-entered
//! assert_eq!(inner.depth(), 2);
//! drop(inner);
//! outer.release()?;
//! keeper.close();
//! # Ok::<(), lockkeeper::Error>(())
//! ```
//!
//! Do not call these inside asynchronous code: they block the thread that would run other tasks.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::background::block_on;
use crate::engine::waiting::Patience;
use crate::owner::OwnerId;
use crate::store::{Capabilities, ClaimId, Holder, LockInfo, Mode};
use crate::{Builder, Error, Name, ReleaseOutcome, Token};

/// [`crate::Lockkeeper`] for threads.
#[derive(Clone, Debug)]
pub struct Lockkeeper(crate::Lockkeeper);

impl Builder {
    /// [`connect`](Builder::connect) for threads.
    ///
    /// # Errors
    /// As [`connect`](Builder::connect).
    pub fn connect_blocking(self) -> Result<Lockkeeper, Error> {
        block_on(self.connect()).map(Lockkeeper)
    }
}

impl Lockkeeper {
    /// As [`crate::Lockkeeper::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str) -> Result<Lockkeeper, Error> {
        Lockkeeper::builder().url(url).connect_blocking()
    }

    /// As [`crate::Lockkeeper::builder`]; end it with [`Builder::connect_blocking`].
    pub fn builder() -> Builder {
        crate::Lockkeeper::builder()
    }

    /// The same keeper for asynchronous code.
    pub fn asynchronous(&self) -> &crate::Lockkeeper {
        &self.0
    }

    /// A lock.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::lock`].
    pub fn lock(&self, name: &str) -> Result<Lock, Error> {
        self.0.lock(name).map(Lock)
    }

    /// A lock with readers and writers.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::rwlock`].
    pub fn rwlock(&self, name: &str) -> Result<RwLock, Error> {
        self.0.rwlock(name).map(RwLock)
    }

    /// A semaphore.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::semaphore`].
    pub fn semaphore(&self, name: &str, permits: u32) -> Result<Semaphore, Error> {
        self.0.semaphore(name, permits).map(Semaphore)
    }

    /// A count-down latch.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::latch`].
    pub fn latch(&self, name: &str) -> Result<Latch, Error> {
        self.0.latch(name).map(Latch)
    }

    /// Several locks that are acquired together.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::multi_lock`].
    pub fn multi_lock<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<MultiLock, Error> {
        self.0.multi_lock(names).map(MultiLock)
    }

    /// What is known about a name.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::inspect`].
    pub fn inspect(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        block_on(self.0.inspect(name))
    }

    /// Every name that starts with `prefix` and is held or waited for.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::list`].
    pub fn list(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        block_on(self.0.list(prefix))
    }

    /// Ends every hold of a name.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::break_lock`].
    pub fn break_lock(&self, name: &str, reason: &str) -> Result<Vec<Holder>, Error> {
        block_on(self.0.break_lock(name, reason))
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// As [`crate::Lockkeeper::close`].
    pub fn close(&self) {
        block_on(self.0.close());
    }
}

/// [`crate::Lock`] for threads: re-entrant by thread.
#[derive(Clone, Debug)]
pub struct Lock(crate::Lock);

impl Lock {
    /// The name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// First come, first served among all processes: see [`crate::Lock::fair`].
    ///
    /// # Errors
    /// As there.
    pub fn fair(&self) -> Result<Lock, Error> {
        self.0.fair().map(Lock)
    }

    /// With another lease, renewed: see [`crate::Lock::ttl`].
    ///
    /// # Errors
    /// As there.
    pub fn ttl(&self, lease: Duration) -> Result<Lock, Error> {
        self.0.ttl(lease).map(Lock)
    }

    /// With a fixed lease: see [`crate::Lock::lease`].
    ///
    /// # Errors
    /// As there.
    pub fn lease(&self, lease: Duration) -> Result<Lock, Error> {
        self.0.lease(lease).map(Lock)
    }

    /// Waits as long as it takes.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.attempt(Patience::Forever)?.ok_or(Error::Closed)
    }

    /// Waits at most `d`.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire_within(&self, d: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(Patience::for_at_most(d))
    }

    /// Does not wait.
    ///
    /// # Errors
    /// A store error.
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.attempt(Patience::None)
    }

    fn attempt(&self, patience: Patience) -> Result<Option<Guard>, Error> {
        let lock = self.0.owned_by(OwnerId::of_thread());
        Ok(block_on(lock.attempt(patience))?.map(Guard::new))
    }
}

/// [`crate::RwLock`] for threads: re-entrant by thread.
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock);

impl RwLock {
    /// The name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// With another lease, renewed: see [`crate::RwLock::ttl`].
    ///
    /// # Errors
    /// As there.
    pub fn ttl(&self, lease: Duration) -> Result<RwLock, Error> {
        self.0.ttl(lease).map(RwLock)
    }

    /// With a fixed lease: see [`crate::RwLock::lease`].
    ///
    /// # Errors
    /// As there.
    pub fn lease(&self, lease: Duration) -> Result<RwLock, Error> {
        self.0.lease(lease).map(RwLock)
    }

    /// Waits as long as it takes to read.
    ///
    /// # Errors
    /// A store error.
    pub fn read(&self) -> Result<Guard, Error> {
        self.attempt(Mode::Read, Patience::Forever)?
            .ok_or(Error::Closed)
    }

    /// Waits at most `d` to read.
    ///
    /// # Errors
    /// A store error.
    pub fn read_within(&self, d: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(Mode::Read, Patience::for_at_most(d))
    }

    /// Does not wait to read.
    ///
    /// # Errors
    /// A store error.
    pub fn try_read(&self) -> Result<Option<Guard>, Error> {
        self.attempt(Mode::Read, Patience::None)
    }

    /// Waits as long as it takes to write.
    ///
    /// # Errors
    /// A store error.
    pub fn write(&self) -> Result<Guard, Error> {
        self.attempt(Mode::Write, Patience::Forever)?
            .ok_or(Error::Closed)
    }

    /// Waits at most `d` to write.
    ///
    /// # Errors
    /// A store error.
    pub fn write_within(&self, d: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(Mode::Write, Patience::for_at_most(d))
    }

    /// Does not wait to write.
    ///
    /// # Errors
    /// A store error.
    pub fn try_write(&self) -> Result<Option<Guard>, Error> {
        self.attempt(Mode::Write, Patience::None)
    }

    fn attempt(&self, mode: Mode, patience: Patience) -> Result<Option<Guard>, Error> {
        let lock = self.0.owned_by(OwnerId::of_thread());
        Ok(block_on(lock.attempt(mode, patience))?.map(Guard::new))
    }
}

/// [`crate::Semaphore`] for threads.
#[derive(Clone, Debug)]
pub struct Semaphore(crate::Semaphore);

impl Semaphore {
    /// The name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// With another lease, renewed: see [`crate::Semaphore::ttl`].
    ///
    /// # Errors
    /// As there.
    pub fn ttl(&self, lease: Duration) -> Result<Semaphore, Error> {
        self.0.ttl(lease).map(Semaphore)
    }

    /// With a fixed lease: see [`crate::Semaphore::lease`].
    ///
    /// # Errors
    /// As there.
    pub fn lease(&self, lease: Duration) -> Result<Semaphore, Error> {
        self.0.lease(lease).map(Semaphore)
    }

    /// Waits as long as it takes for `count` permits.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire(&self, count: u32) -> Result<Guard, Error> {
        self.attempt(count, Patience::Forever)?.ok_or(Error::Closed)
    }

    /// Waits at most `d` for `count` permits.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire_within(&self, count: u32, d: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(count, Patience::for_at_most(d))
    }

    /// Does not wait for `count` permits.
    ///
    /// # Errors
    /// A store error.
    pub fn try_acquire(&self, count: u32) -> Result<Option<Guard>, Error> {
        self.attempt(count, Patience::None)
    }

    fn attempt(&self, count: u32, patience: Patience) -> Result<Option<Guard>, Error> {
        Ok(block_on(self.0.attempt(count, patience))?.map(Guard::new))
    }
}

/// [`crate::Latch`] for threads.
#[derive(Clone, Debug)]
pub struct Latch(crate::Latch);

impl Latch {
    /// The name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// Closes an open latch with this count.
    ///
    /// # Errors
    /// As [`crate::Latch::set`].
    pub fn set(&self, count: u32) -> Result<bool, Error> {
        block_on(self.0.set(count))
    }

    /// Counts down by one and answers what is left.
    ///
    /// # Errors
    /// As [`crate::Latch::count_down`].
    pub fn count_down(&self) -> Result<u32, Error> {
        block_on(self.0.count_down())
    }

    /// The count.
    ///
    /// # Errors
    /// A store error.
    pub fn count(&self) -> Result<u32, Error> {
        block_on(self.0.count())
    }

    /// Opens the latch, whatever its count.
    ///
    /// # Errors
    /// A store error.
    pub fn open(&self) -> Result<bool, Error> {
        block_on(self.0.open())
    }

    /// Waits until the latch is open.
    ///
    /// # Errors
    /// As [`crate::Latch::wait`].
    pub fn wait(&self) -> Result<(), Error> {
        block_on(self.0.wait())
    }

    /// Waits until the latch is open, at most `d`.
    ///
    /// # Errors
    /// As [`crate::Latch::wait`].
    pub fn wait_at_most(&self, d: Duration) -> Result<bool, Error> {
        block_on(self.0.wait_at_most(d))
    }
}

/// [`crate::MultiLock`] for threads: re-entrant by thread.
#[derive(Clone, Debug)]
pub struct MultiLock(crate::MultiLock);

impl MultiLock {
    /// The names, in the order they are taken.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.0.names()
    }

    /// With another lease, renewed: see [`crate::MultiLock::ttl`].
    ///
    /// # Errors
    /// As there.
    pub fn ttl(&self, lease: Duration) -> Result<MultiLock, Error> {
        self.0.ttl(lease).map(MultiLock)
    }

    /// Waits as long as it takes for all of them.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire(&self) -> Result<MultiGuard, Error> {
        self.attempt(Patience::Forever)?.ok_or(Error::Closed)
    }

    /// Waits at most `d` for all of them.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire_within(&self, d: Duration) -> Result<Option<MultiGuard>, Error> {
        self.attempt(Patience::for_at_most(d))
    }

    /// Does not wait for all of them.
    ///
    /// # Errors
    /// A store error.
    pub fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        self.attempt(Patience::None)
    }

    fn attempt(&self, patience: Patience) -> Result<Option<MultiGuard>, Error> {
        let locks = self.0.each(|lock| lock.owned_by(OwnerId::of_thread()));
        let guards = block_on(locks.attempt(patience))?;
        Ok(guards.map(|guards| MultiGuard(guards, PhantomData)))
    }
}

/// Keeps a guard on its thread: the thread is its owner.
type OnThisThread = PhantomData<*const ()>;

/// [`crate::Guard`] for threads. It stays on its thread.
///
/// ```compile_fail
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:").unwrap();
/// let guard = keeper.lock("x").unwrap().acquire().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard(crate::Guard, OnThisThread);

impl Guard {
    fn new(guard: crate::Guard) -> Guard {
        Guard(guard, PhantomData)
    }

    /// The name of the lock.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// The fencing token.
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// The claim that holds in the store.
    pub fn claim(&self) -> ClaimId {
        self.0.claim()
    }

    /// How many guards this thread has.
    pub fn depth(&self) -> u32 {
        self.0.depth()
    }

    /// When the lock counts as lost unless it is renewed before.
    pub fn deadline(&self) -> Moment {
        self.0.deadline()
    }

    /// When the lock comes to be at risk unless it is renewed before.
    pub fn at_risk_at(&self) -> Moment {
        self.0.at_risk_at()
    }

    /// Whether the lock is held now.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Whether the lock stays held for at least `d` without renewal.
    pub fn ensure(&self, d: Duration) -> bool {
        self.0.ensure(d)
    }

    /// As [`crate::Guard::extend`].
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self, d: Duration) -> Result<(), Error> {
        block_on(self.0.extend(d))
    }

    /// Waits until the lock is lost.
    pub fn lost(&self) {
        block_on(self.0.lost());
    }

    /// Waits until a renewal is overdue.
    pub fn at_risk(&self) {
        block_on(self.0.at_risk());
    }

    /// Runs a function and tells whether the lock was held until its end. A thread cannot be stopped from
    /// outside: long work should look at [`is_held`](Guard::is_held) itself.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost before or meanwhile.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let lost = || Error::Lost {
            name: self.name().clone(),
        };
        if !self.is_held() {
            return Err(lost());
        }
        let done = work();
        match self.is_held() {
            true => Ok(done),
            false => Err(lost()),
        }
    }

    /// As [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<Guard, Error> {
        block_on(self.0.downgrade()).map(Guard::new)
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<ReleaseOutcome, Error> {
        block_on(self.0.release())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`crate::MultiGuard`] for threads. It stays on its thread.
#[derive(Debug)]
#[must_use = "the locks are released when their guard is dropped"]
pub struct MultiGuard(crate::MultiGuard, OnThisThread);

impl MultiGuard {
    /// The fencing token of one of the names.
    pub fn token(&self, name: &str) -> Option<Token> {
        self.0.token(name)
    }

    /// Whether all of them are held now.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Whether all of them stay held for at least `d` without renewal.
    pub fn ensure(&self, d: Duration) -> bool {
        self.0.ensure(d)
    }

    /// Waits until one of them is lost.
    pub fn lost(&self) {
        block_on(self.0.lost());
    }

    /// As [`crate::MultiGuard::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Vec<ReleaseOutcome>, Error> {
        block_on(self.0.release())
    }
}
