//! Judges histories. Pure: no clock, no store, only events.
//!
//! A checker for a linearizable mutex is wrong for leases: an expiry looks like a violation. Here a hold
//! counts from the answer that granted it until its holder let go, was told of the loss, or reached its own
//! deadline; such intervals are swept in order of time, lock by lock.

mod aftermath;
mod exclusion;
mod fence;
mod latch;
mod order;
mod progress;
mod release;
mod run;
mod stats;
mod together;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::history::{Event, Fault};
use run::Run;

/// What a history has to contain before it proves anything, and what it is held to.
#[derive(Clone, Debug)]
pub struct Demands {
    /// At least this many grants.
    pub grants: usize,
    /// At least this many acquires that met another owner's hold.
    pub contention: usize,
    /// At least this many holds of each of these kinds.
    pub kinds: Vec<(Kind, usize)>,
    /// At least this many pairs of fair acquires whose order could be judged.
    pub ordered: usize,
    /// Each of these must have been seen at least this often.
    pub faults: Vec<(FaultKind, usize)>,
    /// How long a claim that ended, by release, loss or doubt, may still keep a lock from others: the lease,
    /// plus how late a request may take effect. `None` checks no progress.
    pub linger: Option<Duration>,
    /// How soon after the faults were over the next grant comes. `None` does not check it.
    pub recovery: Option<Duration>,
    /// How long after its deadline a holder may be told of its loss. `None` does not check it.
    pub notice: Option<Duration>,
}

impl Default for Demands {
    fn default() -> Demands {
        Demands {
            grants: 100,
            contention: 10,
            kinds: Vec::new(),
            ordered: 0,
            faults: Vec::new(),
            linger: None,
            recovery: None,
            notice: None,
        }
    }
}

impl Demands {
    /// Demands nothing: for short histories written by hand.
    pub fn none() -> Demands {
        Demands {
            grants: 0,
            contention: 0,
            kinds: Vec::new(),
            ordered: 0,
            faults: Vec::new(),
            linger: None,
            recovery: None,
            notice: None,
        }
    }

    /// Also demands that this fault was seen at least `times`.
    pub fn fault(mut self, kind: FaultKind, times: usize) -> Demands {
        self.faults.push((kind, times));
        self
    }

    /// Also demands at least so many holds of this kind.
    pub fn kind(mut self, kind: Kind, count: usize) -> Demands {
        self.kinds.push((kind, count));
        self
    }

    /// Also demands grants after the faults: see [`Demands::recovery`].
    pub fn recovery(mut self, recovery: Duration) -> Demands {
        self.recovery = Some(recovery);
        self
    }

    /// Also demands that losses are told: see [`Demands::notice`].
    pub fn notice(mut self, notice: Duration) -> Demands {
        self.notice = Some(notice);
        self
    }

    /// Also demands progress: see [`Demands::linger`].
    pub fn linger(mut self, linger: Duration) -> Demands {
        self.linger = Some(linger);
        self
    }
}

/// A kind of hold that a run can be asked to have seen. One hold may be of several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// An exclusive one.
    Exclusive,
    /// One of a fair lock.
    Fair,
    /// For reading.
    Read,
    /// For writing.
    Write,
    /// Permits of a semaphore.
    Permits,
    /// One of the locks of a `MultiLock`.
    Together,
    /// Entered again by its owner.
    Reentered,
    /// For reading, after writing.
    Downgraded,
    /// Not a hold: somebody who waited for a latch to open.
    Latch,
}

/// A kind of fault that a run can be asked to have seen.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// A process was killed while it held a lock.
    HolderKilled,
    /// A process was stopped while it held a lock.
    HolderStopped,
    /// A hold ended without a release, and someone else was granted the lock afterwards.
    HoldExpired,
    /// The fence refused a late writer.
    WriteRefused,
    /// A lock was broken.
    Broken,
    /// A request did not arrive.
    RequestLost,
    /// An answer did not arrive.
    ReplyLost,
    /// A message was late.
    Delayed,
    /// A message came twice.
    Repeated,
    /// Any other, by its name.
    Other(String),
}

impl FaultKind {
    /// The kind of a fault that bites wherever it happens; `None` for one that needs a holder.
    fn of(fault: &Fault) -> Option<FaultKind> {
        Some(match fault {
            Fault::Killed { .. } | Fault::Stopped { .. } => return None,
            Fault::Broken => FaultKind::Broken,
            Fault::RequestLost => FaultKind::RequestLost,
            Fault::ReplyLost => FaultKind::ReplyLost,
            Fault::Delayed => FaultKind::Delayed,
            Fault::Repeated => FaultKind::Repeated,
            Fault::Other(name) => FaultKind::Other(name.clone()),
        })
    }
}

/// What a history was found to be.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It keeps every rule, and it had the chance to break them.
    Valid(Stats),
    /// It breaks rules.
    Violations(Vec<Violation>),
    /// It breaks none, but proves nothing. A failure as well.
    Invalid(String),
}

impl Verdict {
    /// The numbers of a valid run.
    ///
    /// # Panics
    /// On any other verdict, with its text.
    #[track_caller]
    pub fn expect_valid(self) -> Stats {
        match self {
            Verdict::Valid(stats) => stats,
            other => panic!("{other}"),
        }
    }

    /// The rules it breaks, each once.
    pub fn rules(&self) -> BTreeSet<Rule> {
        match self {
            Verdict::Violations(all) => all.iter().map(|one| one.rule).collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether some violation is of this rule.
    pub fn breaks(&self, rule: Rule) -> bool {
        matches!(self, Verdict::Violations(all) if all.iter().any(|one| one.rule == rule))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Valid(stats) => write!(f, "valid: {stats}"),
            Verdict::Invalid(reason) => write!(f, "proves nothing: {reason}"),
            Verdict::Violations(all) => {
                write!(f, "{} violations", all.len())?;
                for one in all.iter().take(SHOWN) {
                    write!(f, "\n  {one}")?;
                }
                Ok(())
            }
        }
    }
}

const SHOWN: usize = 20;

/// The rules of a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// Valid holds of different owners do not overlap.
    S1,
    /// Tokens grow in the order of grants, are unique, and stay the same across re-entry.
    S2,
    /// At a fenced resource accepted tokens never decrease and no update is lost.
    S3,
    /// A release that says so freed the lock, once; any other changed nothing.
    S4,
    /// Re-entry depth is exact.
    S5,
    /// Of the locks of a `MultiLock` all are granted, or none.
    Together,
    /// Fair locks are granted in the order of the line.
    Order,
    /// A latch counts each count-down once, and opens when none is left.
    Latch,
    /// A free lock is granted in time.
    L1,
    /// After the faults are over there is progress.
    L2,
    /// A holder is told of its loss.
    L3,
    /// Nothing is left behind.
    L4,
    /// The history contradicts itself: the harness is wrong.
    History,
}

/// One broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// At which lock or resource.
    pub at: String,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}: {}", self.rule, self.at, self.text)
    }
}

/// How much a run has seen.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Locks that were granted.
    pub locks: usize,
    /// Grants.
    pub grants: usize,
    /// Holds of each kind.
    pub kinds: BTreeMap<Kind, usize>,
    /// Pairs of fair acquires of which one certainly was in line before the other asked.
    pub ordered: usize,
    /// Acquires that met another owner's hold: waited for it, or were told busy.
    pub contended: usize,
    /// Operations whose outcome nobody knows.
    pub unknown: usize,
    /// Writes that fenced resources took.
    pub accepted: usize,
    /// Faults that bit.
    pub faults: BTreeMap<FaultKind, usize>,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} grants of {} locks {:?}, {} pairs in order, {} contended, {} of unknown outcome, {} writes accepted, \
             faults {:?}",
            self.grants,
            self.locks,
            self.kinds,
            self.ordered,
            self.contended,
            self.unknown,
            self.accepted,
            self.faults
        )
    }
}

/// Judges a history, in any order of its events.
pub fn check(events: &[Event], demands: &Demands) -> Verdict {
    let run = Run::build(events);
    let mut found = run.contradictions.clone();
    let mut ordered = 0;
    for lock in run.locks.values() {
        exclusion::check(lock, &mut found);
        tokens::check(lock, &mut found);
        release::check(lock, &mut found);
        ordered += order::check(&run, lock, demands, &mut found);
        if let Some(linger) = demands.linger {
            progress::check(lock, linger, &mut found);
        }
    }
    together::check(&run, &mut found);
    latch::check(&run, demands, &mut found);
    fence::check(&run, &mut found);
    aftermath::check(&run, demands, &mut found);
    if !found.is_empty() {
        return Verdict::Violations(found);
    }
    let mut stats = run.stats();
    stats.ordered = ordered;
    match shortfall(&stats, demands) {
        Some(reason) => Verdict::Invalid(reason),
        None => Verdict::Valid(stats),
    }
}

fn shortfall(stats: &Stats, demands: &Demands) -> Option<String> {
    if stats.grants < demands.grants {
        return Some(format!(
            "{} grants where {} were demanded",
            stats.grants, demands.grants
        ));
    }
    if stats.contended < demands.contention {
        return Some(format!(
            "{} contended acquires where {} were demanded",
            stats.contended, demands.contention
        ));
    }
    if stats.ordered < demands.ordered {
        return Some(format!(
            "{} pairs in a fair line where {} were demanded",
            stats.ordered, demands.ordered
        ));
    }
    for (kind, count) in &demands.kinds {
        let seen = stats.kinds.get(kind).copied().unwrap_or(0);
        if seen < *count {
            return Some(format!(
                "{seen} holds of kind {kind:?} where {count} were demanded"
            ));
        }
    }
    demands.faults.iter().find_map(|(kind, times)| {
        let seen = stats.faults.get(kind).copied().unwrap_or(0);
        (seen < *times)
            .then(|| format!("{kind:?} was seen {seen} times where {times} were demanded"))
    })
}
