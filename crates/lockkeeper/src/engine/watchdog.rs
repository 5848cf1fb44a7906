//! One renewal loop a keeper: earliest deadline first, in batches, on the keeper's own thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::background::LONGEST_SLEEP;
use super::hold::Hold;
use super::loss;
use super::shared::Shared;
use crate::clock::Moment;
use crate::store::{Interest, KeeperId, Renewal, Renewed, Subscription};

/// How far ahead to look for holds that can be renewed together with one that is due. The lease decides how early one may be renewed.
const AHEAD: Duration = Duration::from_secs(10);
/// How many holds to examine for that.
const AHEAD_HOLDS: usize = 1024;
/// How many holds one request renews at most. A longer request would delay those of others in the store.
const BATCH: usize = 256;
/// How long the loop sleeps when nothing is held. A lock whose first renewal is further away does not wake it, so an ordinary
/// acquire wakes no thread.
const IDLE_SLEEP: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    schedule: Mutex<Schedule>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Schedule {
    /// When to check each hold. The number of the claim makes the key unique.
    holds: BTreeMap<(Moment, u64), Arc<Hold>>,
    /// When the loop wakes by itself.
    next_wake: Option<Moment>,
}

impl Watchdog {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews a hold from now on.
    pub fn watch(&self, hold: &Arc<Hold>) {
        self.reschedule(hold);
    }

    /// Renews a hold no more.
    pub fn forget(&self, hold: &Hold) {
        let mut schedule = self.schedule();
        if let Some(at) = hold.take_check() {
            schedule.holds.remove(&(at, hold.claim.number));
        }
    }

    /// Schedules the next check, after the lease has changed.
    pub fn reschedule(&self, hold: &Arc<Hold>) {
        let mut schedule = self.schedule();
        if let Some(at) = hold.take_check() {
            schedule.holds.remove(&(at, hold.claim.number));
        }
        let Some(at) = hold.next_due() else {
            return;
        };
        hold.set_check(at);
        schedule.holds.insert((at, hold.claim.number), hold.clone());
        let wake = schedule.next_wake.is_none_or(|next| at < next);
        drop(schedule);
        if wake {
            self.wake.notify_one();
        }
    }

    /// The loop. Runs until its runtime ends.
    pub async fn run(self: Arc<Self>, shared: Arc<Shared>) {
        loop {
            let due = self.take_due();
            if due.is_empty() {
                self.sleep().await;
                continue;
            }
            let now = Moment::now();
            let mut renewals = Vec::new();
            for hold in due {
                let due = hold.due(now);
                if due.lost {
                    loss::report(&shared, &hold);
                    continue;
                }
                if due.at_risk {
                    hold.report_at_risk(&shared.observers);
                }
                if due.renew {
                    renewals.push(hold.clone());
                }
                self.reschedule(&hold);
            }
            if !renewals.is_empty() {
                // In a task of its own: a silent store must not delay what is due next.
                tokio::spawn(self.clone().renew(shared.clone(), renewals));
                tokio::task::yield_now().await;
            }
        }
    }

    /// Checks every hold when the store hints that one was broken, instead of at its next renewal.
    pub async fn notice_breaks(
        self: Arc<Self>,
        shared: Arc<Shared>,
        keeper: KeeperId,
        mut breaks: Option<Subscription>,
    ) {
        let breaks = loop {
            match breaks {
                Some(breaks) => break breaks,
                // Until the subscription succeeds, a break is noticed at the next renewal.
                None => tokio::time::sleep(LONGEST_SLEEP).await,
            }
            breaks = shared.store.subscribe(Interest::Keeper(keeper)).await.ok();
        };
        loop {
            breaks.hint().await;
            // The hint is not repeated, so the check is.
            while !self.check_for_breaks(&shared).await {
                tokio::time::sleep(LONGEST_SLEEP).await;
            }
        }
    }

    /// Asks the store whether it still has every hold. `false`: it did not say so of all.
    async fn check_for_breaks(&self, shared: &Arc<Shared>) -> bool {
        let mut all = true;
        let holds: Vec<_> = self.schedule().holds.values().cloned().collect();
        for holds in holds.chunks(BATCH) {
            let queries = holds.iter().map(|hold| hold.existence_query());
            let queries: Vec<Renewal> = queries.collect();
            let Ok(answers) = shared.store.renew(&queries).await else {
                return false;
            };
            for (hold, answer) in holds.iter().zip(answers) {
                match answer {
                    Renewed::NotHeld => loss::report_not_held(shared, hold),
                    Renewed::Unknown | Renewed::TooLate => all = false,
                    Renewed::Renewed => {}
                }
            }
            tokio::task::yield_now().await;
        }
        all
    }

    async fn sleep(&self) {
        let now = Moment::now();
        let until = {
            let mut schedule = self.schedule();
            let first = schedule.holds.keys().next().map(|(at, _)| *at);
            let until = first.map_or(now + IDLE_SLEEP, |at| at.min(now + LONGEST_SLEEP));
            schedule.next_wake = Some(until);
            until
        };
        tokio::select! {
            () = self.wake.notified() => {}
            () = tokio::time::sleep(until.since(now)) => {}
        }
    }

    /// Takes the holds that are due, and those that can be renewed in the same request. Empty while none is due.
    fn take_due(&self) -> Vec<Arc<Hold>> {
        let mut schedule = self.schedule();
        let now = Moment::now();
        if schedule.holds.keys().next().is_none_or(|(at, _)| *at > now) {
            return Vec::new();
        }
        let soon = schedule.holds.range(..(now + AHEAD, 0)).take(AHEAD_HOLDS);
        let due = soon.filter(|((at, _), hold)| *at <= now || hold.may_renew(now));
        let keys: Vec<_> = due.take(BATCH).map(|(key, _)| *key).collect();
        let due = keys.iter().filter_map(|key| schedule.holds.remove(key));
        due.inspect(|hold| {
            hold.take_check();
        })
        .collect()
    }

    async fn renew(self: Arc<Self>, shared: Arc<Shared>, holds: Vec<Arc<Hold>>) {
        let renewals: Vec<Renewal> = holds.iter().map(|hold| hold.renewal()).collect();
        let sent = Moment::now();
        // A response after the nearest deadline is of no use, and there has to be time for another try.
        let deadline = holds.iter().map(|hold| hold.deadline()).min();
        let limit = deadline.map_or(Duration::ZERO, |at| at.since(sent) / 2);
        let answer = tokio::time::timeout(
            limit.max(Duration::from_millis(20)),
            shared.store.renew(&renewals),
        );
        let kind = shared.store.capabilities().store;
        let unavailable = |reason: &str| crate::Error::unavailable(kind, reason);
        let silent = || match shared.store.embedded().and_then(|store| store.obstacle()) {
            Some(obstacle) => unavailable(&obstacle),
            None => unavailable("it did not answer a renewal in time"),
        };
        let answer = answer.await.unwrap_or_else(|_| Err(silent()));
        // A response that leaves some of them open says nothing of the store as a whole.
        let complete = |answers: &Vec<Renewed>| answers.iter().all(|one| *one != Renewed::Unknown);
        if let Some(hold) = holds.first()
            && answer.as_ref().map_or(true, complete)
        {
            shared.availability.record(&hold.name, &answer);
        }
        let now = Moment::now();
        match answer {
            Ok(answers) => {
                for (hold, answer) in holds.iter().zip(answers) {
                    match answer {
                        Renewed::Renewed => hold.renewed(sent),
                        Renewed::NotHeld => loss::report_not_held(&shared, hold),
                        Renewed::Unknown => hold.renewal_failed(now, &silent(), &shared.observers),
                        // After the deadline the next check finds it lost.
                        Renewed::TooLate => {
                            let late = unavailable("a renewal reached it too late to count");
                            hold.renewal_failed(now, &late, &shared.observers);
                        }
                    }
                }
            }
            Err(error) => {
                for hold in &holds {
                    hold.renewal_failed(now, &error, &shared.observers);
                }
            }
        }
        for hold in &holds {
            self.reschedule(hold);
        }
    }
}
