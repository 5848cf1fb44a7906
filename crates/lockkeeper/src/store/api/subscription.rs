//! Hints, and the grants that come with them.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, getpid};
use tokio::sync::Notify;

use super::{ClaimId, DirectGrant, KeeperId};
use crate::Name;

/// What to be hinted about.
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
/// // As a store makes it: what it gives as the second part ends with the subscription.
/// let hints = Arc::new(Notify::new());
/// let subscription = Subscription::new(hints.clone(), ());
/// hints.notify_one();
/// subscription.hint().await;
/// # });
/// ```
pub struct Subscription {
    hints: Arc<Notify>,
    grants: Option<Arc<GrantSlot>>,
    _ends: Ends,
}

/// What ends a subscription when it is dropped. In a fork it is kept: a thread that is not there may have locked a mutex
/// that it needs.
struct Ends {
    home: Pid,
    what: Option<Box<dyn Any + Send + Sync>>,
}

impl Ends {
    fn new(what: impl Any + Send + Sync) -> Ends {
        Ends {
            home: getpid(),
            what: Some(Box::new(what)),
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if getpid() != self.home {
            std::mem::forget(self.what.take());
        }
    }
}

impl Subscription {
    /// A subscription that wakes when `hints` is notified; `ends` is dropped with it.
    pub fn new(hints: Arc<Notify>, ends: impl Any + Send + Sync) -> Subscription {
        Subscription {
            hints,
            grants: None,
            _ends: Ends::new(ends),
        }
    }

    /// What the hints bring is found in `grants`.
    pub(in crate::store) fn with_grants(mut self, grants: Option<Arc<GrantSlot>>) -> Subscription {
        self.grants = grants;
        self
    }

    /// The same subscription, that drops this as well when it is dropped.
    pub fn and(self, ends: impl Any + Send + Sync) -> Subscription {
        Subscription {
            _ends: Ends::new((self._ends, ends)),
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

    /// Takes the grant that the last hint brought, if it did.
    pub fn granted(&self) -> Option<DirectGrant> {
        self.grants.as_ref()?.lock().take()
    }
}

/// Where a grant waits until its claim takes it.
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
