//! The claims of this store: what each has, and what time does to them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

use super::client::watches::Watching;
use super::data::Fence;
use super::session::Session;
use crate::Name;
use crate::clock::Moment;
use crate::store::{Claim, ClaimId, Grant};

/// Behind every claim.
const LAST: ClaimId = ClaimId {
    keeper: crate::store::KeeperId::from_bits(u128::MAX),
    number: u64::MAX,
};

/// A claim that has a key, or may have one.
#[derive(Clone, Debug)]
pub struct Entry {
    pub claim: Claim,
    /// The lease of etcd's that its key ends with.
    pub session: Arc<Session>,
    /// The lease of etcd's in the name of its key: that one at first, and another one once it was extended beyond that.
    pub key_lease: i64,
    /// Its number within this store. No other key has it, also none that the same claim had before.
    pub number: u64,
    pub key: Vec<u8>,
    /// The revision that created the key.
    pub created: i64,
    /// The revision that wrote the key last.
    pub modified: i64,
    pub fence: Fence,
    pub grant: Grant,
    /// When its key was written, by the wall clock.
    pub since_millis: u64,
    /// The lease that its key tells.
    pub told: Duration,
    /// When it last asked.
    pub asked: Moment,
    pub state: State,
    /// The key whose end it waits for; none if any end below its name matters.
    pub behind: Option<Vec<u8>>,
    /// The number of the writer in whose place it stands.
    pub in_place_of: Option<u64>,
    /// How many readers were put beside it.
    pub beside: u32,
    /// Tells of the ends of keys below its name: while it waits, and once it has held for a while.
    pub guard: Option<Arc<Watching>>,
    /// When to begin to watch.
    pub guard_at: Option<Moment>,
    /// A release was sent and not answered.
    pub leaving: bool,
    /// A longer lease of etcd's was asked for and not answered: its key may have either.
    pub unsettled: bool,
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
    /// Its time is over, and its key has to go; tried again at this moment.
    Ending(Moment),
    /// Its key was sent and not answered: it may be there, or come yet. Tried again at this moment.
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
    /// The claims of each name, with the key of each and what it waits for.
    by_name: HashMap<Name, HashMap<ClaimId, Interested>>,
    /// The name of each of these.
    names: HashMap<ClaimId, Name>,
}

/// Which ends of keys a claim has to be told of.
#[derive(Clone, Debug)]
struct Interested {
    own: Vec<u8>,
    waits: bool,
    behind: Option<Vec<u8>>,
}

impl Interested {
    fn wants(&self, deleted: &[Vec<u8>]) -> bool {
        deleted.contains(&self.own)
            || self.waits
                && self
                    .behind
                    .as_ref()
                    .is_none_or(|behind| deleted.contains(behind))
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
    #[cfg(test)]
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

    /// The claims of this name that have to look what the end of these keys means to them.
    pub fn interested(&self, name: &Name, deleted: &[Vec<u8>]) -> Vec<ClaimId> {
        let table = self.table();
        let claims = table.by_name.get(name).into_iter().flatten();
        let interested = claims.filter(|(_, one)| one.wants(deleted));
        interested.map(|(id, _)| *id).collect()
    }

    /// All claims of this name.
    pub fn of_name(&self, name: &Name) -> Vec<ClaimId> {
        let table = self.table();
        let claims = table.by_name.get(name).into_iter().flatten();
        claims.map(|(id, _)| *id).collect()
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

    /// From here on, the end of any key below this name makes the claim look once more, as soon as this turn is over: what it is
    /// about to wait for may go before it waits.
    pub fn attend(&mut self, name: &Name) {
        let any = Interested {
            own: Vec::new(),
            waits: true,
            behind: None,
        };
        let mut table = self.claims.table();
        table.names.insert(self.id, name.clone());
        table
            .by_name
            .entry(name.clone())
            .or_default()
            .insert(self.id, any);
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
        let mut table = self.claims.table();
        if let Some(name) = table.names.remove(&self.id)
            && let Some(claims) = table.by_name.get_mut(&name)
        {
            claims.remove(&self.id);
            if claims.is_empty() {
                table.by_name.remove(&name);
            }
        }
        if let Some(entry) = &self.slot.entry {
            let interested = Interested {
                own: entry.key.clone(),
                waits: matches!(entry.state, State::Waiting(_)),
                behind: entry.behind.clone(),
            };
            let name = entry.claim.name.clone();
            table.names.insert(self.id, name.clone());
            table
                .by_name
                .entry(name)
                .or_default()
                .insert(self.id, interested);
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
    async fn a_claim_without_a_key_leaves_nothing() {
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
        assert!(claims.table().by_name.is_empty());
    }
}
