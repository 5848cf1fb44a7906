//! Locks, most of them on Redis, as they are written every day, each with one mistake. The checker has to catch them all.
//!
//! [`NaiveLock`] is the usual recipe (`SET NX PX`, compare-and-delete, renewal every third of the lease, a local
//! deadline, a token), and [`Mistake`] names the step that it gets wrong. [`Mistake::None`] gets all of them right.
//!
//! `recipe` has the steps, `scripts` their text, `lock` the loops around them. [`NaiveQuorum`] is the same over
//! several servers, `node` one of those, `belief` what its holder thinks. [`NaiveZooKeeper`] lives on ZooKeeper.

mod belief;
mod lock;
mod node;
mod quorum;
mod recipe;
mod scripts;
mod zookeeper;

pub use lock::{NaiveGuard, NaiveLock};
pub use quorum::{NaiveQuorum, NaiveQuorumGuard, QUORUM_MISTAKES, QuorumMistake};
pub use zookeeper::{NaiveZooKeeper, NaiveZooKeeperGuard, ZooKeeperMistake};

use crate::checker::Rule;

/// What a naive lock gets wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// Nothing.
    None,
    /// `SETNX` alone: a holder that dies keeps it.
    NoExpiry,
    /// `SETNX`, then `PEXPIRE`: a holder that dies in between keeps it.
    ExpireLater,
    /// `DEL` without a look at the holder.
    DelByAnyone,
    /// `GET`, compare, `DEL`: it may have changed hands in between.
    GetThenDel,
    /// Everyone has the same id.
    SharedOwner,
    /// The lease is counted from the reply, though it began before.
    DeadlineFromReply,
    /// The deadline is a time of day.
    WallClockDeadline,
    /// Renewal prolongs whatever is there.
    RenewAnyones,
    /// Renewal makes the key again when it is gone.
    RenewRecreates,
    /// Renewal that fails counts as done.
    SwallowErrors,
    /// The resource is not shown the token.
    Unfenced,
    /// `WAIT` for a replica, and its answer thrown away.
    WaitIgnored,
    /// Not a mistake: `WAIT` for a replica, and give back what none has confirmed.
    WaitHeeded,
    /// The last but one leaving frees it.
    ReentryOffByOne,
    /// The token's counter goes with the lock.
    FenceRestarts,
    /// All holds of a process have one id.
    ClaimReused,
    /// A lock handed over by its last holder counts from when the news arrived.
    PushedFromArrival,
}

/// Each mistake, its name, and the rule that a history under the right fault breaks.
pub const MISTAKES: &[(Mistake, &str, Rule)] = &[
    (Mistake::NoExpiry, "no-expiry", Rule::L1),
    (Mistake::ExpireLater, "expire-later", Rule::L1),
    (Mistake::DelByAnyone, "del-by-anyone", Rule::S4),
    (Mistake::GetThenDel, "get-then-del", Rule::S1),
    (Mistake::SharedOwner, "shared-owner", Rule::S4),
    (Mistake::DeadlineFromReply, "deadline-from-reply", Rule::S1),
    (Mistake::WallClockDeadline, "wall-clock-deadline", Rule::S1),
    (Mistake::RenewAnyones, "renew-anyones", Rule::S1),
    (Mistake::RenewRecreates, "renew-recreates", Rule::S1),
    (Mistake::SwallowErrors, "swallow-errors", Rule::S1),
    (Mistake::Unfenced, "unfenced", Rule::S3),
    (Mistake::WaitIgnored, "wait-ignored", Rule::S1),
    (Mistake::ReentryOffByOne, "reentry-off-by-one", Rule::S5),
    (Mistake::FenceRestarts, "fence-restarts", Rule::S2),
    (Mistake::ClaimReused, "claim-reused", Rule::S1),
    (Mistake::PushedFromArrival, "pushed-from-arrival", Rule::S1),
];

impl Mistake {
    /// The mistake of this name; `right` and `wait-heeded` are none.
    pub fn named(name: &str) -> Option<Mistake> {
        match name {
            "right" => Some(Mistake::None),
            "wait-heeded" => Some(Mistake::WaitHeeded),
            _ => {
                let mut all = MISTAKES.iter();
                all.find(|(_, of, _)| *of == name)
                    .map(|(mistake, ..)| *mistake)
            }
        }
    }
}
