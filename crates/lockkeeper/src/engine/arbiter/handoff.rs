//! How tasks share a hold: it begins, is handed from task to task or shared by readers, and ends.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, MutexGuard};

use super::{Arbiter, State};
use crate::Token;
use crate::clock::Moment;
use crate::engine::line::{Waiter, deliver};
use crate::engine::parting::Parting;
use crate::engine::reign::{Open, Reign};
use crate::engine::tenure::{Departure, Entry, Seat, Tenure};
use crate::engine::waiting::Won;
use crate::engine::wish::Wish;
use crate::owner::OwnerId;
use crate::store::{ClaimId, Mode};

/// What leaving came to.
#[derive(Debug)]
pub(crate) enum Left {
    /// The owner has not left as often as it entered.
    StillHeld { depth: u32 },
    /// Someone else of this process goes on with the hold.
    Passed,
    /// Guards of the hold are left, but it is lost.
    Lost,
    /// The hold goes back to the store.
    Departs(Departure),
}

impl Arbiter {
    /// Seats the task that won by its own attempt, and those that may share with it.
    pub(super) fn first_turn(
        self: &Arc<Self>,
        seat: Seat,
        won: Won,
        owner: Option<OwnerId>,
    ) -> Entry {
        let mut state = self.state();
        state.line(seat).crowded = false;
        self.begin(&mut state, seat, &won);
        let entry = match seat {
            Seat::Shared => self.join(&mut state, owner),
            Seat::Handed | Seat::Own => self.next_tenure(&mut state, owner),
        };
        let Some(entry) = entry else {
            unreachable!("what just began has room for one");
        };
        let followers = match seat {
            Seat::Shared => self.let_readers_in(&mut state),
            Seat::Handed | Seat::Own => Vec::new(),
        };
        drop(state);
        deliver(followers);
        entry
    }

    /// The contender won: the first in line has its turn, or every reader in line.
    pub fn granted(self: &Arc<Self>, seat: Seat, won: Won) {
        let mut state = self.state();
        let token = won.grant.token;
        self.begin(&mut state, seat, &won);
        let turns = match seat {
            Seat::Shared => self.let_readers_in(&mut state),
            Seat::Handed | Seat::Own => match state.handed.first() {
                Some(waiter) => {
                    let entry = self.next_tenure(&mut state, waiter.owner);
                    entry.map(|entry| (waiter, entry)).into_iter().collect()
                }
                None => Vec::new(),
            },
        };
        if !turns.is_empty() {
            drop(state);
            return deliver(turns);
        }
        // They all went away meanwhile.
        let hold = match seat {
            Seat::Shared => state.open.take().map(|open| open.hold),
            Seat::Handed | Seat::Own => {
                state.handed.busy = true;
                state.reign.take().map(|reign| reign.hold)
            }
        };
        drop(state);
        if let Some(hold) = hold {
            let parting = Parting::new(hold, token, None);
            Departure::new(self, parting, seat, false).run_later();
        }
    }

    /// A line's claim holds now.
    fn begin(self: &Arc<Self>, state: &mut State, seat: Seat, won: &Won) {
        let since = Moment::now();
        let token = won.grant.token;
        let line = state.line(seat);
        line.busy = false;
        line.trouble = None;
        match seat {
            Seat::Shared => {
                state.open = Some(Open {
                    hold: self.hold(Mode::Read, won, self.core.lease, true),
                    token,
                    joined: 0,
                    since,
                });
            }
            Seat::Handed | Seat::Own => {
                state.reign = Some(Reign {
                    hold: self.hold(Mode::Exclusive, won, self.core.lease, true),
                    next_token: token.get(),
                    // The task that won has one, whatever the store says.
                    tokens: won.grant.tokens.max(1),
                    passed: 0,
                    since,
                });
            }
        }
    }

    /// The next task's turn in the running reign, if a token is left for it.
    fn next_tenure(self: &Arc<Self>, state: &mut State, owner: Option<OwnerId>) -> Option<Entry> {
        let reign = state.reign.as_mut()?;
        reign.tokens = reign.tokens.checked_sub(1)?;
        let token = Token::new(reign.next_token);
        reign.next_token = reign.next_token.saturating_add(1);
        let hold = reign.hold.clone();
        Some(self.seat(state, hold, owner, token, Seat::Handed))
    }

    /// Joins the read hold that is open, while its gate is: a writer elsewhere must get its turn.
    pub(super) fn join_open(self: &Arc<Self>, wish: &Wish) -> Option<Entry> {
        let mut state = self.state();
        let open = state.open.as_ref()?;
        if !open.may_join(&self.core.hand_off) {
            return None;
        }
        self.join(&mut state, wish.owner)
    }

    fn join(self: &Arc<Self>, state: &mut State, owner: Option<OwnerId>) -> Option<Entry> {
        let open = state.open.as_mut()?;
        open.joined += 1;
        open.hold.join_shared();
        let (hold, token) = (open.hold.clone(), open.token);
        Some(self.seat(state, hold, owner, token, Seat::Shared))
    }

    fn let_readers_in(self: &Arc<Self>, state: &mut State) -> Vec<(Waiter, Entry)> {
        let mut turns = Vec::new();
        while let Some(waiter) = state.shared.first() {
            if let Some(entry) = self.join(state, waiter.owner) {
                turns.push((waiter, entry));
            }
        }
        turns
    }

    /// One entry less. Decides who goes on with the hold.
    pub fn leave(self: &Arc<Self>, tenure: &Arc<Tenure>) -> Left {
        let mut state = self.state();
        let depth = tenure.depth.fetch_sub(1, SeqCst) - 1;
        if depth > 0 {
            return match tenure.hold.is_held() {
                true => Left::StillHeld { depth },
                false => Left::Lost,
            };
        }
        if tenure.owner.is_some() {
            state.owned.retain(|owned| !Arc::ptr_eq(owned, tenure));
        }
        let held = tenure.held_until_now();
        let parting = Parting::new(tenure.hold.clone(), tenure.token, held);
        match tenure.seat {
            Seat::Handed => self.leave_handed(state, parting),
            Seat::Shared => self.leave_shared(state, parting),
            Seat::Own => {
                drop(state);
                Left::Departs(Departure::new(self, parting, Seat::Own, false))
            }
        }
    }

    fn leave_handed(self: &Arc<Self>, mut state: MutexGuard<'_, State>, parting: Parting) -> Left {
        let claim = parting.hold.claim;
        let reigns = state.reign.as_ref();
        let Some(reign) = reigns.filter(|reign| reign.hold.claim == claim) else {
            // Lost before: others may be contending already.
            drop(state);
            return Left::Departs(Departure::new(self, parting, Seat::Own, false));
        };
        let may_pass = reign.may_pass(&self.core.hand_off);
        if may_pass && let Some(waiter) = state.handed.first() {
            if let Some(reign) = &mut state.reign {
                reign.passed += 1;
            }
            if let Some(entry) = self.next_tenure(&mut state, waiter.owner) {
                drop(state);
                deliver([(waiter, entry)]);
                parting.over(&self.core.shared.observers);
                return Left::Passed;
            }
        }
        state.reign = None;
        state.handed.busy = true;
        // Where there is no queue, the claim would only be prepared in vain.
        let requeue = !state.handed.waiters.is_empty() && self.core.store().capabilities().queue;
        drop(state);
        Left::Departs(Departure::new(self, parting, Seat::Handed, requeue))
    }

    fn leave_shared(self: &Arc<Self>, mut state: MutexGuard<'_, State>, parting: Parting) -> Left {
        let hold = parting.hold.clone();
        if hold.leave_shared() > 0 {
            // Before the last reader can let go of it: what is released is no more held.
            let is_held = hold.is_held();
            drop(state);
            if !is_held {
                self.core.shared.tell_lost(&hold);
            }
            parting.over(&self.core.shared.observers);
            return match is_held {
                true => Left::Passed,
                false => Left::Lost,
            };
        }
        if state
            .open
            .as_ref()
            .is_some_and(|open| open.hold.claim == hold.claim)
        {
            state.open = None;
        }
        drop(state);
        Left::Departs(Departure::new(self, parting, Seat::Shared, false))
    }

    /// A hold was lost: whoever still thinks to have it has it no more, and the others contend anew.
    pub fn hold_lost(self: &Arc<Self>, claim: ClaimId) {
        let mut state = self.state();
        if state
            .open
            .as_ref()
            .is_some_and(|open| open.hold.claim == claim)
        {
            state.open = None;
        }
        let reigns = state.reign.as_ref();
        if reigns.is_none_or(|reign| reign.hold.claim != claim) {
            return;
        }
        state.reign = None;
        self.let_the_next_contend(state, Seat::Handed);
    }
}
