//! Counts what is asked of a store.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lockkeeper::Name;
use lockkeeper::store::{
    Answer, Attempt, Claim, ClaimId, Interest, Release, Released, Renewal, Renewed, Store,
    Subscription,
};
use serde::{Deserialize, Serialize};

/// How often each verb was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ops {
    pub try_acquire: u64,
    pub release: u64,
    pub withdraw: u64,
    pub subscribe: u64,
    pub renew: u64,
    /// How many holds those renewals were for.
    pub renewals: u64,
}

impl Ops {
    /// Requests that go to the store. Subscriptions are not among them: the stores that are counted so keep them in the
    /// process.
    pub fn requests(&self) -> u64 {
        self.try_acquire + self.release + self.withdraw + self.renew
    }

    fn fields(&self) -> [u64; 6] {
        let Ops {
            try_acquire,
            release,
            withdraw,
            subscribe,
            renew,
            renewals,
        } = *self;
        [try_acquire, release, withdraw, subscribe, renew, renewals]
    }

    fn each(self, other: Ops, f: impl Fn(u64, u64) -> u64) -> Ops {
        let (a, b) = (self.fields(), other.fields());
        let [try_acquire, release, withdraw, subscribe, renew, renewals] =
            std::array::from_fn(|at| f(a[at], b[at]));
        Ops {
            try_acquire,
            release,
            withdraw,
            subscribe,
            renew,
            renewals,
        }
    }
}

impl Add for Ops {
    type Output = Ops;
    fn add(self, other: Ops) -> Ops {
        self.each(other, u64::saturating_add)
    }
}

impl Sub for Ops {
    type Output = Ops;
    fn sub(self, other: Ops) -> Ops {
        self.each(other, u64::saturating_sub)
    }
}

#[derive(Debug, Default)]
struct Counters {
    try_acquire: AtomicU64,
    release: AtomicU64,
    withdraw: AtomicU64,
    subscribe: AtomicU64,
    renew: AtomicU64,
    renewals: AtomicU64,
}

/// A store that counts and forwards. Clones count together.
#[derive(Clone, Debug)]
pub struct Counting {
    store: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl Counting {
    pub fn new(store: Arc<dyn Store>) -> Counting {
        Counting {
            store,
            counters: Arc::default(),
        }
    }

    pub fn ops(&self) -> Ops {
        let counters = &self.counters;
        Ops {
            try_acquire: counters.try_acquire.load(Relaxed),
            release: counters.release.load(Relaxed),
            withdraw: counters.withdraw.load(Relaxed),
            subscribe: counters.subscribe.load(Relaxed),
            renew: counters.renew.load(Relaxed),
            renewals: counters.renewals.load(Relaxed),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[deny(clippy::missing_trait_methods)]
impl Store for Counting {
    lockkeeper::forward!(store: capabilities facts inspect list break_lock latch);
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        count(&self.counters.try_acquire);
        self.store.try_acquire(claim)
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        count(&self.counters.withdraw);
        self.store.withdraw(name, claim)
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        count(&self.counters.renew);
        let many = renewals.len() as u64;
        self.counters.renewals.fetch_add(many, Relaxed);
        self.store.renew(renewals)
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        count(&self.counters.release);
        self.store.release(release)
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        count(&self.counters.subscribe);
        self.store.subscribe(interest)
    }
}
