//! Which task of this process has the lock: order, hand-off, sharing and re-entry.
//!
//! A plain lock is held in the store by one claim of the process, and handed from task to task here
//! (*hand-off*), bounded by count and time; however many tasks wait, one claim contends. Readers share one
//! hold in the same way. Everything else (fair locks, fixed or unusual leases, writers, permits) has a claim
//! of its own and only passes through.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Core;
use super::hold::Hold;
use super::lease::Lease;
use super::line::{Line, Turn, Waiter, deliver, refuse};
use super::reign::{Open, Reign};
use super::tenure::{Departure, Entry, Seat, Tenure};
use super::waiting::{Contest, Patience, Won};
use super::wish::{Terms, Wish};
use crate::clock::Moment;
use crate::guard::ReleaseOutcome;
use crate::owner::OwnerId;
use crate::store::{ClaimId, Mode};
use crate::{Error, Event, Name, Token};

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
}

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

/// Where a task stands after lining up.
enum LinedUp {
    First { number: u64, crowded: bool },
    Behind(u64, Turn),
    WillNotWait,
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
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires, re-enters, or answers `None` when patience ran out.
    pub async fn acquire(self: &Arc<Self>, wish: Wish) -> Result<Option<Entry>, Error> {
        self.core.check_open()?;
        // A loop that always finds the lock free would otherwise never let other tasks run.
        tokio::task::coop::consume_budget().await;
        let began = self.core.shared.observers.time();
        if let Some(owner) = wish.owner
            && let Some(entry) = self.reenter(owner, wish.mode)?
        {
            return Ok(Some(entry));
        }
        let entry = match (wish.mode, wish.terms) {
            (Mode::Exclusive, Terms::Usual) => self.take_turn(Seat::Handed, &wish).await?,
            // A reader that will not wait cannot tell a local request under way from a writer: ask the store.
            (Mode::Read, Terms::Usual) if wish.patience != Patience::None => {
                self.take_turn(Seat::Shared, &wish).await?
            }
            (Mode::Read, Terms::Usual) => match self.join_open(&wish) {
                Some(entry) => Some(entry),
                None => self.take_own(&wish).await?,
            },
            _ => self.take_own(&wish).await?,
        };
        if entry.is_none() && wish.patience != Patience::None {
            return self.core.in_vain();
        }
        if let Some((entry, began)) = entry.as_ref().zip(began) {
            self.core.shared.observers.event(&Event::Acquired {
                name: &self.name,
                token: entry.tenure().token,
                waited: Moment::now().since(began),
            });
        }
        Ok(entry)
    }

    /// Enters again what the owner holds already.
    fn reenter(&self, owner: OwnerId, mode: Mode) -> Result<Option<Entry>, Error> {
        let state = self.state();
        let Some(tenure) = state.owned.iter().find(|t| t.owner == Some(owner)) else {
            return Ok(None);
        };
        if !tenure.hold.is_held() {
            let name = self.name.clone();
            return Err(Error::Lost { name });
        }
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
        Ok(Some(Entry::new(tenure.clone())))
    }

    /// Acquires with a claim of its own.
    async fn take_own(self: &Arc<Self>, wish: &Wish) -> Result<Option<Entry>, Error> {
        let (length, renewed) = match wish.terms {
            Terms::Usual => (self.core.lease, true),
            Terms::Renewed(length) => (length, true),
            Terms::Fixed(length) => (length, false),
        };
        let contest = Contest::new(&self.core, self.name.clone(), wish.mode, length);
        let mut contest = contest.renewed(renewed);
        let won = contest.run(wish.patience, || 1, &Notify::new()).await?;
        Ok(won.map(|won| self.settle_own(wish, won, length, renewed)))
    }

    fn settle_own(
        self: &Arc<Self>,
        wish: &Wish,
        won: Won,
        length: Duration,
        renewed: bool,
    ) -> Entry {
        let hold = self.hold(wish.mode, &won, length, renewed);
        let mut state = self.state();
        self.seat(&mut state, hold, wish.owner, won.grant.token, Seat::Own)
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
        let length = tenure.hold.renewal().lease;
        let renewed = tenure.hold.is_renewed();
        let contest = Contest::new(&self.core, self.name.clone(), Mode::Read, length);
        let attempt = contest.beside(tenure.hold.claim).try_once(1).await?;
        let Some(won) = attempt else {
            let name = self.name.clone();
            return Err(Error::Lost { name });
        };
        let wish = Wish {
            mode: Mode::Read,
            terms: match renewed {
                true => Terms::Renewed(length),
                false => Terms::Fixed(length),
            },
            owner: tenure.owner,
            patience: Patience::None,
        };
        let reader = self.settle_own(&wish, won, length, renewed);
        match writer.leave().await {
            Ok(ReleaseOutcome::NotHeld { .. }) => Err(Error::Lost {
                name: self.name.clone(),
            }),
            // Unanswered, the writer's release goes on in the background; the reader holds either way.
            Ok(_) | Err(_) => Ok(reader),
        }
    }

    /// Acquires with the process's claim: at once if nobody here is before us, else in line.
    async fn take_turn(self: &Arc<Self>, seat: Seat, wish: &Wish) -> Result<Option<Entry>, Error> {
        if seat == Seat::Shared
            && let Some(entry) = self.join_open(wish)
        {
            return Ok(Some(entry));
        }
        let (number, crowded) = match self.line_up(seat, wish)? {
            LinedUp::First { number, crowded } => (number, crowded),
            LinedUp::Behind(number, turn) => {
                return self.wait_in_line(seat, number, turn, wish.patience).await;
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
            // `None` has its deadline behind it.
            Ok(None) if Moment::now() >= wish.patience.deadline() => return Ok(None),
            Err(error) if wish.patience == Patience::None || !error.is_transient() => {
                return Err(error);
            }
            Ok(None) | Err(_) => {}
        }
        let turn = {
            let mut state = self.state();
            let line = state.line(seat);
            line.crowded = true;
            line.join(number, wish.owner)?
        };
        aside.not_needed();
        self.start_contender(seat, contest);
        self.wait_in_line(seat, number, turn, wish.patience).await
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
    ) -> Result<Option<Entry>, Error> {
        let line = LeavesLine {
            arbiter: self,
            seat,
            number,
        };
        let deadline = async {
            match patience {
                Patience::Forever => std::future::pending().await,
                Patience::Until(moment) => self.core.background.sleep_until(moment).await,
                Patience::None => {}
            }
        };
        let came = tokio::select! {
            biased;
            came = &mut turn => came,
            () = deadline => {
                drop(line);
                // It may have come between the deadline and our leaving.
                match turn.try_recv() {
                    Ok(came) => Ok(came),
                    Err(_) => return Ok(None),
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
        self.core.background.spawn_cleanup(contend);
    }

    async fn contend(self: Arc<Self>, seat: Seat, mut contest: Contest) {
        let look = match seat {
            Seat::Shared => &self.look_shared,
            Seat::Handed | Seat::Own => &self.look_handed,
        };
        let wanted = || match (self.state().line(seat).waiters.is_empty(), seat) {
            (true, _) => 0,
            (false, Seat::Shared) => 1,
            (false, _) => self.reserve(),
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
            std::mem::take(&mut line.waiters)
        };
        refuse(waiters, error);
    }

    /// Our attempt came to nothing: whoever queued up behind it goes on.
    pub fn step_aside(self: &Arc<Self>, seat: Seat) {
        self.let_the_next_contend(self.state(), seat);
    }

    fn let_the_next_contend(self: &Arc<Self>, mut state: MutexGuard<'_, State>, seat: Seat) {
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

    /// Seats the task that won by its own attempt, and those that may share with it.
    fn first_turn(self: &Arc<Self>, seat: Seat, won: Won, owner: Option<OwnerId>) -> Entry {
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
            Departure::new(self, hold, seat, false).run_later();
        }
    }

    /// A line's claim holds now.
    fn begin(self: &Arc<Self>, state: &mut State, seat: Seat, won: &Won) {
        let since = Moment::now();
        let token = won.grant.token;
        state.line(seat).busy = false;
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
                    tokens: won.grant.tokens,
                    passed: 0,
                    since,
                });
            }
        }
    }

    fn hold(self: &Arc<Self>, mode: Mode, won: &Won, length: Duration, renewed: bool) -> Arc<Hold> {
        let lease = Lease::granted(won.sent, won.lease, length, renewed);
        let hold = Hold::new(self.name.clone(), won.claim, mode, lease, self);
        self.core.watchdog.watch(&hold);
        hold
    }

    /// The next task's turn in the running reign, if a token is left for it.
    fn next_tenure(self: &Arc<Self>, state: &mut State, owner: Option<OwnerId>) -> Option<Entry> {
        let reign = state.reign.as_mut()?;
        reign.tokens = reign.tokens.checked_sub(1)?;
        let token = Token::new(reign.next_token);
        reign.next_token += 1;
        let hold = reign.hold.clone();
        Some(self.seat(state, hold, owner, token, Seat::Handed))
    }

    fn seat(
        self: &Arc<Self>,
        state: &mut State,
        hold: Arc<Hold>,
        owner: Option<OwnerId>,
        token: Token,
        seat: Seat,
    ) -> Entry {
        let tenure = Tenure::new(self, hold, owner, token, seat);
        if owner.is_some() {
            state.owned.push(tenure.clone());
        }
        Entry::new(tenure)
    }

    /// Joins the read hold that is open, while its gate is: a writer elsewhere must get its turn.
    fn join_open(self: &Arc<Self>, wish: &Wish) -> Option<Entry> {
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
        let left = match tenure.seat {
            Seat::Handed => self.leave_handed(state, &tenure.hold),
            Seat::Shared => self.leave_shared(state, &tenure.hold),
            Seat::Own => {
                drop(state);
                Left::Departs(Departure::new(self, tenure.hold.clone(), Seat::Own, false))
            }
        };
        if let Some(since) = tenure.since {
            self.core.shared.observers.event(&Event::Released {
                name: &self.name,
                token: tenure.token,
                held: Moment::now().since(since),
            });
        }
        left
    }

    fn leave_handed(self: &Arc<Self>, mut state: MutexGuard<'_, State>, hold: &Arc<Hold>) -> Left {
        let reigns = state.reign.as_ref();
        let Some(reign) = reigns.filter(|reign| reign.hold.claim == hold.claim) else {
            // Lost before: others may be contending already.
            drop(state);
            return Left::Departs(Departure::new(self, hold.clone(), Seat::Own, false));
        };
        let may_pass = reign.may_pass(&self.core.hand_off);
        if may_pass && let Some(waiter) = state.handed.first() {
            if let Some(reign) = &mut state.reign {
                reign.passed += 1;
            }
            if let Some(entry) = self.next_tenure(&mut state, waiter.owner) {
                drop(state);
                deliver(vec![(waiter, entry)]);
                return Left::Passed;
            }
        }
        state.reign = None;
        state.handed.busy = true;
        // Where there is no queue, the claim would only be prepared in vain.
        let requeue = !state.handed.waiters.is_empty() && self.core.store().capabilities().queue;
        drop(state);
        Left::Departs(Departure::new(self, hold.clone(), Seat::Handed, requeue))
    }

    fn leave_shared(self: &Arc<Self>, mut state: MutexGuard<'_, State>, hold: &Arc<Hold>) -> Left {
        if hold.leave_shared() > 0 {
            return match hold.is_held() {
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
        Left::Departs(Departure::new(self, hold.clone(), Seat::Shared, false))
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

/// Lets the next in line go on when an attempt is cancelled or comes to nothing.
struct StepsAside<'a>(Option<(&'a Arc<Arbiter>, Seat)>);

impl StepsAside<'_> {
    fn not_needed(mut self) {
        self.0 = None;
    }
}

impl Drop for StepsAside<'_> {
    fn drop(&mut self) {
        if let Some((arbiter, seat)) = self.0 {
            arbiter.step_aside(seat);
        }
    }
}

/// Tells a line when its contender ends by a panic: nobody else would.
struct FailsLine<'a>(&'a Arbiter, Seat);

impl Drop for FailsLine<'_> {
    fn drop(&mut self) {
        let FailsLine(arbiter, seat) = self;
        let error = Error::Unavailable {
            store: arbiter.core.store().capabilities().store,
            reason: "it panicked, which is a bug".into(),
        };
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
        let mut state = self.arbiter.state();
        let line = state.line(self.seat);
        let waited = line.waiters.remove(&self.number);
        let nobody_left = line.waiters.is_empty();
        drop(state);
        if waited.is_some() && nobody_left {
            match self.seat {
                Seat::Shared => self.arbiter.look_shared.notify_one(),
                Seat::Handed | Seat::Own => self.arbiter.look_handed.notify_one(),
            }
        }
    }
}
