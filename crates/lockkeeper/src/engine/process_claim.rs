//! The process's claim on a lock: acquired for the tasks of a [`LocalQueue`], shared by them, and released.
//!
//! To acquire and to release it is one story. A release lets the next task contend, or queues its claim in the same request, and a
//! grant that nobody waits for any more is released.

use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use super::acquisition::Acquisition;
use super::arbiter::Arbiter;
use super::background::PendingKind;
use super::guard_state::GuardState;
use super::hold::{Granted, Hold, LossListener};
use super::hold_release::HoldRelease;
use super::lease::Lease;
use super::local_queue::{Admitted, Delivery, LocalQueue, Turn, TurnEnd, Unused};
use super::loss;
use super::release_report::ReleaseReport;
use super::request::WaitLimit;
use super::sharing::Sharing;
use super::thread_exit::note_clean_up;
use crate::Error;
use crate::clock::Moment;
use crate::guard::ReleaseOutcome;
use crate::store::{ClaimId, Mode, Released};

/// The right to ask the store on behalf of a queue. A queue has one at a time. Dropped without a grant, it passes to a background
/// task, if tasks wait.
#[derive(Debug)]
pub(super) struct Contender {
    arbiter: Arc<Arbiter>,
    sharing: Sharing,
    at_end: AtEnd,
}

/// What happens when a contender is dropped.
#[derive(Debug)]
enum AtEnd {
    /// Another contends, if tasks wait.
    PassOn,
    /// The tasks that wait get an error: the contender panicked.
    Fail,
    /// Nothing: the queue no longer counts on this contender.
    Done,
}

impl Contender {
    /// For the caller that the queue has made its contender.
    pub fn new(arbiter: &Arc<Arbiter>, sharing: Sharing) -> Contender {
        Contender {
            arbiter: arbiter.clone(),
            sharing,
            at_end: AtEnd::PassOn,
        }
    }

    fn queue(&self) -> &LocalQueue {
        self.arbiter.queue(self.sharing)
    }

    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// A fresh claim for the queue, not yet sent.
    pub fn acquisition(&self) -> Acquisition {
        let Arbiter { core, name, .. } = &*self.arbiter;
        Acquisition::new(core, name.clone(), self.sharing.mode(), core.lease).renewed(true)
    }

    /// How many tokens to reserve while tasks wait.
    pub fn tokens(&self) -> u32 {
        self.sharing.tokens(&self.arbiter.core.hand_off)
    }

    /// The store granted the claim that a task asked for by itself. Returns the turn of that task.
    pub fn granted_to_task(mut self, granted: &Granted) -> Turn {
        match self.granted(granted, true) {
            Some(turn) => turn,
            None => unreachable!("a new hold has room for one task"),
        }
    }

    /// The store granted the claim. Returns the turn of the task that asked, if one did.
    fn granted(&mut self, granted: &Granted, to_task: bool) -> Option<Turn> {
        self.at_end = AtEnd::Done;
        let length = self.arbiter.core.lease;
        let hold = new_hold(&self.arbiter, self.sharing.mode(), granted, length, true);
        match self.queue().granted(hold.clone(), &granted.grant, to_task) {
            Admitted::Turns(first, others) => {
                deliver(&self.arbiter, self.sharing, others);
                first
            }
            Admitted::Nobody(unused) => {
                let report = ReleaseReport::new(hold, granted.grant.token, None);
                PendingRelease::of_queue(&self.arbiter, self.sharing, report, &unused).run_later();
                None
            }
        }
    }

    /// Waits for the store in the background.
    pub fn go_on_in_background(self, acquisition: Acquisition) {
        let core = self.arbiter.core.clone();
        // Closing the keeper ends it, and waits until its claim has left the queue of the store.
        core.background
            .spawn_pending(PendingKind::Contender, self.run(acquisition));
    }

    async fn run(mut self, mut acquisition: Acquisition) {
        loop {
            self.at_end = AtEnd::Fail;
            let wanted = |last_error: Option<&Error>| self.queue().wanted(last_error);
            let recheck = self.queue().recheck();
            let ended = acquisition.run(WaitLimit::Forever, wanted, recheck).await;
            self.at_end = AtEnd::Done;
            match ended {
                Ok(Some(granted)) => {
                    self.granted(&granted, false);
                    return;
                }
                Ok(None) => {
                    if self.queue().stop_if_empty() {
                        return;
                    }
                }
                Err(error) => return self.queue().fail(&error),
            }
        }
    }

    /// Has a background task contend, if tasks wait.
    fn pass_on(&mut self) {
        self.at_end = AtEnd::Done;
        if self.queue().needs_contender() {
            let next = Contender::new(&self.arbiter, self.sharing);
            let acquisition = next.acquisition();
            next.go_on_in_background(acquisition);
        }
    }

    /// A claim to queue with a release. `None` if its grant would be missed: then a claim is queued later.
    async fn next_claim(&self) -> Option<Acquisition> {
        let mut next = self.acquisition();
        next.prepare(self.tokens()).await.ok()?;
        Some(next)
    }

    /// Goes on after the hold has been released. `next` is the claim that the release was to queue.
    fn go_on_after(mut self, released: &Released, sent: Moment, next: Option<Acquisition>) {
        let Some(mut next) = next else {
            return self.pass_on();
        };
        if let Some(grant) = released.regrant {
            if let Ok(granted) = next.granted(grant, sent) {
                self.granted(&granted, false);
                return;
            }
        } else if released.was_held {
            // A release that finds no hold queues no claim.
            next.queued_by_release();
        }
        self.go_on_in_background(next);
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        match self.at_end {
            // First, as it is the usual case: the process id costs a system call.
            AtEnd::Done => {}
            _ if self.arbiter.core.process.is_fork() => {}
            AtEnd::PassOn => self.pass_on(),
            AtEnd::Fail => {
                let store = self.arbiter.core.store().capabilities().store;
                let error = Error::unavailable(store, "it panicked, which is a bug");
                self.queue().fail(&error);
            }
        }
    }
}

/// Sends turns to tasks that wait. A turn whose task no longer waits ends at once.
fn deliver(arbiter: &Arc<Arbiter>, sharing: Sharing, turns: impl IntoIterator<Item = Delivery>) {
    for turn in turns {
        if let Err(turn) = turn.send() {
            let report = ReleaseReport::new(turn.hold, turn.token, None);
            if let LeaveOutcome::Release(release) = end_turn(arbiter, Some(sharing), report) {
                release.run_later();
            }
        }
    }
}

/// The hold of a grant. `length` is the lease that renewals ask for.
pub(super) fn new_hold(
    arbiter: &Arc<Arbiter>,
    mode: Mode,
    granted: &Granted,
    length: Duration,
    renewed: bool,
) -> Arc<Hold> {
    let lease = Lease::granted(granted.sent, granted.lease, length, renewed);
    let listener: Weak<Arbiter> = Arc::downgrade(arbiter);
    Hold::new(arbiter.name.clone(), mode, granted, lease, listener)
}

impl LossListener for Arbiter {
    fn hold_lost(self: Arc<Self>, claim: ClaimId) {
        for sharing in Sharing::ALL {
            if self.queue(sharing).hold_lost(claim) {
                drop(Contender::new(&self, sharing));
            }
        }
    }
}

/// What follows when a guard leaves its hold.
#[derive(Debug)]
pub(super) enum LeaveOutcome {
    /// The owner has more guards.
    StillHeld { depth: u32 },
    /// Other tasks of this process go on with the hold.
    HandedOn,
    /// The owner, or other tasks of this process, have more guards, but the hold is lost.
    Lost,
    /// The hold has to go back to the store.
    Release(PendingRelease),
}

/// Takes a guard away, and finds who goes on with the hold.
pub(super) fn leave(arbiter: &Arc<Arbiter>, state: &Arc<GuardState>) -> LeaveOutcome {
    let depth = arbiter.owners.leave(state);
    if depth > 0 {
        return if state.hold.is_held() {
            LeaveOutcome::StillHeld { depth }
        } else {
            LeaveOutcome::Lost
        };
    }
    let held = state.held_until_now();
    let report = ReleaseReport::new(state.hold.clone(), state.token, held);
    end_turn(arbiter, state.sharing, report)
}

/// Ends a task's turn with a hold.
fn end_turn(
    arbiter: &Arc<Arbiter>,
    sharing: Option<Sharing>,
    report: ReleaseReport,
) -> LeaveOutcome {
    let shared = &arbiter.core.shared;
    let Some(sharing) = sharing else {
        return LeaveOutcome::Release(PendingRelease::of_own(arbiter, report));
    };
    match arbiter.queue(sharing).leave(&report.hold) {
        TurnEnd::InUse { is_held } => {
            if !is_held {
                loss::report(shared, &report.hold);
            }
            report.over(&shared.observers);
            if is_held {
                LeaveOutcome::HandedOn
            } else {
                LeaveOutcome::Lost
            }
        }
        TurnEnd::HandedOn(turn) => {
            deliver(arbiter, sharing, [turn]);
            report.over(&shared.observers);
            LeaveOutcome::HandedOn
        }
        TurnEnd::Unused(unused) => {
            let release = PendingRelease::of_queue(arbiter, sharing, report, &unused);
            LeaveOutcome::Release(release)
        }
    }
}

/// The release of a hold that no task uses any more, and what follows for the tasks that wait. Dropped, it goes on in the background.
#[derive(Debug)]
pub(super) struct PendingRelease {
    // Fields are dropped in this order: the release is sent before the next claim.
    release: HoldRelease,
    /// Contends for the tasks that wait in the same queue.
    contender: Option<Contender>,
    /// Queue the contender's next claim in the same request.
    requeue: bool,
}

impl PendingRelease {
    /// The release of a hold with a claim of its own.
    pub fn of_own(arbiter: &Arc<Arbiter>, report: ReleaseReport) -> PendingRelease {
        PendingRelease {
            release: HoldRelease::new(&arbiter.core, report),
            contender: None,
            requeue: false,
        }
    }

    fn of_queue(
        arbiter: &Arc<Arbiter>,
        sharing: Sharing,
        report: ReleaseReport,
        unused: &Unused,
    ) -> PendingRelease {
        let contends = unused.contends;
        PendingRelease {
            release: HoldRelease::new(&arbiter.core, report),
            contender: contends.then(|| Contender::new(arbiter, sharing)),
            requeue: unused.requeue,
        }
    }

    pub async fn run(self) -> Result<ReleaseOutcome, Error> {
        let mut contender = self.contender;
        let mut release = self.release;
        let next = match &contender {
            Some(contender) if self.requeue => contender.next_claim().await,
            _ => None,
        };
        let sent = Moment::now();
        let claim = next.as_ref().map(|next| next.claim().clone());
        let response = release.send(claim, sent).await;
        match &response {
            Ok(released) => {
                if let Some(contender) = contender.take() {
                    contender.go_on_after(released, sent, next);
                }
            }
            // The claim is withdrawn before the release is tried again.
            Err(_) => drop(next),
        }
        release.outcome(response).await
    }

    /// Runs as far as possible without waiting, and the rest in the background.
    pub fn run_later(self) {
        let (core, name) = (self.release.core().clone(), self.release.name().clone());
        let mut run = Box::pin(self.run());
        let mut context = Context::from_waker(Waker::noop());
        if run.as_mut().poll(&mut context).is_pending() {
            let under_way = core.clean_ups.begin(&name);
            core.background
                .spawn_pending(PendingKind::CleanUp, async move {
                    let _ = run.await;
                    drop(under_way);
                });
            note_clean_up(&core);
        }
    }
}
