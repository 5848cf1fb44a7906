//! Permits, for threads.

use std::time::Duration;

use super::Guard;
use crate::engine::background::block_on;
use crate::engine::request::WaitLimit;
use crate::{Error, Name};

/// [`crate::Semaphore`] for threads.
///
/// ```
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:")?;
/// let downloads = keeper.semaphore("downloads", 3)?;
/// let one = downloads.acquire(1)?;
/// assert!(downloads.try_acquire(3)?.is_none());
/// one.release()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore(pub(super) crate::Semaphore);

impl Semaphore {
    /// The name.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// With another lease, renewed: see [`crate::Semaphore::with_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn with_lease(&self, lease: Duration) -> Result<Semaphore, Error> {
        self.0.with_lease(lease).map(Semaphore)
    }

    /// With a fixed lease: see [`crate::Semaphore::fixed_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn fixed_lease(&self, lease: Duration) -> Result<Semaphore, Error> {
        self.0.fixed_lease(lease).map(Semaphore)
    }

    /// With a label, which others see: see [`crate::Semaphore::label`].
    ///
    /// # Errors
    /// As there.
    pub fn label(&self, label: &str) -> Result<Semaphore, Error> {
        self.0.label(label).map(Semaphore)
    }

    /// Waits as long as it takes for `count` permits.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire(&self, count: u32) -> Result<Guard, Error> {
        self.attempt(count, WaitLimit::Forever)?
            .ok_or(Error::Closed)
    }

    /// Waits at most `timeout` for `count` permits.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire_within(&self, count: u32, timeout: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(count, WaitLimit::for_at_most(timeout))
    }

    /// Does not wait for `count` permits.
    ///
    /// # Errors
    /// A store error.
    pub fn try_acquire(&self, count: u32) -> Result<Option<Guard>, Error> {
        self.attempt(count, WaitLimit::NoWait)
    }

    fn attempt(&self, count: u32, wait_limit: WaitLimit) -> Result<Option<Guard>, Error> {
        Ok(block_on(self.0.attempt(count, wait_limit))?.map(Guard::new))
    }
}
