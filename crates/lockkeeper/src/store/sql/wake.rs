//! Which claims wait, and how a hint reaches them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Name;
use crate::clock::Moment;
use crate::store::common::HintBoard;
use crate::store::{ClaimId, KeeperId, QUEUE_TTL};

/// What is kept of claims that asked no more is dropped once there are this many.
const MANY: usize = 1024;

/// The last request of a claim that waits.
#[derive(Clone, Copy, Debug)]
struct Asked {
    sent: Moment,
    /// Whether the claim was hinted since.
    hinted: bool,
}

/// The subscriptions of a store, and the claims of its keeper that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mailbox {
    board: HintBoard,
    asked: Arc<Mutex<HashMap<ClaimId, Asked>>>,
    /// Since when each claim holds, and until when if it is not renewed.
    held: Arc<Mutex<HashMap<ClaimId, (Moment, Moment)>>>,
}

impl Mailbox {
    /// The subscriptions.
    pub fn board(&self) -> &HintBoard {
        &self.board
    }

    /// When the last request was sent that found a claim waiting.
    #[cfg_attr(not(feature = "mysql"), allow(dead_code))]
    pub fn asked_at(&self, claim: ClaimId) -> Option<Moment> {
        self.asked().get(&claim).map(|asked| asked.sent)
    }

    /// Whether a claim is known to wait.
    pub fn waits(&self, claim: ClaimId) -> bool {
        self.asked().contains_key(&claim)
    }

    /// A request that was sent at this moment found the claim waiting.
    pub(super) fn waiting(&self, claim: ClaimId, sent: Moment) {
        let mut asked = self.asked();
        if asked.len() >= MANY {
            asked.retain(|_, asked| sent.since(asked.sent) <= 2 * QUEUE_TTL);
        }
        // A hint that came meanwhile still counts.
        let hinted = asked.get(&claim).is_some_and(|asked| asked.hinted);
        asked.insert(claim, Asked { sent, hinted });
    }

    /// Hints a claim that it may hold by now.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub fn hint(&self, name: &Name, claim: ClaimId) {
        if let Some(asked) = self.asked().get_mut(&claim) {
            asked.hinted = true;
        }
        self.board.claim(name, claim);
    }

    /// Whether a claim was hinted since this was last asked.
    pub(super) fn was_hinted(&self, claim: ClaimId) -> bool {
        let mut asked = self.asked();
        let asked = asked.get_mut(&claim);
        asked.is_some_and(|asked| std::mem::take(&mut asked.hinted))
    }

    /// The claim waits no more.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.asked().remove(&claim);
    }

    /// The claim holds for so long at least.
    pub(super) fn holds(&self, claim: ClaimId, lease: Duration) {
        let now = Moment::now();
        let mut held = self.held();
        // Before it grows: what was lost is dropped then, at hardly any cost for each.
        if held.len() == held.capacity() {
            held.retain(|_, (_, until)| *until > now);
        }
        let (_, until) = held.entry(claim).or_insert((now, now));
        *until = (*until).max(now + lease);
    }

    /// The claim holds no more.
    pub(super) fn let_go(&self, claim: ClaimId) {
        self.held().remove(&claim);
    }

    /// Whether a claim of this keeper has held for so long.
    pub fn has_held_for(&self, keeper: KeeperId, time: Duration) -> bool {
        let now = Moment::now();
        let mut held = self.held();
        held.retain(|_, (_, until)| *until > now);
        let mut held = held.iter();
        held.any(|(claim, (since, _))| claim.keeper == keeper && now.since(*since) >= time)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<ClaimId, (Moment, Moment)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<ClaimId, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_that_were_lost_do_not_pile_up() {
        let mailbox = Mailbox::default();
        let keeper = KeeperId::new();
        for number in 0..10_000 {
            mailbox.holds(ClaimId { keeper, number }, Duration::ZERO);
        }
        assert!(mailbox.held().len() < 100);
    }
}
