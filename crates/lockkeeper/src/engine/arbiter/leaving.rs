//! What dropped guards and cancelled acquires left behind and the store has not answered yet.
//!
//! A task that dropped a guard and then tries the lock would find its own hold. So a try that finds the lock busy waits
//! for the answers to what was on its way when it began, and tries once more.

use std::sync::Arc;

use super::Arbiter;

/// Something of this keeper that is on its way out of the store.
#[derive(Debug)]
pub(crate) struct Leaving {
    arbiter: Arc<Arbiter>,
    number: u64,
}

impl Arbiter {
    /// Something is on its way out, until this is dropped.
    pub fn leaving(self: &Arc<Self>) -> Leaving {
        let number = self.state().leavings.begin();
        Leaving {
            arbiter: self.clone(),
            number,
        }
    }

    /// The last that is on its way out, if anything is.
    pub(super) fn last_leaving(&self) -> Option<u64> {
        let leavings = &self.state().leavings;
        (!leavings.is_empty()).then(|| leavings.last_begun())
    }

    /// Waits until all up to this one are gone.
    pub(super) async fn have_left(&self, last: u64) {
        loop {
            let left = self.left.notified();
            if self.state().leavings.have_ended(last) {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Leaving { arbiter, number } = self;
        let mut state = arbiter.state();
        state.leavings.end(*number);
        drop(state);
        arbiter.left.notify_waiters();
    }
}
