//! The order of the events of one hold: its loss comes before its releases, whichever thread comes first.
//!
//! A loss is reported once its cause is known. No thread waits for that, nor for an observer: a release that ends meanwhile is
//! kept here, and the thread that reports the loss reports it next.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Token;

/// A task's turn with a hold that is over.
#[derive(Debug)]
pub(super) struct EndedTurn {
    pub token: Token,
    /// How long it was.
    pub held: Duration,
}

/// What has been reported of a hold.
#[derive(Debug, Default)]
pub(super) struct EventOrder(Mutex<Reported>);

#[derive(Debug, Default)]
enum Reported {
    #[default]
    Nothing,
    /// The loss is being reported. These releases come after it.
    LossFirst(Vec<EndedTurn>),
    All,
}

impl EventOrder {
    fn reported(&self) -> MutexGuard<'_, Reported> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the loss. Returns whether the caller is the first, and has to report it.
    pub fn begin_loss(&self) -> bool {
        let mut reported = self.reported();
        let is_first = matches!(*reported, Reported::Nothing);
        if is_first {
            *reported = Reported::LossFirst(Vec::new());
        }
        is_first
    }

    /// Ends a turn. Returns it if it may be reported now; otherwise it comes after the loss.
    pub fn release(&self, ended: EndedTurn) -> Option<EndedTurn> {
        match &mut *self.reported() {
            Reported::LossFirst(later) => {
                later.push(ended);
                None
            }
            Reported::Nothing | Reported::All => Some(ended),
        }
    }

    /// Returns what to report after the loss, and after what this returned last. Empty when all is reported.
    pub fn next(&self) -> Vec<EndedTurn> {
        let mut reported = self.reported();
        match &mut *reported {
            Reported::LossFirst(later) if !later.is_empty() => std::mem::take(later),
            _ => {
                *reported = Reported::All;
                Vec::new()
            }
        }
    }
}
