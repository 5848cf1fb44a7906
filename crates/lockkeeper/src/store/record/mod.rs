//! The rules of a lock, written once: pure, without I/O and without a clock.
//!
//! A [`Record`] is what a store has loaded about one name. Each verb of the contract is a method that reads the
//! record and the time, and returns a [`Step`]: the answer, and the [`Change`]s that make it true. A store saves the
//! changes in the same atomic step in which it loaded the record. [`Record::commit`] does so in memory.
//!
//! A method never changes the record. If it needs what the store has not loaded, it returns [`Missing`]; the store
//! loads that and calls again.
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::clock::Clock;
//! use lockkeeper::store::record::{Change, Now, Record};
//! use lockkeeper::store::{Attempt, Claim, ClaimId, KeeperId, Mode, Release};
//! use lockkeeper::Name;
//!
//! let clock = Clock::real();
//! let now = Now {
//!     moment: clock.now(),
//!     asked: clock.now(),
//!     wall_micros: clock.unix_micros(),
//!     may_grant: true,
//!     me: 0,
//!     lives: &|_| Some(true),
//! };
//! let id = ClaimId { keeper: KeeperId::new(), number: 1 };
//! let claim = Claim::new(id, Name::new("x")?, Mode::Exclusive, Duration::from_secs(30));
//!
//! let mut record = Record::default();
//! let step = record.try_acquire(&claim, now).expect("all of it is loaded");
//! assert!(matches!(step.answer, Attempt::Granted(_)));
//! assert!(step.changes.iter().any(|change| matches!(change, Change::Start { direct: false, .. })));
//! record.commit(step.changes);            // a store saves them instead
//! assert_eq!(record.holds[0].claim, id);
//!
//! let release = Release::new(claim.name.clone(), id);
//! let step = record.release(&release, now).expect("all of it is loaded");
//! record.commit(step.changes);
//! assert!(record.is_idle());
//! # Ok::<(), lockkeeper::Error>(())
//! ```
//!
//! # The rules
//! * First, time is applied: a hold whose lease is over ends, and a waiter that has not tried again for
//!   [`QUEUE_TTL`](super::QUEUE_TTL) leaves the queue.
//! * Then the head of the queue becomes a holder, and the next head, for as long as their modes admit it.
//!   This *direct grant* lasts at most [`GRANT_LEASE`](super::GRANT_LEASE) until the waiter confirms it.
//! * A claim is granted by its own try only while no live claim waits. The one exception is a reader that stands
//!   [`beside`](super::Claim::beside) an exclusive hold of its keeper.
//! * Each grant takes the next run of tokens: above the last one, and at least the wall clock.
//! * A request past its `not_after` does nothing.
//!
//! The types here are exhaustive on purpose, unlike those of the contract: a store has to save every field and every
//! [`Change`]. A field that is added later makes a store fail to compile, where it would otherwise forget the field.
//!
//! # Layout
//! `rules` has the verbs, and `draft` the working copy of a record on which a verb acts. `latch` has the rules of a latch, and
//! `info` makes of a record what [`inspect`](super::Store::inspect) returns.

mod draft;
mod info;
mod latch;
#[cfg(test)]
mod properties;
mod rules;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use self::latch::{Latch, LatchChange};
use super::{Broken, ClaimId, Grant, Mode};
use crate::Label;
use crate::clock::Moment;

/// How a store numbers the processes that use it. A store that does not tell them apart uses 0.
pub type ProcessId = i64;

/// What a store has loaded about one name.
///
/// ```
/// use lockkeeper::store::record::{Change, Record};
///
/// let mut record = Record::default();
/// assert!(record.is_idle());
/// record.commit(vec![Change::Fence(7)]);
/// assert_eq!(record.last_token, 7);
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// Every hold, in the order of their grants.
    pub holds: Vec<Hold>,
    /// The claims that wait.
    pub queue: Queue,
    /// The last token of the last run that was given out.
    pub last_token: u64,
    /// The last break. No rule asks for it, so a store may leave it out.
    pub broken: Option<Broken>,
}

/// The queue of a name, as far as it is loaded.
///
/// ```
/// use lockkeeper::store::record::{Queue, Record};
///
/// // A store that loads the head of a queue alone says that there may be more.
/// let queue = Queue { more: true, ..Queue::default() };
/// assert!(!Record { queue, ..Record::default() }.is_idle());
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Queue {
    /// The first entries, in their order. Some may have lapsed.
    pub first: VecDeque<Queued>,
    /// Whether entries may stand behind these.
    pub more: bool,
}

/// One hold.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::Token;
/// use lockkeeper::clock::Clock;
/// use lockkeeper::store::{ClaimId, Grant, KeeperId, Mode, Process};
/// use lockkeeper::store::record::{Hold, Record};
///
/// let clock = Clock::real();
/// let lease = Duration::from_secs(30);
/// let hold = Hold {
///     claim: ClaimId { keeper: KeeperId::new(), number: 1 },
///     process: 0,
///     mode: Mode::Exclusive,
///     grant: Grant::new(Token::new(7), 1),
///     lease,
///     expires: clock.now() + lease,
///     since_micros: clock.unix_micros(),
///     label: None,
/// };
/// let holder = hold.holder(clock.now(), Process::new("web-1", 4711, "checkout"));
/// assert_eq!(holder.claim, hold.claim);
/// # let _ = Record { holds: vec![hold], ..Record::default() };
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Hold {
    /// Which claim holds.
    pub claim: ClaimId,
    /// Of which process.
    pub process: ProcessId,
    /// How it holds.
    pub mode: Mode,
    /// Its tokens.
    pub grant: Grant,
    /// The whole length of the lease that runs now: the longest that was asked for since the end was last moved. Only a clock
    /// that was set back makes a lease end later than this from now.
    pub lease: Duration,
    /// The lease ends at this moment.
    pub expires: Moment,
    /// When it began, by the wall clock in microseconds.
    pub since_micros: u64,
    /// What its caller calls it.
    pub label: Option<Label>,
}

/// One claim in the queue.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::clock::Clock;
/// use lockkeeper::store::{ClaimId, KeeperId, Mode, QUEUE_TTL};
/// use lockkeeper::store::record::{Change, Queued, Record};
///
/// let clock = Clock::real();
/// let entry = Queued {
///     claim: ClaimId { keeper: KeeperId::new(), number: 1 },
///     process: 0,
///     mode: Mode::Exclusive,
///     lease: Duration::from_secs(30),
///     reserve: 1,
///     label: None,
///     since_micros: clock.unix_micros(),
///     until: clock.now() + QUEUE_TTL,
/// };
/// let mut record = Record::default();
/// record.commit(vec![Change::Enqueue(entry)]);
/// assert_eq!(record.waiters(clock.now()), 1);
/// assert_eq!(record.waiters(clock.now() + QUEUE_TTL), 0);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Queued {
    /// Which claim waits.
    pub claim: ClaimId,
    /// Of which process.
    pub process: ProcessId,
    /// How it wants to hold.
    pub mode: Mode,
    /// The lease it wants.
    pub lease: Duration,
    /// How many tokens it wants.
    pub reserve: u32,
    /// What its caller calls it.
    pub label: Option<Label>,
    /// When it joined the queue, by the wall clock in microseconds.
    pub since_micros: u64,
    /// The entry lapses at this moment.
    pub until: Moment,
}

/// The circumstances of one verb.
///
/// ```
/// use lockkeeper::clock::Clock;
/// use lockkeeper::store::record::Now;
///
/// let clock = Clock::real();
/// // Those of a store in this process: all times are of one clock, and it alone uses the store.
/// let now = Now {
///     moment: clock.now(),
///     asked: clock.now(),
///     wall_micros: clock.unix_micros(),
///     may_grant: true,
///     me: 0,
///     lives: &|_| Some(true),
/// };
/// # let _ = now;
/// ```
#[derive(Clone, Copy)]
pub struct Now<'a> {
    /// The time by which leases end.
    pub moment: Moment,
    /// The time by which a request is late: `not_after` is compared with it. It may be on another clock than `moment`, as
    /// that of the client beside that of a server.
    pub asked: Moment,
    /// The wall clock in microseconds, which tokens follow.
    pub wall_micros: u64,
    /// Whether the store may grant. A server that may have forgotten grants may not, for a while.
    pub may_grant: bool,
    /// Which process makes the request.
    pub me: ProcessId,
    /// Whether a process lives; `None` if the store has not checked yet.
    pub lives: &'a dyn Fn(ProcessId) -> Option<bool>,
}

/// What a verb needs and the store has not loaded.
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::Name;
/// # use lockkeeper::clock::Clock;
/// # use lockkeeper::store::{Claim, ClaimId, KeeperId, Mode};
/// use lockkeeper::store::record::{Missing, Now, Queue, Record};
///
/// # let clock = Clock::real();
/// # let now = Now {
/// #     moment: clock.now(),
/// #     asked: clock.now(),
/// #     wall_micros: clock.unix_micros(),
/// #     may_grant: true,
/// #     me: 0,
/// #     lives: &|_| Some(true),
/// # };
/// # let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// # let claim = Claim::new(id, Name::new("x")?, Mode::Exclusive, Duration::from_secs(30));
/// // Nothing of the queue was loaded, and a claim may wait.
/// let queue = Queue { more: true, ..Queue::default() };
/// let mut record = Record { queue, ..Record::default() };
/// assert_eq!(record.try_acquire(&claim, now), Err(Missing::Queue));
/// // The store loads more of it: here there is nothing more. Then it calls again.
/// record.queue.more = false;
/// assert!(record.try_acquire(&claim, now).is_ok());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// More of the queue.
    Queue,
    /// Whether this process lives.
    Alive(ProcessId),
}

/// What a verb does.
///
/// ```
/// # use lockkeeper::clock::Clock;
/// use lockkeeper::store::record::{Now, Record, Step};
///
/// # let clock = Clock::real();
/// # let now = Now {
/// #     moment: clock.now(),
/// #     asked: clock.now(),
/// #     wall_micros: clock.unix_micros(),
/// #     may_grant: true,
/// #     me: 0,
/// #     lives: &|_| Some(true),
/// # };
/// // An inspection may change a record: a lease that is over ends. Here there is none.
/// let Ok(Step { answer: (), changes }) = Record::default().inspect(now) else { unreachable!() };
/// assert!(changes.is_empty());
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Step<T> {
    /// What the verb returns.
    pub answer: T,
    /// What the store has to save, in this order.
    pub changes: Vec<Change>,
}

/// One change of a record.
///
/// ```
/// use lockkeeper::store::record::Change;
///
/// let fence = Change::Fence(8);
/// assert!(!fence.is_visible());              // no watcher of the name is hinted
/// assert_eq!(fence.direct_grant(), None);    // and no waiter is hinted
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// A hold begins.
    Start {
        /// The hold.
        hold: Hold,
        /// Whether it was granted from the queue, so that its claim has to be hinted.
        direct: bool,
    },
    /// A hold's lease is prolonged.
    Prolong {
        /// Whose.
        claim: ClaimId,
        /// It now ends at this moment.
        expires: Moment,
        /// It now has this length.
        lease: Duration,
    },
    /// A hold ends.
    End(ClaimId),
    /// A claim goes to the end of the queue. If a part of the queue was not loaded, the claim may have a live entry there,
    /// which then keeps its position and gets this `until`.
    Enqueue(Queued),
    /// A claim keeps its position in the queue.
    Keep {
        /// Which.
        claim: ClaimId,
        /// Its entry now lapses at this moment.
        until: Moment,
    },
    /// A claim leaves the queue.
    Leave(ClaimId),
    /// Every entry that lapses at this moment or before leaves the queue.
    Lapse(Moment),
    /// Every entry of this process leaves the queue.
    LeaveAll(ProcessId),
    /// The last token is this one.
    Fence(u64),
    /// An administrator broke the lock.
    Break(Broken),
}

/// What a break did, with the holds in question.
///
/// ```
/// # use lockkeeper::Name;
/// # use lockkeeper::clock::Clock;
/// use lockkeeper::store::record::{Ended, Now, Record};
/// use lockkeeper::store::{Break, BreakTarget};
///
/// # let clock = Clock::real();
/// # let now = Now {
/// #     moment: clock.now(),
/// #     asked: clock.now(),
/// #     wall_micros: clock.unix_micros(),
/// #     may_grant: true,
/// #     me: 0,
/// #     lives: &|_| Some(true),
/// # };
/// let request = Break::new(Name::new("x")?, BreakTarget::All, "stuck", now.asked);
/// let step = Record::default().break_lock(&request, now).expect("all of it is loaded");
/// assert_eq!(step.answer, Ended::These(vec![]));
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum Ended {
    /// These holds were ended.
    These(Vec<Hold>),
    /// The hold that was named is not there. These are.
    NotHeld(Vec<Hold>),
    /// The request came too late.
    TooLate,
}

impl Change {
    /// The claim that it grants from the queue, which has to be hinted.
    pub fn direct_grant(&self) -> Option<ClaimId> {
        match self {
            Change::Start { hold, direct: true } => Some(hold.claim),
            _ => None,
        }
    }

    /// Whether it changes who holds or who waits.
    pub fn is_visible(&self) -> bool {
        !matches!(
            self,
            Change::Prolong { .. } | Change::Keep { .. } | Change::Fence(_)
        )
    }
}

impl Record {
    /// Whether nobody holds and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.holds.is_empty() && self.queue.first.is_empty() && !self.queue.more
    }

    /// Makes a step's changes true of this record.
    pub fn commit(&mut self, changes: Vec<Change>) {
        for change in changes {
            let queue = &mut self.queue.first;
            match change {
                Change::Start { hold, .. } => self.holds.push(hold),
                Change::Prolong {
                    claim,
                    expires,
                    lease,
                } => {
                    if let Some(hold) = self.holds.iter_mut().find(|hold| hold.claim == claim) {
                        (hold.expires, hold.lease) = (expires, lease);
                    }
                }
                Change::End(claim) => self.holds.retain(|hold| hold.claim != claim),
                Change::Enqueue(entry) => {
                    queue.retain(|old| old.claim != entry.claim);
                    queue.push_back(entry);
                }
                Change::Keep { claim, until } => {
                    let entry = queue.iter_mut().find(|entry| entry.claim == claim);
                    entry.into_iter().for_each(|entry| entry.until = until);
                }
                Change::Leave(claim) => match queue.front() {
                    // The usual case, without a search of the queue.
                    Some(head) if head.claim == claim => drop(queue.pop_front()),
                    _ => queue.retain(|entry| entry.claim != claim),
                },
                Change::Lapse(now) => queue.retain(|entry| entry.until > now),
                Change::LeaveAll(process) => queue.retain(|entry| entry.process != process),
                Change::Fence(last) => self.last_token = last,
                Change::Break(broken) => self.broken = Some(broken),
            }
        }
    }
}

/// The time at so many microseconds since 1970.
pub(crate) fn wall(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

impl std::fmt::Debug for Now<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Now")
            .field("moment", &self.moment)
            .field("asked", &self.asked)
            .field("wall_micros", &self.wall_micros)
            .field("may_grant", &self.may_grant)
            .field("me", &self.me)
            .finish_non_exhaustive()
    }
}
