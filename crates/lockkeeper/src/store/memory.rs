//! Locks among the tasks and threads of one process, and the reference model of the contract.
//!
//! The other stores are compared with this one. It is the rule book of [`record`] and little else: one
//! mutex, one record a name, and every verb applies a rule, keeps what it changes and sends hints.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::common::HintBoard;
use super::record::{Change, Ended, Hold, Latch, LatchChange, Missing, Now, Record, Step};
use super::*;
use crate::clock::Clock;

type Applied<T> = Result<Step<T>, Missing>;

/// Records without holder or waiter are kept for their last token until there are this many of them.
const IDLE_RECORDS: usize = 4096;

/// Keeps locks in this process's memory. Share it by `Arc`: keepers on one store exclude each other.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use lockkeeper::{Lockkeeper, store::memory::MemoryStore};
///
/// let store = Arc::new(MemoryStore::new());
/// let one = Lockkeeper::builder().store(store.clone()).connect().await?;
/// let two = Lockkeeper::builder().store(store).connect().await?;
/// let guard = one.lock("x")?.acquire().await?;
/// assert!(two.lock("x")?.try_acquire().await?.is_none());
/// # drop(guard);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    process: Process,
    hints: HintBoard,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    locks: BTreeMap<Name, Record>,
    latches: HashMap<Name, Arrivals>,
    /// At least every token of a forgotten record.
    floor: u64,
    idle: usize,
}

/// A latch that is not open.
#[derive(Debug)]
struct Arrivals {
    initial: u32,
    arrived: HashSet<ClaimId>,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(Clock::real())
    }

    /// An empty store on this clock.
    pub fn with_clock(clock: Clock) -> MemoryStore {
        MemoryStore {
            clock,
            process: Process::current(),
            hints: HintBoard::default(),
            state: Mutex::default(),
        }
    }

    /// Names that are held or waited for, and running subscriptions: both 0 when nothing is left behind.
    pub fn in_use(&self) -> (usize, usize) {
        let locks = self.state().locks.values().filter(|r| !r.is_idle()).count();
        (locks, self.hints.len())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now<'static> {
        let moment = self.clock.now();
        Now {
            moment,
            asked: moment,
            wall_micros: self.clock.unix_micros(),
            may_grant: true,
            me: 0,
            // What is in this memory ends with the process.
            lives: &|_| Some(true),
        }
    }

    /// Applies one rule to the record of a name, and hints those whom it concerns.
    fn apply<T>(&self, name: &Name, rule: impl FnOnce(&Record, Now<'_>) -> Applied<T>) -> T {
        self.apply_and_look(name, rule, |answer, _, _| answer)
    }

    /// The same, with a look at the record afterwards.
    fn apply_and_look<T, R>(
        &self,
        name: &Name,
        rule: impl FnOnce(&Record, Now<'_>) -> Applied<T>,
        look: impl FnOnce(T, &Record, Now<'_>) -> R,
    ) -> R {
        let now = self.now();
        let mut guard = self.state();
        let state = &mut *guard;
        let record = match state.locks.entry(name.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                state.idle += 1;
                entry.insert(Record {
                    last_token: state.floor,
                    ..Record::default()
                })
            }
        };
        let was_idle = record.is_idle();
        let Ok(step) = rule(record, now) else {
            unreachable!("all of the record is loaded");
        };
        let changed = step.changes.iter().any(Change::is_visible);
        let granted = step.changes.iter().filter_map(Change::direct_grant);
        let granted: Vec<ClaimId> = granted.collect();
        record.commit(step.changes);
        match (was_idle, record.is_idle()) {
            (true, false) => state.idle -= 1,
            (false, true) => state.idle += 1,
            _ => {}
        }
        let answer = look(step.answer, record, now);
        state.forget_idle();
        drop(guard);
        for claim in granted {
            self.hints.claim(name, claim);
        }
        if changed {
            self.hints.name(name);
        }
        answer
    }

    fn break_holds(&self, request: &Break) -> BreakOutcome {
        let rule = |record: &Record, now: Now<'_>| record.break_lock(request, now);
        let outcome = self.apply_and_look(&request.name, rule, |ended, _, now| {
            let holders = |holds: Vec<Hold>| {
                let holders = holds.iter();
                let holders = holders.map(|hold| hold.holder(now.moment, self.process.clone()));
                holders.collect()
            };
            match ended {
                Ended::These(holds) => BreakOutcome::Ended(holders(holds)),
                Ended::NotHeld(holds) => BreakOutcome::NotHeld(holders(holds)),
                Ended::TooLate => BreakOutcome::TooLate,
            }
        });
        if let BreakOutcome::Ended(ended) = &outcome {
            for holder in ended {
                self.hints.keeper(holder.claim.keeper);
            }
        }
        outcome
    }

    fn look(&self, name: &Name) -> Option<LockInfo> {
        let floor = {
            let state = self.state();
            state.locks.get(name)?;
            state.floor
        };
        self.apply_and_look(name, Record::inspect, |(), record, now| {
            // A record that a late request made and nobody ever held says nothing.
            let known = !record.is_idle() || record.broken.is_some() || record.last_token > floor;
            known.then(|| record.info(name, now.moment, |_| self.process.clone()))
        })
    }

    fn look_all(&self, prefix: &str) -> Vec<LockInfo> {
        let names: Vec<Name> = self
            .state()
            .locks
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, _)| name.clone())
            .collect();
        let infos = names.iter().filter_map(|name| self.look(name));
        infos
            .filter(|info| !info.holders.is_empty() || info.waiters > 0)
            .map(|info| LockInfo {
                queue: Vec::new(),
                ..info
            })
            .collect()
    }

    fn count(&self, request: &LatchRequest) -> LatchState {
        let now = self.clock.now();
        let mut state = self.state();
        let closed = state.latches.get(&request.name);
        let latch = closed.map_or_else(Latch::default, |closed| Latch {
            count: closed.initial - closed.arrived.len() as u32,
            arrived: closed.arrived.contains(&request.id),
        });
        let (answer, change) = latch.apply(request, now);
        match change {
            Some(LatchChange::Set(initial)) => {
                let arrived = HashSet::new();
                let closed = Arrivals { initial, arrived };
                state.latches.insert(request.name.clone(), closed);
            }
            Some(LatchChange::Arrive) => {
                let closed = state.latches.get_mut(&request.name);
                closed.map(|closed| closed.arrived.insert(request.id));
            }
            Some(LatchChange::Open) => drop(state.latches.remove(&request.name)),
            None => {}
        }
        drop(state);
        if answer.changed {
            self.hints.latch(&request.name);
        }
        answer
    }
}

impl State {
    /// Keeps memory flat: idle records go once there are many, and their tokens live on in the floor.
    fn forget_idle(&mut self) {
        if self.idle <= IDLE_RECORDS {
            return;
        }
        let floor = &mut self.floor;
        self.locks.retain(|_, record| {
            if record.is_idle() {
                *floor = (*floor).max(record.last_token);
            }
            !record.is_idle()
        });
        self.idle = 0;
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }
    fn place(&self) -> String {
        format!("{self:p}")
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(async move {
            Ok(self.apply(&claim.name, |record, now| record.try_acquire(claim, now)))
        })
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(async move {
            self.apply(name, |record, now| record.withdraw(claim, now));
            Ok(())
        })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(async move {
            let renew = |one: &Renewal| self.apply(&one.name, |record, now| record.renew(one, now));
            Ok(renewals.iter().map(renew).collect())
        })
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(async move {
            Ok(self.apply(&release.name, |record, now| record.release(release, now)))
        })
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(async move { Ok(self.hints.subscribe(interest)) })
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(async move { Ok(self.look(name)) })
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(async move { Ok(self.look_all(prefix)) })
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(async move { Ok(self.break_holds(request)) })
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(async move { Ok(self.count(request)) })
    }
}

/// What it can do.
pub const CAPABILITIES: Capabilities = Capabilities {
    store: "memory",
    reach: Reach::Process,
    fair: true,
    read_write: true,
    permits: true,
    latches: true,
    queue: true,
    fencing: Fencing::DataOrClock,
    wakeups: Wakeups::Direct,
    survives_restart: false,
    frees_dead_at_once: true,
    time: TimeAuthority::Boot,
    lease_end: LeaseEnd::ByItself,
    longest_lease: crate::MAX_LEASE,
    ends_in_time: false,
};
