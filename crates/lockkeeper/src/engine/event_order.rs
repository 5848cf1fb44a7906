//! The order of the events of one hold: its loss comes before its releases, whichever thread comes first.
//!
//! The loss is told once its cause is known. No thread waits for that, nor for an observer: a release that ends meanwhile is
//! left here, and the thread that tells the loss tells it next.

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

/// What was told of a hold.
#[derive(Debug, Default)]
pub(super) struct EventOrder(Mutex<Told>);

#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    /// The loss is being told; these releases come after it.
    LossFirst(Vec<EndedTurn>),
    All,
}

impl EventOrder {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hold is lost. Returns whether the caller is the first to say so, and has to tell it.
    pub fn begin_loss(&self) -> bool {
        let mut told = self.told();
        let is_news = matches!(*told, Told::Nothing);
        if is_news {
            *told = Told::LossFirst(Vec::new());
        }
        is_news
    }

    /// A turn has ended. Returns it if it may be told now; else it is told after the loss.
    pub fn release(&self, ended: EndedTurn) -> Option<EndedTurn> {
        match &mut *self.told() {
            Told::LossFirst(later) => {
                later.push(ended);
                None
            }
            Told::Nothing | Told::All => Some(ended),
        }
    }

    /// The loss was told, or what this returned last. Returns what is to be told next; nothing once all is told.
    pub fn next(&self) -> Vec<EndedTurn> {
        let mut told = self.told();
        match &mut *told {
            Told::LossFirst(later) if !later.is_empty() => std::mem::take(later),
            _ => {
                *told = Told::All;
                Vec::new()
            }
        }
    }
}
