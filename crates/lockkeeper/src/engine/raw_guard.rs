//! What a guard is made of: dropped, it leaves its lock.

use std::sync::Arc;

use super::arbiter::Arbiter;
use super::core::Core;
use super::guard_state::{GuardState, Owned};
use super::handle::Handle;
use super::hold::Hold;
use super::local_queue::Turn;
use super::process_claim::{Left, leave};
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
    /// The first guard of a task that has come to a hold.
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

    /// One more guard of what the owner holds already, if it does.
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

    /// Tells that the lock was acquired by what began then, if that is known.
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

    /// The error of what cannot go on, as the hold is lost.
    pub async fn loss_soon(&self) -> Error {
        loss_error::soon(self.core(), &self.state.hold).await
    }

    /// The store says that the hold is gone. Returns the error of what cannot go on.
    pub async fn not_held(&self) -> Error {
        loss::report_not_held(&self.core().shared, &self.state.hold);
        self.loss_soon().await
    }

    /// Leaves, and waits for the response of the store.
    pub async fn leave(mut self) -> Result<ReleaseOutcome, Error> {
        self.core().process.check()?;
        // Kept until the end: the last handle waits for what follows.
        let Some(arbiter) = self.arbiter.take() else {
            unreachable!("leave consumes the guard");
        };
        let outcome = match leave(&arbiter, &self.state) {
            Left::StillHeld { depth } => Ok(ReleaseOutcome::StillHeld { depth }),
            Left::Passed => Ok(ReleaseOutcome::Released),
            Left::Lost => Err(loss_error::inspected(&arbiter.core, &self.state.hold).await),
            Left::Release(release) => release.run().await,
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
        // In a fork it is the handle that is dropped, which does nothing.
        if arbiter.core.process.is_fork() {
            std::mem::forget(self.state.clone());
            return;
        }
        if let Left::Release(release) = leave(&arbiter, &self.state) {
            release.run_later();
        }
        arbiter.end();
    }
}
