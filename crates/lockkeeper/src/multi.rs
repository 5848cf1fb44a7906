//! [`MultiLock`]: several locks, all or none.

mod acquisition;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::engine::request::WaitLimit;
use crate::{Error, Guard, Lock, Lockkeeper, Name, Owner, ReleaseOutcome, Token};
use acquisition::MultiAcquisition;

/// Several locks acquired together: all of them or none.
///
/// They are taken in the order of their names, in whatever order they are given, so two callers never wait for each other. [`MultiLock::new`] takes locks of several stores.
///
/// Clients of other projects, Redisson's among them, keep no such order. An acquire that waits for one of them releases the locks
/// that it has, after 50 ms and later more, and takes them again.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:multi-example").await?;
/// let transfer = keeper.multi_lock(["account:7", "account:3"])?;
/// let guards = transfer.acquire().await?;
/// assert!(guards.token("account:3").is_some());
/// guards.release().await?;
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// # What this does not protect against
/// An owner that already holds one of the names and then asks for several: it holds out of order. One lock that is given
/// twice, on a store that is spelt in two ways: it waits for itself.
#[derive(Clone, Debug)]
pub struct MultiLock {
    locks: Vec<Lock>,
}

/// A lock's place in the order in which all callers take locks: the kind of store, the name, the store.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place(&'static str, Name, String);

impl Place {
    fn of(lock: &Lock) -> Place {
        let store = lock.core().store();
        Place(
            store.capabilities().store,
            lock.name().clone(),
            store.place(),
        )
    }
}

/// Several held locks.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:multi-guard-example").await?;
/// let both = keeper.multi_lock(["a", "b"])?.acquire().await?;
/// for guard in both.guards() {
///     println!("{} under token {}", guard.name(), guard.token());
/// }
/// assert!(both.is_held());
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the locks are released when their guard is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiLock {
    /// Locks of any keepers, on any stores: a row in a database and a name on Redis, say. Each keeps its own lease, owner
    /// and fairness.
    ///
    /// They are taken in the order of their kinds of store and names; where both are the same, in the order of the stores'
    /// addresses. So two callers cannot wait for each other, in whatever order they name the locks. Two callers may write the address
    /// of a store differently: one that waits for a lock and has another of the same name and kind of store releases what it has,
    /// after 50 ms and later more, and takes it again.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use lockkeeper::{Lockkeeper, MultiLock};
    ///
    /// let (one, two) = (Lockkeeper::connect("memory:one").await?, Lockkeeper::connect("memory:two").await?);
    /// let both = MultiLock::new([one.lock("row:7")?, two.lock("file")?])?;
    /// let guards = both.acquire().await?;
    /// assert_eq!(guards.guards().len(), 2);
    /// guards.release().await?;
    /// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for no locks, or for one that comes twice.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<MultiLock, Error> {
        let mut locks: Vec<(Place, Lock)> = locks
            .into_iter()
            .map(|lock| (Place::of(&lock), lock))
            .collect();
        if locks.is_empty() {
            return Err(Error::InvalidArgument {
                what: "locks",
                reason: "there are none; give at least one".into(),
            });
        }
        locks.sort_by(|(one, _), (two, _)| one.cmp(two));
        if let Some(pair) = locks.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::InvalidArgument {
                what: "locks",
                reason: format!(
                    "{:?} comes twice on one store, and would wait for itself",
                    pair[0].1.name()
                ),
            });
        }
        Ok(MultiLock {
            locks: locks.into_iter().map(|(_, lock)| lock).collect(),
        })
    }

    pub(crate) fn of_names(keeper: &Lockkeeper, names: BTreeSet<Name>) -> Result<MultiLock, Error> {
        if names.is_empty() {
            return Err(Error::InvalidArgument {
                what: "names",
                reason: "there are none; name at least one lock".into(),
            });
        }
        let locks = names.into_iter();
        let locks: Result<_, _> = locks
            .map(|name| Ok(Lock::new(keeper.arbiter(name)?)))
            .collect();
        Ok(MultiLock { locks: locks? })
    }

    /// The names, in the order they are taken.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.locks.iter().map(Lock::name)
    }

    /// The same locks with another lease, renewed for as long as the guard lives.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it is from [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours,
    /// and no longer than [the store grants](crate::store::Capabilities::longest_lease).
    pub fn with_lease(&self, lease: Duration) -> Result<MultiLock, Error> {
        let locks: Result<_, _> = self
            .locks
            .iter()
            .map(|lock| lock.with_lease(lease))
            .collect();
        Ok(MultiLock { locks: locks? })
    }

    /// The same locks with a label each, which others see beside the process that holds or waits; see [`Lock::label`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let keeper = lockkeeper::Lockkeeper::connect("memory:multi-label-example").await?;
    /// let transfer = keeper.multi_lock(["account:3", "account:7"])?.label("transfer 12")?;
    /// let guards = transfer.acquire().await?;
    /// for name in transfer.names() {
    ///     let seen = keeper.inspect(name).await?.expect("it is held");
    ///     let label = seen.holders[0].label.as_ref();
    ///     assert_eq!(label.map(|label| label.as_str()), Some("transfer 12"));
    /// }
    /// # drop(guards);
    /// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty label, one that is too long, or one with a control character.
    pub fn label(&self, label: &str) -> Result<MultiLock, Error> {
        let locks: Result<_, _> = self.locks.iter().map(|lock| lock.label(label)).collect();
        Ok(MultiLock { locks: locks? })
    }

    /// The same locks, acquired for an owner.
    pub fn as_owner(&self, owner: &Owner) -> MultiLock {
        self.each(|lock| lock.as_owner(owner))
    }

    pub(crate) fn each(&self, change: impl Fn(&Lock) -> Lock) -> MultiLock {
        MultiLock {
            locks: self.locks.iter().map(change).collect(),
        }
    }

    /// Waits as long as it takes.
    ///
    /// # Errors
    /// A store error, or [`Error::Lost`] if one of them was lost while another was waited for; those that were taken are released.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind. So for all of these.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        let guard = self.attempt(WaitLimit::Forever).await?;
        guard.ok_or(Error::Closed)
    }

    /// Waits at most `timeout` for all of them.
    ///
    /// # Errors
    /// As [`acquire`](MultiLock::acquire).
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<MultiGuard>, Error> {
        self.attempt(WaitLimit::for_at_most(timeout)).await
    }

    /// Takes them only if all are free.
    ///
    /// # Errors
    /// As [`acquire`](MultiLock::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        self.attempt(WaitLimit::NoWait).await
    }

    pub(crate) async fn attempt(&self, wait_limit: WaitLimit) -> Result<Option<MultiGuard>, Error> {
        let Some(guards) = MultiAcquisition::new(&self.locks).all(wait_limit).await? else {
            return Ok(None);
        };
        let all = MultiGuard { guards };
        // Those taken first were held while waiting for the last: one may be lost by now.
        match all.guards.iter().find(|guard| !guard.is_held()) {
            None => Ok(Some(all)),
            Some(lost) => Err(lost.loss().await),
        }
    }
}

impl MultiGuard {
    /// The guards, in the order of their names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The fencing token of one of the names.
    pub fn token(&self, name: &str) -> Option<Token> {
        let guard = self.guards.iter().find(|guard| &**guard.name() == name);
        guard.map(Guard::token)
    }

    /// Whether all of them are held now.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Whether all of them stay held for at least `time` without renewal; see [`Guard::is_held_for`](crate::Guard::is_held_for).
    pub fn is_held_for(&self, time: Duration) -> bool {
        self.guards.iter().all(|guard| guard.is_held_for(time))
    }

    /// Waits until one of them is lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        let mut each: Vec<_> = self.guards.iter().map(|g| Box::pin(g.lost())).collect();
        std::future::poll_fn(|context| {
            if each.iter_mut().any(|l| l.as_mut().poll(context).is_ready()) {
                return std::task::Poll::Ready(());
            }
            std::task::Poll::Pending
        })
        .await;
    }

    /// As [`lost`](MultiGuard::lost), at most `timeout`. Returns whether one was lost.
    pub(crate) async fn lost_within(&self, timeout: Duration) -> bool {
        match self.guards.first() {
            Some(any) => any.within(timeout, self.lost()).await,
            None => false,
        }
    }

    /// Releases all of them, the last taken first; one outcome each, in the order of their names.
    ///
    /// # Errors
    /// [`Error::Lost`] if one of them was lost, else the first store error; the others are released all the same.
    ///
    /// # Cancel safety
    /// Dropping the future releases the rest in the background.
    pub async fn release(mut self) -> Result<Vec<ReleaseOutcome>, Error> {
        let mut outcomes = Vec::with_capacity(self.guards.len());
        let mut failed = None;
        while let Some(guard) = self.guards.pop() {
            match guard.release().await {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) if matches!(failed, Some(Error::Lost { .. })) => drop(error),
                // A loss matters more than an error of the store for another lock.
                Err(error @ Error::Lost { .. }) => failed = Some(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        outcomes.reverse();
        failed.map_or(Ok(outcomes), Err)
    }
}
