//! [`Guard`]: a lock that is held.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::downgrade::downgrade;
use crate::engine::fork::HomeProcess;
use crate::engine::lease::LeaseState;
use crate::engine::raw_guard::RawGuard;
use crate::store::{ClaimId, Mode, NodeVote, Renewed};
use crate::{Error, Name, Token};

/// A held lock, permit, or read or write hold.
///
/// It can be stored, moved and sent anywhere; it borrows nothing.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use std::time::Duration;
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:guard-example").await?;
/// let guard = keeper.lock("ledger")?.acquire().await?;
/// if guard.is_held_for(Duration::from_secs(5)) {                  // time enough for a short write
///     println!("write with token {}", guard.token());
/// }
/// guard.run(async {}).await?;                                // dropped if the lock is lost meanwhile
/// guard.extend(Duration::from_secs(120)).await?;             // a long step follows
/// guard.release().await?;
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// # Guarantees
/// - Until [`deadline`](Guard::deadline), which renewals move on, no one else is granted the lock, as far as
///   the store keeps its word (see `docs/guarantees.md`).
/// - [`lost`](Guard::lost) fires, and [`is_held`](Guard::is_held) turns false, *before* the lease can have
///   ended in the store. Lost is for good.
/// - [`token`](Guard::token) is higher than that of every earlier holder that it excludes.
///
/// # What this does not protect against
/// A program that is paused (stopped, swapped out, suspended) between a look at the guard and the write that
/// follows. Send the [`token`](Guard::token) along with the write and let the resource refuse lower ones.
///
/// # Dropping
/// Dropping a guard releases the lock, in the background if the store takes time. Only an [`Observer`](crate::Observer) learns
/// whether the lock had been lost; [`release`](Guard::release) returns it. If the guard is the last of its keeper's handles, dropping
/// it waits for the store's response, at most a second; [`Lockkeeper`](crate::Lockkeeper) names the exception. `release` does not block.
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard(RawGuard);

/// How a release ended. If the lock had been lost, it is [`Error::Lost`] instead.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:outcome-example").await?;
/// use lockkeeper::{Error, ReleaseOutcome};
///
/// let guard = keeper.lock("job")?.acquire().await?;
/// match guard.release().await {
///     Ok(ReleaseOutcome::Released) => println!("done, and it was ours to the end"),
///     Ok(outcome) => println!("{outcome:?}"),
///     Err(Error::Lost { cause, now_held_by, .. }) => println!("lost: {cause}; now with {now_held_by:?}"),
///     Err(error) => println!("the store did not answer: {error}"),
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock is free, or the next in the queue has it.
    Released,
    /// The owner had entered it more than once and still holds it.
    StillHeld {
        /// How many guards are left.
        depth: u32,
    },
}

impl Guard {
    pub(crate) fn new(guard: RawGuard) -> Guard {
        Guard(guard)
    }

    fn process(&self) -> HomeProcess {
        self.0.core().process
    }

    /// The name of the lock.
    pub fn name(&self) -> &Name {
        &self.0.state().hold.name
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.0.state().hold.mode
    }

    /// The fencing token. Constant across re-entry; readers of one process may share one.
    pub fn token(&self) -> Token {
        self.0.state().token
    }

    /// The claim that holds in the store, as [`Lockkeeper::inspect`](crate::Lockkeeper::inspect) shows it.
    pub fn claim(&self) -> ClaimId {
        self.0.state().hold.claim
    }

    /// Which nodes keep the hold, where a majority of nodes has to; `None` on other stores.
    pub fn votes(&self) -> Option<Vec<NodeVote>> {
        if self.process().is_fork() {
            return None;
        }
        self.0.core().store().votes(self.claim())
    }

    /// How many guards of the same owner there are.
    pub fn depth(&self) -> u32 {
        self.0.state().depth()
    }

    /// When the lock counts as lost unless it is renewed before. Moves on with each renewal. It comes before the end of the lease by
    /// the safety margin that [`Lock::fixed_lease`](crate::Lock::fixed_lease) names.
    pub fn deadline(&self) -> Moment {
        if self.process().is_fork() {
            return Moment::BOOT;
        }
        self.0.state().hold.deadline()
    }

    /// When the lock comes to be at risk unless it is renewed before.
    pub fn at_risk_at(&self) -> Moment {
        if self.process().is_fork() {
            return Moment::BOOT;
        }
        self.0.state().hold.at_risk_at()
    }

    /// Whether the lock is held now. Reads the clock, so it is right even if the process slept until now.
    /// False in a process that was forked from the one that holds it.
    pub fn is_held(&self) -> bool {
        !self.process().is_fork() && self.0.state().hold.is_held()
    }

    /// Whether the lock is held and stays so for at least `time` without renewal.
    ///
    /// A lock that was waited for may begin with a lease of a second, until its first renewal a moment later.
    /// [`extend`](Guard::extend) asks for more at once.
    pub fn is_held_for(&self, time: Duration) -> bool {
        self.is_held() && self.deadline().remaining() >= time
    }

    /// Asks the store to let the lease run for at least `lease` from now.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is lost; a store error if the store could not be asked.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lease extended or not, and the guard as it was.
    pub async fn extend(&self, lease: Duration) -> Result<(), Error> {
        self.process().check()?;
        let (core, hold) = (self.0.core(), &self.0.state().hold);
        core.store().capabilities().check_lease(lease)?;
        if !self.is_held() {
            return Err(self.loss().await);
        }
        let sent = Moment::now();
        let renewals = [hold.renewal_for(lease)];
        // A silent store is waited for only as long as there is something to extend.
        let answer = self.run(core.bounded(core.store().renew(&renewals)));
        let answer = answer.await?;
        // A response that leaves it open says nothing of the store as a whole.
        if answer
            .as_ref()
            .map_or(true, |one| one[..] != [Renewed::Unknown])
        {
            core.shared.availability.record(self.name(), &answer);
        }
        match answer?.first() {
            Some(Renewed::Renewed) if hold.extended(sent, lease) => {
                core.watchdog.reschedule(hold);
                Ok(())
            }
            Some(Renewed::Renewed) => Err(self.loss().await),
            Some(Renewed::TooLate) if !self.is_held() => Err(self.loss().await),
            Some(Renewed::TooLate) => Err(Error::unavailable(
                core.store().capabilities().store,
                "the request reached it too late, so the lease is as it was; try again",
            )),
            Some(Renewed::Unknown) => Err(Error::outcome_unknown(
                core.store().capabilities().store,
                "the part of the store that has the lock did not answer",
            )),
            Some(Renewed::NotHeld) | None => Err(self.0.not_held().await),
        }
    }

    /// Waits until the lock is lost; never ends if it is released before. Kept beyond the release, it may
    /// still end if another task of this process goes on with the same hold and loses it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let (process, hold) = (self.process(), self.0.state().hold.clone());
        async move {
            if !process.is_fork() {
                hold.lost().await;
            }
        }
    }

    /// Waits until a renewal is overdue: time to finish or to undo, before the lock is lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn at_risk(&self) -> impl Future<Output = ()> + Send + Sync + 'static {
        let (process, hold) = (self.process(), self.0.state().hold.clone());
        async move {
            if !process.is_fork() {
                hold.at_risk().await;
            }
        }
    }

    /// Runs a future for as long as the lock is held, and drops it when the lock is lost.
    ///
    /// The future is dropped where it next awaits: a stretch without an await goes on to its end. If the lock is lost in the last
    /// such stretch, the work is done all the same, and its output is dropped. Have the future write what must not be lost to
    /// a place outside of it.
    ///
    /// `Ok` says that the lock was held by the clock when the work ended. A break that this process has not heard of yet
    /// is seen by [`release`](Guard::release), where the hold goes back to the store.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock was lost before the future ended, with the cause: some of the work may be done, or all of it.
    ///
    /// # Cancel safety
    /// As safe as the future; the guard stays.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let done = {
            let mut future = pin!(future);
            let mut lost = pin!(self.lost());
            poll_fn(|context| {
                self.process().check()?;
                // By the clock first: after a pause the future must not get another step.
                let is_lost = self.0.state().hold.state() == LeaseState::Lost;
                if is_lost || lost.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Ok(None));
                }
                future.as_mut().poll(context).map(|done| Ok(Some(done)))
            })
            .await?
        };
        // The future is dropped by now, however long the store takes to say why.
        match done {
            // Its last step may have taken longer than the lease.
            Some(done) if self.is_held_here()? => Ok(done),
            _ => Err(self.loss().await),
        }
    }

    /// As [`is_held`](Guard::is_held), but an error in a fork.
    pub(crate) fn is_held_here(&self) -> Result<bool, Error> {
        self.process().check()?;
        Ok(self.is_held())
    }

    /// Waits for a signal of this guard, at most `timeout`. Returns whether it came. The timer is the keeper's own.
    pub(crate) async fn within(&self, timeout: Duration, signal: impl Future<Output = ()>) -> bool {
        let background = &self.0.core().background;
        tokio::select! {
            biased;
            () = signal => true,
            () = background.sleep_until(Moment::now() + timeout) => false,
        }
    }

    /// As [`run`](Guard::run), for a future that may fail. Its error is also that of a lost lock, so one `?` is enough.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let keeper = lockkeeper::Lockkeeper::connect("memory:try-run-example").await?;
    /// use std::error::Error;
    ///
    /// async fn sell(left: &str) -> Result<u32, Box<dyn Error + Send + Sync>> {
    ///     Ok(left.parse::<u32>()? - 1)
    /// }
    ///
    /// let guard = keeper.lock("stock:42")?.acquire().await?;
    /// assert_eq!(guard.try_run(sell("8")).await?, 7);
    /// assert!(guard.try_run(sell("eight")).await.is_err());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
    /// ```
    ///
    /// Where the future's error cannot be made from [`Error`], `guard.run(future).await??` converts both on their own.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock was lost before the future ended, also if the future failed by itself: the loss may be
    /// why. Otherwise the future's own.
    ///
    /// # Cancel safety
    /// As safe as the future; the guard stays.
    pub async fn try_run<T, E: From<Error>>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.run(future).await?
    }

    /// The error of what cannot go on without this lock, once it is lost.
    pub(crate) async fn loss(&self) -> Error {
        self.0.loss_soon().await
    }

    pub(crate) async fn downgraded(self) -> Result<Guard, Error> {
        self.process().check()?;
        downgrade(self.0).await.map(Guard)
    }

    /// Releases the lock, and returns what became of it.
    ///
    /// The store is asked when the hold goes back to it. It is not asked while others of this process go on with the hold: the next
    /// task in the queue, other readers, or the same owner. They learn of a break that this process has not heard of yet.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock had been lost before, with the cause, and with the present holder as far as the store shows it: another
    /// may have worked under the lock since then. It is the same whether the store is there or not.
    ///
    /// A store error if the store did not respond: the release is then tried again in the background until
    /// the lease has ended.
    ///
    /// # Cancel safety
    /// Dropping the future releases in the background, like dropping the guard.
    pub async fn release(self) -> Result<ReleaseOutcome, Error> {
        self.0.leave().await
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("mode", &self.mode())
            .field("token", &self.token().get())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
