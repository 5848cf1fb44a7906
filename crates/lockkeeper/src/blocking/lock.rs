//! One lock, for threads.

use std::time::Duration;

use super::Guard;
use crate::engine::background::block_on;
use crate::engine::request::WaitLimit;
use crate::owner::OwnerId;
use crate::{Error, Name};

/// [`crate::Lock`] for threads: re-entrant by thread.
///
/// ```
/// use std::time::Duration;
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:")?;
///
/// let lock = keeper.lock("stock:42")?;
/// match lock.acquire_within(Duration::from_secs(2))? {
///     Some(guard) => println!("sell one, fenced by {}", guard.token()),
///     None => println!("somebody else sells"),
/// }
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lock(pub(super) crate::Lock);

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

    /// With another lease, renewed: see [`crate::Lock::with_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn with_lease(&self, lease: Duration) -> Result<Lock, Error> {
        self.0.with_lease(lease).map(Lock)
    }

    /// With a fixed lease: see [`crate::Lock::fixed_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn fixed_lease(&self, lease: Duration) -> Result<Lock, Error> {
        self.0.fixed_lease(lease).map(Lock)
    }

    /// With a label, which others see: see [`crate::Lock::label`].
    ///
    /// ```
    /// use lockkeeper::blocking::Lockkeeper;
    ///
    /// let keeper = Lockkeeper::connect("memory:blocking-label-example")?;
    /// let guard = keeper.lock("stock:7")?.label("order 42")?.acquire()?;
    /// let seen = keeper.inspect("stock:7")?.expect("it is held");
    /// let label = seen.holders[0].label.as_ref();
    /// assert_eq!(label.map(|label| label.as_str()), Some("order 42"));
    /// # drop(guard);
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn label(&self, label: &str) -> Result<Lock, Error> {
        self.0.label(label).map(Lock)
    }

    /// Waits as long as it takes.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.attempt(WaitLimit::Forever)?.ok_or(Error::Closed)
    }

    /// Waits at most `timeout`.
    ///
    /// # Errors
    /// A store error.
    pub fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(WaitLimit::for_at_most(timeout))
    }

    /// Does not wait.
    ///
    /// # Errors
    /// A store error.
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.attempt(WaitLimit::NoWait)
    }

    fn attempt(&self, wait_limit: WaitLimit) -> Result<Option<Guard>, Error> {
        let lock = self.0.owned_by(OwnerId::of_thread());
        Ok(block_on(lock.attempt(wait_limit))?.map(Guard::new))
    }
}
