//! The engine's part of a guard: dropped, it leaves its hold.

use std::sync::Arc;

use super::arbiter::Arbiter;
use super::core::Core;
use super::guard_state::{GuardState, Owned};
use super::handle::Handle;
use super::hold::Hold;
use super::local_queue::Turn;
use super::process_claim::{LeaveOutcome, leave};
use super::sharing::Sharing;
use super::{loss, loss_error};
use crate::clock::Moment;
use crate::guard::ReleaseOutcome;
use crate::owner::OwnerId;
use crate::store::Mode;
use crate::{Error, Event, Token};

#[derive(Debug)]
pub(crate) struct RawGuard {
    /// `None` once it has left.
    arbiter: Option<Handle<Arbiter>>,
    state: Arc<GuardState>,
}

impl RawGuard {
    /// The first guard of a task's turn.
    pub(super) fn new(
        arbiter: &Arc<Arbiter>,
        turn: Turn,
        owner: Option<OwnerId>,
        sharing: Option<Sharing>,
    ) -> RawGuard {
        let state = Arc::new(GuardState::new(turn, owner, sharing));
        arbiter.owners.add(&state);
        RawGuard {
            arbiter: Some(Handle::new(arbiter.clone())),
            state,
        }
    }

    /// The guard of a hold with a claim of its own.
    pub(super) fn of_own_claim(
        arbiter: &Arc<Arbiter>,
        hold: Arc<Hold>,
        token: Token,
        owner: Option<OwnerId>,
    ) -> RawGuard {
        arbiter.core.watchdog.watch(&hold);
        let since = arbiter.core.shared.observers.time();
        let turn = Turn { hold, token, since };
        RawGuard::new(arbiter, turn, owner, None)
    }

    /// One more guard for an owner that already holds the lock; `None` for one that does not.
    pub(super) async fn reenter(
        arbiter: &Arc<Arbiter>,
        owner: OwnerId,
        mode: Mode,
    ) -> Result<Option<RawGuard>, Error> {
        match arbiter.owners.enter_again(owner, &arbiter.name, mode)? {
            Owned::Nothing => Ok(None),
            Owned::Entered(state) => Ok(Some(RawGuard {
                arbiter: Some(Handle::new(arbiter.clone())),
                state,
            })),
            Owned::Lost(state) => Err(loss_error::soon(&arbiter.core, &state.hold).await),
        }
    }

    pub fn state(&self) -> &GuardState {
        &self.state
    }

    pub fn arbiter(&self) -> &Arc<Arbiter> {
        match &self.arbiter {
            Some(arbiter) => arbiter,
            None => unreachable!("taken only by what consumes the guard"),
        }
    }

    pub fn core(&self) -> &Core {
        &self.arbiter().core
    }

    /// Reports that the lock was acquired, by an acquire that began then, if that is known.
    pub(super) fn announce(&self, began: Option<Moment>) {
        if let Some(began) = began {
            self.state.announce();
            self.core().shared.observers.event(&Event::Acquired {
                name: &self.arbiter().name,
                token: self.state.token,
                mode: self.state.hold.mode,
                waited: Moment::now().since(began),
            });
        }
    }

    /// The error of work that cannot go on without the hold.
    pub async fn loss_soon(&self) -> Error {
        loss_error::soon(self.core(), &self.state.hold).await
    }

    /// The store does not have the hold. Returns the error of work that cannot go on without it.
    pub async fn not_held(&self) -> Error {
        loss::report_not_held(&self.core().shared, &self.state.hold);
        self.loss_soon().await
    }

    /// Leaves the hold, and waits for the store if it is released.
    pub async fn leave(mut self) -> Result<ReleaseOutcome, Error> {
        self.core().process.check()?;
        // Kept until the end: the last handle waits for all requests.
        let Some(arbiter) = self.arbiter.take() else {
            unreachable!("leave consumes the guard");
        };
        let outcome = match leave(&arbiter, &self.state) {
            LeaveOutcome::StillHeld { depth } => Ok(ReleaseOutcome::StillHeld { depth }),
            LeaveOutcome::HandedOn => Ok(ReleaseOutcome::Released),
            LeaveOutcome::Lost => Err(loss_error::inspected(&arbiter.core, &self.state.hold).await),
            LeaveOutcome::Release(release) => release.run().await,
        };
        arbiter.end_async().await;
        outcome
    }
}

impl Drop for RawGuard {
    fn drop(&mut self) {
        let Some(arbiter) = self.arbiter.take() else {
            return;
        };
        // In a fork nothing is released, and nothing is freed: see `handle.rs`.
        if arbiter.core.process.is_fork() {
            std::mem::forget(self.state.clone());
            return;
        }
        if let LeaveOutcome::Release(release) = leave(&arbiter, &self.state) {
            release.run_later();
        }
        arbiter.end();
    }
}
