//! The contract between the engine and whatever keeps the locks.
//!
//! A store knows *claims*: one try of one keeper to hold one name. It makes each verb atomic, grants in the
//! order of its queue, and never calls back into the engine. Everything else (waiting, renewal, re-entry,
//! hand-off between tasks) is built once, in the engine, over any store.
//!
//! # Rules every store keeps
//! 1. **A claim id is granted once.** Release, renew and withdraw name exactly that grant, so a delayed or
//!    repeated request can never touch a later hold. An acquire that finds its own id holding *is* that
//!    acquire: it answers the same tokens again. The engine sends an id no more once it was granted; a store
//!    whose transport may repeat a request by itself must also refuse, with `TooLate`, ids that have ended.
//! 2. **`not_after`** is the moment past which a request that arrives late does nothing.
//! 3. **The queue is first come, first served.** While a live claim waits, no other claim is granted before
//!    it. Whoever frees a lock makes the head of the queue its holder in the same step (a *direct grant*)
//!    under a lease of at most [`GRANT_LEASE`], and hints it; the waiter confirms by `try_acquire` with the
//!    same id. Or the hint brings the grant itself, a [`DirectGrant`], and a renewal confirms it.
//!    A waiter that says nothing for [`QUEUE_TTL`] has left the queue.
//!    A store without a queue says so in its [`Capabilities`] and answers `Busy` instead.
//! 4. **Tokens** of a name grow with every grant, outlive the lock record, and are at least the wall clock
//!    in microseconds, so that a store that lost its data goes on above what it gave out.
//! 5. **Hints may be lost, late or doubled.** Nobody relies on them alone.
//! 6. **A failed verb changed nothing**, unless it failed with [`Error::OutcomeUnknown`]. A batch of renewals
//!    may be done in parts; it fails with that once a part was done, or says [`Renewed::Unknown`] where it was not.

pub(crate) mod caller;
mod catalog;
mod hints;
pub mod memory;
mod nodes;
#[cfg(feature = "redis")]
pub mod quorum;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::clock::Moment;
use crate::{Error, Name, Token};

pub(crate) use catalog::open;
pub use catalog::{Scheme, schemes};
pub use nodes::{NodeState, NodeStatus, NodeVote};

/// A future that a store returns. Boxed, so that `Arc<dyn Store>` works.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The answer of a store's verb.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// The longest a direct grant stays unconfirmed before it lapses: what a waiter that died costs the others.
pub const GRANT_LEASE: Duration = Duration::from_secs(1);

/// How long a queued claim counts as waiting after it last tried.
pub const QUEUE_TTL: Duration = Duration::from_secs(5);

/// Keeps locks. See the [module](self) for the rules.
///
/// Futures may be dropped at any point: the verb then happens entirely or not at all, and the caller treats
/// it as [`Error::OutcomeUnknown`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use lockkeeper::store::{Attempt, Claim, ClaimId, KeeperId, Mode, Release, Store, memory::MemoryStore};
/// use lockkeeper::{Name, clock::Moment};
///
/// let store = MemoryStore::new();
/// let claim = Claim {
///     id: ClaimId { keeper: KeeperId::new(), number: 1 },
///     name: Name::new("x")?,
///     mode: Mode::Exclusive,
///     lease: Duration::from_secs(30),
///     reserve: 1,
///     not_after: Moment::NEVER,
///     enqueue: false,
///     beside: None,
/// };
/// let Attempt::Granted(grant) = store.try_acquire(&claim).await? else { unreachable!() };
/// println!("token {}", grant.token);
/// let release = Release { name: claim.name.clone(), claim: claim.id, requeue: None };
/// assert!(store.release(&release).await?.was_held);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// One atomic try. Busy is a value. With [`Claim::enqueue`], a busy try also queues the claim (or keeps
    /// its place, when it is queued already).
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt>;

    /// Leaves the queue, and lets go if the claim holds: undoes an acquire whose outcome is unknown.
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()>;

    /// Renews several holds in one go; one answer each, in their order. Never shortens a lease.
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>>;

    /// Lets go of a hold, and may queue another claim in the same step.
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released>;

    /// Asks for hints. Returns once no hint that follows can be missed.
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription>;

    /// What is known about a name; `None` when nothing is.
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>>;

    /// Every name starting with `prefix` that is held or waited for, in order.
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>>;

    /// An administrator's release: ends every hold of the name, moves its fence past them, and hints the
    /// keepers that held.
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, Vec<Holder>>;

    /// Reads or changes a count-down latch. Latches have names of their own, apart from locks.
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState>;

    /// Whether each verb ends within a time of the store's own, with an answer or an error, whatever happens. If
    /// not, the engine sets a timer for every answer that is not there at once.
    fn ends_in_time(&self) -> bool {
        false
    }

    /// Where it is, without secrets: tells stores of one kind apart, the same in every process that uses it. By default
    /// this very object, which is right for a store that no other process can use.
    fn place(&self) -> String {
        format!("{self:p}")
    }

    /// The longest lease that it grants.
    fn longest_lease(&self) -> Duration {
        crate::MAX_LEASE
    }

    /// Whether it grants a lease of this length.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] says why not.
    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        crate::error::check_lease(lease)
    }

    /// For how long it is known to be unable to grant anything, because it waits for that time to pass.
    fn ready_in(&self) -> Duration {
        Duration::ZERO
    }

    /// The nodes of a store that has several which vote, and how they are.
    fn nodes(&self) -> Vec<NodeStatus> {
        Vec::new()
    }

    /// Which nodes keep a hold of this store's, where nodes vote.
    fn votes(&self, _claim: ClaimId) -> Option<Vec<NodeVote>> {
        None
    }

    /// Something that, kept open in another process, keeps this store's holds from being taken for those of
    /// a dead process. `None` where only the lease decides.
    fn liveness(&self) -> Option<std::os::fd::OwnedFd> {
        None
    }
}

/// Identifies one keeper: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeeperId(u128);

impl KeeperId {
    /// A new, unique id.
    #[allow(clippy::new_without_default, reason = "a random value is no default")]
    pub fn new() -> KeeperId {
        KeeperId(Uuid::new_v4().as_u128())
    }

    /// The id with these bits.
    pub const fn from_bits(bits: u128) -> KeeperId {
        KeeperId(bits)
    }

    /// The id's bits.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for KeeperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_u128(self.0).fmt(f)
    }
}

impl fmt::Debug for KeeperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identifies one claim: its keeper, and a number that counts up. Used for one grant and never again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    /// Whose claim.
    pub keeper: KeeperId,
    /// Which of its claims.
    pub number: u64,
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.keeper, self.number)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for ClaimId {
    type Err = Error;
    fn from_str(text: &str) -> Result<ClaimId, Error> {
        let parsed = text.split_once(':').and_then(|(keeper, number)| {
            Some(ClaimId {
                keeper: KeeperId(Uuid::parse_str(keeper).ok()?.as_u128()),
                number: number.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| Error::InvalidArgument {
            what: "claim id",
            reason: format!("{text:?} is not <uuid>:<number>"),
        })
    }
}

/// In which way a claim wants a name, and so which holds it can stand beside.
///
/// ```
/// use lockkeeper::store::Mode;
/// assert!(Mode::Read.admits([Mode::Read]));
/// assert!(!Mode::Write.admits([Mode::Read]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Alone, and strictly first come, first served among all processes.
    Fair,
    /// Beside other readers.
    Read,
    /// Alone, as the writer among readers.
    Write,
    /// Beside other permits, as long as their counts add up to no more than the limit. Where holders name
    /// different limits the smallest counts.
    Permit {
        /// How many permits there are in all.
        limit: u32,
        /// How many this claim takes, at most the limit: a claim for more is never granted and never queued.
        count: u32,
    },
}

impl Mode {
    /// Whether a hold of this mode leaves room for no other.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Mode::Exclusive | Mode::Fair | Mode::Write)
    }

    /// Whether a claim of this mode may hold beside these holds.
    pub fn admits(self, holds: impl IntoIterator<Item = Mode>) -> bool {
        let mut holds = holds.into_iter();
        match self {
            Mode::Exclusive | Mode::Fair | Mode::Write => holds.next().is_none(),
            Mode::Read => holds.all(|held| held == Mode::Read),
            Mode::Permit { limit, count } => {
                let (mut taken, mut smallest) = (u64::from(count), limit);
                for held in holds {
                    let Mode::Permit { limit, count } = held else {
                        return false;
                    };
                    taken += u64::from(count);
                    smallest = smallest.min(limit);
                }
                taken <= u64::from(smallest)
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Exclusive => f.write_str("exclusive"),
            Mode::Fair => f.write_str("fair"),
            Mode::Read => f.write_str("read"),
            Mode::Write => f.write_str("write"),
            Mode::Permit { limit, count } => write!(f, "{count} of {limit} permits"),
        }
    }
}

/// One keeper's wish to hold one name.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Fresh for every wish.
    pub id: ClaimId,
    /// What to hold.
    pub name: Name,
    /// How to hold it.
    pub mode: Mode,
    /// For how long, from the grant on, unless renewed.
    pub lease: Duration,
    /// How many tokens to reserve, at least 1: the run is handed on between local tasks.
    pub reserve: u32,
    /// When this request, arriving late, must do nothing.
    pub not_after: Moment,
    /// Whether to wait in the queue when busy.
    pub enqueue: bool,
    /// An exclusive hold of the same keeper that this claim may stand beside: how a writer becomes a reader
    /// without letting go. While that hold stands, the claim goes before the queue; it never joins it.
    pub beside: Option<ClaimId>,
}

/// What became of one try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// The claim holds.
    Granted(Grant),
    /// Others hold, or wait before it.
    Busy {
        /// When the earliest lease in the way ends at the latest, if known.
        free_in: Option<Duration>,
    },
    /// The request arrived past its `not_after` and did nothing.
    TooLate,
}

/// A hold, as granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The first fencing token of the reserved run.
    pub token: Token,
    /// How many tokens in a row are reserved, at least 1.
    pub tokens: u32,
}

/// A grant that came with a hint: whoever let go of the lock has made the claim its holder, for the claim's lease but at
/// most [`GRANT_LEASE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectGrant {
    /// The hold.
    pub grant: Grant,
    /// When a request was sent that found the claim still waiting, as the store knows it: the lease counts from then, as
    /// it cannot have begun any earlier.
    pub sent: Moment,
}

/// One hold to renew.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// What is held.
    pub name: Name,
    /// By which claim.
    pub claim: ClaimId,
    /// For how long from now on, at least. Zero asks whether the claim still holds and changes nothing.
    pub lease: Duration,
}

/// What became of one renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewed {
    /// The hold goes on.
    Renewed,
    /// The claim holds nothing: its lease had ended, or it was broken.
    NotHeld,
    /// The part of the store that has it did not answer, while others did. It may have been renewed.
    Unknown,
}

/// A hold to let go of.
#[derive(Clone, Debug)]
pub struct Release {
    /// What is held.
    pub name: Name,
    /// By which claim.
    pub claim: ClaimId,
    /// A claim to put at the end of the queue in the same step, only if the release takes effect.
    pub requeue: Option<Claim>,
}

/// What became of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Released {
    /// Whether the claim held until now. If not, nothing was changed.
    pub was_held: bool,
    /// The grant of the requeued claim, when nobody waited before it. It needs no confirmation.
    pub regrant: Option<Grant>,
}

/// An administrator's release.
#[derive(Clone, Debug)]
pub struct Break {
    /// What to free.
    pub name: Name,
    /// Why; shown by `inspect`.
    pub reason: String,
}

/// What to be hinted about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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
pub struct Subscription {
    hints: Arc<Notify>,
    grants: Option<Arc<GrantSlot>>,
    _ends: Box<dyn Any + Send + Sync>,
}

impl Subscription {
    /// A subscription that wakes when `hints` is notified; `ends` is dropped with it.
    pub fn new(hints: Arc<Notify>, ends: impl Any + Send + Sync) -> Subscription {
        Subscription {
            hints,
            grants: None,
            _ends: Box::new(ends),
        }
    }

    /// What the hints bring is found in `grants`.
    fn with_grants(mut self, grants: Option<Arc<GrantSlot>>) -> Subscription {
        self.grants = grants;
        self
    }

    /// Waits for the next hint. A hint given since the last call counts; several count once.
    ///
    /// Cancel safe: a hint is not lost when the future is dropped.
    pub async fn hint(&self) {
        self.hints.notified().await;
    }

    /// Takes the grant that the last hint brought, if it did.
    pub fn granted(&self) -> Option<DirectGrant> {
        self.grants.as_ref()?.lock().take()
    }
}

/// Where a grant waits until its claim takes it.
#[derive(Debug, Default)]
struct GrantSlot(Mutex<Option<DirectGrant>>);

impl GrantSlot {
    fn lock(&self) -> MutexGuard<'_, Option<DirectGrant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

/// What a store knows about a name.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:info-example").await?;
/// # let guard = keeper.lock("report")?.acquire().await?;
/// if let Some(info) = keeper.inspect("report").await? {
///     for holder in &info.holders {
///         println!("{} holds it, for {:?} more", holder.process, holder.remaining);
///     }
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct LockInfo {
    /// The name.
    pub name: Name,
    /// Who holds it now; empty when free.
    pub holders: Vec<Holder>,
    /// How many claims wait in the store. A process waits with one claim a lock, however many of its tasks do.
    pub waiters: usize,
    /// The last token given out.
    pub last_token: Option<Token>,
    /// The last time it was broken.
    pub broken: Option<Broken>,
}

/// One hold, as others see it.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Which claim.
    pub claim: ClaimId,
    /// Of which process.
    pub process: Process,
    /// How it holds.
    pub mode: Mode,
    /// Its first token.
    pub token: Token,
    /// Since when, by the wall clock of the store.
    pub since: SystemTime,
    /// How long its lease still runs.
    pub remaining: Duration,
    /// How deep its owner has re-entered. Known only to the keeper that holds.
    pub depth: Option<u32>,
}

/// When and why a lock was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The administrator's reason.
    pub reason: String,
    /// When, by the wall clock of the store.
    pub at: SystemTime,
}

/// The process behind a claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// Its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Its program.
    pub program: String,
}

impl Process {
    /// This process.
    pub fn current() -> Process {
        let program = std::env::args_os().next().map(std::path::PathBuf::from);
        let program = program.as_deref().and_then(|p| p.file_name());
        Process {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            pid: std::process::id(),
            program: program.map_or_else(String::new, |p| p.to_string_lossy().into_owned()),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] on {}", self.program, self.pid, self.host)
    }
}

/// A request to a latch.
#[derive(Clone, Debug)]
pub struct LatchRequest {
    /// Which latch.
    pub name: Name,
    /// Counting down twice with one id counts once.
    pub id: ClaimId,
    /// When this request, arriving late, must do nothing.
    pub not_after: Moment,
    /// What to do.
    pub op: LatchOp,
}

/// What to do with a latch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatchOp {
    /// Nothing; just answer the count.
    Read,
    /// Set the count, if the latch is open (its count is 0).
    Set(u32),
    /// Lower the count by one, if it is above 0.
    CountDown,
    /// Open the latch at once, whatever its count.
    Open,
}

/// A latch after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatchState {
    /// The count; 0 means open.
    pub count: u32,
    /// Whether this request changed it.
    pub changed: bool,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const P: fn(u32, u32) -> Mode = |limit, count| Mode::Permit { limit, count };

    #[test]
    fn modes_stand_beside_each_other_only_where_they_may() {
        for alone in [Mode::Exclusive, Mode::Fair, Mode::Write] {
            assert!(alone.admits([]));
            for held in [
                Mode::Exclusive,
                Mode::Fair,
                Mode::Read,
                Mode::Write,
                P(9, 1),
            ] {
                assert!(!alone.admits([held]));
                if held != Mode::Read {
                    assert!(!Mode::Read.admits([held]));
                }
            }
        }
        assert!(Mode::Read.admits([Mode::Read, Mode::Read]));
        assert!(P(3, 1).admits([P(3, 2)]));
        assert!(!P(3, 2).admits([P(3, 2)]));
        assert!(!P(3, 1).admits([Mode::Read]));
        // Where limits differ, nobody's expectation is broken.
        assert!(!P(9, 1).admits([P(2, 1), P(9, 1)]));
        assert!(!P(u32::MAX, u32::MAX).admits([P(u32::MAX, u32::MAX)]));
    }

    #[test]
    fn claim_ids_read_back() {
        let id = ClaimId {
            keeper: KeeperId::new(),
            number: 42,
        };
        assert_eq!(id.to_string().parse::<ClaimId>().expect("reads back"), id);
        assert!("nonsense".parse::<ClaimId>().is_err());
    }
}
