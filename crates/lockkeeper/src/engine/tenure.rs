//! One owner's turn at a lock, and how it ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::Duration;

use super::arbiter::{Arbiter, Left};
use super::background::Pends;
use super::handle::Handle;
use super::hold::Hold;
use super::loss::{CAUSE_PATIENCE, Teller};
use super::parting::Parting;
use super::waiting::Contest;
use crate::clock::Moment;
use crate::guard::ReleaseOutcome;
use crate::owner::OwnerId;
use crate::store::caller::apart;
use crate::store::{Release, Released};
use crate::{Error, LossCause, Token};

/// How a tenure shares its hold with others in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seat {
    /// The hold goes from task to task.
    Handed,
    /// Several readers use the hold at once.
    Shared,
    /// The hold is this tenure's own.
    Own,
}

#[derive(Debug)]
pub(crate) struct Tenure {
    pub arbiter: Arc<Arbiter>,
    pub hold: Arc<Hold>,
    pub owner: Option<OwnerId>,
    pub token: Token,
    pub seat: Seat,
    /// Since when, if anyone wants to be told how long it took.
    pub since: Option<Moment>,
    /// Its acquire was told, so that its end is to be.
    pub announced: AtomicBool,
    /// How many entries there are. Changed only under the arbiter's mutex.
    pub depth: AtomicU32,
}

/// One entry into a tenure: what a guard is made of. Dropping it leaves in the background.
#[derive(Debug)]
pub(crate) struct Entry(Option<Handle<Tenure>>);

impl Entry {
    pub fn new(tenure: Arc<Tenure>) -> Entry {
        Entry(Some(Handle::new(tenure)))
    }

    pub fn tenure(&self) -> &Arc<Tenure> {
        match &self.0 {
            Some(tenure) => tenure,
            None => unreachable!("taken only by what consumes the entry"),
        }
    }

    /// Leaves, and waits until the store has answered.
    pub async fn leave(mut self) -> Result<ReleaseOutcome, Error> {
        self.tenure().arbiter.core.home.check()?;
        // Kept until the end: the last handle waits for what follows.
        let Some(tenure) = self.0.take() else {
            unreachable!("leave consumes the entry");
        };
        let outcome = match tenure.arbiter.leave(&tenure) {
            Left::StillHeld { depth } => Ok(ReleaseOutcome::StillHeld { depth }),
            Left::Passed => Ok(ReleaseOutcome::Released),
            Left::Lost => Err(tenure.loss().await),
            Left::Departs(departure) => departure.run().await,
        };
        tenure.let_go_later().await;
        outcome
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(tenure) = self.0.take() else {
            return;
        };
        // In a fork it is the handle that is dropped, which does nothing.
        if tenure.arbiter.core.home.is_left() {
            return;
        }
        if let Left::Departs(departure) = tenure.arbiter.leave(&tenure) {
            departure.run_later();
        }
        tenure.let_go();
    }
}

/// A hold on its way back to the store. Dropped before that, the release goes on in the background.
#[derive(Debug)]
pub(crate) struct Departure {
    arbiter: Arc<Arbiter>,
    hold: Arc<Hold>,
    parting: Option<Parting>,
    /// Whether the hold was still held when it was let go of.
    was_held: bool,
    /// Local tasks wait for the same hold: queue their next claim in the same step.
    requeue: bool,
    /// The release is on its way, and may have been done.
    in_doubt: bool,
    /// The release found that the hold was lost, and nobody else did.
    teller: Option<Teller>,
    /// What became of the release, once it is known.
    answer: Option<Answer>,
    seat: Seat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Done,
    Failed,
}

impl Departure {
    pub fn new(
        arbiter: &Arc<Arbiter>,
        mut parting: Parting,
        seat: Seat,
        requeue: bool,
    ) -> Departure {
        let hold = parting.hold.clone();
        let was_held = hold.release();
        parting.is_there = was_held;
        arbiter.core.watchdog.forget(&hold);
        // Before the release is told, also where the watchdog has not come to it yet.
        if !was_held {
            arbiter.core.shared.tell_lost(&hold);
        }
        Departure {
            arbiter: arbiter.clone(),
            hold,
            parting: Some(parting),
            was_held,
            requeue,
            answer: None,
            seat,
            in_doubt: false,
            teller: None,
        }
    }

    pub async fn run(mut self) -> Result<ReleaseOutcome, Error> {
        let arbiter = self.arbiter.clone();
        let store = arbiter.core.store();
        let mut next = None;
        let mut requeue = None;
        if self.requeue {
            let mut contest = arbiter.contest(self.hold.mode);
            // Without a subscription the grant would be missed: then let the claim queue by itself later.
            if let Ok(claim) = contest.prepare(arbiter.reserve()).await {
                requeue = Some(claim.clone());
                next = Some(contest);
            }
        }
        let release = Release {
            name: self.hold.name.clone(),
            claim: self.hold.claim,
            requeue,
        };
        let sent = Moment::now();
        self.in_doubt = true;
        let answer = arbiter.core.answer(store.release(&release)).await;
        self.in_doubt = false;
        let shared = &arbiter.core.shared;
        shared.heard(&self.hold.name, &answer);
        match answer {
            Ok(released) => {
                self.answer = Some(Answer::Done);
                // A store may have more on its way than what decides.
                arbiter.core.answered(sent);
                self.move_on(next, Some((released, sent)));
                if self.was_held && !released.was_held {
                    self.hold.was_gone();
                    self.teller = shared.lost(&self.hold);
                }
                if let Some(parting) = self.parting.take() {
                    parting.over(&shared.observers);
                }
                if self.was_held && released.was_held {
                    return Ok(ReleaseOutcome::Released);
                }
                Err(self.loss().await)
            }
            // Dropped here: the claim that was to be queued is withdrawn, and the release tried again.
            Err(error) => {
                self.answer = Some(Answer::Failed);
                if let Some(parting) = &mut self.parting {
                    parting.failed(&error, &shared.observers);
                }
                // That the lock was lost is certain, and matters more than that the store is away.
                match self.was_held {
                    true => Err(error),
                    false => Err(self.hold.lost_error()),
                }
            }
        }
    }

    /// The error of a release that found the hold lost. The loss is told when its cause is known, or may not be soon.
    async fn loss(&mut self) -> Error {
        let (arbiter, hold) = (self.arbiter.clone(), self.hold.clone());
        let mut lost = pin!(loss(&arbiter, &hold));
        let soon = arbiter
            .core
            .background
            .sleep_until(Moment::now() + CAUSE_PATIENCE);
        let known = tokio::select! {
            biased;
            lost = &mut lost => Some(lost),
            () = soon => None,
        };
        drop(self.teller.take());
        match known {
            Some(lost) => lost,
            None => lost.await,
        }
    }

    /// Runs as far as it goes without waiting, and the rest in the background.
    pub fn run_later(self) {
        let arbiter = self.arbiter.clone();
        let mut run = Box::pin(self.run());
        let mut context = Context::from_waker(Waker::noop());
        if apart(|| run.as_mut().poll(&mut context)).is_pending() {
            let leaving = arbiter.leaving();
            let background = &arbiter.core.background;
            background.spawn_pending(Pends::CleanUp, async move {
                let _ = run.await;
                drop(leaving);
            });
            arbiter.core.left_behind();
        }
    }

    fn move_on(&self, next: Option<Contest>, released: Option<(Released, Moment)>) {
        if self.seat != Seat::Handed {
            return;
        }
        let Some(mut contest) = next else {
            return self.arbiter.step_aside(Seat::Handed);
        };
        match released {
            Some((
                Released {
                    regrant: Some(grant),
                    ..
                },
                sent,
            )) => {
                if let Ok(won) = contest.won(grant, sent) {
                    return self.arbiter.granted(Seat::Handed, won);
                }
            }
            // What was not held was not let go of, and nothing was queued.
            Some((Released { was_held: true, .. }, _)) => contest.released(),
            _ => {}
        }
        self.arbiter.start_contender(Seat::Handed, contest);
    }
}

/// The error of releasing a lost hold: with its cause and who holds the lock now, as far as the store tells.
async fn loss(arbiter: &Arbiter, hold: &Hold) -> Error {
    let core = &arbiter.core;
    let info = core.answer(core.store().inspect(&hold.name)).await;
    let Ok(Some(info)) = info else {
        return hold.lost_error();
    };
    hold.explain(&info, core.store().capabilities().fencing);
    let mut others = info.holders.into_iter();
    let other = others.find(|holder| holder.claim != hold.claim);
    Error::Lost {
        name: hold.name.clone(),
        cause: hold.loss_cause(),
        now_held_by: other.map(|holder| Box::new(holder.process)),
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let teller = self.teller.take();
        if self.arbiter.core.home.is_left() {
            return std::mem::forget(teller);
        }
        if let Some(teller) = teller {
            teller.tell();
        }
        if self.answer == Some(Answer::Done) {
            return;
        }
        // Cancelled, as if the guard had been dropped.
        let leaving = match self.answer {
            None => Some(self.arbiter.leaving()),
            Some(_) => None,
        };
        let Some(mut parting) = self.parting.take() else {
            unreachable!("taken only by an answer");
        };
        parting.is_there &= !self.in_doubt;
        // A renewal may have reached the store just now. An extension lasts longer than that.
        let length = self.hold.length();
        let lease = length.max(self.hold.ends_at().remaining());
        let core = &self.arbiter.core;
        core.release_later(parting, lease, leaving);
        core.left_behind();
        self.move_on(None, None);
    }
}

impl Tenure {
    pub fn new(
        arbiter: &Arc<Arbiter>,
        hold: Arc<Hold>,
        owner: Option<OwnerId>,
        token: Token,
        seat: Seat,
    ) -> Arc<Tenure> {
        Arc::new(Tenure {
            arbiter: arbiter.clone(),
            hold,
            owner,
            token,
            seat,
            since: arbiter.core.shared.observers.time(),
            announced: AtomicBool::new(false),
            depth: AtomicU32::new(1),
        })
    }

    /// How long it lasted, if its end is to be told.
    pub fn held_until_now(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.announced.load(SeqCst))?;
        Some(Moment::now().since(since))
    }

    pub fn depth(&self) -> u32 {
        self.depth.load(SeqCst)
    }

    /// The error of what cannot go on, as the hold is lost, with what the store tells of it.
    pub async fn loss(&self) -> Error {
        loss(&self.arbiter, &self.hold).await
    }

    /// As [`loss`](Tenure::loss), but the store is asked only if it is there, and for a moment.
    pub async fn loss_soon(&self) -> Error {
        if self.hold.loss_cause() != LossCause::NotHeld {
            return self.hold.lost_error();
        }
        let background = &self.arbiter.core.background;
        tokio::select! {
            biased;
            lost = self.loss() => lost,
            () = background.sleep_until(Moment::now() + CAUSE_PATIENCE) => self.hold.lost_error(),
        }
    }

    /// The store says that the hold is gone. Returns the error of what cannot go on.
    pub async fn gone(&self) -> Error {
        self.arbiter.core.shared.gone(&self.hold);
        self.loss_soon().await
    }
}
