//! What a store can do.

/// What a store can do. Tests, the documentation's table and the command read the same values.
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
    /// The store has an order of its own that survives everything but the store.
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
}
