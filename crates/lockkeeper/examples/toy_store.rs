//! A store of one's own, against the public API alone. It passes the conformance suite; see `docs/adding-a-store.md`.
//!
//! The rules of a lock are not here: [`record`](lockkeeper::store::record) has them. A store loads what is known about
//! a name, applies a rule, saves what that changed in the same atomic step, and hints those whom it concerns. The
//! `Server` below stands for a database; a real store puts its requests in place of `load` and `save`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::common::HintBoard;
use lockkeeper::store::record::{Change, Ended, Latch, LatchChange, Missing, Now, Record, Step};
use lockkeeper::store::*;
use lockkeeper::{Error, Lockkeeper, Name, url::StoreUrl};

/// A real store writes out all of them.
const CAPABILITIES: Capabilities = memory::CAPABILITIES.with_store("toy");

/// What a database would be: rows with a version, which are written only if nobody wrote meanwhile.
#[derive(Debug, Default)]
pub struct Server {
    rows: Mutex<BTreeMap<Name, (u64, Record)>>,
    latches: Mutex<HashMap<Name, (u32, HashSet<ClaimId>)>>,
    hints: HintBoard,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn load(&self, name: &Name) -> (u64, Record) {
        lock(&self.rows).get(name).cloned().unwrap_or_default()
    }

    /// Whether the row still had this version.
    fn save(&self, name: &Name, version: u64, record: &Record) -> bool {
        let mut rows = lock(&self.rows);
        let row = rows.entry(name.clone()).or_default();
        if row.0 != version {
            return false;
        }
        *row = (version + 1, record.clone());
        true
    }
}

/// A client of the server. It is also the opener of `toy:`, which is another client of the same server.
#[derive(Clone, Debug, Default)]
pub struct Toy(Arc<Server>);

impl Opener for Toy {
    fn schemes(&self) -> &[Scheme] {
        const TOY: Scheme = Scheme::new("toy", "toy:").with_capabilities(Some(CAPABILITIES));
        &[TOY]
    }
    fn open<'a>(&'a self, _: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }
}

impl Toy {
    /// Loads, applies a rule, saves, and hints. Returns the verb's answer, the record as it is now, and the time.
    fn apply<T>(
        &self,
        name: &Name,
        rule: impl Fn(&Record, Now<'_>) -> Result<Step<T>, Missing>,
    ) -> (Result<T, Error>, Record, Moment) {
        loop {
            let (version, mut record) = self.0.load(name);
            let moment = Moment::now();
            let now = Now {
                moment,
                asked: moment, // A server's clock would be another one than that of the requests.
                wall_micros: Clock::real().unix_micros(),
                may_grant: true,
                me: 0, // Only leases end holds here, so processes need no numbers.
                lives: &|_| Some(true),
            };
            let Step { answer, changes } = rule(&record, now).expect("all of it is loaded");
            record.commit(changes.clone());
            // If another client was quicker, the rule is applied to what it left.
            if !changes.is_empty() && !self.0.save(name, version, &record) {
                continue;
            }
            let granted = changes.iter().filter_map(Change::direct_grant);
            granted.for_each(|claim| self.0.hints.claim(name, claim));
            if changes.iter().any(Change::is_visible) {
                self.0.hints.name(name);
            }
            return (Ok(answer), record, now.moment);
        }
    }

    fn break_holds(&self, request: &Break) -> Result<BreakOutcome, Error> {
        let (ended, _, now) = self.apply(&request.name, |r, now| r.break_lock(request, now));
        let show = |hold: record::Hold| hold.holder(now, Process::current());
        Ok(match ended? {
            Ended::These(holds) => {
                let keepers = holds.iter().map(|hold| hold.claim.keeper);
                keepers.for_each(|keeper| self.0.hints.keeper(keeper));
                BreakOutcome::Ended(holds.into_iter().map(show).collect())
            }
            Ended::NotHeld(holds) => BreakOutcome::NotHeld(holds.into_iter().map(show).collect()),
            Ended::TooLate => BreakOutcome::TooLate,
        })
    }

    fn look(&self, name: &Name) -> Option<LockInfo> {
        let (_, record, now) = self.apply(name, Record::inspect);
        (record != Record::default()).then(|| record.info(name, now, |_| Process::current()))
    }

    fn look_all(&self, prefix: &str) -> Vec<LockInfo> {
        let names: Vec<Name> = lock(&self.0.rows).keys().cloned().collect();
        let names = names.iter().filter(|name| name.starts_with(prefix));
        let mut infos: Vec<LockInfo> = names.filter_map(|name| self.look(name)).collect();
        infos.retain(|info| !info.holders.is_empty() || info.waiters > 0);
        infos.iter_mut().for_each(|info| info.queue.clear());
        infos
    }

    fn count(&self, request: &LatchRequest) -> LatchState {
        let mut latches = lock(&self.0.latches);
        let (initial, arrived) = latches.entry(request.name.clone()).or_default();
        let latch = Latch {
            count: *initial - arrived.len() as u32,
            arrived: arrived.contains(&request.id),
        };
        let (state, change) = latch.apply(request, Moment::now());
        match change {
            Some(LatchChange::Set(count)) => (*initial, *arrived) = (count, HashSet::new()),
            Some(LatchChange::Arrive) => drop(arrived.insert(request.id)),
            Some(LatchChange::Open) => (*initial, *arrived) = (0, HashSet::new()),
            None => return state,
        }
        self.0.hints.latch(&request.name);
        state
    }
}

impl Store for Toy {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }
    fn place(&self) -> String {
        format!("{:p}", Arc::as_ptr(&self.0))
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        let name = &claim.name;
        Box::pin(async { self.apply(name, |r, now| r.try_acquire(claim, now)).0 })
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(async move { self.apply(name, |r, now| r.withdraw(claim, now)).0 })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        let renew = |one: &Renewal| self.apply(&one.name, |r, now| r.renew(one, now)).0;
        Box::pin(async move { renewals.iter().map(renew).collect() })
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        let name = &release.name;
        Box::pin(async { self.apply(name, |r, now| r.release(release, now)).0 })
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(async { Ok(self.0.hints.subscribe(interest)) })
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(async { Ok(self.look(name)) })
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(async { Ok(self.look_all(prefix)) })
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(async { self.break_holds(request) })
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(async { Ok(self.count(request)) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let toy = Lockkeeper::builder().opener(Toy::default()).url("toy:");
    let guard = toy.connect().await?.lock("report:daily")?.acquire().await?;
    println!("held under token {}", guard.token());
    guard.release().await.map(drop)
}
