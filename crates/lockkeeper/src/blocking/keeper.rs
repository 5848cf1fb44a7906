//! One client of a store, for threads.

use super::{Latch, Lock, MultiLock, RwLock, Semaphore};
use crate::engine::background::block_on;
use crate::store::{BreakOutcome, BreakTarget, Capabilities, Holder, LockInfo};
use crate::{Builder, Error};

/// [`crate::Lockkeeper`] for threads. Each becomes the other: a program with both kinds of code connects once.
///
/// ```
/// use lockkeeper::blocking;
///
/// let keeper = blocking::Lockkeeper::connect("memory:both-kinds")?;
/// let asynchronous: lockkeeper::Lockkeeper = keeper.asynchronous().clone();
/// let again: blocking::Lockkeeper = asynchronous.blocking();
/// let guard = again.lock("report")?.acquire()?;
/// assert!(keeper.inspect("report")?.is_some());
/// # drop(guard);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
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

impl From<crate::Lockkeeper> for Lockkeeper {
    fn from(keeper: crate::Lockkeeper) -> Lockkeeper {
        Lockkeeper(keeper)
    }
}

impl From<Lockkeeper> for crate::Lockkeeper {
    fn from(keeper: Lockkeeper) -> crate::Lockkeeper {
        keeper.0
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

    /// The same keeper for asynchronous code; [`crate::Lockkeeper::blocking`] is the way back.
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

    /// Ends one hold of a name.
    ///
    /// # Errors
    /// As [`crate::Lockkeeper::break_hold`].
    pub fn break_hold(
        &self,
        name: &str,
        target: BreakTarget,
        reason: &str,
    ) -> Result<BreakOutcome, Error> {
        block_on(self.0.break_hold(name, target, reason))
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
