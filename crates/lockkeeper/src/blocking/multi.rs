//! Several locks at once, for threads.

use std::marker::PhantomData;
use std::time::Duration;

use super::guard::OnThisThread;
use crate::engine::background::block_on;
use crate::engine::request::WaitLimit;
use crate::owner::OwnerId;
use crate::{Error, Name, ReleaseOutcome, Token};

/// [`crate::MultiLock`] for threads: re-entrant by thread.
///
/// ```
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:")?;
/// let accounts = keeper.multi_lock(["account:1", "account:2"])?;
/// let both = accounts.acquire()?;             // whatever the order of the names, nobody deadlocks
/// assert!(both.is_held());
/// both.release()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock(pub(super) crate::MultiLock);

impl MultiLock {
    /// The names, in the order they are taken.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.0.names()
    }

    /// With another lease, renewed: see [`crate::MultiLock::with_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn with_lease(&self, lease: Duration) -> Result<MultiLock, Error> {
        self.0.with_lease(lease).map(MultiLock)
    }

    /// With a label, which others see: see [`crate::MultiLock::label`].
    ///
    /// # Errors
    /// As there.
    pub fn label(&self, label: &str) -> Result<MultiLock, Error> {
        self.0.label(label).map(MultiLock)
    }

    /// Waits as long as it takes for all of them.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire(&self) -> Result<MultiGuard, Error> {
        self.attempt(WaitLimit::Forever)?.ok_or(Error::Closed)
    }

    /// Waits at most `timeout` for all of them.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire_within(&self, timeout: Duration) -> Result<Option<MultiGuard>, Error> {
        self.attempt(WaitLimit::for_at_most(timeout))
    }

    /// Does not wait for all of them.
    ///
    /// # Errors
    /// A store error.
    pub fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        self.attempt(WaitLimit::NoWait)
    }

    fn attempt(&self, wait_limit: WaitLimit) -> Result<Option<MultiGuard>, Error> {
        let locks = self.0.each(|lock| lock.owned_by(OwnerId::of_thread()));
        let guards = block_on(locks.attempt(wait_limit))?;
        Ok(guards.map(|guards| MultiGuard(guards, PhantomData)))
    }
}

/// [`crate::MultiGuard`] for threads. It stays on its thread.
///
/// ```
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:")?;
/// let both = keeper.multi_lock(["account:1", "account:2"])?.acquire()?;
/// assert!(both.token("account:1").is_some());
/// both.release()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
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

    /// Whether all of them stay held for at least `time` without renewal; see [`Guard::is_held_for`](crate::Guard::is_held_for).
    pub fn is_held_for(&self, time: Duration) -> bool {
        self.0.is_held_for(time)
    }

    /// Waits until one of them is lost.
    pub fn lost(&self) {
        block_on(self.0.lost());
    }

    /// Waits until one of them is lost, at most `timeout`. Returns whether one was.
    pub fn lost_within(&self, timeout: Duration) -> bool {
        block_on(self.0.lost_within(timeout))
    }

    /// As [`crate::MultiGuard::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Vec<ReleaseOutcome>, Error> {
        block_on(self.0.release())
    }
}
