//! Locks among the tasks and threads of one process, and the reference model of the contract.
//!
//! The other stores are compared with this one, so it is written to be read: one mutex, one record a name,
//! and every verb is "settle what time has changed, then apply the rule".

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::hints::HintBoard;
use super::*;
use crate::Token;
use crate::clock::{Clock, Moment};
use crate::token::next_run;

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
    latches: HashMap<Name, LatchRecord>,
    /// At least every token of a forgotten record.
    floor: u64,
    idle: usize,
}

#[derive(Debug, Default)]
struct Record {
    holds: Vec<Hold>,
    queue: VecDeque<Queued>,
    /// Claims granted from the queue by the verb under way, to be hinted after it.
    granted: Vec<ClaimId>,
    /// The verb under way changed who holds or waits.
    changed: bool,
    last_token: u64,
    broken: Option<Broken>,
}

#[derive(Debug)]
struct Hold {
    claim: ClaimId,
    mode: Mode,
    grant: Grant,
    expires: Moment,
    since_micros: u64,
}

#[derive(Debug)]
struct Queued {
    claim: ClaimId,
    mode: Mode,
    lease: Duration,
    reserve: u32,
    /// Past this the waiter counts as gone.
    until: Moment,
}

#[derive(Debug)]
struct LatchRecord {
    initial: u32,
    arrived: HashSet<ClaimId>,
}

impl LatchRecord {
    fn count(&self) -> u32 {
        self.initial - self.arrived.len() as u32
    }
}

/// The time of one verb.
#[derive(Clone, Copy)]
struct Now {
    moment: Moment,
    micros: u64,
}

impl Record {
    /// Ends what time has ended, then makes the head of the queue the holder for as long as it fits.
    fn settle(&mut self, now: Now) {
        self.end(|hold| hold.expires <= now.moment);
        self.leave_queue(|queued| queued.until <= now.moment);
        while let Some(head) = self.queue.front() {
            if !head.mode.admits(self.holds.iter().map(|hold| hold.mode)) {
                break;
            }
            let Some(head) = self.queue.pop_front() else {
                break;
            };
            self.grant(
                head.claim,
                head.mode,
                head.reserve,
                head.lease.min(GRANT_LEASE),
                now,
            );
            self.granted.push(head.claim);
        }
    }

    fn grant(
        &mut self,
        claim: ClaimId,
        mode: Mode,
        reserve: u32,
        lease: Duration,
        now: Now,
    ) -> Grant {
        let (token, tokens) = next_run(self.last_token, now.micros, reserve);
        self.last_token = token + u64::from(tokens) - 1;
        let grant = Grant {
            token: Token::new(token),
            tokens,
        };
        self.changed = true;
        self.holds.push(Hold {
            claim,
            mode,
            grant,
            expires: now.moment + lease,
            since_micros: now.micros,
        });
        grant
    }

    /// A hold goes on for at least `lease` from now.
    fn prolong(&mut self, claim: ClaimId, lease: Duration, now: Now) -> Option<Grant> {
        let hold = self.holds.iter_mut().find(|hold| hold.claim == claim)?;
        hold.expires = hold.expires.max(now.moment + lease);
        Some(hold.grant)
    }

    /// Puts a claim at the end of the queue, or keeps its place.
    fn enqueue(&mut self, claim: &Claim, now: Now) {
        let until = now.moment + QUEUE_TTL;
        match self.queue.iter_mut().find(|q| q.claim == claim.id) {
            Some(queued) => queued.until = until,
            None => {
                self.changed = true;
                self.queue.push_back(Queued {
                    claim: claim.id,
                    mode: claim.mode,
                    lease: claim.lease,
                    reserve: claim.reserve,
                    until,
                });
            }
        }
    }

    /// Ends the holds that match; answers whether there were any.
    fn end(&mut self, ends: impl Fn(&Hold) -> bool) -> bool {
        let before = self.holds.len();
        self.holds.retain(|hold| !ends(hold));
        let ended = self.holds.len() < before;
        self.changed |= ended;
        ended
    }

    fn leave_queue(&mut self, leaves: impl Fn(&Queued) -> bool) {
        let before = self.queue.len();
        self.queue.retain(|queued| !leaves(queued));
        self.changed |= self.queue.len() < before;
    }

    fn is_idle(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty()
    }
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

    fn now(&self) -> Now {
        Now {
            moment: self.clock.now(),
            micros: self.clock.unix_micros(),
        }
    }

    /// Runs one verb on the settled record of a name, settles again, and sends the hints of both.
    fn on_record<T>(&self, name: &Name, verb: impl FnOnce(&mut Record, Now) -> T) -> T {
        let now = self.now();
        let mut guard = self.state();
        let state = &mut *guard;
        if !state.locks.contains_key(name) {
            let last_token = state.floor;
            state.locks.insert(
                name.clone(),
                Record {
                    last_token,
                    ..Record::default()
                },
            );
            state.idle += 1;
        }
        let Some(record) = state.locks.get_mut(name) else {
            unreachable!("inserted above");
        };
        let was_idle = record.is_idle();
        record.settle(now);
        let answer = verb(record, now);
        record.settle(now);
        let granted = std::mem::take(&mut record.granted);
        let changed = std::mem::take(&mut record.changed);
        match (was_idle, record.is_idle()) {
            (true, false) => state.idle -= 1,
            (false, true) => state.idle += 1,
            _ => {}
        }
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

    fn describe(&self, name: &Name, record: &Record, now: Now) -> LockInfo {
        let holders = record
            .holds
            .iter()
            .map(|hold| self.holder(hold, now))
            .collect();
        LockInfo {
            name: name.clone(),
            holders,
            waiters: record.queue.len(),
            last_token: (record.last_token > 0).then(|| Token::new(record.last_token)),
            broken: record.broken.clone(),
        }
    }

    fn holder(&self, hold: &Hold, now: Now) -> Holder {
        Holder {
            claim: hold.claim,
            process: self.process.clone(),
            mode: hold.mode,
            token: hold.grant.token,
            since: wall(hold.since_micros),
            remaining: hold.expires.since(now.moment),
            depth: None,
        }
    }

    fn acquire(&self, claim: &Claim) -> Attempt {
        self.on_record(&claim.name, |record, now| {
            if now.moment > claim.not_after {
                return Attempt::TooLate;
            }
            if let Some(grant) = record.prolong(claim.id, claim.lease, now) {
                return Attempt::Granted(grant);
            }
            let beside = claim.beside.filter(|&beside| {
                let own = beside.keeper == claim.id.keeper && claim.mode == Mode::Read;
                let hold = record.holds.iter().find(|hold| hold.claim == beside);
                own && hold.is_some_and(|hold| hold.mode.is_exclusive())
            });
            let others = record
                .holds
                .iter()
                .filter(|hold| Some(hold.claim) != beside);
            // Settled: a queue that is not empty has a live head that goes first.
            let first = record.queue.is_empty() || beside.is_some();
            if first && claim.mode.admits(others.map(|hold| hold.mode)) {
                let grant = record.grant(claim.id, claim.mode, claim.reserve, claim.lease, now);
                return Attempt::Granted(grant);
            }
            if claim.enqueue && claim.beside.is_none() && claim.mode.admits([]) {
                record.enqueue(claim, now);
            }
            let first_end = record.holds.iter().map(|hold| hold.expires).min();
            Attempt::Busy {
                free_in: first_end.map(|end| end.since(now.moment)),
            }
        })
    }

    fn let_go(&self, release: &Release) -> Released {
        self.on_record(&release.name, |record, now| {
            let was_held = record.end(|hold| hold.claim == release.claim);
            let mut regrant = None;
            if let (true, Some(next)) = (was_held, &release.requeue)
                && now.moment <= next.not_after
                && next.mode.admits([])
            {
                record.enqueue(next, now);
                record.settle(now);
                regrant = record.prolong(next.id, next.lease, now);
            }
            Released { was_held, regrant }
        })
    }

    fn leave(&self, name: &Name, claim: ClaimId) {
        self.on_record(name, |record, _| {
            record.leave_queue(|queued| queued.claim == claim);
            record.end(|hold| hold.claim == claim);
        });
    }

    fn prolong(&self, renewal: &Renewal) -> Renewed {
        self.on_record(&renewal.name, |record, now| {
            if now.moment > renewal.not_after {
                return Renewed::TooLate;
            }
            match record.prolong(renewal.claim, renewal.lease, now) {
                Some(_) => Renewed::Renewed,
                None => Renewed::NotHeld,
            }
        })
    }

    fn break_holds(&self, request: &Break) -> BreakOutcome {
        let outcome = self.on_record(&request.name, |record, now| {
            if now.moment > request.not_after {
                return BreakOutcome::TooLate;
            }
            let means = |hold: &Hold| request.target.means(hold.claim, hold.grant);
            let holders = |holds: Vec<&Hold>| {
                let holds = holds.into_iter();
                holds.map(|hold| self.holder(hold, now)).collect()
            };
            let ended: Vec<&Hold> = record.holds.iter().filter(|hold| means(hold)).collect();
            if ended.is_empty() && request.target != BreakTarget::All {
                return BreakOutcome::NotHeld(holders(record.holds.iter().collect()));
            }
            let ended = holders(ended);
            record.end(means);
            record.changed = true;
            record.last_token = next_run(record.last_token, now.micros, 1).0;
            record.broken = Some(Broken {
                reason: request.reason.clone(),
                at: wall(now.micros),
            });
            BreakOutcome::Ended(ended)
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
        self.on_record(name, |record, now| {
            // A record that a late request made and nobody ever held says nothing.
            let known = !record.is_idle() || record.broken.is_some() || record.last_token > floor;
            known.then(|| self.describe(name, record, now))
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
            .collect()
    }

    fn count(&self, request: &LatchRequest) -> LatchState {
        let mut state = self.state();
        let late = self.clock.now() > request.not_after;
        let count = state
            .latches
            .get(&request.name)
            .map_or(0, LatchRecord::count);
        let answer = match request.op {
            LatchOp::Set(initial) if !late && count == 0 && initial > 0 => {
                let arrived = HashSet::new();
                let name = request.name.clone();
                state.latches.insert(name, LatchRecord { initial, arrived });
                LatchState {
                    count: initial,
                    changed: true,
                }
            }
            LatchOp::CountDown if !late && count > 0 => {
                let latch = state.latches.get_mut(&request.name);
                let changed = latch.is_some_and(|latch| latch.arrived.insert(request.id));
                LatchState {
                    count: count - u32::from(changed),
                    changed,
                }
            }
            LatchOp::Open if !late && count > 0 => LatchState {
                count: 0,
                changed: true,
            },
            _ => LatchState {
                count,
                changed: false,
            },
        };
        if answer.count == 0 {
            state.latches.remove(&request.name);
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

fn wall(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(async move { Ok(self.acquire(claim)) })
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(async move {
            self.leave(name, claim);
            Ok(())
        })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(async move { Ok(renewals.iter().map(|r| self.prolong(r)).collect()) })
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(async move { Ok(self.let_go(release)) })
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

pub(super) const CAPABILITIES: Capabilities = Capabilities {
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
};
