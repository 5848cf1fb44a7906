//! Has the loss of a hold told once, and its releases after it.
//!
//! A loss counts at once: for the standing of the hold, for `lost()` and for those who contend next. Observers are told of it
//! when its cause is known. Where the store may know that, it is asked first. Nobody waits for an observer: a release that
//! comes to its end before is left here, and told after the loss.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Shared;
use super::background::Pends;
use super::hold::Hold;
use super::parting::Ended;
use crate::LossCause;

/// How long to ask the store for the cause of a loss before one goes on without it.
pub(super) const CAUSE_PATIENCE: Duration = Duration::from_secs(1);
/// How many causes a keeper asks for at a time: a store that lost its data lost every hold at once.
pub(super) const ASKS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Loss(Mutex<Told>);

#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    /// A [`Teller`] has the loss to tell, and then these releases.
    Soon(Vec<Ended>),
    All,
}

impl Loss {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the loss is news, which the caller has to see told.
    pub fn begin(&self) -> bool {
        let mut told = self.told();
        let is_news = matches!(*told, Told::Nothing);
        if is_news {
            *told = Told::Soon(Vec::new());
        }
        is_news
    }

    /// Leaves a release to whatever tells the loss. Returns it if there is nothing to come before it.
    pub fn put_behind(&self, ended: Ended) -> Option<Ended> {
        match &mut *self.told() {
            Told::Soon(behind) => {
                behind.push(ended);
                None
            }
            Told::Nothing | Told::All => Some(ended),
        }
    }

    /// The loss was told, or what came behind it. Returns what is to be told next, nothing when all is told.
    pub fn go_on(&self) -> Vec<Ended> {
        let mut told = self.told();
        match &mut *told {
            Told::Soon(behind) if !behind.is_empty() => std::mem::take(behind),
            _ => {
                *told = Told::All;
                Vec::new()
            }
        }
    }
}

/// Has to tell a loss, and tells it when it is dropped, with the cause that is known by then.
#[derive(Debug)]
pub(super) struct Teller {
    hold: Arc<Hold>,
    shared: Arc<Shared>,
}

impl Teller {
    /// Tells the loss at once if its cause is certain, else when the store was asked for it.
    pub fn tell(self) {
        if self.hold.loss_cause() != LossCause::NotHeld {
            return;
        }
        let shared = self.shared.clone();
        // The end of the keeper drops the future, and so has the loss told.
        shared.spawner.spawn_pending(Pends::CleanUp, async move {
            let _ = tokio::time::timeout(CAUSE_PATIENCE, self.ask()).await;
        });
    }

    async fn ask(&self) {
        let Ok(_turn) = self.shared.asks.acquire().await else {
            return;
        };
        let store = &self.shared.store;
        if let Ok(Some(info)) = store.inspect(&self.hold.name).await {
            self.hold.explain(&info, store.capabilities().fencing);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.hold.tell_lost(&self.shared.observers);
    }
}

impl Shared {
    /// The store says that a hold is gone.
    pub fn gone(self: &Arc<Shared>, hold: &Arc<Hold>) {
        if hold.gone() {
            self.tell_lost(hold);
        }
    }

    /// Has a loss told, unless that was done.
    pub fn tell_lost(self: &Arc<Shared>, hold: &Arc<Hold>) {
        if let Some(teller) = self.lost(hold) {
            teller.tell();
        }
    }

    /// A hold is lost. Returns what tells it, unless there is one.
    pub(super) fn lost(self: &Arc<Shared>, hold: &Arc<Hold>) -> Option<Teller> {
        let is_news = hold.begin_loss();
        is_news.then(|| Teller {
            hold: hold.clone(),
            shared: self.clone(),
        })
    }
}
