//! [`Owner`]: may re-enter a lock that it already holds.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

/// An identity that may acquire a lock again while it holds the lock.
///
/// In asynchronous code one task may poll two futures at once (`join!`), so "the same task" does not mean
/// "one after the other", and re-entry by task would let both in. Re-entry is therefore explicit: name the
/// owner with [`Lock::as_owner`](crate::Lock::as_owner), or open a scope in which every acquire finds it.
/// In the [`blocking`](crate::blocking) API the owner is the thread.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::{Lockkeeper, Owner};
///
/// let keeper = Lockkeeper::connect("memory:owner-example").await?;
/// let lock = keeper.lock("account:7")?;
/// Owner::new().scope(async {
///     let outer = lock.acquire().await?;
///     let inner = lock.acquire().await?;        // re-entered: no waiting, no request to the store
///     assert_eq!(inner.token(), outer.token());
///     inner.release().await?;
///     outer.release().await
/// }).await?;
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(pub(crate) OwnerId);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerId(u64);

impl OwnerId {
    fn new() -> OwnerId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        OwnerId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The owner of the surrounding scope.
    pub fn of_scope() -> Option<OwnerId> {
        SCOPE.try_with(|owner| *owner).ok()
    }

    /// The owner that stands for the calling thread.
    pub fn of_thread() -> OwnerId {
        thread_local!(static OWNER: OwnerId = OwnerId::new());
        OWNER.with(|owner| *owner)
    }
}

tokio::task_local!(static SCOPE: OwnerId);

impl Owner {
    /// A new owner, equal to no other.
    #[allow(clippy::new_without_default, reason = "a unique value is no default")]
    pub fn new() -> Owner {
        Owner(OwnerId::new())
    }

    /// Runs a future in which every acquire that names no owner is this owner's.
    ///
    /// The caller that opens a scope promises sequential use: two futures inside it that run side by side (`join!`,
    /// `select!`) are one owner and do *not* exclude each other. Tasks spawned inside are outside of it.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPE.scope(self.0, future).await
    }
}
