//! A store and the memory store, asked the same in the same order, have to answer the same.
//!
//! Random verbs of all modes run on many names at once, each name one verb after the other. The clock of both stands still
//! while they run and moves between rounds, so that no answer depends on how fast anything is. What a store's
//! [`Capabilities`](lockkeeper::store::Capabilities) leave out is not asked for.
//!
//! A store may put off what time has ended until it is next asked about the name; the memory store does it with every
//! verb. So every name is inspected after the clock has moved.

mod agree;
mod sequence;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::Store;
use lockkeeper::store::memory::MemoryStore;
use tokio::task::JoinSet;

use crate::random::Random;
use sequence::{Sequence, Turn};

/// How many names are used at once.
const NAMES: usize = 48;
/// After how many rounds names are given up for fresh ones: what a failure prints stays short.
const ROUNDS: usize = 12;
/// How many verbs a name gets between two moves of the clock, at most.
const BURST: u64 = 12;
/// In ms. The clock moves by multiples of this, and no lease is one: so nothing ends at the very millisecond of a verb, where
/// a server's own expiry and a script may see it differently.
pub(crate) const STEP: u64 = 7;

/// Stores that share their locks, as those of several keepers do, and the clock they go by.
pub struct Subject {
    stores: Vec<Arc<dyn Store>>,
    clock: Clock,
    follow: Box<dyn Fn(u64) + Send + Sync>,
}

impl Subject {
    /// `clock` is a simulated one. `follow` sets the stores' own clock to a time in microseconds since 1970; a store that
    /// reads `clock` itself needs nothing.
    pub fn new(
        stores: Vec<Arc<dyn Store>>,
        clock: Clock,
        follow: impl Fn(u64) + Send + Sync + 'static,
    ) -> Subject {
        Subject {
            stores,
            clock,
            follow: Box::new(follow),
        }
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        (self.follow)(self.clock.unix_micros());
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

/// The seed to use: `LOCKKEEPER_SEED`, or another each time. It is printed.
///
/// # Panics
/// When the variable is no number.
pub fn seed() -> u64 {
    let seed = match std::env::var("LOCKKEEPER_SEED") {
        Ok(text) => text.parse().expect("LOCKKEEPER_SEED is a number"),
        Err(_) => Moment::now().as_nanos(),
    };
    println!("repeat it with LOCKKEEPER_SEED={seed}");
    seed
}

/// Runs at least this many verbs. Nothing is held or waited for at the end.
///
/// # Panics
/// At the first answers that differ, with all that was asked for that name before.
pub async fn compare(subject: &Subject, seed: u64, verbs: usize) {
    let mut random = Random::seeded(seed);
    let mut done = 0;
    let mut generation = 0;
    while done < verbs {
        generation += 1;
        let model = Arc::new(MemoryStore::with_clock(subject.clock.clone()));
        let prefix = format!("s{seed}:{generation}:");
        let mut sequences: Vec<Sequence> = (0..NAMES)
            .map(|number| {
                let stores = subject.stores.clone();
                let name = format!("{prefix}{number}");
                let random = Random::seeded(random.next_u64());
                Sequence::new(&name, stores, model.clone(), subject.clock.clone(), random)
            })
            .collect();
        for _ in 0..ROUNDS {
            let burst = 1 + random.below(BURST);
            sequences = at_once(sequences, Turn::Verbs(burst)).await;
            subject.advance(pause(&mut random));
            sequences = at_once(sequences, Turn::Look).await;
        }
        agree::listed(&subject.stores, &model, &prefix).await;
        sequences = at_once(sequences, Turn::End).await;
        done += sequences.iter().map(Sequence::verbs).sum::<usize>();
    }
    println!("{done} verbs on {} names", generation * NAMES);
}

/// For how long nothing happens: mostly not at all, and at times for longer than a grant, a place in line or a lease lasts.
fn pause(random: &mut Random) -> Duration {
    let most = match random.below(8) {
        0..4 => 0,
        4 => 50,
        5 => 1_500,
        6 => 6_000,
        _ => 40_000,
    };
    Duration::from_millis(random.below(most / STEP + 1) * STEP)
}

/// Has every sequence do the same, all at once.
async fn at_once(sequences: Vec<Sequence>, turn: Turn) -> Vec<Sequence> {
    let mut tasks = JoinSet::new();
    for (number, mut sequence) in sequences.into_iter().enumerate() {
        tasks.spawn(async move {
            let outcome = sequence.take(turn).await;
            (number, sequence, outcome)
        });
    }
    let mut done = tasks.join_all().await;
    done.sort_by_key(|(number, ..)| *number);
    for (_, sequence, outcome) in &done {
        if let Err(difference) = outcome {
            panic!("{}\n  {difference}", sequence.history());
        }
    }
    done.into_iter().map(|(_, sequence, _)| sequence).collect()
}
