//! How tasks of this process share one hold. What differs between taking turns and reading together is here, and nowhere else.

use std::sync::Arc;

use super::hold::Hold;
use super::lease::LeaseState;
use super::request::AcquireRequest;
use crate::clock::Moment;
use crate::store::{Grant, Mode};
use crate::{HandOff, Token};

/// How tasks share the process's claim on a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// One after the other: an exclusive hold is handed from task to task.
    InTurn,
    /// All at once: readers join a read hold.
    Together,
}

impl Sharing {
    pub const ALL: [Sharing; 2] = [Sharing::InTurn, Sharing::Together];

    /// How this request shares the process's claim; `None` if it needs a claim of its own.
    pub fn of(request: &AcquireRequest) -> Option<Sharing> {
        match request.mode {
            Mode::Exclusive if request.is_usual() => Some(Sharing::InTurn),
            Mode::Read if request.is_usual() => Some(Sharing::Together),
            _ => None,
        }
    }

    /// The mode of the process's claim.
    pub fn mode(self) -> Mode {
        match self {
            Sharing::InTurn => Mode::Exclusive,
            Sharing::Together => Mode::Read,
        }
    }

    /// How many tokens to reserve while tasks wait: one for each task that may have the hold.
    pub fn tokens(self, bound: &HandOff) -> u32 {
        match self {
            Sharing::InTurn => bound.count.saturating_add(1),
            Sharing::Together => 1,
        }
    }

    /// Whether tasks wait until a hold of this process has ended. Readers that may not join it contend for another hold instead.
    pub fn waits_for_local_hold(self) -> bool {
        self == Sharing::InTurn
    }
}

/// A hold that tasks share.
#[derive(Debug)]
pub(super) struct SharedHold {
    pub hold: Arc<Hold>,
    sharing: Sharing,
    next_token: u64,
    tokens: u32,
    /// How many tasks have used it.
    admitted: u32,
    since: Moment,
}

impl SharedHold {
    pub fn new(sharing: Sharing, hold: Arc<Hold>, grant: &Grant) -> SharedHold {
        SharedHold {
            hold,
            sharing,
            next_token: grant.token.get(),
            // A grant has at least one token, whatever the store says.
            tokens: grant.tokens.max(1),
            admitted: 0,
            since: Moment::now(),
        }
    }

    /// Whether one more task may use it. The bound gives other processes their turn; and no task begins while a renewal is overdue.
    pub fn may_admit(&self, bound: &HandOff) -> bool {
        if self.tokens == 0 || self.admitted > bound.count {
            return false;
        }
        let now = Moment::now();
        now.since(self.since) < bound.time && self.hold.state_at(now) == LeaseState::Held
    }

    /// Whether one more task can use it at the same time.
    pub fn has_room(&self) -> bool {
        self.sharing == Sharing::Together || self.hold.users() == 0
    }

    /// Counts one more task. Returns its token, if one is left.
    pub fn admit(&mut self) -> Option<Token> {
        let token = Token::new(self.next_token);
        if self.sharing == Sharing::InTurn {
            self.tokens = self.tokens.checked_sub(1)?;
            self.next_token = self.next_token.saturating_add(1);
        }
        self.admitted = self.admitted.saturating_add(1);
        self.hold.enter(token);
        Some(token)
    }
}
