//! [`Lock`]: one holder at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::acquire;
use crate::engine::arbiter::Arbiter;
use crate::engine::core::Core;
use crate::engine::handle::Handle;
use crate::engine::request::{AcquireRequest, LeaseKind, WaitLimit};
use crate::owner::OwnerId;
use crate::store::Mode;
use crate::{Error, Guard, Label, Name, Owner};

/// A lock that one holder has at a time, among all processes on the same store.
///
/// Making one is cheap and takes nothing. Clones and other `Lock`s of the same name are the same lock.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::Duration;
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:lock-example").await?;
/// let lock = keeper.lock("stock:42")?;
///
/// let guard = lock.acquire().await?;                                // waits as long as it takes
/// assert!(lock.try_acquire().await?.is_none());                     // does not wait
/// assert!(lock.acquire_within(Duration::from_millis(5)).await?.is_none());
/// guard.release().await?;
///
/// let short = lock.fixed_lease(Duration::from_secs(5))?;                  // ends by itself after 5 s
/// let guard = short.acquire().await?;
/// assert!(guard.is_held_for(Duration::from_secs(4)));
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// # Guarantees
/// See [`Guard`] and `docs/guarantees.md`. Waiting tasks of one process get their turn in order; so do processes, except for the
/// bounded [`HandOff`](crate::HandOff). A [`fair`](Lock::fair) lock is
/// first come, first served among all.
///
/// # What this does not protect against
/// See [`Guard`]. A task that holds the lock and acquires it again without an [`Owner`] waits for itself. And a lock
/// is slower than a `tokio::sync::Mutex`: inside one process use that.
#[derive(Clone, Debug)]
pub struct Lock {
    arbiter: Handle<Arbiter>,
    mode: Mode,
    lease: LeaseKind,
    label: Option<Label>,
    owner: Option<OwnerId>,
}

impl Lock {
    pub(crate) fn new(arbiter: Arc<Arbiter>) -> Lock {
        Lock {
            arbiter: Handle::new(arbiter),
            mode: Mode::Exclusive,
            lease: LeaseKind::Usual,
            label: None,
            owner: None,
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.arbiter.core
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.arbiter.name
    }

    /// The same lock, acquired strictly in the order of asking, among all tasks of all processes. Slower:
    /// every waiter queues in the store.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by this store.
    pub fn fair(&self) -> Result<Lock, Error> {
        let capabilities = self.arbiter.core.store().capabilities();
        if !capabilities.fair {
            return Err(Error::Unsupported {
                store: capabilities.store,
                what: "fair locks",
            });
        }
        Ok(Lock {
            mode: Mode::Fair,
            ..self.clone()
        })
    }

    /// The same lock with another lease, renewed for as long as the guard lives: how soon others get the
    /// lock if this process dies, and how long an outage of the store it survives.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is from [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours,
    /// and no longer than [the store grants](crate::store::Capabilities::longest_lease).
    pub fn with_lease(&self, lease: Duration) -> Result<Lock, Error> {
        let lease = self.arbiter.core.renewed_lease(lease)?;
        Ok(Lock {
            lease,
            ..self.clone()
        })
    }

    /// The same lock with a fixed lease that is never renewed: a cap on how long it is held.
    ///
    /// [`lost`](crate::Guard::lost) fires, and [`is_held`](crate::Guard::is_held) turns false, a safety margin before the lease ends in
    /// the store: a tenth of the lease, and at least 50 ms. So of 5 s there are 4.5 s to work in, of 200 ms there are
    /// 150 ms; they count from before the request was sent. [`deadline`](crate::Guard::deadline) is that moment.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is from [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours,
    /// and no longer than [the store grants](crate::store::Capabilities::longest_lease).
    pub fn fixed_lease(&self, lease: Duration) -> Result<Lock, Error> {
        Ok(Lock {
            lease: self.arbiter.core.fixed_lease(lease)?,
            ..self.clone()
        })
    }

    /// The same lock with a label, which others see beside the process that holds or waits. 1 to 256 bytes without control
    /// characters. [`Builder::label`](crate::Builder::label) is for all locks of a keeper.
    ///
    /// The label shown is that of the task that holds. So a task with another label than the keeper's has a claim of its
    /// own in the store, as with a lease of its own, and takes no part in the [`HandOff`](crate::HandOff) between tasks. An
    /// owner that re-enters keeps the label of its first guard.
    ///
    /// Everybody who can read the store can read labels, so they are no place for a secret.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let keeper = lockkeeper::Lockkeeper::connect("memory:label-example").await?;
    /// let guard = keeper.lock("stock:7")?.label("order 42")?.acquire().await?;
    ///
    /// let seen = keeper.inspect("stock:7").await?.expect("it is held");
    /// for holder in &seen.holders {
    ///     println!("{} holds it, for {:?}", holder.process, holder.label);     // …, for Some("order 42")
    /// }
    /// for waiter in &seen.queue {
    ///     println!("{} waits, for {:?}", waiter.process, waiter.label);
    /// }
    /// # assert_eq!(seen.holders[0].label.as_ref().map(|label| label.as_str()), Some("order 42"));
    /// # drop(guard);
    /// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty label, one that is too long, or one with a control character.
    pub fn label(&self, label: &str) -> Result<Lock, Error> {
        Ok(Lock {
            label: self.arbiter.core.other_label(label)?,
            ..self.clone()
        })
    }

    /// The same lock, acquired for an owner, who may acquire it again while holding it. Entered again it keeps
    /// the lease it was first acquired with. While the owner has a guard of it that is lost, acquiring it again is
    /// [`Error::Lost`]: drop that guard first.
    pub fn as_owner(&self, owner: &Owner) -> Lock {
        self.owned_by(owner.0)
    }

    pub(crate) fn owned_by(&self, owner: OwnerId) -> Lock {
        Lock {
            owner: Some(owner),
            ..self.clone()
        }
    }

    /// Waits as long as it takes.
    ///
    /// # Errors
    /// A store error; one that may pass is reported once it has lasted as long as the lease.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind; the place in the queue is lost.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        match self.attempt(WaitLimit::Forever).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Closed),
        }
    }

    /// Waits at most `timeout`; `None` if that was not enough.
    ///
    /// # Errors
    /// A store error; also when `timeout` is over and the store could grant nothing to anybody, as too many nodes of a quorum
    /// are quarantined: the error names them, and says for how long.
    ///
    /// # Cancel safety
    /// As [`acquire`](Lock::acquire).
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>, Error> {
        self.attempt(WaitLimit::for_at_most(timeout)).await
    }

    /// Does not wait; `None` if another has the lock. If a guard of this keeper was dropped just before, it waits for the response
    /// to that release.
    ///
    /// # Errors
    /// A store error.
    ///
    /// # Cancel safety
    /// As [`acquire`](Lock::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.attempt(WaitLimit::NoWait).await
    }

    pub(crate) async fn attempt(&self, wait_limit: WaitLimit) -> Result<Option<Guard>, Error> {
        let request = AcquireRequest {
            mode: self.mode,
            lease: self.lease,
            label: self.label.clone(),
            owner: self.owner.or_else(OwnerId::of_scope),
            wait_limit,
        };
        Ok(acquire(&self.arbiter, request).await?.map(Guard::new))
    }
}
