//! What is told of a hold on its way back to the store.

use std::sync::Arc;
use std::time::Duration;

use super::hold::Hold;
use super::observers::Observers;
use crate::{Error, Event, Token};

#[derive(Debug)]
pub(crate) struct Parting {
    pub hold: Arc<Hold>,
    token: Token,
    /// How long it was held, if its end is to be told.
    held: Option<Duration>,
    /// It was told that the store did not confirm the release.
    failed: bool,
}

impl Parting {
    pub fn new(hold: Arc<Hold>, token: Token, held: Option<Duration>) -> Parting {
        Parting {
            hold,
            token,
            held,
            failed: false,
        }
    }

    /// The store did not confirm the release. It is told once.
    pub fn failed(&mut self, error: &Error, observers: &Observers) {
        if !std::mem::replace(&mut self.failed, true) {
            observers.event(&Event::ReleaseFailed {
                name: &self.hold.name,
                token: self.token,
                mode: self.hold.mode,
                error,
            });
        }
    }

    /// Nothing more is done for the release.
    pub fn over(self, observers: &Observers) {
        if let Some(held) = self.held {
            observers.event(&Event::Released {
                name: &self.hold.name,
                token: self.token,
                mode: self.hold.mode,
                held,
            });
        }
    }
}
