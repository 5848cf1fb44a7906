//! What a store can do, and how it is.

use std::time::Duration;

use super::NodeStatus;
use crate::Error;
use crate::duration::typed;
use crate::error::check_lease;

/// What a store can do: fixed for as long as it is open. Tests, the documentation's table and the command read the same
/// values. [`Health`] has what changes.
///
/// ```
/// for scheme in lockkeeper::store::schemes() {
///     let fair = scheme.capabilities.is_some_and(|can| can.fair);
///     println!("{}: fair locks {fair}", scheme.scheme);
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The kind of store.
    pub store: &'static str,
    /// Where its locks hold.
    pub reach: Reach,
    /// Fair locks.
    pub fair: bool,
    /// Read and write locks.
    pub read_write: bool,
    /// Semaphores.
    pub permits: bool,
    /// Count-down latches.
    pub latches: bool,
    /// A queue with direct grant; without it waiters retry.
    pub queue: bool,
    /// How good its fencing tokens are.
    pub fencing: Fencing,
    /// How waiters learn that it is their turn.
    pub wakeups: Wakeups,
    /// Whether holds survive a restart of the store with its data.
    pub survives_restart: bool,
    /// A dead process's holds are freed at once instead of at the end of their lease.
    pub frees_dead_at_once: bool,
    /// Whose clock ends leases.
    pub time: TimeAuthority,
    /// What ends the lease of a process that is dead or stands still.
    pub lease_end: LeaseEnd,
    /// The longest lease that it grants, at most [`MAX_LEASE`](crate::MAX_LEASE). In [`schemes`](super::schemes): unless
    /// the URL says otherwise.
    pub longest_lease: Duration,
    /// Whether each verb ends within a time of the store's own, with an answer or an error, whatever happens. If
    /// not, the engine sets a timer for every answer that is not there at once.
    pub ends_in_time: bool,
}

impl Capabilities {
    /// Whether the store grants a lease of this length.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] says why not.
    pub fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        check_lease(lease)?;
        if lease <= self.longest_lease {
            return Ok(());
        }
        Err(Error::InvalidArgument {
            what: "lease",
            reason: format!(
                "{} is longer than {}, the longest that the {} store grants as it is set; ask for less, or set it to grant \
                 more, for all its clients",
                typed(lease),
                typed(self.longest_lease),
                self.store
            ),
        })
    }
}

/// How a store is just now, as far as it knows without asking anybody.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// For how long it is known to be unable to grant anything, because it waits for that time to pass.
    pub ready_in: Duration,
    /// The nodes of a store that has several which vote.
    pub nodes: Vec<NodeStatus>,
}

/// Among whom a store's locks exclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reach {
    /// Tasks and threads of one process.
    Process,
    /// Processes of one machine.
    Machine,
    /// Machines of one network.
    Network,
}

/// How good fencing tokens are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fencing {
    /// They grow as long as the store's data lives, and after its loss as long as its clock was not set back
    /// by more than the time that passed.
    DataOrClock,
    /// They follow an order that the store keeps for all its data, such as a number that it gives every write. They grow
    /// with it, whatever the clock does. How they compare with the wall clock is the store's matter, and so is what
    /// becomes of them when its data is lost.
    Native,
}

/// How waiters learn that it is their turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wakeups {
    /// The one whose turn it is is told.
    Direct,
    /// Everyone who waits is told that it may be free.
    Broadcast,
    /// Everyone tries now and then.
    Polling,
}

/// Whose clock ends leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TimeAuthority {
    /// The machine's clock since boot: nobody can set it.
    Boot,
    /// The server's wall clock.
    ServerWall,
    /// The monotonic clock of the server that leads: nobody can set it. A new leader counts every lease from its start.
    LeaderMonotonic,
}

/// What ends the lease of a process that is dead or stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// The store itself, when the time of that lease is over.
    ByItself,
    /// The session of the process with the store. While the process runs, its own side ends each lease in time; once it
    /// does not, all its leases last until the store gives up the session, which may be later.
    WithSession,
}
