//! Who in this process waits for which hint. Shared by the stores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::{ClaimId, DirectGrant, GrantSlot, Interest, KeeperId, Subscription};
use crate::Name;

/// Routes hints to subscriptions. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HintBoard(Arc<Mutex<Board>>);

#[derive(Debug, Default)]
struct Board {
    next: u64,
    by_interest: HashMap<Interest, Vec<Listener>>,
}

#[derive(Debug)]
struct Listener {
    number: u64,
    hints: Arc<Notify>,
    /// Of a claim: where its grant goes.
    grants: Option<Arc<GrantSlot>>,
}

impl HintBoard {
    pub fn subscribe(&self, interest: Interest) -> Subscription {
        let hints = Arc::new(Notify::new());
        let is_claim = matches!(interest, Interest::Claim(..));
        let grants = is_claim.then(Arc::<GrantSlot>::default);
        let mut board = self.lock();
        board.next += 1;
        let number = board.next;
        board
            .by_interest
            .entry(interest.clone())
            .or_default()
            .push(Listener {
                number,
                hints: hints.clone(),
                grants: grants.clone(),
            });
        let ends = Ends {
            board: self.clone(),
            interest,
            number,
        };
        Subscription::new(hints, ends).with_grants(grants)
    }

    /// Hints a waiting claim.
    pub fn claim(&self, name: &Name, claim: ClaimId) {
        self.notify(&Interest::Claim(name.clone(), claim));
    }

    /// Hints a waiting claim that it holds.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub fn granted(&self, name: &Name, claim: ClaimId, granted: DirectGrant) {
        let interest = Interest::Claim(name.clone(), claim);
        for listener in self.lock().by_interest.get(&interest).into_iter().flatten() {
            if let Some(grants) = &listener.grants {
                *grants.lock() = Some(granted);
            }
            listener.hints.notify_one();
        }
    }

    /// Hints whoever watches the name.
    pub fn name(&self, name: &Name) {
        self.notify(&Interest::Name(name.clone()));
    }

    /// Hints whoever waits for the latch.
    pub fn latch(&self, name: &Name) {
        self.notify(&Interest::Latch(name.clone()));
    }

    /// Hints the keeper that one of its holds may have been broken.
    pub fn keeper(&self, keeper: KeeperId) {
        self.notify(&Interest::Keeper(keeper));
    }

    /// Hints everyone: something was missed, or may have been.
    #[cfg_attr(not(any(feature = "sqlite", feature = "redis")), allow(dead_code))]
    pub fn everyone(&self) {
        for listener in self.lock().by_interest.values().flatten() {
            listener.hints.notify_one();
        }
    }

    /// How many waiters and watchers there are. A keeper's own subscription, which every keeper has for its
    /// whole life, is neither.
    pub fn len(&self) -> usize {
        let board = self.lock();
        let running = board.by_interest.iter();
        let running = running.filter(|(interest, _)| !matches!(interest, Interest::Keeper(_)));
        running.map(|(_, subscriptions)| subscriptions.len()).sum()
    }

    /// Hints whoever subscribed to exactly this.
    pub fn notify(&self, interest: &Interest) {
        let board = self.lock();
        if board.by_interest.is_empty() {
            return;
        }
        for listener in board.by_interest.get(interest).into_iter().flatten() {
            listener.hints.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Ends {
    board: HintBoard,
    interest: Interest,
    number: u64,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let mut board = self.board.lock();
        if let Some(list) = board.by_interest.get_mut(&self.interest) {
            list.retain(|listener| listener.number != self.number);
            if list.is_empty() {
                board.by_interest.remove(&self.interest);
            }
        }
    }
}
