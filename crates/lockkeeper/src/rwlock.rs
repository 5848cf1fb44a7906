//! [`RwLock`]: many readers or one writer.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::acquire;
use crate::engine::arbiter::Arbiter;
use crate::engine::handle::Handle;
use crate::engine::request::{AcquireRequest, LeaseKind, WaitLimit};
use crate::owner::OwnerId;
use crate::store::Mode;
use crate::{Error, Guard, Label, Name, Owner, ReadGuard, WriteGuard};

/// A lock that many readers or one writer have at a time.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:rwlock-example").await?;
/// let prices = keeper.rwlock("prices")?;
/// let (a, b) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// drop((a, b));
///
/// let writer = prices.write().await?;
/// let reader = writer.downgrade().await?;                // nobody else wrote in between
/// assert!(prices.try_read().await?.is_some());
/// # drop(reader);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// # Guarantees
/// As [`Guard`]. A waiting writer is not overtaken by readers that came later, except by readers of a process that already reads,
/// for at most the time of [`HandOff`](crate::HandOff).
///
/// # What this does not protect against
/// Upgrading: an [`Owner`] that asks to write while it reads gets [`Error::WouldDeadlock`] at once. Without
/// an owner it is not known that reader and writer are one, and the writer waits for itself. So does a task
/// that reads a second time without an owner while a writer waits.
#[derive(Clone, Debug)]
pub struct RwLock {
    arbiter: Handle<Arbiter>,
    lease: LeaseKind,
    label: Option<Label>,
    owner: Option<OwnerId>,
}

impl RwLock {
    pub(crate) fn new(arbiter: Arc<Arbiter>) -> RwLock {
        RwLock {
            arbiter: Handle::new(arbiter),
            lease: LeaseKind::Usual,
            label: None,
            owner: None,
        }
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.arbiter.name
    }

    /// The same lock with another lease, renewed for as long as the guard lives.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is from [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours,
    /// and no longer than [the store grants](crate::store::Capabilities::longest_lease).
    pub fn with_lease(&self, lease: Duration) -> Result<RwLock, Error> {
        let lease = self.arbiter.core.renewed_lease(lease)?;
        Ok(RwLock {
            lease,
            ..self.clone()
        })
    }

    /// The same lock with a fixed lease that is never renewed. It is lost a safety margin before the lease ends: see
    /// [`Lock::fixed_lease`](crate::Lock::fixed_lease).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is from [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours,
    /// and no longer than [the store grants](crate::store::Capabilities::longest_lease).
    pub fn fixed_lease(&self, lease: Duration) -> Result<RwLock, Error> {
        Ok(RwLock {
            lease: self.arbiter.core.fixed_lease(lease)?,
            ..self.clone()
        })
    }

    /// The same lock with a label, which others see beside the process that holds or waits; see [`Lock::label`](crate::Lock::label).
    /// Readers with another label than the keeper's have a claim of their own each. A downgrade keeps the label.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let keeper = lockkeeper::Lockkeeper::connect("memory:rwlock-label-example").await?;
    /// let prices = keeper.rwlock("prices")?;
    /// let page = prices.label("page of prices")?.read().await?;
    /// let export = prices.label("export")?.read().await?;
    ///
    /// let seen = keeper.inspect("prices").await?.expect("it is held");
    /// let labels: Vec<_> = seen.holders.iter().flat_map(|holder| &holder.label).collect();
    /// assert_eq!(format!("{labels:?}"), r#"["page of prices", "export"]"#);
    /// # drop((page, export));
    /// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty label, one that is too long, or one with a control character.
    pub fn label(&self, label: &str) -> Result<RwLock, Error> {
        Ok(RwLock {
            label: self.arbiter.core.other_label(label)?,
            ..self.clone()
        })
    }

    /// The same lock, acquired for an owner, who may acquire it again: readers read again, a writer reads or
    /// writes again. While the owner has a guard of it that is lost, that is [`Error::Lost`].
    pub fn as_owner(&self, owner: &Owner) -> RwLock {
        self.owned_by(owner.0)
    }

    pub(crate) fn owned_by(&self, owner: OwnerId) -> RwLock {
        RwLock {
            owner: Some(owner),
            ..self.clone()
        }
    }

    /// Waits as long as it takes to read.
    ///
    /// # Errors
    /// A store error.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind; the place in the queue is lost. So for all of these.
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        let guard = self.attempt(Mode::Read, WaitLimit::Forever).await?;
        guard.map(ReadGuard).ok_or(Error::Closed)
    }

    /// Waits at most `timeout` to read.
    ///
    /// # Errors
    /// A store error.
    pub async fn read_within(&self, timeout: Duration) -> Result<Option<ReadGuard>, Error> {
        let wait_limit = WaitLimit::for_at_most(timeout);
        let guard = self.attempt(Mode::Read, wait_limit).await?;
        Ok(guard.map(ReadGuard))
    }

    /// Reads only if that is possible at once.
    ///
    /// # Errors
    /// A store error.
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        let guard = self.attempt(Mode::Read, WaitLimit::NoWait).await?;
        Ok(guard.map(ReadGuard))
    }

    /// Waits as long as it takes to write.
    ///
    /// # Errors
    /// A store error, or [`Error::WouldDeadlock`] if the owner holds it for reading.
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        let guard = self.attempt(Mode::Write, WaitLimit::Forever).await?;
        guard.map(WriteGuard).ok_or(Error::Closed)
    }

    /// Waits at most `timeout` to write.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    pub async fn write_within(&self, timeout: Duration) -> Result<Option<WriteGuard>, Error> {
        let wait_limit = WaitLimit::for_at_most(timeout);
        let guard = self.attempt(Mode::Write, wait_limit).await?;
        Ok(guard.map(WriteGuard))
    }

    /// Writes only if that is possible at once.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        let guard = self.attempt(Mode::Write, WaitLimit::NoWait).await?;
        Ok(guard.map(WriteGuard))
    }

    pub(crate) async fn attempt(
        &self,
        mode: Mode,
        wait_limit: WaitLimit,
    ) -> Result<Option<Guard>, Error> {
        let request = AcquireRequest {
            mode,
            lease: self.lease,
            label: self.label.clone(),
            owner: self.owner.or_else(OwnerId::of_scope),
            wait_limit,
        };
        Ok(acquire(&self.arbiter, request).await?.map(Guard::new))
    }
}
