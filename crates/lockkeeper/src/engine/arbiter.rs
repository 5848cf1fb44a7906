//! Which task of this process has the lock: order, hand-off, sharing and re-entry.
//!
//! A plain lock is held in the store by one claim of the process, and handed from task to task here
//! (*hand-off*), bounded by count and time; however many tasks wait, one claim contends. Readers share one
//! hold in the same way. Everything else (fair locks, fixed or unusual leases, labels that are not the keeper's, writers,
//! permits) has a claim of its own and only passes through.
//!
//! Here are the door, re-entry and claims of their own; [`lineup`] has turns with the process's claim, and who contends
//! for it; [`handoff`] who goes on with a hold; [`leaving`] what is on its way out.

mod handoff;
mod leaving;
mod lineup;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::unconstrained;

use super::Core;
use super::hold::Hold;
use super::lease::Lease;
use super::line::{Line, refuse};
use super::reign::{Open, Reign};
use super::tenure::{Entry, Seat, Tenure};
use super::turns::take_turns;
use super::wait::Wait;
use super::waiting::{Contest, Patience, Won};
use super::wish::{Terms, Wish};
use crate::clock::Moment;
use crate::owner::OwnerId;
use crate::store::{ClaimId, Mode};
use crate::under_way::UnderWay;
use crate::{Error, Event, Name, Token};

pub(crate) use handoff::Left;
pub(crate) use leaving::Leaving;

/// How often one owner may re-enter a lock.
const MAX_DEPTH: u32 = 65_535;

#[derive(Debug)]
pub(crate) struct Arbiter {
    pub core: Arc<Core>,
    pub name: Name,
    state: Mutex<State>,
    /// Makes the contender of a line see whether anyone still waits.
    look_handed: Notify,
    look_shared: Notify,
    /// Something has left the store.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    handed: Line,
    shared: Line,
    /// The hold that is handed from task to task.
    reign: Option<Reign>,
    /// The read hold that new readers may join.
    open: Option<Open>,
    /// Tenures whose owner may re-enter.
    owned: Vec<Arc<Tenure>>,
    /// What is on its way out of the store.
    leavings: UnderWay,
}

impl State {
    fn line(&mut self, seat: Seat) -> &mut Line {
        match seat {
            Seat::Shared => &mut self.shared,
            Seat::Handed | Seat::Own => &mut self.handed,
        }
    }
}

impl Arbiter {
    pub fn new(core: Arc<Core>, name: Name) -> Arbiter {
        Arbiter {
            core,
            name,
            state: Mutex::default(),
            look_handed: Notify::new(),
            look_shared: Notify::new(),
            left: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires, re-enters, or answers `None` when patience ran out.
    pub async fn acquire(self: &Arc<Self>, wish: Wish) -> Result<Option<Entry>, Error> {
        self.core.check_usable()?;
        // A loop that always finds the lock free would otherwise never let other tasks run.
        take_turns().await;
        let began = self.core.shared.observers.time();
        if let Some(owner) = wish.owner
            && let Some(entry) = self.reenter(owner, wish.mode).await?
        {
            return Ok(Some(entry));
        }
        let leaving = match wish.patience {
            Patience::None => self.last_leaving(),
            _ => None,
        };
        let wait = Wait::new(self, &wish, began);
        let taken = unconstrained(async {
            match (self.take(&wish, &wait).await?, leaving) {
                (None, Some(last)) => {
                    self.have_left(last).await;
                    self.take(&wish, &wait).await
                }
                (entry, _) => Ok(entry),
            }
        })
        .await;
        wait.ends(&taken, wish.patience);
        if let Ok(Some(entry)) = &taken {
            self.announce(entry, began);
        }
        taken
    }

    /// Tells that a lock was acquired by what began then, if that is known.
    fn announce(&self, entry: &Entry, began: Option<Moment>) {
        let tenure = entry.tenure();
        if let Some(began) = began {
            tenure.announced.store(true, SeqCst);
            self.core.shared.observers.event(&Event::Acquired {
                name: &self.name,
                token: tenure.token,
                mode: tenure.hold.mode,
                waited: Moment::now().since(began),
            });
        }
    }

    /// Acquires what the owner does not hold already.
    async fn take(self: &Arc<Self>, wish: &Wish, wait: &Wait<'_>) -> Result<Option<Entry>, Error> {
        match (wish.mode, wish.is_usual()) {
            (Mode::Exclusive, true) => self.take_turn(Seat::Handed, wish, wait).await,
            // A reader that will not wait cannot tell a local request under way from a writer: ask the store.
            (Mode::Read, true) if wish.patience != Patience::None => {
                self.take_turn(Seat::Shared, wish, wait).await
            }
            (Mode::Read, true) => match self.join_open(wish) {
                Some(entry) => Ok(Some(entry)),
                None => self.take_own(wish, wait).await,
            },
            _ => self.take_own(wish, wait).await,
        }
    }

    /// Enters again what the owner holds already.
    async fn reenter(&self, owner: OwnerId, mode: Mode) -> Result<Option<Entry>, Error> {
        let lost = {
            let state = self.state();
            let Some(tenure) = state.owned.iter().find(|t| t.owner == Some(owner)) else {
                return Ok(None);
            };
            if tenure.hold.is_held() {
                return self.enter_again(tenure, mode).map(Some);
            }
            tenure.clone()
        };
        // The store is asked for the cause, without the mutex.
        Err(lost.loss_soon().await)
    }

    /// One entry more. Called under the arbiter's mutex.
    fn enter_again(&self, tenure: &Arc<Tenure>, mode: Mode) -> Result<Entry, Error> {
        if tenure.hold.mode == Mode::Read && mode != Mode::Read {
            return Err(Error::WouldDeadlock {
                name: self.name.clone(),
                reason: "its owner holds it for reading; release that first, or acquire it for \
                         writing from the start",
            });
        }
        if tenure.depth() >= MAX_DEPTH {
            return Err(Error::LimitExceeded {
                what: "re-entries of one lock",
                limit: u64::from(MAX_DEPTH),
            });
        }
        tenure.depth.fetch_add(1, SeqCst);
        Ok(Entry::new(tenure.clone()))
    }

    /// Acquires with a claim of its own.
    async fn take_own(
        self: &Arc<Self>,
        wish: &Wish,
        wait: &Wait<'_>,
    ) -> Result<Option<Entry>, Error> {
        let (length, renewed) = match wish.terms {
            Terms::Usual => (self.core.lease, true),
            Terms::Renewed(length) => (length, true),
            Terms::Fixed(length) => (length, false),
        };
        let contest = Contest::new(&self.core, self.name.clone(), wish.mode, length);
        let contest = contest.renewed(renewed);
        let mut contest = contest.labelled(wish.label.as_ref());
        let asked = AtomicBool::new(false);
        let wanted = |_: Option<&Error>| {
            // It is asked before the first try too, which is no wait.
            if asked.swap(true, SeqCst) {
                wait.begins();
            }
            1
        };
        let won = contest.run(wish.patience, wanted, &Notify::new()).await?;
        Ok(won.map(|won| {
            let hold = self.hold(wish.mode, &won, length, renewed);
            self.settle_own(hold, wish.owner, won.grant.token)
        }))
    }

    fn settle_own(
        self: &Arc<Self>,
        hold: Arc<Hold>,
        owner: Option<OwnerId>,
        token: Token,
    ) -> Entry {
        let mut state = self.state();
        self.seat(&mut state, hold, owner, token, Seat::Own)
    }

    /// Turns a hold for writing into one for reading without letting go in between.
    pub async fn downgrade(self: &Arc<Self>, writer: Entry) -> Result<Entry, Error> {
        let tenure = writer.tenure().clone();
        if tenure.depth() > 1 {
            return Err(Error::WouldDeadlock {
                name: self.name.clone(),
                reason: "its owner has re-entered it; release the inner guards before a downgrade",
            });
        }
        let length = tenure.hold.length();
        let renewed = tenure.hold.is_renewed();
        let contest = Contest::new(&self.core, self.name.clone(), Mode::Read, length);
        let contest = contest.labelled(tenure.hold.label.as_ref());
        let attempt = contest.beside(tenure.hold.claim).try_once(1).await;
        let Some(won) = (match attempt {
            Ok(attempt) => attempt,
            // That the writer was lost is certain, and matters more than that the store is away.
            Err(_) if !tenure.hold.is_held() => return Err(tenure.hold.lost_error()),
            Err(error) => return Err(error),
        }) else {
            // The store does not have the writer's hold: releasing it says why. If it has, the request was late.
            return match writer.leave().await {
                Ok(_) => Err(Error::unavailable(
                    self.core.store().capabilities().store,
                    "the request reached it too late, and the lock was released; acquire it anew",
                )),
                Err(error) => Err(error),
            };
        };
        let hold = self.hold(Mode::Read, &won, length, renewed);
        let reader = self.settle_own(hold, tenure.owner, won.grant.token);
        self.announce(&reader, reader.tenure().since);
        match writer.leave().await {
            Err(Error::Lost { .. }) => {
                // The store granted a reader to a writer that it no longer had. That reader goes first, so that the error names
                // who has the lock after it.
                let _ = reader.leave().await;
                Err(tenure.loss().await)
            }
            // Unanswered, the writer's release goes on in the background; the reader holds either way.
            Ok(_) | Err(_) => Ok(reader),
        }
    }

    fn hold(self: &Arc<Self>, mode: Mode, won: &Won, length: Duration, renewed: bool) -> Arc<Hold> {
        let lease = Lease::granted(won.sent, won.lease, length, renewed);
        let hold = Hold::new(self.name.clone(), won, mode, lease, self);
        self.core.watchdog.watch(&hold);
        hold
    }

    fn seat(
        self: &Arc<Self>,
        state: &mut State,
        hold: Arc<Hold>,
        owner: Option<OwnerId>,
        token: Token,
        seat: Seat,
    ) -> Entry {
        hold.goes_to(token);
        let tenure = Tenure::new(self, hold, owner, token, seat);
        if owner.is_some() {
            state.owned.push(tenure.clone());
        }
        Entry::new(tenure)
    }

    /// The keeper was closed: nobody waits any longer.
    pub fn close(&self) {
        for seat in [Seat::Handed, Seat::Shared] {
            let waiters = std::mem::take(&mut self.state().line(seat).waiters);
            refuse(waiters, &Error::Closed);
        }
        self.look_handed.notify_one();
        self.look_shared.notify_one();
    }

    /// How deep the owner of a hold has entered it, if it is this process's.
    pub fn depth(&self, claim: ClaimId) -> u32 {
        let state = self.state();
        let owned = state.owned.iter().find(|t| t.hold.claim == claim);
        owned.map_or(1, |tenure| tenure.depth())
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        self.core.arbiter_dropped(&self.name);
    }
}
