//! The process's claim on a lock: acquired for the tasks of a [`LocalQueue`](super::local_queue::LocalQueue), shared by them, and
//! given back.

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
use crate::store::caller::apart;
use crate::store::{ClaimId, Mode, Released};

/// The right to ask the store for the tasks of a queue; one exists at a time. Dropped without a grant, it passes to a background
/// task if tasks wait.
#[derive(Debug)]
pub(super) struct Contender {
    arbiter: Arc<Arbiter>,
    sharing: Sharing,
    at_end: AtEnd,
}

/// What the end of a contender does.
#[derive(Debug)]
enum AtEnd {
    /// Another goes on, if tasks wait.
    PassOn,
    /// It ends by a panic: the tasks that wait learn that, as nothing else would tell them.
    Fail,
    /// Nothing more: the queue was told.
    Done,
}

impl Contender {
    /// Made by what the queue has named its contender.
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

    pub fn arbiter(&self) -> &Arc<Arbiter> {
        &self.arbiter
    }

    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// A claim of the process, not yet sent.
    pub fn acquisition(&self) -> Acquisition {
        let Arbiter { core, name, .. } = &*self.arbiter;
        Acquisition::new(core, name.clone(), self.sharing.mode(), core.lease).renewed(true)
    }

    /// How many tokens to ask for while tasks wait.
    pub fn tokens(&self) -> u32 {
        self.sharing.tokens(&self.arbiter.core.hand_off)
    }

    /// The store granted the claim to a task's own request. Returns the turn of that task.
    pub fn granted_to_task(mut self, granted: &Granted) -> Turn {
        match self.granted(granted, true) {
            Some(turn) => turn,
            None => unreachable!("a new hold has room for one task"),
        }
    }

    /// The store granted the claim. Returns the turn of the task that asked, if one did.
    fn granted(&mut self, granted: &Granted, by_task: bool) -> Option<Turn> {
        self.at_end = AtEnd::Done;
        let length = self.arbiter.core.lease;
        let hold = new_hold(&self.arbiter, self.sharing.mode(), granted, length, true);
        match self.queue().granted(hold.clone(), &granted.grant, by_task) {
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

    /// Goes on asking in the background.
    pub fn go_on_in_background(self, acquisition: Acquisition) {
        let core = self.arbiter.core.clone();
        // It ends with the keeper's closing, which waits until its claim has left the queue of the store.
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

    /// The claim to queue with a release, if its grant would not be missed. Without it, the claim queues by itself later.
    async fn next_claim(&self) -> Option<Acquisition> {
        let mut next = self.acquisition();
        next.prepare(self.tokens()).await.ok()?;
        Some(next)
    }

    /// The release of the process's hold has been served. `next` is the claim that it was to queue.
    fn go_on_after(mut self, released: &Released, sent: Moment, next: Option<Acquisition>) {
        let Some(mut next) = next else {
            return;
        };
        if let Some(grant) = released.regrant {
            if let Ok(granted) = next.granted(grant, sent) {
                self.granted(&granted, false);
                return;
            }
        } else if released.was_held {
            // What was not held was not let go of, and nothing was queued.
            next.queued_by_release();
        }
        self.go_on_in_background(next);
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if self.arbiter.core.process.is_fork() {
            return;
        }
        match self.at_end {
            AtEnd::PassOn => {
                if self.queue().needs_contender() {
                    let next = Contender::new(&self.arbiter, self.sharing);
                    let acquisition = next.acquisition();
                    next.go_on_in_background(acquisition);
                }
            }
            AtEnd::Fail => {
                let store = self.arbiter.core.store().capabilities().store;
                let error = Error::unavailable(store, "it panicked, which is a bug");
                self.queue().fail(&error);
            }
            AtEnd::Done => {}
        }
    }
}

/// Gives turns to tasks that waited. That of a task which no longer waits ends at once.
fn deliver(arbiter: &Arc<Arbiter>, sharing: Sharing, turns: impl IntoIterator<Item = Delivery>) {
    for turn in turns {
        if let Err(turn) = turn.send() {
            let report = ReleaseReport::new(turn.hold, turn.token, None);
            if let Left::Release(release) = end_turn(arbiter, Some(sharing), report) {
                release.run_later();
            }
        }
    }
}

/// A hold that was granted just now. `length` is that of its renewals.
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

/// What became of a hold when a guard left it.
#[derive(Debug)]
pub(super) enum Left {
    /// The owner has not left as often as it entered.
    StillHeld { depth: u32 },
    /// Others of this process go on with the hold.
    Passed,
    /// Others of this process have guards of the hold, but it is lost.
    Lost,
    /// The hold has to go back to the store.
    Release(PendingRelease),
}

/// One guard less. Decides who goes on with the hold.
pub(super) fn leave(arbiter: &Arc<Arbiter>, state: &Arc<GuardState>) -> Left {
    let depth = arbiter.owners.leave(state);
    if depth > 0 {
        return if state.hold.is_held() {
            Left::StillHeld { depth }
        } else {
            Left::Lost
        };
    }
    let held = state.held_until_now();
    let report = ReleaseReport::new(state.hold.clone(), state.token, held);
    end_turn(arbiter, state.sharing, report)
}

fn end_turn(arbiter: &Arc<Arbiter>, sharing: Option<Sharing>, report: ReleaseReport) -> Left {
    let shared = &arbiter.core.shared;
    let Some(sharing) = sharing else {
        return Left::Release(PendingRelease::of_own(arbiter, report));
    };
    match arbiter.queue(sharing).leave(&report.hold) {
        TurnEnd::InUse { is_held } => {
            if !is_held {
                loss::report(shared, &report.hold);
            }
            report.over(&shared.observers);
            if is_held { Left::Passed } else { Left::Lost }
        }
        TurnEnd::HandedOn(turn) => {
            deliver(arbiter, sharing, [turn]);
            report.over(&shared.observers);
            Left::Passed
        }
        TurnEnd::Unused(unused) => {
            let release = PendingRelease::of_queue(arbiter, sharing, report, &unused);
            Left::Release(release)
        }
    }
}

/// A hold that goes back to the store, and what follows for the tasks that wait.
#[derive(Debug)]
pub(super) struct PendingRelease {
    // Dropped in this order: the release is on its way before the next claim is.
    release: HoldRelease,
    /// Goes on for the tasks that wait for the same hold.
    contender: Option<Contender>,
    /// Queue the contender's claim in the same step.
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
        let answer = release.send(claim).await;
        if let Ok(released) = &answer
            && let Some(contender) = contender.take()
        {
            contender.go_on_after(released, sent, next);
        }
        release.outcome(answer).await
    }

    /// Runs as far as it goes without waiting, and the rest in the background.
    pub fn run_later(self) {
        let (core, name) = (self.release.core().clone(), self.release.name().clone());
        let mut run = Box::pin(self.run());
        let mut context = Context::from_waker(Waker::noop());
        if apart(|| run.as_mut().poll(&mut context)).is_pending() {
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
