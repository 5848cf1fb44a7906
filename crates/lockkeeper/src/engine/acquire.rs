//! One acquire, from the request to the guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;
use tokio::task::unconstrained;

use super::acquisition::Acquisition;
use super::arbiter::Arbiter;
use super::budget;
use super::local_queue::Place;
use super::local_wait::LocalWait;
use super::process_claim::{Contender, new_hold};
use super::raw_guard::RawGuard;
use super::request::AcquireRequest;
use super::sharing::Sharing;
use super::wait_report::WaitReport;
use crate::Error;
use crate::clock::Moment;

/// Acquires or re-enters a lock; `None` if it was not free within the limit.
pub(crate) async fn acquire(
    arbiter: &Arc<Arbiter>,
    request: AcquireRequest,
) -> Result<Option<RawGuard>, Error> {
    let core = &arbiter.core;
    core.check_usable()?;
    // A loop that always finds the lock free would otherwise never let other tasks run.
    budget::consume().await;
    let began = core.shared.observers.time();
    if let Some(owner) = request.owner
        && let Some(guard) = RawGuard::reenter(arbiter, owner, request.mode).await?
    {
        return Ok(Some(guard));
    }
    let report = WaitReport::new(core, &arbiter.name, &request, began);
    let acquired = unconstrained(acquire_anew(arbiter, &request, &report)).await;
    report.ends(&acquired);
    if let Ok(Some(guard)) = &acquired {
        guard.announce(began);
    }
    acquired
}

/// Acquires a lock that the owner does not hold already.
async fn acquire_anew(
    arbiter: &Arc<Arbiter>,
    request: &AcquireRequest,
    report: &WaitReport<'_>,
) -> Result<Option<RawGuard>, Error> {
    if request.wait_limit.waits() {
        return acquire_once(arbiter, request, report).await;
    }
    let clean_ups = &arbiter.core.clean_ups;
    let newest = clean_ups.newest(&arbiter.name);
    match (acquire_once(arbiter, request, report).await?, newest) {
        // It may have found a hold of this keeper whose guard was dropped just before.
        (None, Some(newest)) => {
            clean_ups.have_ended(&arbiter.name, newest).await;
            acquire_once(arbiter, request, report).await
        }
        (acquired, _) => Ok(acquired),
    }
}

/// Acquires with the process's claim if that will do, otherwise with a claim of its own.
async fn acquire_once(
    arbiter: &Arc<Arbiter>,
    request: &AcquireRequest,
    report: &WaitReport<'_>,
) -> Result<Option<RawGuard>, Error> {
    let Some(sharing) = Sharing::of(request) else {
        return with_own_claim(arbiter, request, report).await;
    };
    match arbiter.queue(sharing).line_up(request.wait_limit.waits())? {
        Place::Joined(turn) => {
            let guard = RawGuard::new(arbiter, turn, request.owner, Some(sharing));
            Ok(Some(guard))
        }
        Place::First { number, was_busy } => {
            let contender = Contender::new(arbiter, sharing);
            as_contender(arbiter, contender, number, was_busy, request, report).await
        }
        Place::Waiting { number, receiver } => {
            let wait = LocalWait::new(arbiter, sharing, request.owner, number, receiver);
            wait.turn(request.wait_limit, report).await
        }
        Place::WouldWait => Ok(None),
        Place::Unknown => with_own_claim(arbiter, request, report).await,
    }
}

/// Asks the store on behalf of the queue, without a background task. If the lock is busy, a background task goes on asking, and
/// the caller waits in the queue.
async fn as_contender(
    arbiter: &Arc<Arbiter>,
    contender: Contender,
    number: u64,
    was_busy: bool,
    request: &AcquireRequest,
    report: &WaitReport<'_>,
) -> Result<Option<RawGuard>, Error> {
    let sharing = contender.sharing();
    let limit = request.wait_limit;
    let expects_busy = was_busy && limit.waits() && arbiter.core.store().capabilities().queue;
    let tokens = if expects_busy { contender.tokens() } else { 1 };
    let mut acquisition = contender.acquisition().expecting_busy(expects_busy);
    match acquisition.try_within(limit, tokens).await {
        Ok(Some(granted)) => {
            let turn = contender.granted_to_task(&granted);
            let guard = RawGuard::new(arbiter, turn, request.owner, Some(sharing));
            return Ok(Some(guard));
        }
        Ok(None) if !limit.waits() => return Ok(None),
        Ok(None) if Moment::now() >= limit.deadline() => return acquisition.timed_out(),
        Err(error) if !limit.waits() || !error.is_transient() => return Err(error),
        Ok(None) | Err(_) => {}
    }
    let queue = arbiter.queue(sharing);
    let receiver = queue.wait_in_place(number, acquisition.last_error())?;
    let wait = LocalWait::new(arbiter, sharing, request.owner, number, receiver);
    contender.go_on_in_background(acquisition);
    wait.turn(limit, report).await
}

/// Acquires with a claim of its own. Such a claim waits in the store's queue alone.
async fn with_own_claim(
    arbiter: &Arc<Arbiter>,
    request: &AcquireRequest,
    report: &WaitReport<'_>,
) -> Result<Option<RawGuard>, Error> {
    let Arbiter { core, name, .. } = &**arbiter;
    let length = request.lease.length(core.lease);
    let renewed = request.lease.is_renewed();
    let mut acquisition = Acquisition::new(core, name.clone(), request.mode, length)
        .renewed(renewed)
        .labelled(request.label.as_ref());
    let asked = AtomicBool::new(false);
    let wanted = |_: Option<&Error>| {
        // The first call comes before the first try, which is no wait.
        if asked.swap(true, SeqCst) {
            report.begins();
        }
        1
    };
    let recheck = Notify::new();
    let granted = acquisition
        .run(request.wait_limit, wanted, &recheck)
        .await?;
    Ok(granted.map(|granted| {
        let hold = new_hold(arbiter, request.mode, &granted, length, renewed);
        RawGuard::of_own_claim(arbiter, hold, granted.grant.token, request.owner)
    }))
}
