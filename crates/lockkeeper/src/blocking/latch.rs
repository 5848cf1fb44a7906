//! A count-down latch, for threads.

use std::time::Duration;

use crate::engine::background::block_on;
use crate::{Error, Name};

/// [`crate::Latch`] for threads.
///
/// ```
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:")?;
/// let latch = keeper.latch("workers are ready")?;
/// latch.set(2)?;
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| latch.count_down());
///     }
///     latch.wait()
/// })?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Latch(pub(super) crate::Latch);

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

    /// Counts down by one and returns the count that is left.
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

    /// Waits until the latch is open, at most `timeout`.
    ///
    /// # Errors
    /// As [`crate::Latch::wait`].
    pub fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        block_on(self.0.wait_within(timeout))
    }
}
