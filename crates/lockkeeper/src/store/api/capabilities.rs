//! What a store can do, and the state that it is in.

use std::time::Duration;

use super::NodeStatus;
use crate::Error;
use crate::duration::typed;
use crate::limits::{MAX_LEASE, check_lease};

/// What a store can do: fixed for as long as it is open. Tests, the documentation's table and the command read the same
/// values. [`Health`] has what changes.
///
/// ```
/// for scheme in lockkeeper::store::schemes() {
///     let fair = scheme.capabilities.is_some_and(|can| can.fair);
///     println!("{}: fair locks {fair}", scheme.scheme);
/// }
/// ```
///
/// A store declares them as a constant, which begins with no ability.
///
/// ```
/// use lockkeeper::store::{Capabilities, Reach, Wakeups};
///
/// const CAPABILITIES: Capabilities = Capabilities::new("shelf", Reach::Network)
///     .with_queue(true)
///     .with_wakeups(Wakeups::Direct)
///     .with_survives_restart(true);
/// assert!(!CAPABILITIES.fair);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
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
    /// The clock that ends leases.
    pub time: TimeAuthority,
    /// What ends the lease of a process that is dead or stopped.
    pub lease_end: LeaseEnd,
    /// The longest lease that it grants, at most [`MAX_LEASE`](crate::MAX_LEASE). [`schemes`](crate::store::schemes) has that
    /// of a URL without options.
    pub longest_lease: Duration,
    /// Whether the store itself ends each verb in time, with an answer or an error, whatever happens. If not, the engine sets
    /// a timer for every answer that does not come at once.
    pub ends_in_time: bool,
}

impl Capabilities {
    /// A store of exclusive locks and nothing besides: its waiters poll, the server's wall clock ends leases of up to
    /// [`MAX_LEASE`], and the engine times every verb.
    pub const fn new(store: &'static str, reach: Reach) -> Capabilities {
        Capabilities {
            store,
            reach,
            fair: false,
            read_write: false,
            permits: false,
            latches: false,
            queue: false,
            fencing: Fencing::DataOrClock,
            wakeups: Wakeups::Polling,
            survives_restart: false,
            frees_dead_at_once: false,
            time: TimeAuthority::ServerWall,
            lease_end: LeaseEnd::ByItself,
            longest_lease: MAX_LEASE,
            ends_in_time: false,
        }
    }

    /// The same under the name of another kind of [`store`](Capabilities::store).
    pub const fn with_store(mut self, store: &'static str) -> Self {
        self.store = store;
        self
    }

    /// With another [`reach`](Capabilities::reach).
    pub const fn with_reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// With or without [`fair`](Capabilities::fair) locks.
    pub const fn with_fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// With or without [`read_write`](Capabilities::read_write) locks.
    pub const fn with_read_write(mut self, read_write: bool) -> Self {
        self.read_write = read_write;
        self
    }

    /// With or without semaphores: [`permits`](Capabilities::permits).
    pub const fn with_permits(mut self, permits: bool) -> Self {
        self.permits = permits;
        self
    }

    /// With or without [`latches`](Capabilities::latches).
    pub const fn with_latches(mut self, latches: bool) -> Self {
        self.latches = latches;
        self
    }

    /// With or without a [`queue`](Capabilities::queue).
    pub const fn with_queue(mut self, queue: bool) -> Self {
        self.queue = queue;
        self
    }

    /// With tokens of this grade: [`fencing`](Capabilities::fencing).
    pub const fn with_fencing(mut self, fencing: Fencing) -> Self {
        self.fencing = fencing;
        self
    }

    /// With these [`wakeups`](Capabilities::wakeups).
    pub const fn with_wakeups(mut self, wakeups: Wakeups) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// Whether it [`survives_restart`](Capabilities::survives_restart).
    pub const fn with_survives_restart(mut self, survives_restart: bool) -> Self {
        self.survives_restart = survives_restart;
        self
    }

    /// Whether it [`frees_dead_at_once`](Capabilities::frees_dead_at_once).
    pub const fn with_frees_dead_at_once(mut self, frees_dead_at_once: bool) -> Self {
        self.frees_dead_at_once = frees_dead_at_once;
        self
    }

    /// With this clock: [`time`](Capabilities::time).
    pub const fn with_time(mut self, time: TimeAuthority) -> Self {
        self.time = time;
        self
    }

    /// With this [`lease_end`](Capabilities::lease_end).
    pub const fn with_lease_end(mut self, lease_end: LeaseEnd) -> Self {
        self.lease_end = lease_end;
        self
    }

    /// With this [`longest_lease`](Capabilities::longest_lease).
    pub const fn with_longest_lease(mut self, longest_lease: Duration) -> Self {
        self.longest_lease = longest_lease;
        self
    }

    /// Whether each verb [`ends_in_time`](Capabilities::ends_in_time).
    pub const fn with_ends_in_time(mut self, ends_in_time: bool) -> Self {
        self.ends_in_time = ends_in_time;
        self
    }

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

/// The state of a store just now, as far as it knows without a request.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::store::Health;
///
/// let health = Health::default().with_ready_in(Duration::from_secs(3));
/// assert!(!health.ready_in.is_zero());        // nothing can be granted for three seconds
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// How long the store still waits before it grants anything. Zero if it does not.
    pub ready_in: Duration,
    /// The nodes of a store that has several which vote.
    pub nodes: Vec<NodeStatus>,
}

impl Health {
    /// Grants nothing for so long: [`ready_in`](Health::ready_in).
    pub fn with_ready_in(mut self, ready_in: Duration) -> Self {
        self.ready_in = ready_in;
        self
    }

    /// With these [`nodes`](Health::nodes).
    pub fn with_nodes(mut self, nodes: Vec<NodeStatus>) -> Self {
        self.nodes = nodes;
        self
    }
}

/// How far a store's locks reach.
///
/// ```
/// use lockkeeper::store::{Reach, memory};
/// assert_eq!(memory::CAPABILITIES.reach, Reach::Process);
/// ```
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
///
/// ```
/// use lockkeeper::store::{Fencing, schemes};
/// let by_clock = |fencing| matches!(fencing, Fencing::DataOrClock);
/// let kinds = schemes().iter().filter_map(|scheme| scheme.capabilities);
/// println!("{} kinds need a clock that is not set back", kinds.filter(|kind| by_clock(kind.fencing)).count());
/// ```
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
///
/// ```
/// use lockkeeper::store::{Wakeups, memory};
/// assert_eq!(memory::CAPABILITIES.wakeups, Wakeups::Direct);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Wakeups {
    /// The store hints the waiter whose turn it is.
    Direct,
    /// The store hints every waiter when the lock may be free.
    Broadcast,
    /// The store sends no hints. Every waiter tries now and then.
    Polling,
}

/// The clock that ends leases.
///
/// ```
/// use lockkeeper::store::memory;
/// println!("leases of memory end by the clock {:?}", memory::CAPABILITIES.time);
/// ```
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

/// What ends the lease of a process that is dead or stopped.
///
/// ```
/// use lockkeeper::store::memory;
/// println!("leases of memory end {:?}", memory::CAPABILITIES.lease_end);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseEnd {
    /// The store itself, when the time of that lease is over.
    ByItself,
    /// The session of the process with the store. While the process runs, its own side ends each lease in time. Once it
    /// does not, all its leases last until the store ends the session, which may be later.
    WithSession,
}
