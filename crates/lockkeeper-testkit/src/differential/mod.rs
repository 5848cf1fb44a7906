//! A store and the memory store, asked the same in the same order, have to answer the same.
//!
//! The memory store is the rule book ([`record`](lockkeeper::store::record)) and little else. So what a store does by other means,
//! as by a script or by one statement, is checked against the rules here.
//!
//! Random requests of all modes arrive on many names at once, each name one after the other. Some arrive late, some twice, some in
//! another order, some never, and of some the answer is lost. The clock of both stands still while they run and moves
//! between rounds, so that no answer depends on how fast anything is. What a store's
//! [`Capabilities`](lockkeeper::store::Capabilities) leave out is not asked for.
//!
//! A store may put off what time has ended until a verb that looks at all of the name; the memory store does it with every
//! verb. So every name is inspected after the clock has moved, unless the store says that it does the same.

mod agree;
mod request;
mod sequence;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::Store;
use lockkeeper::store::memory::MemoryStore;
use tokio::task::JoinSet;

use crate::random::Random;
use sequence::{Counts, Sequence};

/// How many names are used at once.
const NAMES: usize = 48;
/// After how many rounds names are given up for fresh ones: what a failure prints stays short.
const ROUNDS: u64 = 12;
/// How many verbs a name gets between two moves of the clock, at most.
const BURST: u64 = 12;
/// In ms. The clock moves by multiples of this, and no lease is one: so nothing ends at the very millisecond of a verb, where
/// a server's own expiry and a script may see it differently.
pub(crate) const STEP: u64 = 7;
/// So many verbs show everything that is counted.
const ENOUGH: usize = 20_000;

/// What every sequence is to do next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// So many verbs.
    Verbs(u64),
    /// The clock has moved: end what time has ended.
    Look,
    /// The process of this keeper has died.
    Died(usize),
    /// Let go of everything.
    End,
}

/// Stores that share their locks, as those of several keepers do, and the clock they go by.
pub struct Subject {
    stores: Stores,
    clock: Clock,
    follow: Box<dyn Fn(u64) + Send + Sync>,
    reopen: Option<Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>>,
    prompt: bool,
}

/// The stores as all names share them.
#[derive(Clone, Debug)]
struct Stores {
    all: Arc<RwLock<Vec<Arc<dyn Store>>>>,
    own_clock: bool,
}

impl Stores {
    fn len(&self) -> usize {
        self.all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    fn at(&self, index: usize) -> Arc<dyn Store> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all[index].clone()
    }

    fn every(&self) -> Vec<Arc<dyn Store>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    /// A moment of the simulated clock, as the stores are told it. Those with a clock of their own are told one that is as surely
    /// past, or to come.
    fn moment(&self, clock: &Clock, at: Moment) -> Moment {
        match at {
            at if !self.own_clock || at == Moment::NEVER => at,
            at if clock.now() > at => Moment::BOOT,
            _ => Moment::now() + Duration::from_secs(3_600),
        }
    }
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
            stores: Stores {
                all: Arc::new(RwLock::new(stores)),
                own_clock: false,
            },
            clock,
            follow: Box::new(follow),
            reopen: None,
            prompt: false,
        }
    }

    /// The stores read this machine's clock, and not the simulated one.
    pub fn on_their_own_clock(mut self) -> Subject {
        self.stores.own_clock = true;
        self
    }

    /// Every verb about a lock ends first what time has ended: no look is needed for that.
    pub fn ending_in_time(mut self) -> Subject {
        self.prompt = true;
        self
    }

    /// Dropping a store frees at once what it held and waited for, as the death of its process does. `reopen` opens another.
    pub fn with_deaths(
        mut self,
        reopen: impl Fn() -> Arc<dyn Store> + Send + Sync + 'static,
    ) -> Subject {
        self.reopen = Some(Box::new(reopen));
        self
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
        (self.follow)(self.clock.unix_micros());
    }

    /// Has the process of a keeper die, if processes do. Returns which.
    fn dies(&self, random: &mut Random) -> Option<usize> {
        let reopen = self.reopen.as_ref()?;
        let keeper = random.below(self.stores.len() as u64) as usize;
        let next = reopen();
        let mut all = self
            .stores
            .all
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let dead = std::mem::replace(&mut all[keeper], next);
        assert_eq!(Arc::strong_count(&dead), 1, "the store is still in use");
        Some(keeper)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

/// What a comparison came across.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many verbs were compared.
    pub verbs: usize,
    counts: Counts,
}

impl Report {
    /// How often something happened: see what [`compare`] prints.
    pub fn count(&self, what: &str) -> usize {
        self.counts.get(what).copied().unwrap_or(0)
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
/// At the first answers that differ, with all that was asked for that name before. Also if of many verbs none was late, lost or
/// repeated: then nothing was shown about that.
pub async fn compare(subject: &Subject, seed: u64, verbs: usize) -> Report {
    let mut random = Random::seeded(seed);
    let mut report = Report {
        verbs: 0,
        counts: Counts::new(),
    };
    // What a verb leaves to the next one shows only if the clock moves in between.
    let (rounds, most) = match subject.prompt {
        true => (3 * ROUNDS, BURST / 3),
        false => (ROUNDS, BURST),
    };
    let mut generation = 0;
    while report.verbs < verbs {
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
        for _ in 0..rounds {
            let burst = 1 + random.below(most);
            sequences = at_once(sequences, Turn::Verbs(burst)).await;
            if random.below(rounds) < 2 {
                // The model knows no death: it withdraws, which first ends what time has ended.
                sequences = at_once(sequences, Turn::Look).await;
                if let Some(keeper) = subject.dies(&mut random) {
                    sequences = at_once(sequences, Turn::Died(keeper)).await;
                }
            }
            subject.advance(pause(&mut random));
            if !subject.prompt || random.below(3) == 0 {
                sequences = at_once(sequences, Turn::Look).await;
            }
        }
        agree::listed(&subject.stores.every(), &model, &prefix).await;
        sequences = at_once(sequences, Turn::End).await;
        for sequence in &sequences {
            report.verbs += sequence.verbs();
            for (what, many) in sequence.counts() {
                *report.counts.entry(what).or_default() += many;
            }
        }
    }
    println!("{} verbs on {} names", report.verbs, generation * NAMES);
    println!("{:#?}", report.counts);
    if report.verbs >= ENOUGH {
        for what in HAPPENED {
            assert!(report.count(what) > 0, "there were no {what}");
        }
    }
    report
}

/// What happens in every long run.
const HAPPENED: [&str; 6] = [
    "answers lost",
    "requests lost",
    "requests delayed or repeated",
    "of them late",
    "tried too late",
    "released and not held",
];

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
