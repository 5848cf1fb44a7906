//! Counts what is asked of a store: operations per acquisition are a promise too.

use std::sync::Arc;

use lockkeeper::Name;
use lockkeeper::store::{
    Answer, Attempt, Break, BreakOutcome, Claim, ClaimId, Interest, LatchRequest, LatchState,
    LockInfo, Release, Released, Renewal, Renewed, Store, Subscription,
};

use super::{Counts, Verb};

/// Passes every verb on, and counts it.
#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn Store>,
    counts: Counts,
}

impl Counting {
    /// Counts what is asked of this store.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Counting> {
        Arc::new(Counting {
            inner,
            counts: Counts::default(),
        })
    }

    /// What was asked so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    fn count(&self, verb: Verb) -> &dyn Store {
        self.counts.add(verb);
        &*self.inner
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Counting {
    lockkeeper::forward!(inner: capabilities facts);
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        self.count(Verb::TryAcquire).try_acquire(claim)
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        self.count(Verb::Withdraw).withdraw(name, claim)
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        self.count(Verb::Renew).renew(renewals)
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        self.count(Verb::Release).release(release)
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        self.count(Verb::Subscribe).subscribe(interest)
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        self.count(Verb::Inspect).inspect(name)
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        self.count(Verb::List).list(prefix)
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        self.count(Verb::BreakLock).break_lock(request)
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        self.count(Verb::Latch).latch(request)
    }
}
