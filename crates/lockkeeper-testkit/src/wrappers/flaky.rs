//! A store that misbehaves as networks and servers do, but never breaks the contract.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper::store::{
    Answer, Attempt, Break, BreakOutcome, Capabilities, Claim, ClaimId, Interest, LatchRequest,
    LatchState, LockInfo, Release, Released, Renewal, Renewed, Store, Subscription,
};
use lockkeeper::{Error, Name};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{Counts, Verb};
use crate::random::Random;

/// How much goes wrong: probabilities from 0 to 1, for each request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chaos {
    /// It does not arrive, and the caller knows: `Unavailable`.
    pub refuse: f64,
    /// It takes effect, and its answer is lost: `OutcomeUnknown`.
    pub lose_reply: f64,
    /// The caller is told `OutcomeUnknown` at once, and it takes effect up to `longest_delay` later.
    pub deliver_late: f64,
    /// It is delayed on its way there, and its answer on the way back.
    pub delay: f64,
    /// The longest of these delays.
    pub longest_delay: Duration,
    /// A hint is lost.
    pub lose_hint: f64,
}

impl Chaos {
    /// A bad day: a fifth of all requests goes wrong in some way.
    pub fn bad_day(longest_delay: Duration) -> Chaos {
        Chaos {
            refuse: 0.05,
            lose_reply: 0.05,
            deliver_late: 0.03,
            delay: 0.1,
            longest_delay,
            lose_hint: 0.2,
        }
    }
}

/// What [`Flaky`] did to requests and hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// See [`Chaos::refuse`].
    Refused,
    /// See [`Chaos::lose_reply`].
    ReplyLost,
    /// See [`Chaos::deliver_late`].
    DeliveredLate,
    /// See [`Chaos::delay`].
    Delayed,
    /// See [`Chaos::lose_hint`].
    HintLost,
}

/// Passes verbs on, some of the time. The same seed makes the same decisions in the same order of requests.
#[derive(Debug)]
pub struct Flaky {
    inner: Arc<dyn Store>,
    state: Arc<State>,
    counts: Counts,
}

#[derive(Debug)]
struct State {
    seed: u64,
    luck: Mutex<(Random, Chaos)>,
    broken: Mutex<Option<Error>>,
    mishaps: [AtomicU64; 5],
}

/// What will happen to one request.
struct Fate {
    mishap: Option<Mishap>,
    there: Duration,
    back: Duration,
}

impl State {
    fn fate(&self) -> Fate {
        let mut luck = self.luck.lock().unwrap_or_else(PoisonError::into_inner);
        let (random, chaos) = &mut *luck;
        let mut fate = Fate {
            mishap: None,
            there: Duration::ZERO,
            back: Duration::ZERO,
        };
        if random.chance(chaos.delay) {
            fate.there = random.between(Duration::ZERO, chaos.longest_delay);
            fate.back = random.between(Duration::ZERO, chaos.longest_delay);
            self.count(Mishap::Delayed);
        }
        if random.chance(chaos.refuse) {
            fate.mishap = Some(Mishap::Refused);
        } else if random.chance(chaos.lose_reply) {
            fate.mishap = Some(Mishap::ReplyLost);
        } else if random.chance(chaos.deliver_late) {
            fate.there = random.between(Duration::ZERO, chaos.longest_delay);
            fate.mishap = Some(Mishap::DeliveredLate);
        }
        if let Some(mishap) = fate.mishap {
            self.count(mishap);
        }
        fate
    }

    fn loses_hint(&self) -> bool {
        let mut luck = self.luck.lock().unwrap_or_else(PoisonError::into_inner);
        let (random, chaos) = &mut *luck;
        let lost = random.chance(chaos.lose_hint);
        if lost {
            self.count(Mishap::HintLost);
        }
        lost
    }

    fn count(&self, mishap: Mishap) {
        self.mishaps[mishap as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Flaky {
    /// Wraps a store. Nothing goes wrong until [`Flaky::set`] says so.
    pub fn new(inner: Arc<dyn Store>, seed: u64) -> Arc<Flaky> {
        Arc::new(Flaky {
            inner,
            state: Arc::new(State {
                seed,
                luck: Mutex::new((Random::seeded(seed), Chaos::default())),
                broken: Mutex::new(None),
                mishaps: Default::default(),
            }),
            counts: Counts::default(),
        })
    }

    /// From now on so much goes wrong.
    pub fn set(&self, chaos: Chaos) {
        let luck = self.state.luck.lock();
        luck.unwrap_or_else(PoisonError::into_inner).1 = chaos;
    }

    /// From now on every verb fails with this error and does nothing; `None` ends that.
    pub fn fail_with(&self, error: Option<Error>) {
        let broken = self.state.broken.lock();
        *broken.unwrap_or_else(PoisonError::into_inner) = error;
    }

    fn check(&self) -> Result<(), Error> {
        let broken = self.state.broken.lock();
        match &*broken.unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// What was asked so far, whether it arrived or not.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How often this happened so far.
    pub fn mishaps(&self, mishap: Mishap) -> u64 {
        self.state.mishaps[mishap as usize].load(Ordering::Relaxed)
    }

    /// The seed, to be printed with a failure.
    pub fn seed(&self) -> u64 {
        self.state.seed
    }

    fn error(&self, unknown: bool, mishap: Mishap) -> Error {
        let store = self.inner.capabilities().store;
        let reason = format!("{mishap:?} by a test (seed {})", self.state.seed);
        match unknown {
            true => Error::outcome_unknown(store, reason),
            false => Error::unavailable(store, reason),
        }
    }

    /// Sends one verb to its fate. The call owns its request, so that it can happen after the caller has gone.
    async fn send<T, F>(
        &self,
        verb: Verb,
        call: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Send + 'static,
    {
        self.counts.add(verb);
        self.check()?;
        let fate = self.state.fate();
        let call = call(self.inner.clone());
        match fate.mishap {
            Some(mishap @ Mishap::DeliveredLate) => {
                tokio::spawn(async move {
                    tokio::time::sleep(fate.there).await;
                    let _ = call.await;
                });
                Err(self.error(true, mishap))
            }
            mishap => {
                pause(fate.there).await;
                if mishap == Some(Mishap::Refused) {
                    return Err(self.error(false, Mishap::Refused));
                }
                let answer = call.await;
                pause(fate.back).await;
                match mishap {
                    Some(mishap) => Err(self.error(true, mishap)),
                    None => answer,
                }
            }
        }
    }

    /// Looking at things can fail, but not be in doubt.
    async fn look<T>(&self, verb: Verb, call: Answer<'_, T>) -> Result<T, Error> {
        self.counts.add(verb);
        self.check()?;
        let fate = self.state.fate();
        pause(fate.there).await;
        match fate.mishap {
            Some(mishap) => Err(self.error(false, mishap)),
            None => call.await,
        }
    }

    async fn subscribe_some(&self, interest: Interest) -> Result<Subscription, Error> {
        let inner = self
            .look(Verb::Subscribe, self.inner.subscribe(interest))
            .await?;
        let hints = Arc::new(Notify::new());
        let (forward, state) = (hints.clone(), self.state.clone());
        // Dropped, it ends its task.
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                inner.hint().await;
                if !state.loses_hint() {
                    forward.notify_one();
                }
            }
        });
        Ok(Subscription::new(hints, task))
    }
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Flaky {
    lockkeeper::forward!(inner: facts);
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().with_ends_in_time(false)
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        let claim = claim.clone();
        Box::pin(self.send(Verb::TryAcquire, |store| async move {
            store.try_acquire(&claim).await
        }))
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        let name = name.clone();
        Box::pin(self.send(Verb::Withdraw, move |store| async move {
            store.withdraw(&name, claim).await
        }))
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        let renewals = renewals.to_vec();
        Box::pin(self.send(
            Verb::Renew,
            |store| async move { store.renew(&renewals).await },
        ))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        let release = release.clone();
        Box::pin(self.send(Verb::Release, |store| async move {
            store.release(&release).await
        }))
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(self.subscribe_some(interest))
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(self.look(Verb::Inspect, self.inner.inspect(name)))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(self.look(Verb::List, self.inner.list(prefix)))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        let request = request.clone();
        Box::pin(self.send(Verb::BreakLock, |store| async move {
            store.break_lock(&request).await
        }))
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        let request = request.clone();
        Box::pin(self.send(
            Verb::Latch,
            |store| async move { store.latch(&request).await },
        ))
    }
}
