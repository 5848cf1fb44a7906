//! A hold of the store that several local tasks use, one after the other or side by side.

use std::sync::Arc;

use super::hold::Hold;
use super::lease::Standing;
use crate::clock::Moment;
use crate::{HandOff, Token};

/// A hold that is handed from task to task.
#[derive(Debug)]
pub(super) struct Reign {
    pub hold: Arc<Hold>,
    pub next_token: u64,
    pub tokens: u32,
    pub passed: u32,
    pub since: Moment,
}

impl Reign {
    /// Whether the next local task may have the hold: bounded, and not while renewal is overdue.
    pub fn may_pass(&self, bound: &HandOff) -> bool {
        if self.tokens == 0 || self.passed >= bound.count {
            return false;
        }
        let now = Moment::now();
        now.since(self.since) < bound.time && self.hold.standing_at(now) == Standing::Held
    }
}

/// A read hold that new readers may join.
#[derive(Debug)]
pub(super) struct Open {
    pub hold: Arc<Hold>,
    pub token: Token,
    pub joined: u32,
    pub since: Moment,
}

impl Open {
    /// Whether its gate is still open: the same bound, so that a writer elsewhere gets its turn.
    pub fn may_join(&self, bound: &HandOff) -> bool {
        let now = Moment::now();
        self.joined <= bound.count
            && now.since(self.since) < bound.time
            && self.hold.standing_at(now) == Standing::Held
    }
}
