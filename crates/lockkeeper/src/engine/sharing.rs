//! How tasks of this process share one hold of the store. Here, and nowhere else, handing on differs from reading together.

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

    /// How the process's claim would be shared for this request; `None` if it needs a claim of its own.
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

    /// How many tokens to reserve when others wait: one for each task that may have the hold.
    pub fn tokens(self, bound: &HandOff) -> u32 {
        match self {
            Sharing::InTurn => bound.count.saturating_add(1),
            Sharing::Together => 1,
        }
    }

    /// Whether tasks wait for a hold to end that others of this process have. Readers contend for another hold instead, once they
    /// may not join this one.
    pub fn waits_for_local_hold(self) -> bool {
        self == Sharing::InTurn
    }
}

/// A hold of the process's claim.
#[derive(Debug)]
pub(super) struct SharedHold {
    pub hold: Arc<Hold>,
    sharing: Sharing,
    next_token: u64,
    tokens: u32,
    /// How many tasks have had it.
    admitted: u32,
    since: Moment,
}

impl SharedHold {
    pub fn new(sharing: Sharing, hold: Arc<Hold>, grant: &Grant) -> SharedHold {
        SharedHold {
            hold,
            sharing,
            next_token: grant.token.get(),
            // The task that acquired it has one, whatever the store says.
            tokens: grant.tokens.max(1),
            admitted: 0,
            since: Moment::now(),
        }
    }

    /// Whether one more task may use it by now: bounded, so that other processes get their turn, and not while a renewal is overdue.
    pub fn may_admit(&self, bound: &HandOff) -> bool {
        if self.tokens == 0 || self.admitted > bound.count {
            return false;
        }
        let now = Moment::now();
        now.since(self.since) < bound.time && self.hold.state_at(now) == LeaseState::Held
    }

    /// Whether a task can use it beside those that do.
    pub fn has_room(&self) -> bool {
        self.sharing == Sharing::Together || self.hold.users() == 0
    }

    /// One more task uses it. Returns its token, if there is one left.
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
