//! A memory store that tests can tamper with.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::*;
use lockkeeper::{Error, Guard, Lockkeeper, Name};

pub const MS: fn(u64) -> Duration = Duration::from_millis;
/// Long enough that a busy machine does not lose it by accident.
pub const LEASE: Duration = Duration::from_secs(30);
/// Short, for tests that wait for its end.
pub const SHORT: Duration = Duration::from_millis(600);

/// The verbs of a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    Acquire,
    Withdraw,
    Renew,
    Release,
    Subscribe,
    Other,
}

/// What goes wrong with a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It does not reach the store.
    Refused,
    /// It takes effect, but the answer is lost.
    AnswerLost,
    /// It takes effect, and nobody ever answers.
    Silent,
    /// The store has a bug.
    Panics,
}

/// Wraps a memory store: counts verbs, makes them fail, and lets them be interrupted.
#[derive(Debug, Default)]
pub struct Tampered {
    pub inner: Arc<MemoryStore>,
    /// Whether each verb waits once before and once after it takes effect.
    interruptible: bool,
    /// The name whose part of the store does not answer renewals.
    unanswered: Mutex<Option<Name>>,
    faults: Mutex<HashMap<Verb, Fault>>,
    counts: Mutex<HashMap<Verb, u64>>,
}

impl Tampered {
    pub fn new() -> Arc<Tampered> {
        Arc::default()
    }

    pub fn interruptible(inner: Arc<MemoryStore>) -> Arc<Tampered> {
        Arc::new(Tampered {
            inner,
            interruptible: true,
            ..Tampered::default()
        })
    }

    /// From now on a verb fails, or works again.
    pub fn set(&self, verb: Verb, fault: Option<Fault>) {
        let mut faults = self.faults.lock().expect("faults");
        match fault {
            Some(fault) => faults.insert(verb, fault),
            None => faults.remove(&verb),
        };
    }

    /// From now on renewals of this name have no answer, while those of others do.
    pub fn leave_unanswered(&self, name: Option<Name>) {
        *self.unanswered.lock().expect("a name") = name;
    }

    pub fn set_all(&self, fault: Option<Fault>) {
        use Verb::*;
        for verb in [Acquire, Withdraw, Renew, Release, Subscribe, Other] {
            self.set(verb, fault);
        }
    }

    pub fn count(&self, verb: Verb) -> u64 {
        let counts = self.counts.lock().expect("counts");
        counts.get(&verb).copied().unwrap_or(0)
    }

    pub async fn keeper(self: &Arc<Tampered>, lease: Duration) -> Lockkeeper {
        let builder = Lockkeeper::builder().store(self.clone()).lease(lease);
        builder.connect().await.expect("connects")
    }

    async fn verb<T>(&self, verb: Verb, call: Answer<'_, T>) -> Result<T, Error> {
        *self.counts.lock().expect("counts").entry(verb).or_default() += 1;
        if self.interruptible {
            pause().await;
        }
        let fault = self.faults.lock().expect("faults").get(&verb).copied();
        let reason = String::from("a test");
        if fault == Some(Fault::Refused) {
            return Err(Error::unavailable("tampered", reason));
        }
        assert_ne!(fault, Some(Fault::Panics), "a test");
        let answer = call.await;
        if self.interruptible {
            pause().await;
        }
        match fault {
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::AnswerLost) => Err(Error::outcome_unknown("tampered", reason)),
            _ => answer,
        }
    }
}

/// A hold of the lock `x`.
pub async fn acquired(keeper: &Lockkeeper) -> Guard {
    let lock = keeper.lock("x").expect("a name");
    lock.acquire().await.expect("acquired")
}

/// How many wait for the lock `x`, which is held.
pub async fn waiters(keeper: &Lockkeeper) -> usize {
    let info = keeper.inspect("x").await.expect("works");
    info.expect("known").waiters
}

/// Waits once.
pub async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits until something is so, for a generous while.
pub async fn eventually(what: &str, so: impl AsyncFn() -> bool) {
    let wait = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let wait = tokio::time::timeout(Duration::from_secs(20), wait);
    assert!(wait.await.is_ok(), "never came: {what}");
}

#[deny(clippy::missing_trait_methods)]
impl Store for Tampered {
    lockkeeper::forward!(inner: facts);
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().with_ends_in_time(false)
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(self.verb(Verb::Acquire, self.inner.try_acquire(claim)))
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(self.verb(Verb::Withdraw, self.inner.withdraw(name, claim)))
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        let unanswered = self.unanswered.lock().expect("a name").clone();
        let Some(unanswered) = unanswered else {
            return Box::pin(self.verb(Verb::Renew, self.inner.renew(renewals)));
        };
        let renew = async move {
            let mut answers = Vec::new();
            for renewal in renewals {
                if renewal.name == unanswered {
                    answers.push(Renewed::Unknown)
                } else {
                    let one = std::slice::from_ref(renewal);
                    answers.extend(self.inner.renew(one).await?);
                }
            }
            Ok(answers)
        };
        Box::pin(self.verb(Verb::Renew, Box::pin(renew)))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(self.verb(Verb::Release, self.inner.release(release)))
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(self.verb(Verb::Subscribe, self.inner.subscribe(interest)))
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(self.verb(Verb::Other, self.inner.inspect(name)))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(self.verb(Verb::Other, self.inner.list(prefix)))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(self.verb(Verb::Other, self.inner.break_lock(request)))
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(self.verb(Verb::Other, self.inner.latch(request)))
    }
}
