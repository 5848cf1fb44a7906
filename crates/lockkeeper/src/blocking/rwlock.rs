//! Readers and writers, for threads.

use std::time::Duration;

use super::{Guard, ReadGuard, WriteGuard};
use crate::engine::background::block_on;
use crate::engine::request::WaitLimit;
use crate::owner::OwnerId;
use crate::store::Mode;
use crate::{Error, Name};

/// [`crate::RwLock`] for threads: re-entrant by thread.
///
/// ```
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:")?;
/// let prices = keeper.rwlock("prices")?;
/// let reads = prices.read()?;
/// assert!(std::thread::scope(|scope| scope.spawn(|| prices.try_read().is_ok()).join()).is_ok());
/// drop(reads);
/// prices.write()?.release()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RwLock(pub(super) crate::RwLock);

impl RwLock {
    /// The name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// With another lease, renewed: see [`crate::RwLock::with_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn with_lease(&self, lease: Duration) -> Result<RwLock, Error> {
        self.0.with_lease(lease).map(RwLock)
    }

    /// With a fixed lease: see [`crate::RwLock::fixed_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn fixed_lease(&self, lease: Duration) -> Result<RwLock, Error> {
        self.0.fixed_lease(lease).map(RwLock)
    }

    /// With a label, which others see: see [`crate::RwLock::label`].
    ///
    /// # Errors
    /// As there.
    pub fn label(&self, label: &str) -> Result<RwLock, Error> {
        self.0.label(label).map(RwLock)
    }

    /// Waits as long as it takes to read.
    ///
    /// # Errors
    /// A store error.
    pub fn read(&self) -> Result<ReadGuard, Error> {
        let guard = self.attempt(Mode::Read, WaitLimit::Forever)?;
        guard.map(ReadGuard).ok_or(Error::Closed)
    }

    /// Waits at most `timeout` to read.
    ///
    /// # Errors
    /// A store error.
    pub fn read_within(&self, timeout: Duration) -> Result<Option<ReadGuard>, Error> {
        let guard = self.attempt(Mode::Read, WaitLimit::for_at_most(timeout))?;
        Ok(guard.map(ReadGuard))
    }

    /// Does not wait to read.
    ///
    /// # Errors
    /// A store error.
    pub fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        let guard = self.attempt(Mode::Read, WaitLimit::NoWait)?;
        Ok(guard.map(ReadGuard))
    }

    /// Waits as long as it takes to write.
    ///
    /// # Errors
    /// A store error.
    pub fn write(&self) -> Result<WriteGuard, Error> {
        let guard = self.attempt(Mode::Write, WaitLimit::Forever)?;
        guard.map(WriteGuard).ok_or(Error::Closed)
    }

    /// Waits at most `timeout` to write.
    ///
    /// # Errors
    /// A store error.
    pub fn write_within(&self, timeout: Duration) -> Result<Option<WriteGuard>, Error> {
        let guard = self.attempt(Mode::Write, WaitLimit::for_at_most(timeout))?;
        Ok(guard.map(WriteGuard))
    }

    /// Does not wait to write.
    ///
    /// # Errors
    /// A store error.
    pub fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        let guard = self.attempt(Mode::Write, WaitLimit::NoWait)?;
        Ok(guard.map(WriteGuard))
    }

    fn attempt(&self, mode: Mode, wait_limit: WaitLimit) -> Result<Option<Guard>, Error> {
        let lock = self.0.owned_by(OwnerId::of_thread());
        Ok(block_on(lock.attempt(mode, wait_limit))?.map(Guard::new))
    }
}
