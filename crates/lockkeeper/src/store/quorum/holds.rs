//! What this store has asked for, and which nodes said yes: a later request about a claim has to name its round.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::dialect::LettingGo;
use super::protocol::{RoundId, Run};
use crate::Label;
use crate::clock::Moment;
use crate::store::{ClaimId, Mode};

/// Above this many, those that time has ended are forgotten.
const TIDY_ABOVE: usize = 4096;

/// A set of nodes, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct NodeSet(u32);

impl NodeSet {
    pub fn all(count: usize) -> NodeSet {
        NodeSet((1 << count) - 1)
    }

    pub fn add(&mut self, node: usize) {
        self.0 |= 1 << node;
    }

    pub fn remove(&mut self, node: usize) {
        self.0 &= !(1 << node);
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn has(self, node: usize) -> bool {
        self.0 & (1 << node) != 0
    }
}

/// The newest round of a claim.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub round: RoundId,
    pub run: Run,
    pub mode: Mode,
    pub lease: Duration,
    /// For nodes that are to have the hold again.
    pub label: Option<Label>,
    /// The nodes that were sent the round, or the hold, and may have it.
    pub asked: NodeSet,
    /// The nodes that said that they have it.
    pub holds: NodeSet,
    pub granted: bool,
    /// It is being let go of: nobody else is to be asked to keep it.
    pub ending: bool,
    /// When every node has ended it, unless it is renewed.
    pub ends: Moment,
}

impl Entry {
    pub fn letting_go(&self) -> LettingGo {
        LettingGo {
            round: self.round,
            run: Some(self.run),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Holds {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_claim: HashMap<ClaimId, Entry>,
    tidy_at: usize,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self, entry: Entry) {
        let mut entries = self.lock();
        if entries.by_claim.len() > entries.tidy_at.max(TIDY_ABOVE) {
            let now = Moment::now();
            entries.by_claim.retain(|_, entry| entry.ends > now);
            entries.tidy_at = 2 * entries.by_claim.len();
        }
        entries.by_claim.insert(entry.round.claim, entry);
    }

    pub fn get(&self, claim: ClaimId) -> Option<Entry> {
        self.lock().by_claim.get(&claim).cloned()
    }

    /// The entry of a claim that is to end.
    pub fn begin_end(&self, claim: ClaimId) -> Option<Entry> {
        let mut entries = self.lock();
        let entry = entries.by_claim.get_mut(&claim)?;
        entry.ending = true;
        Some(entry.clone())
    }

    /// Changes the entry of a round, unless a later one has taken its place.
    pub fn change(&self, round: RoundId, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        let entry = entries.by_claim.get_mut(&round.claim);
        if let Some(entry) = entry.filter(|entry| entry.round == round) {
            change(entry);
        }
    }

    /// Forgets a round that was lost. Returns what is to be taken back: nothing of a round that is being let go of, as the
    /// nodes are told that anyway, nor of one that is known no more.
    pub fn lose(&self, round: RoundId) -> Option<Entry> {
        let mut entries = self.lock();
        let entry = entries.by_claim.get(&round.claim)?;
        if entry.round != round || entry.ending {
            return None;
        }
        entries.by_claim.remove(&round.claim)
    }

    /// Forgets a round, unless a later one has taken its place.
    pub fn end(&self, round: RoundId) {
        let mut entries = self.lock();
        let entry = entries.by_claim.get(&round.claim);
        if entry.is_some_and(|entry| entry.round == round) {
            entries.by_claim.remove(&round.claim);
        }
    }
}
