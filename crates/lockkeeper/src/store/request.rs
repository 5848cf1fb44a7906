//! What else a store is asked for, and what it answers.

use std::time::Duration;

use super::{Claim, ClaimId, Grant};
use crate::Name;
use crate::clock::Moment;

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
    /// A claim to put at the end of the queue in the same step, only if the release takes effect. It is a fresh one. As with
    /// a try, a claim for more permits than there are is not queued.
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
