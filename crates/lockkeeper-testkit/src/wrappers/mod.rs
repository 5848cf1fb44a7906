//! Stores over any store: one that counts, one that misbehaves, and some with a mistake.

mod counting;
mod flaky;
mod sabotaged;

pub use counting::Counting;
pub use flaky::{Chaos, Flaky, Mishap};
pub use sabotaged::{SABOTAGES, Sabotage, Sabotaged};

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The verbs of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    /// `try_acquire`
    TryAcquire,
    /// `withdraw`
    Withdraw,
    /// `renew`
    Renew,
    /// `release`
    Release,
    /// `subscribe`
    Subscribe,
    /// `inspect`
    Inspect,
    /// `list`
    List,
    /// `break_lock`
    BreakLock,
    /// `latch`
    Latch,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 9] = [
        Verb::TryAcquire,
        Verb::Withdraw,
        Verb::Renew,
        Verb::Release,
        Verb::Subscribe,
        Verb::Inspect,
        Verb::List,
        Verb::BreakLock,
        Verb::Latch,
    ];
}

/// How often each verb was sent.
#[derive(Default)]
pub struct Counts([AtomicU64; Verb::ALL.len()]);

impl Counts {
    /// How often this verb was sent.
    pub fn of(&self, verb: Verb) -> u64 {
        self.0[verb as usize].load(Ordering::Relaxed)
    }

    /// How many verbs were sent in all.
    pub fn total(&self) -> u64 {
        Verb::ALL.into_iter().map(|verb| self.of(verb)).sum()
    }

    /// Starts again at 0.
    pub fn reset(&self) {
        for count in &self.0 {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn add(&self, verb: Verb) {
        self.0[verb as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Verb::ALL.into_iter().map(|verb| (verb, self.of(verb)));
        f.debug_map()
            .entries(all.filter(|(_, count)| *count > 0))
            .finish()
    }
}
