//! What a holder of a quorum lock thinks it has.

use std::sync::{Mutex, PoisonError};

use lockkeeper::clock::Moment;
use tokio::sync::watch;

#[derive(Debug)]
pub(super) struct Belief {
    until: Mutex<Moment>,
    lost: watch::Sender<bool>,
}

impl Belief {
    pub fn until(until: Moment) -> Belief {
        Belief {
            until: Mutex::new(until),
            lost: watch::Sender::new(false),
        }
    }

    pub fn set(&self, until: Moment) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    pub fn deadline(&self) -> Moment {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn held(&self) -> bool {
        !*self.lost.borrow() && Moment::now() < self.deadline()
    }

    pub fn lose(&self) {
        self.lost.send_replace(true);
    }

    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut lost = self.lost.subscribe();
        async move {
            let _ = lost.wait_for(|lost| *lost).await;
        }
    }
}
