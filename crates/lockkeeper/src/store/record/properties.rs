//! Tests what the rules guarantee, by random verbs of several keepers on a simulated clock.
//!
//! Requests are also late and repeated, processes die, the server restarts, and the wall clock is set. Each step is
//! checked against the record before it (`checks`). Then the same verb is applied as by a store that loads the queue and the
//! liveness of processes only when a rule asks for them, and must do the same.

mod checks;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use self::checks::{check, check_after};
use super::{Change, Ended, Latch, LatchChange, Missing, Now, ProcessId, Record, Step};
use crate::clock::Moment;
use crate::store::{
    Attempt, Break, BreakTarget, Claim, ClaimId, KeeperId, LatchOp, LatchRequest, Mode, Release,
    Released, Renewal, Renewed,
};
use crate::{Label, Name, Token};

const KEEPERS: u64 = 5;
const STEPS: u32 = 250_000;

/// Random numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.below(all.len().max(1) as u64);
        all.get(at as usize)
    }
}

#[derive(Debug)]
enum Verb {
    Try(Claim),
    Withdraw(ClaimId),
    Renew(Renewal),
    Release(Release),
    Break(Break),
    Inspect,
}

/// What a verb returned.
#[derive(Debug, PartialEq)]
enum Outcome {
    Tried(Attempt),
    Withdrawn,
    Renewed(Renewed),
    Released(Released),
    Broke(Ended),
    Inspected,
}

impl Verb {
    fn apply(&self, record: &Record, now: Now<'_>) -> Result<Step<Outcome>, Missing> {
        fn with<T>(step: Step<T>, outcome: impl FnOnce(T) -> Outcome) -> Step<Outcome> {
            Step {
                answer: outcome(step.answer),
                changes: step.changes,
            }
        }
        Ok(match self {
            Verb::Try(claim) => with(record.try_acquire(claim, now)?, Outcome::Tried),
            Verb::Withdraw(claim) => with(record.withdraw(*claim, now)?, |()| Outcome::Withdrawn),
            Verb::Renew(renewal) => with(record.renew(renewal, now)?, Outcome::Renewed),
            Verb::Release(release) => with(record.release(release, now)?, Outcome::Released),
            Verb::Break(request) => with(record.break_lock(request, now)?, Outcome::Broke),
            Verb::Inspect => with(record.inspect(now)?, |()| Outcome::Inspected),
        })
    }
}

/// Keepers, a record that they use, and time.
struct Simulation {
    random: Random,
    name: Name,
    record: Record,
    now: u64,
    next: u64,
    /// The last claims that were sent, also those that have ended: late and repeated requests name them.
    claims: Vec<Claim>,
    alive: HashMap<ProcessId, bool>,
    /// The server has restarted and may not grant until then.
    grants_from: u64,
    /// How far the wall clock is ahead of the clock of the leases, in microseconds.
    wall_ahead: u64,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        Simulation {
            random: Random(seed),
            name: Name::new("x").expect("a name"),
            record: Record::default(),
            now: 1_000_000_000,
            next: 1,
            claims: Vec::new(),
            alive: HashMap::new(),
            grants_from: 0,
            wall_ahead: 10_000_000,
        }
    }

    fn claim(&mut self) -> Claim {
        let keeper = KeeperId::from_bits(u128::from(self.random.below(KEEPERS)));
        self.next += 1;
        let mode = match self.random.below(7) {
            0 | 1 => Mode::Exclusive,
            2 => Mode::Fair,
            3 | 4 => Mode::Read,
            5 => Mode::Write,
            _ => Mode::Permit {
                limit: 1 + self.random.below(4) as u32,
                count: 1 + self.random.below(3) as u32,
            },
        };
        let exclusive = self
            .record
            .holds
            .iter()
            .find(|hold| hold.mode.is_exclusive());
        let beside = exclusive.map(|hold| hold.claim);
        // Mostly by a reader of the same keeper: only such a claim may stand beside it.
        let beside = beside.filter(|_| self.random.one_in(if mode == Mode::Read { 3 } else { 40 }));
        let own = beside.filter(|_| !self.random.one_in(10));
        let late = self.random.one_in(20);
        let claim = Claim {
            id: ClaimId {
                keeper: own.map_or(keeper, |own| own.keeper),
                number: self.next,
            },
            name: self.name.clone(),
            mode,
            lease: Duration::from_millis(100 + self.random.below(3000)),
            reserve: 1 + self.random.below(64) as u32,
            not_after: Moment::from_nanos(if late {
                self.asked() - 1
            } else {
                self.asked() + 900_000_000
            }),
            enqueue: !self.random.one_in(4),
            beside,
            label: Label::new(&format!("order {}", self.next)).ok(),
        };
        self.claims.push(claim.clone());
        if self.claims.len() > 24 {
            self.claims.remove(0);
        }
        claim
    }

    fn verb(&mut self) -> Verb {
        let known = self.random.pick(&self.claims).cloned();
        let holds = self.record.holds.iter().map(|hold| hold.claim);
        let holds: Vec<ClaimId> = holds.collect();
        let held = self.random.pick(&holds).copied();
        match (self.random.below(16), known, held) {
            (0..=1, Some(again), _) => Verb::Try(again),
            (2..=3, Some(again), _) => Verb::Try(Claim {
                not_after: Moment::from_nanos(self.asked() + 900_000_000),
                ..again
            }),
            (4, Some(claim), _) => Verb::Withdraw(claim.id),
            (5, Some(claim), _) => Verb::Renew(self.renewal(claim.id)),
            (6, _, Some(held)) => Verb::Renew(self.renewal(held)),
            (7, Some(claim), _) => Verb::Release(self.release(claim.id)),
            (8..=10, _, Some(held)) => Verb::Release(self.release(held)),
            (11, _, held) if self.random.one_in(8) => Verb::Break(self.break_of(held)),
            (12, ..) => Verb::Inspect,
            _ => Verb::Try(self.claim()),
        }
    }

    fn renewal(&mut self, claim: ClaimId) -> Renewal {
        Renewal {
            name: self.name.clone(),
            claim,
            lease: Duration::from_millis(self.random.below(3000)),
            not_after: Moment::from_nanos(self.asked() - 1 + 2 * self.random.below(9)),
        }
    }

    fn break_of(&mut self, held: Option<ClaimId>) -> Break {
        let mut holds = self.record.holds.iter();
        let hold = holds.find(|hold| Some(hold.claim) == held);
        let target = match (self.random.below(3), hold) {
            (0, Some(hold)) => BreakTarget::Claim(hold.claim),
            (1, Some(hold)) => {
                // Any token of its run, or the one after it.
                let at = self.random.below(u64::from(hold.grant.tokens) + 1);
                BreakTarget::Token(Token::new(hold.grant.token.get() + at))
            }
            _ => BreakTarget::All,
        };
        Break {
            name: self.name.clone(),
            target,
            reason: "a test".into(),
            not_after: Moment::from_nanos(self.asked() - 1 + 2 * self.random.below(9)),
        }
    }

    fn release(&mut self, claim: ClaimId) -> Release {
        let requeue = self.random.one_in(2).then(|| {
            let mut next = self.claim();
            next.beside = None;
            next.id.keeper = claim.keeper;
            // Later requests name the claim as it was sent.
            self.claims.pop();
            self.claims.push(next.clone());
            next
        });
        Release {
            name: self.name.clone(),
            claim,
            requeue,
        }
    }

    /// Lets time pass, and at random sets the wall clock, restarts the server, or kills a process or revives one.
    fn pass_time(&mut self) {
        self.now += match self.random.below(60) {
            0 => 6_000_000_000,
            1..=5 => self.random.below(2_000_000_000),
            _ => self.random.below(20_000_000),
        };
        // To the very end of a lease.
        if let Some(hold) = self.record.holds.first()
            && self.random.one_in(100)
        {
            self.now = self.now.max(hold.expires.as_nanos());
        }
        if self.random.one_in(200) {
            self.wall_ahead = self.random.below(20_000_000);
        }
        if self.random.one_in(500) {
            self.grants_from = self.now + 3_000_000_000;
        }
        if self.random.one_in(50) {
            let process = self.random.below(KEEPERS) as ProcessId;
            let lives = self.alive.entry(process).or_insert(true);
            *lives = !*lives;
        }
    }

    /// The time on the clock of the requests, which is not that of the leases.
    fn asked(&self) -> u64 {
        self.now / 2 + 7_000_000_000
    }

    fn step(&mut self) {
        self.pass_time();
        let verb = self.verb();
        let me = match &verb {
            Verb::Try(claim) => claim.id.keeper.to_bits() as ProcessId,
            Verb::Release(release) => release.claim.keeper.to_bits() as ProcessId,
            _ => self.random.below(KEEPERS) as ProcessId,
        };
        let lives = |process: ProcessId| Some(*self.alive.get(&process).unwrap_or(&true));
        let now = Now {
            moment: Moment::from_nanos(self.now),
            asked: Moment::from_nanos(self.asked()),
            wall_micros: self.now / 1000 + self.wall_ahead,
            may_grant: self.now >= self.grants_from,
            me,
            lives: &lives,
        };
        let step = verb.apply(&self.record, now).expect("all of it is loaded");
        let mut after = self.record.clone();
        after.commit(step.changes.clone());
        check(&self.record, &verb, &step, &after, now);
        let (answer, partial) = apply_to_partial(&self.record, &verb, now);
        assert_eq!(answer, step.answer, "{verb:?} on a partly loaded record");
        assert_eq!(partial, after, "{verb:?} on a partly loaded record");
        check_after(&after, now);
        self.record = after;
    }
}

/// The record after a store has saved changes that were made on a part of it.
fn saved(record: &Record, mut changes: Vec<Change>, now: Now<'_>) -> Record {
    let mut after = record.clone();
    for change in &mut changes {
        let Change::Enqueue(entry) = &*change else {
            continue;
        };
        let live = |old: &super::Queued| old.claim == entry.claim && old.until > now.moment;
        if record.queue.first.iter().any(live) {
            let (claim, until) = (entry.claim, entry.until);
            *change = Change::Keep { claim, until };
        }
    }
    after.commit(changes);
    after
}

/// What the verb does in a store that loads only what a rule asks for.
fn apply_to_partial(record: &Record, verb: &Verb, now: Now<'_>) -> (Outcome, Record) {
    let checked = RefCell::new(Vec::new());
    let lives = |process: ProcessId| {
        let known = checked.borrow().contains(&process);
        known.then(|| (now.lives)(process)).flatten()
    };
    let mut part = record.clone();
    part.queue.first.clear();
    part.queue.more = true;
    loop {
        let now = Now {
            lives: &lives,
            ..now
        };
        match verb.apply(&part, now) {
            Ok(step) => return (step.answer, saved(record, step.changes, now)),
            Err(Missing::Alive(process)) => checked.borrow_mut().push(process),
            Err(Missing::Queue) => {
                let loaded = part.queue.first.len();
                let next = record.queue.first.iter().skip(loaded).take(2);
                part.queue.first.extend(next.cloned());
                part.queue.more = part.queue.first.len() < record.queue.first.len();
            }
        }
    }
}

fn run(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let (mut held, mut waited) = (0_u32, 0_u32);
    for step in 0..STEPS {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulation.step()));
        assert!(caught.is_ok(), "seed {seed}, step {step}");
        held += u32::from(!simulation.record.holds.is_empty());
        waited += u32::from(!simulation.record.queue.first.is_empty());
    }
    // A run in which the lock is mostly free proves nothing.
    assert!(held > STEPS / 4 && waited > STEPS / 20, "{held} {waited}");
    // Once time has passed, nothing is stuck.
    simulation.now += 60_000_000_000;
    let lives = |_| Some(true);
    let now = Now {
        moment: Moment::from_nanos(simulation.now),
        asked: Moment::from_nanos(simulation.asked()),
        wall_micros: simulation.now / 1000,
        may_grant: true,
        me: 0,
        lives: &lives,
    };
    let step = simulation.record.inspect(now).expect("all of it is loaded");
    simulation.record.commit(step.changes);
    assert!(simulation.record.is_idle(), "{:?}", simulation.record);
}

#[test]
fn random_verbs_keep_the_rules_seed_1() {
    run(1);
}

#[test]
fn random_verbs_keep_the_rules_seed_2() {
    run(2);
}

#[test]
fn random_verbs_keep_the_rules_seed_3() {
    run(3);
}

#[test]
fn random_verbs_keep_the_rules_seed_4() {
    run(4);
}

#[test]
fn a_repeated_arrival_at_a_latch_counts_once() {
    let mut random = Random(5);
    // The count that was set, and the ids that arrived since.
    let (mut initial, mut arrived) = (0_u32, HashSet::new());
    for step in 0..STEPS {
        let id = ClaimId {
            keeper: KeeperId::from_bits(1),
            number: random.below(6),
        };
        let request = LatchRequest {
            name: Name::new("latch").expect("a name"),
            id,
            not_after: Moment::from_nanos(
                (u64::from(step) + 2 * random.below(9)).saturating_sub(1),
            ),
            op: match random.below(8) {
                0..4 => LatchOp::CountDown,
                4..6 => LatchOp::Set(random.below(5) as u32),
                6 if random.one_in(4) => LatchOp::Open,
                _ => LatchOp::Read,
            },
        };
        let late = u64::from(step) > request.not_after.as_nanos();
        let count = initial - arrived.len() as u32;
        let latch = Latch {
            count,
            arrived: arrived.contains(&id),
        };
        let (state, change) = latch.apply(&request, Moment::from_nanos(u64::from(step)));
        let want = match request.op {
            _ if late => count,
            LatchOp::Set(set) if count == 0 => set,
            LatchOp::CountDown if !arrived.contains(&id) => count.saturating_sub(1),
            LatchOp::Open => 0,
            _ => count,
        };
        assert_eq!(state.count, want, "{request:?} on {latch:?}");
        assert_eq!(state.changed, want != count, "{request:?} on {latch:?}");
        match change {
            Some(LatchChange::Set(set)) => (initial, arrived) = (set, HashSet::new()),
            Some(LatchChange::Arrive) => assert!(arrived.insert(id)),
            Some(LatchChange::Open) => (initial, arrived) = (0, HashSet::new()),
            None => {}
        }
        assert_eq!(initial - arrived.len() as u32, want, "{change:?}");
    }
}
