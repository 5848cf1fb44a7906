//! A turn with the process's claim: at once if nobody here is before us, else in line, while one contends for all.

use std::sync::{Arc, MutexGuard};

use super::{Arbiter, State};
use crate::Error;
use crate::clock::Moment;
use crate::engine::background::Pends;
use crate::engine::line::{Turn, refuse};
use crate::engine::tenure::{Entry, Seat};
use crate::engine::wait::Wait;
use crate::engine::waiting::{Contest, Patience};
use crate::engine::wish::Wish;
use crate::store::Mode;

/// Where a task stands after lining up.
enum LinedUp {
    First { number: u64, crowded: bool },
    Behind(u64, Turn),
    WillNotWait,
}

impl Arbiter {
    /// Acquires with the process's claim: at once if nobody here is before us, else in line.
    pub(super) async fn take_turn(
        self: &Arc<Self>,
        seat: Seat,
        wish: &Wish,
        wait: &Wait<'_>,
    ) -> Result<Option<Entry>, Error> {
        if seat == Seat::Shared
            && let Some(entry) = self.join_open(wish)
        {
            return Ok(Some(entry));
        }
        let (number, crowded) = match self.line_up(seat, wish)? {
            LinedUp::First { number, crowded } => (number, crowded),
            LinedUp::Behind(number, turn) => {
                return self
                    .wait_in_line(seat, number, turn, wish.patience, wait)
                    .await;
            }
            LinedUp::WillNotWait => return Ok(None),
        };
        let aside = StepsAside(Some((self, seat)));
        let contest = self.contest(match seat {
            Seat::Shared => Mode::Read,
            Seat::Handed | Seat::Own => Mode::Exclusive,
        });
        let crowded =
            crowded && wish.patience != Patience::None && self.core.store().capabilities().queue;
        let mut contest = contest.expecting_busy(crowded);
        let reserve = match (crowded, seat) {
            (true, Seat::Handed) => self.reserve(),
            _ => 1,
        };
        match contest.try_within(wish.patience, reserve).await {
            Ok(Some(won)) => {
                aside.not_needed();
                return Ok(Some(self.first_turn(seat, won, wish.owner)));
            }
            Ok(None) if wish.patience == Patience::None => return Ok(None),
            Ok(None) if Moment::now() >= wish.patience.deadline() => return contest.in_vain(),
            Err(error) if wish.patience == Patience::None || !error.is_transient() => {
                return Err(error);
            }
            Ok(None) | Err(_) => {}
        }
        let turn = {
            let mut state = self.state();
            let line = state.line(seat);
            line.crowded = true;
            line.trouble = contest.trouble().cloned();
            line.join(number, wish.owner)?
        };
        aside.not_needed();
        self.start_contender(seat, contest);
        self.wait_in_line(seat, number, turn, wish.patience, wait)
            .await
    }

    /// Takes the next place in line. The first becomes the one that asks the store.
    fn line_up(&self, seat: Seat, wish: &Wish) -> Result<LinedUp, Error> {
        let mut state = self.state();
        // Under the mutex: closing sends away only those who are in line by then.
        self.core.check_open()?;
        let taken = seat == Seat::Handed && state.reign.is_some();
        let line = state.line(seat);
        let number = line.number();
        if !line.busy && !taken {
            line.busy = true;
            let crowded = line.crowded;
            return Ok(LinedUp::First { number, crowded });
        }
        if wish.patience == Patience::None {
            return Ok(LinedUp::WillNotWait);
        }
        let turn = line.join(number, wish.owner)?;
        Ok(LinedUp::Behind(number, turn))
    }

    async fn wait_in_line(
        self: &Arc<Self>,
        seat: Seat,
        number: u64,
        mut turn: Turn,
        patience: Patience,
        wait: &Wait<'_>,
    ) -> Result<Option<Entry>, Error> {
        let line = LeavesLine {
            arbiter: self,
            seat,
            number,
        };
        wait.begins();
        let deadline = async {
            match patience {
                Patience::Forever => std::future::pending().await,
                Patience::Until(moment) => self.core.background.sleep_until(moment).await,
                Patience::None => {}
            }
        };
        let came = tokio::select! {
            biased;
            came = &mut turn => {
                // The task that tells us has taken us out of the line.
                std::mem::forget(line);
                came
            }
            () = deadline => {
                // Before we leave: with the last of us it is forgotten.
                let (trouble, asks) = {
                    let mut state = self.state();
                    let line = state.line(seat);
                    (line.trouble.clone(), line.busy)
                };
                drop(line);
                // It may have come between the deadline and our leaving.
                match turn.try_recv() {
                    Ok(came) => Ok(came),
                    Err(_) => {
                        // The first answer may not have come yet. What a task here holds, the store has granted.
                        let not_ready = || asks.then(|| self.core.not_ready()).flatten();
                        return trouble.or_else(not_ready).map_or(Ok(None), Err);
                    }
                }
            }
        };
        came.unwrap_or(Err(Error::Closed)).map(Some)
    }

    /// The claim that contends for everyone in a line.
    pub fn contest(&self, mode: Mode) -> Contest {
        Contest::new(&self.core, self.name.clone(), mode, self.core.lease).renewed(true)
    }

    /// How many tokens to ask for when others wait: enough for a whole reign.
    pub fn reserve(&self) -> u32 {
        self.core.hand_off.count.saturating_add(1)
    }

    /// Contends in the background for whoever is in line.
    pub fn start_contender(self: &Arc<Self>, seat: Seat, contest: Contest) {
        let arbiter = self.clone();
        // It ends with the keeper's closing, which waits until its claim has left the queue.
        let contend = arbiter.contend(seat, contest);
        self.core
            .background
            .spawn_pending(Pends::Contender, contend);
    }

    async fn contend(self: Arc<Self>, seat: Seat, mut contest: Contest) {
        let look = match seat {
            Seat::Shared => &self.look_shared,
            Seat::Handed | Seat::Own => &self.look_handed,
        };
        let wanted = |trouble: Option<&Error>| {
            let mut state = self.state();
            let line = state.line(seat);
            line.trouble = trouble.cloned();
            match (line.waiters.is_empty(), seat) {
                (true, _) => 0,
                (false, Seat::Shared) => 1,
                (false, _) => self.reserve(),
            }
        };
        loop {
            let panics = FailsLine(&self, seat);
            let ended = contest.run(Patience::Forever, wanted, look).await;
            std::mem::forget(panics);
            match ended {
                Ok(Some(won)) => return self.granted(seat, won),
                Ok(None) => {
                    let mut state = self.state();
                    let line = state.line(seat);
                    if line.waiters.is_empty() {
                        line.busy = false;
                        line.trouble = None;
                        return;
                    }
                }
                Err(error) => return self.fail(seat, &error),
            }
        }
    }

    /// The store cannot be waited for any longer: everyone in line learns why.
    fn fail(&self, seat: Seat, error: &Error) {
        let waiters = {
            let mut state = self.state();
            let line = state.line(seat);
            line.busy = false;
            line.trouble = None;
            std::mem::take(&mut line.waiters)
        };
        refuse(waiters, error);
    }

    /// Our attempt came to nothing: whoever queued up behind it goes on.
    pub fn step_aside(self: &Arc<Self>, seat: Seat) {
        self.let_the_next_contend(self.state(), seat);
    }

    pub(super) fn let_the_next_contend(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        seat: Seat,
    ) {
        let line = state.line(seat);
        line.busy = !line.waiters.is_empty();
        let goes_on = line.busy;
        drop(state);
        if goes_on {
            let mode = match seat {
                Seat::Shared => Mode::Read,
                Seat::Handed | Seat::Own => Mode::Exclusive,
            };
            self.start_contender(seat, self.contest(mode));
        }
    }
}

/// Lets the next in line go on when an attempt is cancelled or comes to nothing.
struct StepsAside<'a>(Option<(&'a Arc<Arbiter>, Seat)>);

impl StepsAside<'_> {
    fn not_needed(mut self) {
        self.0 = None;
    }
}

impl Drop for StepsAside<'_> {
    fn drop(&mut self) {
        if let Some((arbiter, seat)) = self.0
            && !arbiter.core.home.is_left()
        {
            arbiter.step_aside(seat);
        }
    }
}

/// Tells a line when its contender ends by a panic: nobody else would.
struct FailsLine<'a>(&'a Arbiter, Seat);

impl Drop for FailsLine<'_> {
    fn drop(&mut self) {
        let FailsLine(arbiter, seat) = self;
        let error = Error::unavailable(
            arbiter.core.store().capabilities().store,
            "it panicked, which is a bug",
        );
        arbiter.fail(*seat, &error);
    }
}

/// Takes a waiter out of its line when it stops waiting.
struct LeavesLine<'a> {
    arbiter: &'a Arbiter,
    seat: Seat,
    number: u64,
}

impl Drop for LeavesLine<'_> {
    fn drop(&mut self) {
        if self.arbiter.core.home.is_left() {
            return;
        }
        let mut state = self.arbiter.state();
        let line = state.line(self.seat);
        let waited = line.waiters.remove(&self.number);
        let nobody_left = line.waiters.is_empty();
        drop(state);
        if waited.is_some() && nobody_left {
            self.arbiter.core.will_leave_behind();
            match self.seat {
                Seat::Shared => self.arbiter.look_shared.notify_one(),
                Seat::Handed | Seat::Own => self.arbiter.look_handed.notify_one(),
            }
        }
    }
}
