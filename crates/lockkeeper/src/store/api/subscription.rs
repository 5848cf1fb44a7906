//! Subscriptions: hints that a claim may succeed now, and the grants that some hints bring.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, getpid};
use tokio::sync::Notify;

use super::{ClaimId, DirectGrant, KeeperId};
use crate::Name;

/// What a subscription is about.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use std::time::Duration;
/// # use lockkeeper::{Name, clock::Moment};
/// # use lockkeeper::store::*;
/// # let store = memory::MemoryStore::new();
/// # let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// # let name = Name::new("x")?;
/// # let claim = Claim::new(id, name.clone(), Mode::Exclusive, Duration::from_secs(30));
/// let hints = store.subscribe(Interest::Claim(name, id)).await?;
/// // hints.hint().await ends when the claim may succeed
/// # drop((hints, claim));
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Interest {
    /// A queued claim may now succeed.
    Claim(Name, ClaimId),
    /// Anything about this name may have changed.
    Name(Name),
    /// The latch of this name may have changed.
    Latch(Name),
    /// A hold of this keeper may have been broken.
    Keeper(KeeperId),
}

/// A running subscription; dropping it ends it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use lockkeeper::store::Subscription;
/// use tokio::sync::Notify;
///
/// // As a store makes it. The second part is dropped with the subscription.
/// let hints = Arc::new(Notify::new());
/// let subscription = Subscription::new(hints.clone(), ());
/// hints.notify_one();
/// subscription.hint().await;
/// # });
/// ```
pub struct Subscription {
    hints: Arc<Notify>,
    grants: Option<Arc<GrantSlot>>,
    _resources: DropUnlessForked,
}

/// Drops a value, but leaks it in a forked process: its drop may need a mutex that a thread of the parent had locked, and
/// the fork does not have that thread.
struct DropUnlessForked {
    process: Pid,
    value: Option<Box<dyn Any + Send + Sync>>,
}

impl DropUnlessForked {
    fn new(value: impl Any + Send + Sync) -> DropUnlessForked {
        DropUnlessForked {
            process: getpid(),
            value: Some(Box::new(value)),
        }
    }
}

impl Drop for DropUnlessForked {
    fn drop(&mut self) {
        if getpid() != self.process {
            std::mem::forget(self.value.take());
        }
    }
}

impl Subscription {
    /// A subscription that is hinted when `hints` is notified. `resources` is dropped with it, and ends what feeds it.
    pub fn new(hints: Arc<Notify>, resources: impl Any + Send + Sync) -> Subscription {
        Subscription {
            hints,
            grants: None,
            _resources: DropUnlessForked::new(resources),
        }
    }

    /// The same subscription. A grant that a hint brings is put into `grants`.
    pub(in crate::store) fn with_grants(mut self, grants: Option<Arc<GrantSlot>>) -> Subscription {
        self.grants = grants;
        self
    }

    /// The same subscription, which drops this as well when it is dropped.
    pub fn and(self, resources: impl Any + Send + Sync) -> Subscription {
        Subscription {
            _resources: DropUnlessForked::new((self._resources, resources)),
            ..self
        }
    }

    /// Waits for the next hint. A hint given since the last call counts; several count once.
    ///
    /// Cancel safe: a hint is not lost when the future is dropped.
    pub async fn hint(&self) {
        self.hints.notified().await;
    }

    /// Forgets the hints that were given so far.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn forget(&self) {
        std::pin::pin!(self.hints.notified()).enable();
    }

    /// Takes the grant that the last hint brought, if it brought one.
    pub fn granted(&self) -> Option<DirectGrant> {
        self.grants.as_ref()?.lock().take()
    }
}

/// Keeps a grant until its claim takes it.
#[derive(Debug, Default)]
pub(in crate::store) struct GrantSlot(Mutex<Option<DirectGrant>>);

impl GrantSlot {
    pub(in crate::store) fn lock(&self) -> MutexGuard<'_, Option<DirectGrant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}
