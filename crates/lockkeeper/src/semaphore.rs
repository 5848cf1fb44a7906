//! [`Semaphore`]: a limited number of holders at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::acquire;
use crate::engine::arbiter::Arbiter;
use crate::engine::handle::Handle;
use crate::engine::request::{AcquireRequest, LeaseKind, WaitLimit};
use crate::store::Mode;
use crate::{Error, Guard, Label, Name};

/// A semaphore whose permits are leased: those of a process that died come back by themselves.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:semaphore-example").await?;
/// let printers = keeper.semaphore("printers", 3)?;
/// let two = printers.acquire(2).await?;
/// let one = printers.acquire(1).await?;
/// assert!(printers.try_acquire(1).await?.is_none());
/// # drop((one, two));
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// # Guarantees
/// As [`Guard`]. Permits are granted in the order of asking: a request for many is not overtaken by requests for few.
///
/// # What this does not protect against
/// Users that disagree about the number of permits: the smallest number that a holder named counts. Permits are not re-entrant: each acquire takes its own.
#[derive(Clone, Debug)]
pub struct Semaphore {
    arbiter: Handle<Arbiter>,
    permits: u32,
    lease: LeaseKind,
    label: Option<Label>,
}

impl Semaphore {
    pub(crate) fn new(arbiter: Arc<Arbiter>, permits: u32) -> Result<Semaphore, Error> {
        if permits == 0 {
            return Err(Error::InvalidArgument {
                what: "permits",
                reason: "a semaphore needs at least one".into(),
            });
        }
        Ok(Semaphore {
            arbiter: Handle::new(arbiter),
            permits,
            lease: LeaseKind::Usual,
            label: None,
        })
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.arbiter.name
    }

    /// The same semaphore with another lease, renewed for as long as the guard lives.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is from [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours,
    /// and no longer than [the store grants](crate::store::Capabilities::longest_lease).
    pub fn with_lease(&self, lease: Duration) -> Result<Semaphore, Error> {
        let lease = self.arbiter.core.renewed_lease(lease)?;
        Ok(Semaphore {
            lease,
            ..self.clone()
        })
    }

    /// The same semaphore with a fixed lease that is never renewed. It is lost a safety margin before the lease ends: see
    /// [`Lock::fixed_lease`](crate::Lock::fixed_lease).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is from [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours,
    /// and no longer than [the store grants](crate::store::Capabilities::longest_lease).
    pub fn fixed_lease(&self, lease: Duration) -> Result<Semaphore, Error> {
        Ok(Semaphore {
            lease: self.arbiter.core.fixed_lease(lease)?,
            ..self.clone()
        })
    }

    /// The same semaphore with a label, which others see beside the process that holds or waits; see
    /// [`Lock::label`](crate::Lock::label).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let keeper = lockkeeper::Lockkeeper::connect("memory:semaphore-label-example").await?;
    /// let printers = keeper.semaphore("printers", 3)?;
    /// let guard = printers.label("invoices of May")?.acquire(1).await?;
    ///
    /// let seen = keeper.inspect("printers").await?.expect("it is held");
    /// let label = seen.holders[0].label.as_ref();
    /// assert_eq!(label.map(|label| label.as_str()), Some("invoices of May"));
    /// # drop(guard);
    /// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty label, one that is too long, or one with a control character.
    pub fn label(&self, label: &str) -> Result<Semaphore, Error> {
        Ok(Semaphore {
            label: self.arbiter.core.other_label(label)?,
            ..self.clone()
        })
    }

    /// Waits as long as it takes for `count` permits, all or none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no permits or more than there are; a store error.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind; the place in the queue is lost. So for all of these.
    pub async fn acquire(&self, count: u32) -> Result<Guard, Error> {
        let guard = self.attempt(count, WaitLimit::Forever).await?;
        guard.ok_or(Error::Closed)
    }

    /// Waits at most `timeout` for `count` permits.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    pub async fn acquire_within(
        &self,
        count: u32,
        timeout: Duration,
    ) -> Result<Option<Guard>, Error> {
        self.attempt(count, WaitLimit::for_at_most(timeout)).await
    }

    /// Takes `count` permits only if that is possible at once.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    pub async fn try_acquire(&self, count: u32) -> Result<Option<Guard>, Error> {
        self.attempt(count, WaitLimit::NoWait).await
    }

    pub(crate) async fn attempt(
        &self,
        count: u32,
        wait_limit: WaitLimit,
    ) -> Result<Option<Guard>, Error> {
        let limit = self.permits;
        if !(1..=limit).contains(&count) {
            return Err(Error::InvalidArgument {
                what: "permits",
                reason: format!("{count} asked for, of {limit}; ask for 1 to {limit}"),
            });
        }
        let request = AcquireRequest {
            mode: Mode::Permit { limit, count },
            lease: self.lease,
            label: self.label.clone(),
            owner: None,
            wait_limit,
        };
        Ok(acquire(&self.arbiter, request).await?.map(Guard::new))
    }
}
