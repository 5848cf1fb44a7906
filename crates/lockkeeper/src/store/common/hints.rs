//! The hint board: routes each hint to the subscriptions of this process that it is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::Name;
use crate::store::{ClaimId, DirectGrant, GrantSlot, Interest, KeeperId, Subscription};

/// Routes hints to the subscriptions of this process. Clones share it.
///
/// A store keeps one board. [`Store::subscribe`](crate::store::Store::subscribe) subscribes at the server and returns what
/// [`subscribe`](HintBoard::subscribe) does. The task that reads the server's messages calls the other methods.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::{Name, store::{Interest, common::HintBoard}};
///
/// let (board, name) = (HintBoard::default(), Name::new("stock:42")?);
/// let subscription = board.subscribe(Interest::Name(name.clone()));
/// board.name(&name);              // a message of the server was about it
/// subscription.hint().await;
/// drop(subscription);
/// assert!(board.is_empty());
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct HintBoard(Arc<Mutex<Board>>);

#[derive(Debug, Default)]
struct Board {
    next: u64,
    by_interest: HashMap<Interest, Vec<Listener>>,
}

#[derive(Debug)]
struct Listener {
    number: u64,
    hints: Arc<Notify>,
    /// Where a grant is put, if the subscription is about a claim.
    grants: Option<Arc<GrantSlot>>,
}

impl HintBoard {
    /// A subscription to hints about this, until it is dropped.
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
        let unsubscribe = Unsubscribe {
            board: self.clone(),
            interest,
            number,
        };
        Subscription::new(hints, unsubscribe).with_grants(grants)
    }

    /// Hints a waiting claim.
    pub fn claim(&self, name: &Name, claim: ClaimId) {
        self.notify(&Interest::Claim(name.clone(), claim));
    }

    /// Hints a waiting claim that it holds, and gives it the grant.
    pub fn granted(&self, name: &Name, claim: ClaimId, granted: DirectGrant) {
        let interest = Interest::Claim(name.clone(), claim);
        for listener in self.lock().by_interest.get(&interest).into_iter().flatten() {
            if let Some(grants) = &listener.grants {
                *grants.lock() = Some(granted);
            }
            listener.hints.notify_one();
        }
    }

    /// Hints the subscriptions to the name.
    pub fn name(&self, name: &Name) {
        self.notify(&Interest::Name(name.clone()));
    }

    /// Hints the subscriptions to the latch.
    pub fn latch(&self, name: &Name) {
        self.notify(&Interest::Latch(name.clone()));
    }

    /// Hints the keeper that one of its holds may have been broken.
    pub fn keeper(&self, keeper: KeeperId) {
        self.notify(&Interest::Keeper(keeper));
    }

    /// Hints every keeper: a hold of one of them may have been broken.
    pub fn keepers(&self) {
        let board = self.lock();
        let keepers = board.by_interest.iter();
        let keepers = keepers.filter(|(interest, _)| matches!(interest, Interest::Keeper(_)));
        for listener in keepers.flat_map(|(_, listeners)| listeners) {
            listener.hints.notify_one();
        }
    }

    /// Hints every subscription: hints may have been lost, as when a connection ends.
    pub fn everyone(&self) {
        for listener in self.lock().by_interest.values().flatten() {
            listener.hints.notify_one();
        }
    }

    /// How many subscriptions there are, except those of keepers: every keeper has one for its whole life.
    pub fn len(&self) -> usize {
        let board = self.lock();
        let running = board.by_interest.iter();
        let running = running.filter(|(interest, _)| !matches!(interest, Interest::Keeper(_)));
        running.map(|(_, subscriptions)| subscriptions.len()).sum()
    }

    /// Whether [`len`](HintBoard::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hints the subscriptions to exactly this.
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

/// Takes a subscription off the board when it is dropped.
struct Unsubscribe {
    board: HintBoard,
    interest: Interest,
    number: u64,
}

impl Drop for Unsubscribe {
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
