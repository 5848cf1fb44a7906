//! One way to take a lock, whether it is ours or a naive one: what `lock-taker` does in every scene.

use std::pin::Pin;
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Error, Guard, Lock, Lockkeeper, Owner, ReleaseOutcome};

use crate::history::Answer;
use crate::naive::{
    Mistake, NaiveGuard, NaiveLock, NaiveQuorum, NaiveQuorumGuard, NaiveZooKeeper,
    NaiveZooKeeperGuard, QuorumMistake, ZooKeeperMistake,
};

/// What can go wrong, told apart no further.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Which lock a process takes, and how.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// `ours`, or the name of a [`Mistake`]; of a [`QuorumMistake`] on a store of several nodes, of a [`ZooKeeperMistake`] on
    /// ZooKeeper.
    pub kind: &'a str,
    /// The store.
    pub url: &'a str,
    /// The lock's name.
    pub name: &'a str,
    /// The lease; the time-out of the session of a naive lock on ZooKeeper.
    pub lease: Duration,
    /// Whether it is renewed.
    pub renewed: bool,
}

/// A lock of either kind.
#[derive(Clone, Debug)]
pub enum AnyLock {
    /// Lockkeeper's.
    Ours(Lockkeeper, Lock),
    /// A naive one.
    Naive(NaiveLock),
    /// A naive one over several servers.
    Quorum(NaiveQuorum),
    /// A naive one on ZooKeeper.
    ZooKeeper(NaiveZooKeeper),
}

/// A hold of either kind.
#[derive(Debug)]
pub enum AnyGuard {
    /// Lockkeeper's, with the lock and the owner that took it.
    Ours(Guard, Lock),
    /// A naive one.
    Naive(Box<NaiveGuard>),
    /// A naive one over several servers.
    Quorum(NaiveQuorumGuard),
    /// A naive one on ZooKeeper.
    ZooKeeper(NaiveZooKeeperGuard),
}

impl AnyLock {
    /// The lock that is wanted.
    ///
    /// # Errors
    /// When there is no such kind, or the store cannot be opened.
    pub async fn open(wanted: &Wanted<'_>) -> Result<AnyLock, Failure> {
        let Wanted {
            kind, url, name, ..
        } = *wanted;
        if kind == "ours" {
            let builder = Lockkeeper::builder().url(url).lease(wanted.lease);
            let keeper = builder.connect().await?;
            let lock = keeper.lock(name)?;
            let lock = match wanted.renewed {
                true => lock,
                false => lock.fixed_lease(wanted.lease)?,
            };
            return Ok(AnyLock::Ours(keeper, lock));
        }
        let unknown = || format!("no lock is called {kind:?}");
        let (lease, renewed) = (wanted.lease, wanted.renewed);
        if url.starts_with("redlock:") {
            let mistake = QuorumMistake::named(kind).ok_or_else(unknown)?;
            let lock = NaiveQuorum::new(mistake, url, name, lease, renewed)?;
            return Ok(AnyLock::Quorum(lock));
        }
        if url.starts_with("zk:") {
            let mistake = ZooKeeperMistake::named(kind).ok_or_else(unknown)?;
            let lock = NaiveZooKeeper::at(mistake, url, name, lease).await?;
            return Ok(AnyLock::ZooKeeper(lock));
        }
        let mistake = Mistake::named(kind).ok_or_else(unknown)?;
        let lock = NaiveLock::new(mistake, url, name, lease, renewed)?;
        Ok(AnyLock::Naive(lock))
    }

    /// Whether its resource is shown the token.
    pub fn is_fenced(&self) -> bool {
        !matches!(self, AnyLock::Naive(lock) if lock.mistake() == Mistake::Unfenced)
    }

    /// Waits for it, for so long. `None`: others have it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn acquire(&self, patience: Duration) -> Result<Option<AnyGuard>, Failure> {
        Ok(match self {
            AnyLock::Ours(_, lock) => {
                let lock = lock.as_owner(&Owner::new());
                let guard = lock.acquire_within(patience).await?;
                guard.map(|guard| AnyGuard::Ours(guard, lock))
            }
            AnyLock::Naive(lock) => lock.acquire(patience).await?.map(AnyGuard::naive),
            AnyLock::Quorum(lock) => lock.acquire(patience).await.map(AnyGuard::Quorum),
            AnyLock::ZooKeeper(lock) => lock.acquire(patience).await?.map(AnyGuard::ZooKeeper),
        })
    }

    /// Ends what there is to end.
    pub async fn close(&self) {
        if let AnyLock::Ours(keeper, _) = self {
            keeper.close().await;
        }
    }
}

impl AnyGuard {
    fn naive(guard: NaiveGuard) -> AnyGuard {
        AnyGuard::Naive(Box::new(guard))
    }

    /// Its token.
    pub fn token(&self) -> u64 {
        match self {
            AnyGuard::Ours(guard, _) => guard.token().get(),
            AnyGuard::Naive(guard) => guard.token(),
            AnyGuard::Quorum(guard) => guard.token(),
            AnyGuard::ZooKeeper(guard) => guard.token(),
        }
    }

    /// How often its owner has it.
    pub fn depth(&self) -> u32 {
        match self {
            AnyGuard::Ours(guard, _) => guard.depth(),
            AnyGuard::Naive(guard) => guard.depth(),
            AnyGuard::Quorum(_) | AnyGuard::ZooKeeper(_) => 1,
        }
    }

    /// Until when it believes to hold.
    pub fn deadline(&self) -> Moment {
        match self {
            AnyGuard::Ours(guard, _) => guard.deadline(),
            AnyGuard::Naive(guard) => guard.deadline(),
            AnyGuard::Quorum(guard) => guard.deadline(),
            // It has none: it is told.
            AnyGuard::ZooKeeper(_) => Moment::NEVER,
        }
    }

    /// Whether it believes to hold.
    pub fn is_held(&self) -> bool {
        match self {
            AnyGuard::Ours(guard, _) => guard.is_held(),
            AnyGuard::Naive(guard) => guard.is_held(),
            AnyGuard::Quorum(guard) => guard.is_held(),
            AnyGuard::ZooKeeper(guard) => guard.is_held(),
        }
    }

    /// Completes when it learns of its loss.
    pub fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self {
            AnyGuard::Ours(guard, _) => Box::pin(guard.lost()),
            AnyGuard::Naive(guard) => Box::pin(guard.lost()),
            AnyGuard::Quorum(guard) => Box::pin(guard.lost()),
            AnyGuard::ZooKeeper(guard) => Box::pin(guard.lost()),
        }
    }

    /// Takes it once more for the same owner.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn again(&self) -> Result<Option<AnyGuard>, Failure> {
        Ok(match self {
            AnyGuard::Ours(_, lock) => {
                let guard = lock.try_acquire().await?;
                guard.map(|guard| AnyGuard::Ours(guard, lock.clone()))
            }
            AnyGuard::Naive(guard) => guard.again().await?.map(AnyGuard::naive),
            AnyGuard::Quorum(_) | AnyGuard::ZooKeeper(_) => {
                return Err("it knows no re-entry".into());
            }
        })
    }

    /// Lets go. An error means that nobody knows whether it did.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn release(self) -> Result<Answer, Failure> {
        Ok(match self {
            AnyGuard::Ours(guard, _) => match guard.release().await {
                Ok(ReleaseOutcome::Released) => Answer::Released,
                Ok(ReleaseOutcome::StillHeld { depth, .. }) => Answer::StillHeld { depth },
                Ok(other) => return Err(format!("{other:?}").into()),
                Err(Error::Lost { .. }) => Answer::NotHeld,
                Err(error) => return Err(error.into()),
            },
            AnyGuard::Naive(guard) => match guard.release().await? {
                Some(0) => Answer::Released,
                Some(depth) => Answer::StillHeld { depth },
                None => Answer::NotHeld,
            },
            AnyGuard::Quorum(guard) => match guard.release().await {
                Some(true) => Answer::Released,
                Some(false) => Answer::NotHeld,
                None => return Err("too few nodes answered".into()),
            },
            AnyGuard::ZooKeeper(guard) => match guard.release().await? {
                true => Answer::Released,
                false => Answer::NotHeld,
            },
        })
    }
}

/// Whether an acquire that failed like this certainly took nothing.
pub fn took_nothing(failure: &Failure) -> bool {
    let error = failure.downcast_ref::<Error>();
    error.is_some_and(|error| !matches!(error, Error::OutcomeUnknown { .. }))
}
