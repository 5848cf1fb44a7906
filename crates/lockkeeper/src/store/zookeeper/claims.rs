//! The claims of this store's session: what each has, and what time does to them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

use crate::Name;
use crate::clock::Moment;
use crate::store::{Claim, ClaimId, Grant};

/// Behind every claim.
const LAST: ClaimId = ClaimId {
    keeper: crate::store::KeeperId::from_bits(u128::MAX),
    number: u64::MAX,
};

/// A claim that has nodes, or may have.
#[derive(Clone, Debug)]
pub struct Entry {
    pub claim: Claim,
    /// The session that its nodes end with.
    pub session: i64,
    /// Its nodes, as whole paths: those in line, or its leases.
    pub nodes: Vec<String>,
    /// The number that its first node has in line.
    pub number: i64,
    /// The transaction that put it in line.
    pub czxid: i64,
    pub grant: Grant,
    /// The lease that its nodes tell.
    pub told: Duration,
    /// When it last asked.
    pub asked: Moment,
    pub state: State,
    /// What it waits for: the path of a node, if it is one.
    pub behind: Option<String>,
    /// When to look whether its node is still there, unless that is watched.
    pub guard_at: Option<Moment>,
    /// How many readers were put beside it.
    pub beside: u32,
    /// A release was sent and not answered.
    pub leaving: bool,
}

/// How far a claim is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It waits, and has left at this moment unless it asks again.
    Waiting(Moment),
    /// It is its turn; it has until this moment to say that it is there.
    Granted(Moment),
    /// It holds until this moment, under a lease of this length.
    Held(Moment, Duration),
    /// Its time is over, and its nodes have to go; tried again at this moment.
    Ending(Moment),
    /// Something was sent for it and not answered: its nodes have to be looked for. Tried again at this moment.
    Doubt(Moment),
}

impl Entry {
    fn due(&self) -> Moment {
        match self.state {
            State::Waiting(until) | State::Granted(until) => until,
            State::Held(until, _) => self.guard_at.map_or(until, |guard| guard.min(until)),
            State::Ending(next) | State::Doubt(next) => next,
        }
    }

    /// The names of its nodes, without their folder.
    pub fn names(&self) -> Vec<&str> {
        let name = |path: &'_ String| path.rfind('/').map_or(0, |at| at + 1);
        self.nodes.iter().map(|path| &path[name(path)..]).collect()
    }

    /// Whether it holds at this moment.
    pub fn holds(&self, now: Moment) -> bool {
        match self.state {
            State::Held(until, _) | State::Granted(until) => now < until,
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Slot {
    pub entry: Option<Entry>,
    timer: Option<Moment>,
    /// It was taken back: a try that comes only now does nothing.
    withdrawn: bool,
}

/// A claim's place in the table, kept for a verb that is about to begin. One that is not used is not left there.
#[derive(Debug)]
pub struct Seat {
    claims: Arc<Claims>,
    id: ClaimId,
    slot: Arc<AsyncMutex<Slot>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.claims.table();
        // One for the table, and one for us: nobody works on it, or is about to.
        let alone = Arc::strong_count(&self.slot) == 2;
        if alone && self.slot.try_lock().is_ok_and(|slot| slot.entry.is_none()) {
            table.slots.remove(&self.id);
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    slots: HashMap<ClaimId, Arc<AsyncMutex<Slot>>>,
    timers: BTreeSet<(Moment, ClaimId)>,
    /// Which claims want to know of which path.
    interested: HashMap<String, HashSet<ClaimId>>,
    /// The path that a claim in line waits for: a node, or the folder of the leases.
    awaited: HashMap<ClaimId, String>,
}

impl Table {
    fn watch(&mut self, path: &str, id: ClaimId) {
        let interested = self.interested.entry(path.to_owned()).or_default();
        interested.insert(id);
    }

    /// A claim waits for this path now, and for none that it waited for before.
    fn wait(&mut self, path: Option<&str>, id: ClaimId) {
        let before = match path {
            Some(path) => self.awaited.insert(id, path.to_owned()),
            None => self.awaited.remove(&id),
        };
        if let Some(before) = before.filter(|before| Some(&**before) != path) {
            self.unwatch(&before, id);
        }
        if let Some(path) = path {
            self.watch(path, id);
        }
    }

    fn unwatch(&mut self, path: &str, id: ClaimId) {
        if let Some(interested) = self.interested.get_mut(path) {
            interested.remove(&id);
            if interested.is_empty() {
                self.interested.remove(path);
            }
        }
    }
}

/// All claims of a store.
#[derive(Debug, Default)]
pub struct Claims {
    table: Mutex<Table>,
    /// A timer was set that is earlier than all others.
    pub earlier: Notify,
}

impl Claims {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a place for a verb, so that whatever comes after it finds it there.
    pub fn reserve(self: &Arc<Claims>, id: ClaimId) -> Seat {
        Seat {
            claims: self.clone(),
            id,
            slot: self.table().slots.entry(id).or_default().clone(),
        }
    }

    /// Waits until nothing else is done with a claim, and takes it.
    pub async fn enter(self: &Arc<Claims>, seat: Seat) -> Turn {
        Turn {
            claims: self.clone(),
            id: seat.id,
            slot: seat.slot.clone().lock_owned().await,
        }
    }

    /// The same, if it is known.
    pub async fn take_known(self: &Arc<Claims>, id: ClaimId) -> Option<Turn> {
        let slot = self.table().slots.get(&id).cloned()?;
        let claims = self.clone();
        Some(self.enter(Seat { claims, id, slot }).await)
    }

    /// All that are known.
    pub fn known(&self) -> Vec<ClaimId> {
        self.table().slots.keys().copied().collect()
    }

    /// The next moment at which something is due.
    pub fn next(&self) -> Option<Moment> {
        self.table().timers.first().map(|(at, _)| *at)
    }

    /// Takes what is due.
    pub fn due(&self, now: Moment) -> Vec<ClaimId> {
        let mut table = self.table();
        let later = table.timers.split_off(&(now, LAST));
        let due = std::mem::replace(&mut table.timers, later);
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// The claim is to be told of this path.
    pub fn watch(&self, path: &str, id: ClaimId) {
        self.table().watch(path, id);
    }

    /// The claim is to be told of this path as long as it waits, and for nothing else.
    pub fn wait(&self, path: &str, id: ClaimId) {
        self.table().wait(Some(path), id);
    }

    /// The claim need not be told of this path any more.
    pub fn unwatch(&self, path: &str, id: ClaimId) {
        self.table().unwatch(path, id);
    }

    /// Takes the claims that are to be told of this path.
    pub fn interested(&self, path: &str) -> Vec<ClaimId> {
        let interested = self.table().interested.remove(path);
        interested.into_iter().flatten().collect()
    }

    /// How much claims are to be told of: a path counts once for each claim.
    #[cfg(any(test, feature = "internals"))]
    pub fn watched(&self) -> usize {
        self.table().interested.values().map(HashSet::len).sum()
    }

    /// Nothing is watched any more.
    pub fn forget_watches(&self) {
        self.table().interested.clear();
    }
}

/// A claim that is being worked on. Dropped, it sets the timer that the claim needs.
#[derive(Debug)]
pub struct Turn {
    claims: Arc<Claims>,
    id: ClaimId,
    slot: OwnedMutexGuard<Slot>,
}

impl Turn {
    pub fn entry(&mut self) -> &mut Option<Entry> {
        &mut self.slot.entry
    }

    /// Whether it is about another name than this.
    pub fn is_elsewhere(&self, name: &Name) -> bool {
        let entry = self.slot.entry.as_ref();
        entry.is_some_and(|entry| entry.claim.name != *name)
    }

    /// Takes the claim back, also from a try that has not begun.
    pub fn withdraw(&mut self) {
        self.slot.withdrawn = true;
    }

    pub fn is_withdrawn(&self) -> bool {
        self.slot.withdrawn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let due = self.slot.entry.as_ref().map(Entry::due);
        let timer = std::mem::replace(&mut self.slot.timer, due);
        let entry = self.slot.entry.as_ref();
        let waits = entry.is_some_and(|entry| matches!(entry.state, State::Waiting(_)));
        let mut table = self.claims.table();
        // A waiter that leaves is not kept for as long as another holds.
        if !waits {
            table.wait(None, self.id);
        }
        if let Some(timer) = timer {
            table.timers.remove(&(timer, self.id));
        }
        match due {
            Some(due) => {
                table.timers.insert((due, self.id));
                let first = table.timers.first().is_some_and(|(_, id)| *id == self.id);
                if first {
                    self.claims.earlier.notify_one();
                }
            }
            None => {
                // One for the table, and one for us: nobody else waits for it.
                let alone = table
                    .slots
                    .get(&self.id)
                    .is_some_and(|slot| Arc::strong_count(slot) == 2);
                if alone {
                    table.slots.remove(&self.id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeeperId;

    #[tokio::test]
    async fn a_claim_without_nodes_leaves_nothing() {
        let claims: Arc<Claims> = Arc::default();
        let id = ClaimId {
            keeper: KeeperId::from_bits(1),
            number: 1,
        };
        drop(claims.reserve(id));
        assert_eq!(claims.known(), []);
        let (first, second) = (claims.reserve(id), claims.reserve(id));
        let turn = claims.enter(first).await;
        drop(second);
        assert_eq!(claims.known(), [id]);
        drop(turn);
        assert_eq!(claims.known(), []);
        assert!(claims.table().interested.is_empty());
    }

    /// It waits for a node, then for the leases of others, and gives up.
    #[tokio::test]
    async fn a_claim_that_leaves_is_told_of_nothing() {
        let claims: Arc<Claims> = Arc::default();
        let id = ClaimId {
            keeper: KeeperId::from_bits(1),
            number: 1,
        };
        let turn = claims.enter(claims.reserve(id)).await;
        for path in ["/a/locks/1", "/a/leases", "/a/leases"] {
            claims.wait(path, id);
            assert_eq!(claims.watched(), 1, "{path}");
        }
        drop(turn);
        assert_eq!(claims.watched(), 0);
        assert!(claims.table().awaited.is_empty());
    }
}
