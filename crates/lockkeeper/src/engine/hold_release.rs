//! The release of one hold in the store. It is tried again in the background if it fails, or its caller goes away.

use std::pin::pin;
use std::sync::Arc;

use super::core::Core;
use super::hold::Hold;
use super::loss::{self, CAUSE_LIMIT, LossReport};
use super::loss_error;
use super::reaper::release_later;
use super::release_report::ReleaseReport;
use super::thread_exit::note_request;
use crate::clock::Moment;
use crate::guard::ReleaseOutcome;
use crate::store::{Claim, Release, Released};
use crate::{Error, Name};

/// A hold that is being released. Dropped before the store has confirmed the release, it is released in the background.
#[derive(Debug)]
pub(super) struct HoldRelease {
    core: Arc<Core>,
    hold: Arc<Hold>,
    /// `None` once the release has been reported.
    report: Option<ReleaseReport>,
    /// Whether it was still held when the release began.
    was_held: bool,
    progress: Progress,
    /// The release was the first to find the hold lost, and has to report that.
    loss_report: Option<LossReport>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    NotSent,
    /// The request may have been served, or will be later.
    Sent,
    Failed,
    Done,
}

impl HoldRelease {
    /// Ends the hold in this process.
    pub fn new(core: &Arc<Core>, mut report: ReleaseReport) -> HoldRelease {
        let hold = report.hold.clone();
        let was_held = hold.release();
        report.is_there = was_held;
        core.watchdog.forget(&hold);
        // Before the release is reported, even if the watchdog has not found the loss yet.
        if !was_held {
            loss::report(&core.shared, &hold);
        }
        HoldRelease {
            core: core.clone(),
            hold,
            report: Some(report),
            was_held,
            progress: Progress::NotSent,
            loss_report: None,
        }
    }

    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub fn name(&self) -> &Name {
        &self.hold.name
    }

    /// Sends the release at `sent`, which is now. The store queues the claim `requeue` in the same step.
    pub async fn send(&mut self, requeue: Option<Claim>, sent: Moment) -> Result<Released, Error> {
        let release = Release {
            name: self.hold.name.clone(),
            claim: self.hold.claim,
            requeue,
        };
        self.progress = Progress::Sent;
        let response = self.core.bounded(self.core.store().release(&release)).await;
        let shared = &self.core.shared;
        shared.availability.record(&self.hold.name, &response);
        match &response {
            Ok(_) => {
                self.progress = Progress::Done;
                // A store may go on with a request after its response.
                note_request(&self.core, sent);
            }
            Err(_) => self.progress = Progress::Failed,
        }
        response
    }

    /// Reports how the release ended, and returns it.
    pub async fn outcome(
        mut self,
        response: Result<Released, Error>,
    ) -> Result<ReleaseOutcome, Error> {
        let observers = &self.core.shared.observers;
        let released = match response {
            Ok(released) => released,
            // Dropping this value tries the release again.
            Err(error) => {
                if let Some(report) = &mut self.report {
                    report.failed(&error, observers);
                }
                // That the lock was lost is certain, and matters more than that the store is away.
                return Err(if self.was_held {
                    error
                } else {
                    self.hold.lost_error()
                });
            }
        };
        if self.was_held && !released.was_held {
            self.hold.note_not_held();
            self.loss_report = loss::begin(&self.core.shared, &self.hold);
        }
        if let Some(report) = self.report.take() {
            report.over(observers);
        }
        if self.was_held && released.was_held {
            return Ok(ReleaseOutcome::Released);
        }
        Err(self.lost().await)
    }

    /// The error of a release that found the hold lost. The loss is reported once its cause is known, or that takes too long.
    async fn lost(&mut self) -> Error {
        let (core, hold) = (self.core.clone(), self.hold.clone());
        let mut error = pin!(loss_error::inspected(&core, &hold));
        let limit = core.background.sleep_until(Moment::now() + CAUSE_LIMIT);
        let inspected = tokio::select! {
            biased;
            error = &mut error => Some(error),
            () = limit => None,
        };
        drop(self.loss_report.take());
        match inspected {
            Some(error) => error,
            None => error.await,
        }
    }
}

impl Drop for HoldRelease {
    fn drop(&mut self) {
        let loss_report = self.loss_report.take();
        if self.core.process.is_fork() {
            return std::mem::forget((loss_report, self.hold.clone()));
        }
        if let Some(loss_report) = loss_report {
            loss_report.report();
        }
        if self.progress == Progress::Done {
            return;
        }
        let Some(mut report) = self.report.take() else {
            unreachable!("reported only when the release is done");
        };
        // A try waits for the first response of the store only, which was the failure.
        let has_failed = self.progress == Progress::Failed;
        let under_way = (!has_failed).then(|| self.core.clean_ups.begin(&self.hold.name));
        report.is_there &= self.progress != Progress::Sent;
        // A renewal may have reached the store just now, and an extension lasts longer.
        let lease = self.hold.length().max(self.hold.ends_at().remaining());
        release_later(&self.core, report, lease, under_way);
    }
}
