//! Local tasks waiting for one lock, in the order they came.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::tenure::Entry;
use crate::Error;
use crate::owner::OwnerId;

/// How many tasks of one process may wait for one lock.
const MAX_WAITERS: usize = 100_000;

/// Local tasks in the order they came.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub waiters: BTreeMap<u64, Waiter>,
    next: u64,
    /// A claim of this line is on its way to the store or back; its end sees to the waiters.
    pub busy: bool,
    /// Others had the lock when somebody of this line last asked for it: so they will the next time.
    pub crowded: bool,
    /// What the store last said to the claim instead of an answer: whoever stops waiting is to know.
    pub trouble: Option<Error>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub turn: oneshot::Sender<Result<Entry, Error>>,
    pub owner: Option<OwnerId>,
}

pub(super) type Turn = oneshot::Receiver<Result<Entry, Error>>;

impl Line {
    pub fn join(&mut self, number: u64, owner: Option<OwnerId>) -> Result<Turn, Error> {
        if self.waiters.len() >= MAX_WAITERS {
            return Err(Error::LimitExceeded {
                what: "tasks waiting for one lock",
                limit: MAX_WAITERS as u64,
            });
        }
        let (turn, comes) = oneshot::channel();
        self.waiters.insert(number, Waiter { turn, owner });
        Ok(comes)
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The first waiter that has not gone away.
    pub fn first(&mut self) -> Option<Waiter> {
        while let Some((_, waiter)) = self.waiters.pop_first() {
            if !waiter.turn.is_closed() {
                return Some(waiter);
            }
        }
        None
    }
}

/// Tells waiters why they wait in vain.
pub(super) fn refuse(waiters: BTreeMap<u64, Waiter>, error: &Error) {
    for waiter in waiters.into_values() {
        let _ = waiter.turn.send(Err(error.clone()));
    }
}

/// Gives entries to waiters. One whose waiter just went away leaves again by being dropped.
pub(super) fn deliver(turns: impl IntoIterator<Item = (Waiter, Entry)>) {
    for (waiter, entry) in turns {
        let _ = waiter.turn.send(Ok(entry));
    }
}
