//! The state that the guards of one owner share, and the owners that may re-enter.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::hold::Hold;
use super::local_queue::Turn;
use super::sharing::Sharing;
use crate::clock::Moment;
use crate::owner::OwnerId;
use crate::store::{ClaimId, Mode};
use crate::{Error, Name, Token};

/// How often one owner may re-enter a lock.
const MAX_DEPTH: u32 = 65_535;

/// A task's or an owner's use of a hold.
#[derive(Debug)]
pub(crate) struct GuardState {
    pub hold: Arc<Hold>,
    pub token: Token,
    pub owner: Option<OwnerId>,
    /// How it shares the hold; `None` if the claim is its own.
    pub sharing: Option<Sharing>,
    /// When the turn began, if durations are reported.
    pub since: Option<Moment>,
    /// Its acquire was reported, so its release is to be.
    announced: AtomicBool,
    /// How many guards there are. Changed only under the mutex of the owners, if it has an owner.
    depth: AtomicU32,
}

impl GuardState {
    pub(super) fn new(turn: Turn, owner: Option<OwnerId>, sharing: Option<Sharing>) -> GuardState {
        GuardState {
            hold: turn.hold,
            token: turn.token,
            owner,
            sharing,
            since: turn.since,
            announced: AtomicBool::new(false),
            depth: AtomicU32::new(1),
        }
    }

    pub fn depth(&self) -> u32 {
        self.depth.load(SeqCst)
    }

    /// Its acquire is being reported.
    pub fn announce(&self) {
        self.announced.store(true, SeqCst);
    }

    /// How long it lasted, if its release is to be reported.
    pub fn held_until_now(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.announced.load(SeqCst))?;
        Some(Moment::now().since(since))
    }
}

/// The owners that hold one lock, and may re-enter it.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<Vec<Arc<GuardState>>>);

/// What an owner holds already.
pub(super) enum Owned {
    Nothing,
    /// The lock, and it has one more guard now.
    Entered(Arc<GuardState>),
    /// A guard of the lock, which is lost.
    Lost(Arc<GuardState>),
}

impl Owners {
    fn states(&self) -> MutexGuard<'_, Vec<Arc<GuardState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, state: &Arc<GuardState>) {
        if state.owner.is_some() {
            self.states().push(state.clone());
        }
    }

    /// Counts one more guard of an owner that holds the lock.
    pub fn enter_again(&self, owner: OwnerId, name: &Name, mode: Mode) -> Result<Owned, Error> {
        let states = self.states();
        let Some(state) = states.iter().find(|s| s.owner == Some(owner)) else {
            return Ok(Owned::Nothing);
        };
        if !state.hold.is_held() {
            return Ok(Owned::Lost(state.clone()));
        }
        if state.hold.mode == Mode::Read && mode != Mode::Read {
            return Err(Error::WouldDeadlock {
                name: name.clone(),
                reason: "its owner holds it for reading; release that first, or acquire it for \
                         writing from the start",
            });
        }
        if state.depth() >= MAX_DEPTH {
            return Err(Error::LimitExceeded {
                what: "re-entries of one lock",
                limit: u64::from(MAX_DEPTH),
            });
        }
        state.depth.fetch_add(1, SeqCst);
        Ok(Owned::Entered(state.clone()))
    }

    /// Counts one guard less. Returns how many are left.
    pub fn leave(&self, state: &Arc<GuardState>) -> u32 {
        if state.owner.is_none() {
            // Only owners have more than one guard.
            state.depth.store(0, SeqCst);
            return 0;
        }
        let mut states = self.states();
        let left = state.depth.fetch_sub(1, SeqCst) - 1;
        if left == 0 {
            states.retain(|owned| !Arc::ptr_eq(owned, state));
        }
        left
    }

    /// How many guards the owner has that holds by this claim; 1 for a hold without an owner.
    pub fn depth(&self, claim: ClaimId) -> u32 {
        let states = self.states();
        let owned = states.iter().find(|s| s.hold.claim == claim);
        owned.map_or(1, |state| state.depth())
    }
}
