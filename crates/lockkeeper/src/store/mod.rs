//! The contract between the engine and a store, which keeps the locks.
//!
//! A store knows *claims*: a claim is one try of one keeper to hold one name. The store makes each verb atomic, grants in
//! the order of its queue, and never calls the engine. Everything else (waiting, renewal, re-entry, hand-off between tasks)
//! is built once, in the engine, over any store.
//!
//! A claim goes one way: a [try](Store::try_acquire) grants it, or is busy and queues it; a granted claim holds until it is
//! [released](Store::release), [broken](Store::break_lock), or not [renewed](Store::renew) in time. A queued claim
//! [subscribes](Store::subscribe) to hints that its turn may have come, or is [withdrawn](Store::withdraw).
//!
//! # Rules every store keeps
//! 1. **A claim id is granted once.** Release, renew and withdraw name exactly that grant, so a delayed or
//!    repeated request never touches a later hold. A try that finds its own id holding is the try that was granted, and
//!    returns the same tokens again. The engine does not try with an id again once it was granted. A store whose transport
//!    may repeat a request by itself also has to refuse, with `TooLate`, ids that have ended.
//! 2. **`not_after`** is the moment past which a request that arrives late does nothing. Every verb that changes
//!    something has one, except release and withdraw: they name one grant that is never given again, and what they undo
//!    has to be undone however late it is.
//! 3. **The queue is first come, first served.** While a live claim waits, no other claim is granted before
//!    it. A release makes the head of the queue the holder in the same step, under a lease of at most [`GRANT_LEASE`]
//!    (and of a few commits, where commits are slow), and hints it. This is a *direct grant*: the waiter confirms it by `try_acquire` with the same id, or, if the hint
//!    brought the grant itself as a [`DirectGrant`], by a renewal. A waiter that does not try for [`QUEUE_TTL`] has left
//!    the queue. A store without a queue says so in its [`Capabilities`], and never queues a claim.
//! 4. **Tokens** of a name grow with every grant and outlive the lock record. By [`Fencing::DataOrClock`] they are at
//!    least the wall clock in microseconds, so that a store that lost its data goes on above what it gave out. By
//!    [`Fencing::Native`] they follow an order of the store's own, and no clock has a part in which of two is higher.
//! 5. **Hints may be lost, late or doubled.** A waiter tries now and then without one.
//! 6. **A failed verb changed nothing**, unless it failed with [`Error::OutcomeUnknown`]. A batch of renewals
//!    may be done in parts. It fails with that error once a part was done, or says [`Renewed::Unknown`] of the rest.
//!
//! # Layout
//! `api` has what a store is asked and what it returns. [`record`] has the rules above as code, for every store that can run
//! them; [`common`] has what network stores share. `catalog` lists the kinds of stores and opens one by its URL.

#[cfg(feature = "redis")]
mod admission;
mod api;
mod catalog;
pub mod common;
#[cfg(feature = "etcd")]
pub mod etcd;
mod forward;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redlock")]
pub mod quorum;
pub mod record;
#[cfg(feature = "redis")]
#[cfg_attr(
    not(feature = "redlock"),
    allow(
        dead_code,
        unused_imports,
        reason = "what only a quorum needs of a connection"
    )
)]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "each engine uses its part")
)]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::{Error, Name};

use self::api::GrantSlot;
pub(crate) use self::api::may_stand_beside;
pub use self::api::{
    Attempt, Break, BreakOutcome, BreakTarget, Broken, Capabilities, Claim, ClaimId, DirectGrant,
    Fencing, Grant, Health, Holder, Interest, KeeperId, LatchOp, LatchRequest, LatchState,
    LeaseEnd, LockInfo, MAX_LISTED, Mode, NodeState, NodeStatus, NodeVote, Process, Reach, Release,
    Released, Renewal, Renewed, Subscription, TimeAuthority, Waiter, Wakeups,
};
pub use self::catalog::{Opener, Scheme, schemes};
pub(crate) use self::catalog::{added_examples, open};

/// A future that a store returns. Boxed, so that `Arc<dyn Store>` works.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a verb of a store returns.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// How long a direct grant lasts at most until it is confirmed. A waiter that died keeps the others waiting for that long.
pub const GRANT_LEASE: Duration = Duration::from_secs(1);

/// How long a queued claim counts as waiting after its last try.
pub const QUEUE_TTL: Duration = Duration::from_secs(5);

/// Keeps locks. The [module](self) has the rules.
///
/// A future that is returned here may be dropped at any point. The verb then happens entirely or not at all, and the
/// caller treats it as [`Error::OutcomeUnknown`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use lockkeeper::store::{Attempt, Claim, ClaimId, KeeperId, Mode, Release, Store, memory::MemoryStore};
/// use lockkeeper::Name;
///
/// let store = MemoryStore::new();
/// let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// let claim = Claim::new(id, Name::new("x")?, Mode::Exclusive, Duration::from_secs(30));
/// let Attempt::Granted(grant) = store.try_acquire(&claim).await? else { unreachable!() };
/// println!("token {}", grant.token);
/// let release = Release::new(claim.name.clone(), claim.id);
/// assert!(store.release(&release).await?.was_held);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// What this store can do: the same for as long as it is open.
    fn capabilities(&self) -> Capabilities;

    /// Where the store is, without secrets. It tells stores of one kind apart, and is the same in every process that uses the
    /// store. A store that no other process can use names itself, for instance by its address (`{self:p}`).
    fn place(&self) -> String;

    /// Checks that the store can keep a lock and a latch of this name, without a request. Every verb refuses what this refuses.
    ///
    /// # Errors
    /// [`Error::InvalidName`] says why not.
    fn check_name(&self, _name: &Name) -> Result<(), Error> {
        Ok(())
    }

    /// One atomic try. Busy is a value. With [`Claim::enqueue`], a busy try also queues the claim, or keeps its position if
    /// it is queued already.
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt>;

    /// Takes a claim out of the queue, and releases it if it holds. This undoes a try whose outcome is unknown.
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()>;

    /// Renews several holds, and returns what became of each, in their order. Never shortens a lease.
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>>;

    /// Ends a hold, and may queue another claim in the same step.
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released>;

    /// Subscribes to hints. Returns once no hint that follows can be missed.
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription>;

    /// What is known about a name, with the first [`MAX_LISTED`] claims of its queue; `None` if nothing is.
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>>;

    /// Every name starting with `prefix` that is held or waited for, in order. Waiters are counted and not listed.
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>>;

    /// An administrator's release. It ends every hold of the name, or the one that is named, moves the fence past what it
    /// ended, keeps the reason for [`inspect`](Store::inspect), and hints the keepers that held. A break that ends nothing
    /// leaves no reason behind.
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome>;

    /// Reads or changes a count-down latch. Latches have names of their own, apart from locks.
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState>;

    /// The state of the store just now, from memory alone: every acquire that ends in vain asks for it.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Which nodes keep a hold, for a store whose nodes vote.
    fn votes(&self, _claim: ClaimId) -> Option<Vec<NodeVote>> {
        None
    }

    /// Waits for requests that no caller waits for any more, such as those to the other nodes after a majority has decided.
    /// It does not wait for a server that is known to be down or silent.
    fn settled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What else the store can do if it has no server and lives in the processes that use it.
    fn embedded(&self) -> Option<&dyn Embedded> {
        None
    }
}

/// What else a store can do that has no server and lives in the processes that use it, such as one in a file.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::store::{Store, memory::MemoryStore};
///
/// let store = MemoryStore::new();
/// if let Some(embedded) = store.embedded() {
///     let mut rested = false;
///     embedded.at_rest(&mut || rested = true);
///     assert!(rested);
/// }
/// # });
/// ```
pub trait Embedded {
    /// A file that keeps this store's holds alive for as long as another process has it open, also when this process has
    /// ended. `None` where the lease alone decides.
    fn liveness(&self) -> Option<std::os::fd::OwnedFd>;

    /// What keeps the store from answering just now, and what to do about it. This may take milliseconds.
    fn obstacle(&self) -> Option<String>;

    /// Calls `then` at a moment when this process has no lock that keeps others from the store: it may be stopped there.
    /// `then` must not use the store.
    fn at_rest(&self, then: &mut dyn FnMut());
}
