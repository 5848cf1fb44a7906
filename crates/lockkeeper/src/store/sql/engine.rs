//! What an SQL engine does for the store: a few statements, and nothing that decides.
//!
//! # The tables
//! ```text
//! lock   (name PK, version, tail, waited, shared, token,
//!         claim, mode, first, tokens, lease, expires, since, label, reason, broken)
//! hold   (name, claim) PK, mode, permits, taken, first, tokens, lease, expires, since, label
//! waiter (name, seq) PK, (name, claim) UNIQUE, mode, permits, taken, lease, reserve, since, until, label
//! keeper (id PK, host, pid, program, seen)
//! latch  (name PK, version, count)     arrival (name, id) PK
//! meta   (one row: schema version, floor, max_lease, …)
//! ```
//! * Every time is in microseconds of the server's wall clock, as a `BIGINT`. A claim id has 24 bytes: see [`claim_bytes`].
//! * The one exclusive hold of a name is inline in `lock`; readers and permits are rows of `hold`, and `shared` counts them.
//! * `version` changes with every change of holders or of the head of the queue. An append to the queue moves `tail` instead,
//!   so that it does not disturb a save that is on its way. `waited` is false only if nobody waits.
//! * A name without a row has the token `meta.floor`.
//!
//! # What "now" is
//! `t` is the server's clock, read once at the beginning of a statement; older than the truth by at most a wait for a row.
//! `not_after` is compared with the clock as it is when the row is locked. 0 means that there is none.

use std::fmt;
use std::time::Duration;

use super::wake::Mailbox;
use crate::clock::Moment;
use crate::store::common::{ServerClock, StoreKind};
use crate::store::record::{Hold, Latch, LatchChange, Queued, Record};
use crate::store::{
    Answer, BoxFuture, Broken, Capabilities, Claim, ClaimId, Grant, Health, Interest, KeeperId,
    Mode, Process, Subscription,
};
use crate::{Error, Name};

/// How many names [`Op::Look`] looks at.
pub(crate) const LOOK: usize = 64;

/// One SQL server, connected. The store over it is [`SqlStore`](super::SqlStore).
///
/// [`run`](Engine::run) is called by one task, one call at a time, on the runtime of the keeper's thread.
pub(crate) trait Engine: fmt::Debug + Send + Sync + 'static {
    /// Does these in one transaction, in this order, and returns one [`Reply`] each. They are sorted by name. Either all of them change
    /// something or none does: a client that is stopped while the server sends it a long answer has no row locked.
    ///
    /// * It ends within a time of its own. Its future is never dropped before that, unless the store is.
    /// * With `durable` the commit has to be on disk before it returns. Without, it need not be: where the server can choose
    ///   by transaction, it then does not wait. [`Op::is_durable`] says why.
    /// * It wakes whom [`Save::wake`] and [`Op::SaveLatch`] name, once they are committed; a wake-up may come late or be lost.
    /// * It calls [`ServerClock::saw`] with the time in the answer.
    fn run<'a>(&'a self, ops: &'a [Op], durable: bool) -> BoxFuture<'a, Result<Vec<Reply>, Fault>>;

    /// Does one step in a transaction of its own. It is called where others were in the way before, so it should not wait for a row
    /// that somebody keeps: [`Fault::Undone`].
    fn run_now<'a>(&'a self, op: &'a Op) -> BoxFuture<'a, Result<Vec<Reply>, Fault>> {
        self.run(std::slice::from_ref(op), op.is_durable() == Some(true))
    }

    /// Whether the server can choose by transaction if a commit is on disk. Where it cannot, all steps go together.
    fn chooses_durability(&self) -> bool {
        true
    }

    /// How much longer a grant to a waiter lasts than it does elsewhere, since the server is slow to commit it and what confirms it.
    fn slowness(&self) -> Duration {
        Duration::ZERO
    }

    /// Takes a claim out of the queue if it stands behind the head, without a change of `version`: nobody is about to grant to it.
    /// `false` if it does not stand there, or this is not known: then the rules have to look.
    fn leave<'a>(&'a self, _name: &'a Name, _claim: ClaimId) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }

    /// A subscription to a claim, a keeper or a latch: [`Store::subscribe`](crate::store::Store::subscribe). Names are
    /// watched by the store.
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription>;

    /// Which subscriptions there are, and what waits.
    fn mailbox(&self) -> &Mailbox;

    /// The server's clock, as far as answers have shown it.
    fn clock(&self) -> &ServerClock;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Where it is, without secrets.
    fn place(&self) -> String;

    /// How it is: above all for how long it sits out.
    fn health(&self) -> Health;

    /// How errors name it.
    fn kind(&self) -> &'static StoreKind;
}

/// One step of a transaction, about one name.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Takes a lock that is free. Only for exclusive modes, and not beside another hold.
    ///
    /// Where `not waited`, `shared = 0`, nobody holds (or `expires <= t`), the server may grant and `not_after` has not passed:
    /// the claim becomes the holder, with `first = greatest(token + 1, t)`, `tokens = least(reserve, greatest(t + 1 s - first, 1))`,
    /// `token = first + tokens - 1`, `expires = t + lease`, `since = t`, `version = version + 1`. A name without a row may get one
    /// here (with `token` from the floor and a random `version`), or be missed.
    ///
    /// [`Reply::Granted`]; [`Reply::Held`] if another claim's exclusive hold lives (`claim <> id`, `shared = 0`,
    /// `t < expires <= t + lease + 1 s`) and nothing was done; else [`Reply::Miss`].
    Take {
        /// The process that wants it.
        claim: Claim,
        /// In the server's time.
        not_after: u64,
    },
    /// Puts a claim of any mode at the end of the queue, if the exclusive hold of another claim lives (as for
    /// [`Op::Take`], with `shared = 0`) and `not_after` has not passed: `tail = tail + 1`, `waited`,
    /// and a row of `waiter` with that `seq`, `since = t`, `until = t + QUEUE_TTL`. `version` stays.
    ///
    /// A live entry of the claim (`until > t`) keeps its `seq` and `since`, and gets the new `until`. One that lapsed goes to the end.
    ///
    /// A claim that holds, since it was let in from the queue, may be prolonged as by [`Op::Prolong`] instead.
    ///
    /// [`Reply::Held`], [`Reply::Granted`] with what it holds, or [`Reply::Miss`].
    Append {
        /// The claim that waits.
        claim: Claim,
        /// In the server's time.
        not_after: u64,
    },
    /// Frees a lock for which nobody waits: where the claim holds exclusively, `expires > t`, `not waited` and `shared = 0`.
    /// `version = version + 1`. [`Reply::Done`] or [`Reply::Miss`].
    Free {
        /// What is held.
        name: Name,
        /// By whom.
        claim: ClaimId,
    },
    /// Lets a hold go on, inline or in `hold`: where `expires > t` and `not_after` has not passed,
    /// `expires = greatest(expires, t + lease)`, and `lease` is the new one if that moved `expires`, else the longer of both: after the
    /// clock was set back, a hold is cut to this length. `version = version + 1`. Never for a lease of zero.
    ///
    /// [`Reply::Granted`] with what the claim holds, [`Reply::Done`] where the engine does not read that, or [`Reply::Miss`].
    Prolong {
        /// What is held.
        name: Name,
        /// By whom.
        claim: ClaimId,
        /// For how long.
        lease: Duration,
        /// In the server's time.
        not_after: u64,
    },
    /// Reads a name, in one snapshot. [`Reply::Loaded`].
    Load {
        /// Which.
        name: Name,
        /// How many entries of the queue at most, in their order, with those that have lapsed. None are needed where `waited` is
        /// false.
        limit: usize,
    },
    /// Saves what the rules have changed, if the name is as it was loaded. [`Reply::Done`] or [`Reply::Miss`].
    Save(Box<Save>),
    /// Counts the live entries of a queue. [`Reply::Count`].
    Count {
        /// Of which name.
        name: Name,
    },
    /// Lists the names that are held or waited for, in the order of their bytes, with the number of live waiters. [`Reply::Names`].
    Names {
        /// How they begin.
        prefix: String,
        /// They come after this one.
        after: Option<String>,
        /// How many at most.
        limit: usize,
    },
    /// Reads who is behind these keepers, as far as that is known. [`Reply::Processes`].
    Processes(Vec<KeeperId>),
    /// Writes or refreshes the row of a keeper, with `seen = t`, and forgets those not seen for a day. [`Reply::Done`].
    Enlist(KeeperId, Process),
    /// Looks at the [`LOOK`] names that come after one, in the order of their bytes, for those that nobody uses any more. Such a name was
    /// not taken for an hour and never broken; its holders have expired, and so has everybody in its queue. [`Reply::Looked`].
    Look {
        /// They come after this one.
        after: String,
    },
    /// Forgets names with all their rows, if their `version` and `tail` are as they were seen. Before that it raises the floor to the
    /// highest of their tokens. A row that somebody keeps is not waited for. [`Reply::Done`].
    Forget(Vec<Looked>),
    /// Reads a latch. [`Reply::Latch`].
    LoadLatch {
        /// Which.
        name: Name,
        /// Whose arrival to look for.
        id: ClaimId,
    },
    /// Changes a latch, if its version is `seen` (`None`: it has no row) and `not_after` has not passed.
    /// [`Reply::Done`] or [`Reply::Miss`]. Wakes those who subscribed to the latch.
    SaveLatch {
        /// Which.
        name: Name,
        /// Whose arrival it is.
        id: ClaimId,
        /// The version it was loaded with.
        seen: Option<i64>,
        /// The version that it gets.
        version: i64,
        /// What to change. `Set` inserts the row, `Arrive` lowers the count by one and inserts the arrival, `Open` deletes both.
        change: LatchChange,
        /// In the server's time.
        not_after: u64,
    },
}

/// A name, as [`Op::Look`] saw it.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// Which.
    pub name: String,
    /// Its version.
    pub version: i64,
    /// Its tail.
    pub tail: i64,
    /// Its last token.
    pub token: i64,
    /// Whether nobody uses it any more.
    pub unused: bool,
}

/// What became of an [`Op`].
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Done.
    Done,
    /// Nothing was done: the rules have to look.
    Miss,
    /// The claim holds.
    Granted(Grant),
    /// Another claim holds exclusively, for so long.
    Held {
        /// When its lease ends.
        free_in: Duration,
    },
    /// A name.
    Loaded(Box<Loaded>),
    /// A number.
    Count(usize),
    /// Names, and how many wait for each.
    Names(Vec<(String, usize)>),
    /// Names that were looked at.
    Looked(Vec<Looked>),
    /// The processes behind keepers.
    Processes(Vec<(KeeperId, Process)>),
    /// A latch, and its version if it has a row.
    Latch(Option<i64>, Latch),
}

/// What the server knows about a name.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// `t`, in microseconds.
    pub now: u64,
    /// `version` and `tail`, if there is a row.
    pub seen: Option<(i64, i64)>,
    /// Whether the server may grant: it has sat out. Where that is not known the engine finds out, and says no.
    pub may_grant: bool,
    /// The holds in any order, with `process` 0, as they are stored; the queue, with `more` if as many entries were found as
    /// were asked for; the last token, or the floor; the last break.
    pub record: Record,
}

/// A new state of a name. All values are absolute.
///
/// One statement changes the row of `lock`; the others ask for `EXISTS (lock WHERE name = … AND version = <the new one>)`, since
/// no two saves have one version. They come in this order: `ended`, `holds`, `lapse`, `leave`, `keep`, `enqueue`.
#[derive(Clone, Debug)]
pub(crate) struct Save {
    /// Which name.
    pub name: Name,
    /// The version and the tail that it was loaded with. `None` inserts the row, and is a miss if there is one.
    pub seen: Option<(i64, i64)>,
    /// Whether `tail` must still be as seen.
    pub same_tail: bool,
    /// Whether it grants: only if the server may.
    pub grants: bool,
    /// In the server's time.
    pub not_after: u64,
    /// Whether the commit has to be on disk.
    pub durable: bool,
    /// The new version: random, above zero.
    pub version: i64,
    /// The last token.
    pub token: u64,
    /// The exclusive hold.
    pub exclusive: Option<Hold>,
    /// How many rows `hold` then has.
    pub shared: usize,
    /// Whether somebody waits, of those that were seen. The row is set to `waited OR tail > seen`.
    pub waited: bool,
    /// The last break.
    pub broken: Option<Broken>,
    /// Rows of `hold` to delete.
    pub ended: Vec<ClaimId>,
    /// Rows of `hold` to insert, or to replace.
    pub holds: Vec<Hold>,
    /// Delete entries of the queue with `until <= ` this.
    pub lapse: Option<Moment>,
    /// Entries of the queue to delete.
    pub leave: Vec<ClaimId>,
    /// Entries of the queue that get a new `until`, if they live.
    pub keep: Vec<(ClaimId, Moment)>,
    /// A claim for the end of the queue, as in [`Op::Append`]: `tail = tail + 1` in the first statement, and `waited`.
    pub enqueue: Option<Queued>,
    /// Whom to wake.
    pub wake: Vec<Wake>,
}

/// What to tell a keeper.
#[derive(Clone, Debug)]
pub(crate) enum Wake {
    /// A claim that waited holds: [`Mailbox::granted`].
    Granted {
        /// Which.
        claim: ClaimId,
        /// Its tokens.
        grant: Grant,
        /// For how long, unless it is confirmed.
        #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
        lease: Duration,
    },
    /// One of its holds was broken: [`HintBoard::keeper`](crate::store::common::HintBoard::keeper).
    Broken(KeeperId),
}

/// Why a transaction did not end well.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The server undid it all. Others were in the way (a deadlock, a lock time-out), or one of several steps was at fault:
    /// they are tried again one by one.
    Undone(Error),
    /// Nothing was done, and to try again at once does not help: no connection, no permission.
    Failed(Error),
    /// It may have been done: for instance the connection was lost after sending. This is the reason.
    Unknown(String),
}

impl Op {
    /// The name it is about, by which a batch is sorted.
    pub fn name(&self) -> &str {
        match self {
            Op::Take { claim, .. } | Op::Append { claim, .. } => &claim.name,
            Op::Free { name, .. }
            | Op::Prolong { name, .. }
            | Op::Load { name, .. }
            | Op::Count { name }
            | Op::LoadLatch { name, .. }
            | Op::SaveLatch { name, .. } => name,
            Op::Save(save) => &save.name,
            Op::Names { .. } | Op::Processes(_) | Op::Enlist(..) => "",
            Op::Look { .. } | Op::Forget(_) => "",
        }
    }

    /// Whether it is a transaction of its own. It locks rows of other names than its own, and would not do so in the order of the others.
    pub fn goes_alone(&self) -> bool {
        matches!(self, Op::Forget(_))
    }

    /// Whether it needs tables without which there are no locks. The others are `latch`, `arrival` and `keeper`.
    pub fn is_of_locks(&self) -> bool {
        !matches!(
            self,
            Op::LoadLatch { .. } | Op::SaveLatch { .. } | Op::Enlist(..) | Op::Processes(_)
        )
    }

    /// Whether its commit has to be on disk; `None` if it changes nothing.
    ///
    /// A crash that loses a grant or a renewal frees a lock that somebody holds. One that loses a release or a place
    /// in the queue leaves the lock held until its lease ends, or has a waiter ask again.
    pub fn is_durable(&self) -> Option<bool> {
        match self {
            Op::Take { .. } | Op::Prolong { .. } | Op::SaveLatch { .. } => Some(true),
            Op::Save(save) => Some(save.durable),
            // A crash that undoes it undoes no grant: those that came after it are lost as well, or none is.
            Op::Forget(_) => Some(false),
            Op::Append { .. } | Op::Free { .. } | Op::Enlist(..) => Some(false),
            Op::Load { .. }
            | Op::Count { .. }
            | Op::Names { .. }
            | Op::Look { .. }
            | Op::Processes(_)
            | Op::LoadLatch { .. } => None,
        }
    }
}

/// A claim id as it is stored: the keeper, then the number, highest byte first.
pub(crate) fn claim_bytes(claim: ClaimId) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&claim.keeper.to_bits().to_be_bytes());
    bytes[16..].copy_from_slice(&claim.number.to_be_bytes());
    bytes
}

/// The claim id that [`claim_bytes`] made.
pub(crate) fn claim_of(bytes: &[u8]) -> Option<ClaimId> {
    let (keeper, number) = bytes.split_at_checked(16)?;
    Some(ClaimId {
        keeper: KeeperId::from_bits(u128::from_be_bytes(keeper.try_into().ok()?)),
        number: u64::from_be_bytes(number.try_into().ok()?),
    })
}

/// A mode as it is stored: `mode`, `permits`, `taken`.
pub(crate) fn mode_columns(mode: Mode) -> (i64, i64, i64) {
    match mode {
        Mode::Exclusive => (0, 0, 0),
        Mode::Fair => (1, 0, 0),
        Mode::Read => (2, 0, 0),
        Mode::Write => (3, 0, 0),
        Mode::Permit { limit, count } => (4, limit.into(), count.into()),
    }
}

/// The mode that [`mode_columns`] made.
pub(crate) fn mode_of(mode: i64, permits: i64, taken: i64) -> Option<Mode> {
    Some(match mode {
        0 => Mode::Exclusive,
        1 => Mode::Fair,
        2 => Mode::Read,
        3 => Mode::Write,
        4 => Mode::Permit {
            limit: permits.try_into().ok()?,
            count: taken.try_into().ok()?,
        },
        _ => return None,
    })
}

/// A moment of the server's clock, from its microseconds.
pub(crate) fn moment(micros: u64) -> Moment {
    Moment::from_nanos(micros.saturating_mul(1_000)).min(Moment::NEVER)
}

/// The microseconds of a moment of the server's clock.
pub(crate) fn micros(moment: Moment) -> u64 {
    moment.as_nanos() / 1_000
}

/// A duration in microseconds, as it is stored.
pub(crate) fn length(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_and_modes_read_back() {
        for number in [0, 1, 255, 256, u64::MAX] {
            let claim = ClaimId {
                keeper: KeeperId::new(),
                number,
            };
            assert_eq!(claim_of(&claim_bytes(claim)), Some(claim));
        }
        assert_eq!(claim_of(b"short"), None);
        let permit = Mode::Permit {
            limit: u32::MAX,
            count: 3,
        };
        for mode in [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write, permit] {
            let (stored, permits, taken) = mode_columns(mode);
            assert_eq!(mode_of(stored, permits, taken), Some(mode));
        }
        assert_eq!(mode_of(5, 0, 0), None);
    }

    #[test]
    fn moments_are_microseconds_of_the_server() {
        assert_eq!(micros(moment(1_800_000_000_000_001)), 1_800_000_000_000_001);
        assert_eq!(moment(u64::MAX), Moment::NEVER);
    }
}
