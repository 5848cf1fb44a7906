//! Releases and withdrawals that nobody waits for: those of dropped guards and cancelled acquires.
//!
//! Each is tried until the store has served it, or the lease has ended there anyway. Claim ids are never used twice, so repeating a
//! request is harmless.

use std::sync::Arc;
use std::time::Duration;

use super::availability::REQUEST_WINDOW;
use super::background::PendingKind;
use super::clean_ups::CleanUp;
use super::core::Core;
use super::loss;
use super::release_report::ReleaseReport;
use super::thread_exit::note_clean_up;
use crate::clock::Moment;
use crate::store::{ClaimId, Release, Released, Store};
use crate::{Error, Name};

/// A claim to take back from the store, and how long its lease may keep it there.
struct Undo {
    verb: Verb,
    name: Name,
    claim: ClaimId,
    lease: Duration,
}

#[derive(Clone, Copy)]
enum Verb {
    Release,
    Withdraw,
}

/// Releases a hold in the background. `under_way` ends with the store's first response.
pub(super) fn release_later(
    core: &Arc<Core>,
    report: ReleaseReport,
    lease: Duration,
    under_way: Option<CleanUp>,
) {
    let undo = Undo {
        verb: Verb::Release,
        name: report.hold.name.clone(),
        claim: report.hold.claim,
        lease,
    };
    let done = {
        let core = core.clone();
        async move { undo.until_done(&core, under_way, Some(report)).await }
    };
    core.background.spawn_pending(PendingKind::CleanUp, done);
    note_clean_up(core);
}

/// Withdraws a claim in the background. `in_doubt`: its request may still be on its way to the store, so the claim is withdrawn once
/// more when the store would ignore that request.
pub(super) fn withdraw_later(
    core: &Arc<Core>,
    name: Name,
    claim: ClaimId,
    lease: Duration,
    in_doubt: bool,
) {
    let late = Moment::now() + REQUEST_WINDOW;
    let under_way = core.clean_ups.begin(&name);
    let undo = Undo {
        verb: Verb::Withdraw,
        name,
        claim,
        lease,
    };
    let done = {
        let core = core.clone();
        async move {
            undo.until_done(&core, Some(under_way), None).await;
            if in_doubt {
                let again = core.clone();
                core.background.spawn(async move {
                    again.background.sleep_until(late).await;
                    undo.until_done(&again, None, None).await;
                });
            }
        }
    };
    core.background.spawn_pending(PendingKind::CleanUp, done);
    note_clean_up(core);
}

impl Undo {
    /// Tries until the store has served it or the lease has ended. `under_way` ends with the first response.
    async fn until_done(
        &self,
        core: &Core,
        mut under_way: Option<CleanUp>,
        mut report: Option<ReleaseReport>,
    ) {
        let observers = &core.shared.observers;
        let give_up = Moment::now() + self.lease;
        let mut pause = Duration::from_millis(20);
        loop {
            let answer = core.bounded(self.once(core.store())).await;
            drop(under_way.take());
            core.shared.availability.record(&self.name, &answer);
            if let Some(report) = &mut report {
                match &answer {
                    Ok(Some(released)) if report.shows_loss(released) => {
                        report.hold.note_not_held();
                        loss::report(&core.shared, &report.hold);
                    }
                    Ok(_) => {}
                    Err(error) => report.failed(error, observers),
                }
            }
            let error = answer.err();
            if error.is_none_or(|error| !error.is_transient()) || Moment::now() >= give_up {
                if let Some(report) = report {
                    report.over(observers);
                }
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Tries once. Returns what a release found.
    async fn once(&self, store: &dyn Store) -> Result<Option<Released>, Error> {
        match self.verb {
            Verb::Withdraw => store.withdraw(&self.name, self.claim).await.map(|()| None),
            Verb::Release => {
                let release = Release {
                    name: self.name.clone(),
                    claim: self.claim,
                    requeue: None,
                };
                store.release(&release).await.map(Some)
            }
        }
    }
}
