//! The tasks of this process that share one claim: those that wait for it, in the order they came, and the hold that it has.
//!
//! However many tasks wait, one caller asks the store for all of them: the *contender*, which is one of the tasks or a background
//! task. No method here asks the store or waits. Each one decides under the mutex, and returns what its caller has to do next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::core::Core;
use super::hold::Hold;
use super::sharing::{SharedHold, Sharing};
use super::thread_exit::expect_clean_up;
use crate::clock::Moment;
use crate::store::{ClaimId, Grant};
use crate::{Error, Token};

/// How many tasks of one process may wait for one lock.
const MAX_WAITERS: usize = 100_000;

#[derive(Debug)]
pub(super) struct LocalQueue {
    core: Arc<Core>,
    sharing: Sharing,
    state: Mutex<State>,
    /// Has the contender check whether tasks still wait.
    recheck: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiters: BTreeMap<u64, Waiter>,
    last_number: u64,
    /// There is a contender. It takes care of the waiters.
    contended: bool,
    /// The last try found the lock busy, so the next one queues at once.
    was_busy: bool,
    /// The store's last error to the contender. A task that stops waiting returns it.
    last_error: Option<Error>,
    /// The present hold, which tasks use.
    hold: Option<SharedHold>,
}

type Waiter = oneshot::Sender<Result<Turn, Error>>;

/// Receives a turn, or the error that ends the wait.
pub(super) type Receiver = oneshot::Receiver<Result<Turn, Error>>;

/// One task's use of a hold. It has to be ended by [`LocalQueue::leave`].
#[derive(Debug)]
#[must_use]
pub(super) struct Turn {
    pub hold: Arc<Hold>,
    pub token: Token,
    /// When it began, if durations are reported.
    pub since: Option<Moment>,
}

/// A turn for a task that waits.
pub(super) struct Delivery(Waiter, Turn);

impl Delivery {
    /// Sends the turn. Returns it if the task no longer waits.
    pub fn send(self) -> Result<(), Turn> {
        let Delivery(waiter, turn) = self;
        match waiter.send(Ok(turn)) {
            Err(Ok(turn)) => Err(turn),
            _ => Ok(()),
        }
    }
}

/// Where a task stands after lining up.
pub(super) enum Place {
    /// It has joined a hold that other tasks use.
    Joined(Turn),
    /// It is the contender.
    First {
        number: u64,
        /// The lock is probably busy.
        was_busy: bool,
    },
    /// It waits behind the contender or the holder. It has to call [`LocalQueue::stop_waiting`] if it gives up.
    Waiting { number: u64, receiver: Receiver },
    /// It would have to wait, and is not ready to.
    WouldWait,
    /// Only the store knows whether it would have to wait.
    Unknown,
}

/// What a grant came to.
pub(super) enum Admitted {
    /// The first turn is that of the task that asked the store, if one did; the others are for tasks that waited.
    Turns(Option<Turn>, Vec<Delivery>),
    /// No task wants the hold any more.
    Nobody(Unused),
}

/// A hold that no task uses any more. It has to be released.
pub(super) struct Unused {
    /// The caller is now the contender.
    pub contends: bool,
    /// Tasks wait, and the store can queue their next claim together with the release.
    pub requeue: bool,
}

/// What the end of a turn came to.
pub(super) enum TurnEnd {
    /// Other tasks still use the hold.
    InUse {
        is_held: bool,
    },
    /// The next task has the hold.
    HandedOn(Delivery),
    Unused(Unused),
}

impl State {
    fn join(&mut self, number: u64) -> Result<Receiver, Error> {
        if self.waiters.len() >= MAX_WAITERS {
            return Err(Error::LimitExceeded {
                what: "tasks waiting for one lock",
                limit: MAX_WAITERS as u64,
            });
        }
        let (waiter, receiver) = oneshot::channel();
        self.waiters.insert(number, waiter);
        Ok(receiver)
    }

    /// The first waiter that has not gone away.
    fn pop_first(&mut self) -> Option<Waiter> {
        while let Some((_, waiter)) = self.waiters.pop_first() {
            if !waiter.is_closed() {
                return Some(waiter);
            }
        }
        None
    }

    /// Takes the hold out, if it is that of this claim.
    fn take_hold(&mut self, claim: ClaimId) -> Option<SharedHold> {
        self.hold.take_if(|shared| shared.hold.claim == claim)
    }

    fn contender_is_done(&mut self) {
        self.contended = false;
        self.last_error = None;
    }
}

impl LocalQueue {
    pub fn new(core: Arc<Core>, sharing: Sharing) -> LocalQueue {
        LocalQueue {
            core,
            sharing,
            state: Mutex::default(),
            recheck: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the hold, or takes the next place in the queue. The first becomes the contender.
    pub(super) fn line_up(&self, waits: bool) -> Result<Place, Error> {
        let mut state = self.state();
        if let Some(shared) = &mut state.hold
            && shared.has_room()
            && shared.may_admit(&self.core.hand_off)
            && let Some(turn) = self.admit(shared)
        {
            return Ok(Place::Joined(turn));
        }
        let in_turn = self.sharing.waits_for_local_hold();
        if !waits && !in_turn {
            return Ok(Place::Unknown);
        }
        // Under the mutex: closing sends away only the tasks that wait by then.
        self.core.check_open()?;
        state.last_number += 1;
        let number = state.last_number;
        let must_wait = state.contended || in_turn && state.hold.is_some();
        if !must_wait {
            state.contended = true;
            let was_busy = state.was_busy;
            return Ok(Place::First { number, was_busy });
        }
        if !waits {
            return Ok(Place::WouldWait);
        }
        let receiver = state.join(number)?;
        Ok(Place::Waiting { number, receiver })
    }

    /// The contender, a task, found the lock busy or the store away. It waits in the place that it has taken.
    pub(super) fn wait_in_place(
        &self,
        number: u64,
        last_error: Option<&Error>,
    ) -> Result<Receiver, Error> {
        let mut state = self.state();
        state.was_busy = true;
        state.last_error = last_error.cloned();
        state.join(number)
    }

    /// A task no longer waits. The contender rechecks whether others do.
    pub(super) fn stop_waiting(&self, number: u64) {
        let mut state = self.state();
        let waited = state.waiters.remove(&number).is_some();
        let nobody_left = state.waiters.is_empty();
        drop(state);
        if waited && nobody_left {
            expect_clean_up(&self.core);
            self.recheck.notify_one();
        }
    }

    /// The reason why a wait timed out, if it is more than a busy lock.
    pub(super) fn timeout_error(&self) -> Option<Error> {
        let (last_error, contended) = {
            let state = self.state();
            (state.last_error.clone(), state.contended)
        };
        // A contender may still wait for its first response. If a task holds the lock, the store was ready.
        last_error.or_else(|| contended.then(|| self.core.not_ready()).flatten())
    }

    /// How many tokens the contender has to reserve; 0 when no task waits any more. `last_error` is the store's.
    pub(super) fn wanted(&self, last_error: Option<&Error>) -> u32 {
        let mut state = self.state();
        state.last_error = last_error.cloned();
        if state.waiters.is_empty() {
            return 0;
        }
        self.sharing.tokens(&self.core.hand_off)
    }

    pub(super) fn recheck(&self) -> &Notify {
        &self.recheck
    }

    /// Ends the contender if no task waits. Returns whether it did.
    pub(super) fn stop_if_empty(&self) -> bool {
        let mut state = self.state();
        let is_empty = state.waiters.is_empty();
        if is_empty {
            state.contender_is_done();
        }
        is_empty
    }

    /// The contender gave up. Returns whether tasks wait, so that another has to follow.
    pub(super) fn needs_contender(&self) -> bool {
        let mut state = self.state();
        state.contended = !state.waiters.is_empty();
        state.contended
    }

    /// Ends the contender, and sends its error to all tasks that wait.
    pub(super) fn fail(&self, error: &Error) {
        let waiters = {
            let mut state = self.state();
            state.contender_is_done();
            std::mem::take(&mut state.waiters)
        };
        refuse(waiters, error);
    }

    /// Ends every wait: the keeper was closed.
    pub fn close(&self) {
        let waiters = std::mem::take(&mut self.state().waiters);
        refuse(waiters, &Error::Closed);
        self.recheck.notify_one();
    }

    /// Ends the contender with a grant, and begins turns with the new hold. `to_task`: the contender is a task, and has the first.
    pub(super) fn granted(&self, hold: Arc<Hold>, grant: &Grant, to_task: bool) -> Admitted {
        let mut state = self.state();
        state.contender_is_done();
        let mut shared = SharedHold::new(self.sharing, hold.clone(), grant);
        let mut first = None;
        if to_task {
            state.was_busy = false;
            first = self.admit(&mut shared);
        }
        let mut others = Vec::new();
        while shared.has_room()
            && let Some(waiter) = state.pop_first()
            && let Some(turn) = self.admit(&mut shared)
        {
            others.push(Delivery(waiter, turn));
        }
        if first.is_none() && others.is_empty() {
            state.contended = self.sharing.waits_for_local_hold();
            return Admitted::Nobody(Unused {
                contends: state.contended,
                requeue: false,
            });
        }
        state.hold = Some(shared);
        // After the hold is in its place, so that a loss finds it there.
        self.core.watchdog.watch(&hold);
        Admitted::Turns(first, others)
    }

    fn admit(&self, shared: &mut SharedHold) -> Option<Turn> {
        let token = shared.admit()?;
        Some(Turn {
            hold: shared.hold.clone(),
            token,
            since: self.core.shared.observers.time(),
        })
    }

    /// Ends a turn, and finds the task that goes on with the hold.
    pub(super) fn leave(&self, hold: &Hold) -> TurnEnd {
        let mut state = self.state();
        if hold.exit() > 0 {
            // Read under the mutex: after the last task's release, it is no longer held.
            let is_held = hold.is_held();
            return TurnEnd::InUse { is_held };
        }
        let in_turn = self.sharing.waits_for_local_hold();
        let Some(mut shared) = state.take_hold(hold.claim) else {
            // It was lost, or another hold has followed it. Then the queue has contended since.
            return TurnEnd::Unused(Unused {
                contends: false,
                requeue: false,
            });
        };
        if in_turn
            && shared.may_admit(&self.core.hand_off)
            && let Some(waiter) = state.pop_first()
            && let Some(turn) = self.admit(&mut shared)
        {
            state.hold = Some(shared);
            return TurnEnd::HandedOn(Delivery(waiter, turn));
        }
        state.contended |= in_turn;
        let tasks_wait = in_turn && !state.waiters.is_empty();
        TurnEnd::Unused(Unused {
            contends: in_turn,
            // Where the store has no queue, a claim would be prepared in vain.
            requeue: tasks_wait && self.core.store().capabilities().queue,
        })
    }

    /// Removes a lost hold. Returns whether the caller is now the contender.
    pub(super) fn hold_lost(&self, claim: ClaimId) -> bool {
        let mut state = self.state();
        let contends = state.take_hold(claim).is_some() && self.sharing.waits_for_local_hold();
        state.contended |= contends;
        contends
    }
}

/// Ends waits with an error.
fn refuse(waiters: BTreeMap<u64, Waiter>, error: &Error) {
    for waiter in waiters.into_values() {
        let _ = waiter.send(Err(error.clone()));
    }
}
