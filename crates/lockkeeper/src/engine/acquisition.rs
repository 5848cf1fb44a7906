//! A claim on its way to a grant, and the only loop that waits for the store: try, subscribe, sleep until there is a hint or the
//! lease or the limit ends, try again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::availability::REQUEST_WINDOW;
use super::core::Core;
use super::hold::Granted;
use super::lease::until_lost;
use super::reaper::withdraw_later;
use super::request::WaitLimit;
use crate::clock::Moment;
use crate::store::{Attempt, Claim, ClaimId, Grant, Interest, Mode, Subscription};
use crate::{Error, Label, Name};

/// The longest sleep: a lost hint costs no more. Up to a fifth is added, so that waiting processes spread.
const MAX_SLEEP: Duration = Duration::from_millis(750);
const JITTER_NANOS: u64 = 150_000_000;

/// How much of a direct grant has to be left. With less, the claim asks the store: a busy machine or server may stall for a while.
const DIRECT_LEFT: Duration = Duration::from_millis(600);

/// The store fails.
#[derive(Debug)]
struct Failure {
    since: Moment,
    error: Error,
}

/// One claim on its way to a grant. Dropped before that, it is withdrawn from the store.
#[derive(Debug)]
pub(crate) struct Acquisition {
    core: Arc<Core>,
    claim: Claim,
    /// The hold will be renewed: it may begin with a short lease.
    renewed: bool,
    subscription: Option<Subscription>,
    /// The store may know the claim: it was sent, or is queued.
    known_to_store: bool,
    /// A request with the claim has no response yet. It may reach the store after all later ones.
    in_flight: bool,
    failure: Option<Failure>,
    /// The lock is probably busy: the next try queues the claim at once.
    expects_busy: bool,
    /// The claim has just been queued: how long to wait before asking again.
    queued: Option<Duration>,
}

/// What follows a try.
enum Step {
    Return(Option<Granted>),
    /// The deadline has passed.
    TimeOut,
    TryAgain,
    /// Wait for a hint, but no longer than this.
    Sleep(Duration),
}

impl Acquisition {
    pub fn new(core: &Arc<Core>, name: Name, mode: Mode, lease: Duration) -> Acquisition {
        let claim = Claim {
            id: core.new_claim_id(),
            name,
            mode,
            lease,
            reserve: 1,
            not_after: Moment::NEVER,
            enqueue: false,
            beside: None,
            label: core.label.clone(),
        };
        Acquisition {
            core: core.clone(),
            claim,
            renewed: false,
            subscription: None,
            known_to_store: false,
            in_flight: false,
            failure: None,
            expects_busy: false,
            queued: None,
        }
    }

    /// With `busy`, the first try queues the claim at once, since the lock is probably busy.
    pub fn expecting_busy(mut self, busy: bool) -> Acquisition {
        self.expects_busy = busy;
        self
    }

    /// Says whether the hold will be renewed.
    pub fn renewed(mut self, renewed: bool) -> Acquisition {
        self.renewed = renewed;
        self
    }

    /// Uses this label instead of the keeper's, if there is one.
    pub fn labelled(mut self, label: Option<&Label>) -> Acquisition {
        if let Some(label) = label {
            self.claim.label = Some(label.clone());
        }
        self
    }

    /// Prepares the claim to be queued with a release. It is subscribed first, so that its grant is not missed.
    pub async fn prepare(&mut self, tokens: u32) -> Result<(), Error> {
        self.subscribe().await?;
        self.claim.reserve = tokens;
        self.claim.not_after = Moment::now() + REQUEST_WINDOW;
        self.claim.enqueue = true;
        self.known_to_store = true;
        self.in_flight = true;
        Ok(())
    }

    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The release that the claim was prepared for was served, and queued the claim unless it came too late.
    pub fn queued_by_release(&mut self) {
        self.in_flight = false;
        if Moment::now() <= self.claim.not_after {
            self.queued = Some(pause_before_retry(None));
        }
    }

    /// The claim was granted to a request sent at `sent`. If its lease has run out by now, there is no hold, and the claim is
    /// withdrawn.
    pub fn granted(&mut self, grant: Grant, sent: Moment) -> Result<Granted, Error> {
        if Moment::now() >= sent + until_lost(self.claim.lease) {
            self.start_over(false);
            return Err(Error::unavailable(
                self.core.store().capabilities().store,
                "its grant came when the lease was over; ask for a longer lease",
            ));
        }
        self.known_to_store = false;
        Ok(Granted {
            claim: self.claim.id,
            grant,
            sent,
            lease: self.claim.lease,
            label: self.claim.label.clone(),
        })
    }

    /// The hint may have brought the grant, so that the claim need not ask. That lease may be a short one, and began before the grant
    /// was made. Unless enough of it is left, the claim asks.
    fn granted_directly(&mut self) -> Option<Granted> {
        let direct = self.subscription.as_ref()?.granted()?;
        let lease = self.claim.lease.min(direct.lease);
        let lost = direct.sent + until_lost(lease);
        // While a request is in flight, its response counts.
        if !self.renewed || self.in_flight || lost.remaining() < DIRECT_LEFT {
            return None;
        }
        self.known_to_store = false;
        Some(Granted {
            claim: self.claim.id,
            grant: direct.grant,
            sent: direct.sent,
            lease,
            label: self.claim.label.clone(),
        })
    }

    /// Allows the claim to be granted beside a hold of the same keeper.
    pub fn beside(mut self, hold: ClaimId) -> Acquisition {
        self.claim.beside = Some(hold);
        self
    }

    /// Tries once. `None`: busy. The claim is then queued, if it was subscribed before.
    pub async fn try_once(&mut self, tokens: u32) -> Result<Option<Granted>, Error> {
        if self.expects_busy {
            // If that fails, the wait loop tries again.
            let _ = self.subscribe().await;
        }
        let sent = Moment::now();
        self.claim.reserve = tokens;
        self.claim.not_after = sent + REQUEST_WINDOW;
        self.claim.enqueue = self.subscription.is_some();
        self.known_to_store = true;
        self.in_flight = true;
        let answer = self.core.store().try_acquire(&self.claim);
        let answer = self.core.bounded(answer).await;
        self.in_flight = false;
        self.core
            .shared
            .availability
            .record(&self.claim.name, &answer);
        match answer {
            Ok(Attempt::Granted(grant)) => match self.granted(grant, sent) {
                Ok(granted) => Ok(Some(granted)),
                Err(error) => {
                    self.note(&error);
                    Err(error)
                }
            },
            Ok(Attempt::Busy { free_in }) => {
                self.known_to_store = self.claim.enqueue;
                self.failure = None;
                self.expects_busy = true;
                self.queued = self.known_to_store.then(|| pause_before_retry(free_in));
                Ok(None)
            }
            Ok(Attempt::TooLate) => {
                self.start_over(false);
                Ok(None)
            }
            Err(error) => {
                let in_doubt = matches!(error, Error::OutcomeUnknown { .. });
                self.start_over(in_doubt);
                self.note(&error);
                Err(error)
            }
        }
    }

    /// Tries once, but not past the limit: a store that is silent for longer counts as busy.
    pub async fn try_within(
        &mut self,
        limit: WaitLimit,
        tokens: u32,
    ) -> Result<Option<Granted>, Error> {
        let WaitLimit::Until(deadline) = limit else {
            return self.try_once(tokens).await;
        };
        let core = self.core.clone();
        tokio::select! {
            biased;
            answer = self.try_once(tokens) => answer,
            () = core.background.sleep_until(deadline) => Ok(None),
        }
    }

    /// Waits for the grant. `wanted` says, before each try and each sleep, how many tokens to reserve; 0 means that nobody wants the
    /// lock any more, and ends the wait like a deadline. Its argument is the store's last error. `recheck` ends a sleep.
    pub async fn run(
        &mut self,
        limit: WaitLimit,
        wanted: impl Fn(Option<&Error>) -> u32,
        recheck: &Notify,
    ) -> Result<Option<Granted>, Error> {
        let deadline = limit.deadline();
        loop {
            let pause = match self.next_step(limit, &wanted).await? {
                Step::Return(granted) => return Ok(granted),
                Step::TimeOut => return self.timed_out(),
                Step::TryAgain => continue,
                Step::Sleep(pause) => pause,
            };
            let now = Moment::now();
            if now >= deadline {
                return self.timed_out();
            }
            if wanted(self.last_error()) == 0 {
                return Ok(None);
            }
            let until = (now + pause).min(deadline);
            tokio::select! {
                () = hint(self.subscription.as_ref()) => {
                    if let Some(granted) = self.granted_directly() {
                        return Ok(Some(granted));
                    }
                }
                () = recheck.notified() => {}
                () = self.core.closed() => return Err(Error::Closed),
                () = self.core.background.sleep_until(until) => {}
            }
        }
    }

    /// Tries, unless the claim has just been queued: the store would only say so again.
    async fn next_step(
        &mut self,
        limit: WaitLimit,
        wanted: &impl Fn(Option<&Error>) -> u32,
    ) -> Result<Step, Error> {
        if let Some(pause) = self.queued.take() {
            return Ok(Step::Sleep(pause));
        }
        self.core.check_open()?;
        let tokens = wanted(self.last_error());
        if tokens == 0 {
            return Ok(Step::Return(None));
        }
        match self.try_within(limit, tokens).await {
            Ok(Some(granted)) => return Ok(Step::Return(Some(granted))),
            Ok(None) if !limit.waits() => return Ok(Step::Return(None)),
            // A try that was cut short is not followed by another.
            Ok(None) if Moment::now() >= limit.deadline() => return Ok(Step::TimeOut),
            Ok(None) if self.queued.is_some() => return Ok(Step::TryAgain),
            Ok(None) => {}
            Err(error) if !limit.waits() => return Err(error),
            Err(error) => return self.pause_after(error).map(Step::Sleep),
        }
        let core = self.core.clone();
        let subscribed = tokio::select! {
            biased;
            subscribed = self.subscribe() => subscribed,
            () = core.background.sleep_until(limit.deadline()) => return Ok(Step::TimeOut),
        };
        match subscribed {
            // A hint between the try and the subscription has been missed.
            Ok(()) => Ok(Step::TryAgain),
            Err(error) => self.pause_after(error).map(Step::Sleep),
        }
    }

    /// Notes that the store failed with this error.
    fn note(&mut self, error: &Error) -> &mut Failure {
        // Nothing is in doubt for the caller, since the next try is another claim.
        let error = error.clone().not_in_doubt();
        let before = self.failure.take();
        self.failure.insert(Failure {
            since: before.as_ref().map_or_else(Moment::now, |b| b.since),
            error,
        })
    }

    /// How long to pause before the next try. A transient error is tried again for as long as a lease, or until the time for which the
    /// store itself waits. Any other is returned.
    fn pause_after(&mut self, error: Error) -> Result<Duration, Error> {
        let failure = self.note(&error);
        let lasted = Moment::now().since(failure.since);
        let long = lasted >= self.claim.lease && self.core.store().health().ready_in.is_zero();
        if !error.is_transient() || long {
            return Err(error);
        }
        Ok((lasted / 4).clamp(Duration::from_millis(20), Duration::from_secs(1)))
    }

    /// The store's last error, unless it has worked since then.
    pub fn last_error(&self) -> Option<&Error> {
        self.failure.as_ref().map(|failure| &failure.error)
    }

    /// The limit was reached: the lock was not free, as far as is known.
    pub fn timed_out<T>(&self) -> Result<Option<T>, Error> {
        let why = self.last_error().cloned().or_else(|| self.core.not_ready());
        why.map_or(Ok(None), Err)
    }

    async fn subscribe(&mut self) -> Result<(), Error> {
        if self.subscription.is_none() {
            let interest = Interest::Claim(self.claim.name.clone(), self.claim.id);
            let answer = self.core.store().subscribe(interest);
            let answer = self.core.bounded(answer).await;
            if let Err(error) = &answer {
                self.core
                    .shared
                    .availability
                    .record_failure(&self.claim.name, error);
            }
            self.subscription = Some(answer?);
        }
        Ok(())
    }

    /// Withdraws the claim and goes on with a fresh one: an id in doubt is never tried again.
    fn start_over(&mut self, in_doubt: bool) {
        self.withdraw(in_doubt);
        self.claim.id = self.core.new_claim_id();
        self.subscription = None;
        self.queued = None;
        self.known_to_store = false;
    }

    fn withdraw(&self, in_doubt: bool) {
        let Claim {
            name, id, lease, ..
        } = &self.claim;
        withdraw_later(&self.core, name.clone(), *id, *lease, in_doubt);
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.known_to_store && !self.core.process.is_fork() {
            self.withdraw(self.in_flight);
        }
    }
}

fn pause_before_retry(free_in: Option<Duration>) -> Duration {
    let jitter = Duration::from_nanos(Moment::now().as_nanos() % JITTER_NANOS);
    let longest = MAX_SLEEP + jitter;
    // Pause even if it is free at once: the first in the queue may be slower than a busy loop.
    free_in.map_or(longest, |d| {
        (d + Duration::from_millis(1)).clamp(Duration::from_millis(2), longest)
    })
}

async fn hint(subscription: Option<&Subscription>) {
    match subscription {
        Some(subscription) => subscription.hint().await,
        None => std::future::pending().await,
    }
}
