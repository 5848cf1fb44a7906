//! What is asked of a node, and what it answers.

use std::fmt;
use std::time::Duration;

use crate::Token;
use crate::store::{ClaimId, Grant, Mode};

/// One try of one claim. Numbers of one claim grow and are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoundId {
    /// The claim that tries.
    pub claim: ClaimId,
    /// Which of its tries.
    pub number: u64,
}

impl fmt::Debug for RoundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.claim, self.number)
    }
}

/// Tokens in a row that a claim proposes, in microseconds of the clock that proposed them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// The first.
    pub first: u64,
    /// How many, at least 1.
    pub count: u32,
}

impl Run {
    /// The last.
    pub fn last(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count.max(1)) - 1)
    }

    /// The grant that these tokens become once a majority has voted for them.
    pub fn grant(&self) -> Grant {
        Grant {
            token: Token::new(self.first),
            tokens: self.count,
        }
    }
}

/// Asks a node for its vote.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ask {
    /// For this round.
    pub round: RoundId,
    /// To hold in this way.
    pub mode: Mode,
    /// For this long.
    pub lease: Duration,
    /// With these tokens.
    pub run: Run,
    /// The node's last token is at least this: what [`Admission`](super::Admission) says for the connection that the
    /// request takes.
    pub floor: u64,
    /// The node's time in microseconds past which it does nothing; `None` where that is not known.
    pub not_after: Option<u64>,
    /// An exclusive hold of the same keeper that this one may stand beside.
    pub beside: Option<ClaimId>,
}

/// A node's answer to an [`Ask`], or why there is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Vote {
    /// It keeps the hold now.
    Yes,
    /// It keeps another.
    Busy {
        /// When the last lease in the way ends, if it has an end: only then can the node vote. The contract's
        /// [`Attempt::Busy`](crate::store::Attempt) has the first one.
        free_in: Option<Duration>,
        /// The first token of a hold in the way, where it has one: tells whether two nodes mean the same hold.
        holder: Option<u64>,
    },
    /// It saw a token that is not below the proposed ones, or its floor is not; or they are too far behind its clock.
    Stale {
        /// The last token it saw, or its floor; or its clock, if that is more and they are too far behind.
        last: u64,
        /// Its clock.
        now: u64,
    },
    /// The proposed tokens are too far ahead of its clock.
    Ahead {
        /// The last token it saw, or its floor.
        last: u64,
        /// Its clock.
        now: u64,
    },
    /// It got the request past its `not_after`, or had a later round of the same claim already.
    TooLate,
    /// It may not vote yet, and was not asked.
    SittingOut {
        /// For how long.
        ready_in: Duration,
    },
    /// There is no answer (yet): it may have voted, or not.
    Silent,
}
