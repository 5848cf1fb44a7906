//! Reports the release of one task's turn with a hold.

use std::sync::Arc;
use std::time::Duration;

use super::event_order::EndedTurn;
use super::hold::Hold;
use super::observers::Observers;
use crate::clock::Moment;
use crate::store::Released;
use crate::{Error, Event, Token};

#[derive(Debug)]
pub(crate) struct ReleaseReport {
    pub hold: Arc<Hold>,
    token: Token,
    /// How long it was held, if its end is to be reported.
    held: Option<Duration>,
    /// The store still has the hold, unless it was lost: it was held until now, and no request since then may have released it.
    pub is_there: bool,
    /// It was reported that the store did not confirm the release.
    failed: bool,
}

impl ReleaseReport {
    pub fn new(hold: Arc<Hold>, token: Token, held: Option<Duration>) -> ReleaseReport {
        ReleaseReport {
            hold,
            token,
            held,
            is_there: false,
            failed: false,
        }
    }

    /// The store did not confirm the release. Reported once.
    pub fn failed(&mut self, error: &Error, observers: &Observers) {
        self.is_there &= !matches!(error, Error::OutcomeUnknown { .. });
        if !std::mem::replace(&mut self.failed, true) {
            observers.event(&Event::ReleaseFailed {
                name: &self.hold.name,
                token: self.token,
                mode: self.hold.mode,
                error,
            });
        }
    }

    /// Returns whether the response to a repeated release shows that the hold had been lost.
    pub fn shows_loss(&self, released: &Released) -> bool {
        // Before its deadline no hold ends in the store by itself.
        self.is_there && !released.was_held && Moment::now() < self.hold.deadline()
    }

    /// Reports the release: nothing more is done for it.
    pub fn over(self, observers: &Observers) {
        if let Some(held) = self.held {
            let token = self.token;
            self.hold
                .report_release(EndedTurn { token, held }, observers);
        }
    }
}
