//! Locks among the tasks and threads of one process, and the reference model of the contract.
//!
//! The other stores are compared with this one. It is the rules of [`record`] and little else: one mutex and one record a
//! name. Each verb applies a rule to the record, commits the changes and sends hints.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::common::HintBoard;
use super::record::{Change, Ended, Hold, Latch, LatchChange, Missing, Now, Record, Step};
use super::*;
use crate::clock::Clock;

type Applied<T> = Result<Step<T>, Missing>;

/// Records without a holder or a waiter are kept, for their last token, until there are more of them than this.
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
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    locks: BTreeMap<Name, Record>,
    latches: HashMap<Name, ClosedLatch>,
    /// At least every token of a forgotten record.
    floor: u64,
    /// How many records are idle.
    idle: usize,
}

/// A latch that is not open, and the ids that have counted it down.
#[derive(Debug)]
struct ClosedLatch {
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
            contents: Mutex::default(),
        }
    }

    /// Names that are held or waited for, and running subscriptions: both 0 when nothing is left behind.
    pub fn in_use(&self) -> (usize, usize) {
        let contents = self.contents();
        let locks = contents.locks.values().filter(|r| !r.is_idle()).count();
        drop(contents);
        (locks, self.hints.len())
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now<'static> {
        let moment = self.clock.now();
        Now {
            moment,
            asked: moment,
            wall_micros: self.clock.unix_micros(),
            may_grant: true,
            me: 0,
            // A process that dies takes this memory with it.
            lives: &|_| Some(true),
        }
    }

    /// Applies one rule to the record of a name, and hints the waiters and watchers that it concerns.
    fn apply<T>(&self, name: &Name, rule: impl FnOnce(&Record, Now<'_>) -> Applied<T>) -> T {
        self.apply_and_read(name, rule, |answer, _, _| answer)
    }

    /// The same. What it returns is made by `read` from the record after the rule.
    fn apply_and_read<T, R>(
        &self,
        name: &Name,
        rule: impl FnOnce(&Record, Now<'_>) -> Applied<T>,
        read: impl FnOnce(T, &Record, Now<'_>) -> R,
    ) -> R {
        let now = self.now();
        let mut guard = self.contents();
        let contents = &mut *guard;
        let record = match contents.locks.entry(name.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                contents.idle += 1;
                entry.insert(Record {
                    last_token: contents.floor,
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
            (true, false) => contents.idle -= 1,
            (false, true) => contents.idle += 1,
            _ => {}
        }
        let answer = read(step.answer, record, now);
        contents.forget_idle();
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
        let outcome = self.apply_and_read(&request.name, rule, |ended, _, now| {
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

    fn inspect_name(&self, name: &Name) -> Option<LockInfo> {
        let floor = {
            let contents = self.contents();
            contents.locks.get(name)?;
            contents.floor
        };
        self.apply_and_read(name, Record::inspect, |(), record, now| {
            // A request that did nothing leaves an empty record.
            let known = !record.is_idle() || record.broken.is_some() || record.last_token > floor;
            known.then(|| record.info(name, now.moment, |_| self.process.clone()))
        })
    }

    fn list_names(&self, prefix: &str) -> Vec<LockInfo> {
        let names: Vec<Name> = self
            .contents()
            .locks
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, _)| name.clone())
            .collect();
        let infos = names.iter().filter_map(|name| self.inspect_name(name));
        infos
            .filter(|info| !info.holders.is_empty() || info.waiters > 0)
            .map(|info| LockInfo {
                queue: Vec::new(),
                ..info
            })
            .collect()
    }

    fn apply_to_latch(&self, request: &LatchRequest) -> LatchState {
        let now = self.clock.now();
        let mut contents = self.contents();
        let closed = contents.latches.get(&request.name);
        let latch = closed.map_or_else(Latch::default, |closed| Latch {
            count: closed.initial - closed.arrived.len() as u32,
            arrived: closed.arrived.contains(&request.id),
        });
        let (answer, change) = latch.apply(request, now);
        match change {
            Some(LatchChange::Set(initial)) => {
                let arrived = HashSet::new();
                let closed = ClosedLatch { initial, arrived };
                contents.latches.insert(request.name.clone(), closed);
            }
            Some(LatchChange::Arrive) => {
                let closed = contents.latches.get_mut(&request.name);
                closed.map(|closed| closed.arrived.insert(request.id));
            }
            Some(LatchChange::Open) => drop(contents.latches.remove(&request.name)),
            None => {}
        }
        drop(contents);
        if answer.changed {
            self.hints.latch(&request.name);
        }
        answer
    }
}

impl Contents {
    /// Removes idle records once there are many, so that memory does not grow with every name. The floor keeps their tokens.
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
        Box::pin(async move { Ok(self.inspect_name(name)) })
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(async move { Ok(self.list_names(prefix)) })
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(async move { Ok(self.break_holds(request)) })
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(async move { Ok(self.apply_to_latch(request)) })
    }
}

/// What a [`MemoryStore`] can do.
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
