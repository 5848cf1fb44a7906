//! What is told of a hold on its way back to the store.

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
    /// How long it was held, if its end is to be told.
    held: Option<Duration>,
    /// The store has the hold, unless it was lost: it was held when it was let go of, and no request since may have ended it.
    pub is_there: bool,
    /// It was told that the store did not confirm the release.
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

    /// The store did not confirm the release. It is told once.
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

    /// The release was tried again and answered like this. Returns whether that shows that the hold was lost.
    pub fn shows_loss(&self, released: &Released) -> bool {
        // By its deadline the hold had not ended in the store by itself.
        self.is_there && !released.was_held && Moment::now() < self.hold.deadline()
    }

    /// Nothing more is done for the release.
    pub fn over(self, observers: &Observers) {
        if let Some(held) = self.held {
            let token = self.token;
            self.hold.report_release(EndedTurn { token, held }, observers);
        }
    }
}
