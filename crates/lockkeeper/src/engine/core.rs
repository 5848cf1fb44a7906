//! What all locks of one keeper share.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::RuntimeFlavor;
use tokio::sync::Notify;
use tokio::task::unconstrained;

use super::availability::REQUEST_WINDOW;
use super::background::{Background, END_TIMEOUT, PendingKind, PendingTasks};
use super::clean_ups::CleanUps;
use super::fork::HomeProcess;
use super::observers::Observers;
use super::request::LeaseKind;
use super::shared::Shared;
use super::watchdog::Watchdog;
use crate::clock::Moment;
use crate::store::{ClaimId, Interest, KeeperId, NodeState, Store};
use crate::{Error, HandOff, Label, Observer};

/// The state of one keeper, below all of its locks.
pub(crate) struct Core {
    pub id: KeeperId,
    pub process: HomeProcess,
    /// How many handles users have.
    users: AtomicUsize,
    /// When a request was last sent for a user, in nanoseconds of [`Moment`]. It may still be on its way.
    last_sent: AtomicU64,
    next_claim: AtomicU64,
    pub shared: Arc<Shared>,
    /// The lease of locks that ask for no other.
    pub lease: Duration,
    /// The label of claims that ask for no other.
    pub label: Option<Label>,
    pub hand_off: HandOff,
    /// The store ends each request in time by itself.
    ends_in_time: bool,
    /// The keeper's thread drives the connections of the store, and no runtime of the caller's.
    drives_store: bool,
    pub background: Background,
    pub watchdog: Arc<Watchdog>,
    /// The releases and withdrawals that no caller waits for.
    pub clean_ups: Arc<CleanUps>,
    closed: AtomicBool,
    closing: Notify,
}

impl Core {
    pub async fn start(
        background: Background,
        store: Arc<dyn Store>,
        drives_store: bool,
        lease: Duration,
        label: Option<Label>,
        hand_off: HandOff,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Arc<Core>, Error> {
        let id = KeeperId::new();
        let breaks = {
            let store = store.clone();
            // Before the first acquire: a break of that one would be missed otherwise.
            let subscribe = async move { store.subscribe(Interest::Keeper(id)).await };
            background.run(subscribe).await?.ok()
        };
        let ends_in_time = store.capabilities().ends_in_time;
        let observers = Observers::new(observer);
        let shared = Arc::new(Shared::new(store, observers, background.spawner()));
        let watchdog = Arc::<Watchdog>::default();
        background.spawn(watchdog.clone().run(shared.clone()));
        background.spawn(watchdog.clone().notice_breaks(shared.clone(), id, breaks));
        background.spawn({
            let shared = shared.clone();
            async move { shared.availability.watch(&*shared.store, id).await }
        });
        Ok(Arc::new(Core {
            id,
            process: HomeProcess::here(),
            users: AtomicUsize::new(0),
            last_sent: AtomicU64::new(0),
            next_claim: AtomicU64::new(1),
            shared,
            lease,
            label,
            hand_off,
            ends_in_time,
            drives_store,
            background,
            watchdog,
            clean_ups: Arc::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }))
    }

    /// Counts one more handle of a user.
    pub fn add_user(&self) {
        self.users.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts one handle less. Returns whether it was the last.
    pub fn remove_user(&self) -> bool {
        self.users.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Notes that a request was sent at this moment, and may still be on its way.
    pub fn note_sent(&self, sent: Moment) {
        self.last_sent.fetch_max(sent.as_nanos(), Ordering::SeqCst);
    }

    pub fn store(&self) -> &dyn Store {
        &*self.shared.store
    }

    /// Waits for a request to the store, but not for ever: a silent store must not hang a queue of tasks. Sets no timer if the
    /// response is there at once, or if the store has time-outs of its own.
    pub async fn bounded<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        // The task may have no budget left, and no way to get another: see `budget.rs`.
        unconstrained(async {
            if self.ends_in_time {
                return request.await;
            }
            tokio::select! {
                biased;
                response = request => response,
                () = async { self.background.sleep_until(Moment::now() + REQUEST_WINDOW).await } => {
                    Err(Error::outcome_unknown(self.store().capabilities().store, format!("no answer within {REQUEST_WINDOW:?}")))
                }
            }
        })
        .await
    }

    /// The reason why the store could not have granted anything to anybody, if there is one. An acquire that timed out reports it.
    pub fn not_ready(&self) -> Option<Error> {
        let health = self.store().health();
        if health.ready_in.is_zero() {
            return None;
        }
        let mut reason = format!(
            "nothing can be granted for {:.1}s more",
            health.ready_in.as_secs_f64()
        );
        for status in health.nodes {
            if status.state != NodeState::Up {
                reason += &format!("; {} {}", status.node, status.state);
            }
        }
        Some(Error::unavailable(
            self.store().capabilities().store,
            reason,
        ))
    }

    /// A renewed lease of this length, if the store grants it.
    pub fn renewed_lease(&self, length: Duration) -> Result<LeaseKind, Error> {
        self.store().capabilities().check_lease(length)?;
        if length == self.lease {
            return Ok(LeaseKind::Usual);
        }
        Ok(LeaseKind::Renewed(length))
    }

    /// A fixed lease of this length, if the store grants it.
    pub fn fixed_lease(&self, length: Duration) -> Result<LeaseKind, Error> {
        self.store().capabilities().check_lease(length)?;
        Ok(LeaseKind::Fixed(length))
    }

    /// Checks a label. `None` if it is the keeper's.
    pub fn other_label(&self, label: &str) -> Result<Option<Label>, Error> {
        let label = Label::new(label)?;
        Ok((self.label.as_ref() != Some(&label)).then_some(label))
    }

    /// A claim id that was never used before.
    pub fn new_claim_id(&self) -> ClaimId {
        ClaimId {
            keeper: self.id,
            number: self.next_claim.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Whether a verb may begin.
    pub fn check_usable(&self) -> Result<(), Error> {
        self.process.check()?;
        self.check_open()
    }

    pub fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Ends every wait for the store. Nothing is acquired any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
    }

    /// Waits until no request is on its way to the store.
    pub async fn cleaned_up(&self) {
        self.background.cleaned_up().await;
        self.store().settled().await;
    }

    /// Until when the last handle waits: a second after the last request was sent.
    fn end_deadline(&self) -> Moment {
        Moment::from_nanos(self.last_sent.load(Ordering::SeqCst)) + END_TIMEOUT
    }

    /// As [`cleaned_up`](Core::cleaned_up), but for at most a second after the last request was sent.
    pub async fn settled(&self) {
        if self.background.is_here() {
            return;
        }
        tokio::select! {
            biased;
            () = self.cleaned_up() => {}
            () = self.background.sleep_until(self.end_deadline()) => {}
        }
    }

    /// As [`settled`](Core::settled), but blocks.
    pub fn settle(&self) {
        self.settle_until(self.end_deadline(), PendingTasks::is_empty);
    }

    /// Blocks until the clean-ups up to this one are done, for at most a second after this thread's last request was sent. Other
    /// threads may begin more meanwhile.
    pub fn settle_clean_ups(&self, last: u64, sent: Moment) {
        let last = last.min(self.background.last_clean_up());
        self.settle_until(sent + END_TIMEOUT, |pending| {
            pending.clean_ups.have_ended(last)
        });
    }

    fn settle_until(&self, until: Moment, done: impl Fn(&PendingTasks) -> bool) {
        // A runtime that would drive the store, or the keeper's own thread, makes no progress while this blocks it.
        if !self.drives_store && is_single_threaded() || self.background.is_here() {
            return;
        }
        self.background.wait_for(until, done);
        if until.remaining().is_zero() {
            return;
        }
        let shared = self.shared.clone();
        let mut settled = Box::pin(async move { shared.store.settled().await });
        let mut context = Context::from_waker(Waker::noop());
        if settled.as_mut().poll(&mut context).is_pending() {
            let number = self.background.spawn_pending(PendingKind::CleanUp, settled);
            self.background
                .wait_for(until, |pending| !pending.clean_ups.is_under_way(number));
        }
    }

    /// Waits until the keeper is being closed.
    pub async fn closed(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        if self.check_open().is_ok() {
            closing.await;
        }
    }
}

/// Whether the calling thread is all that its runtime has.
fn is_single_threaded() -> bool {
    let runtime = tokio::runtime::Handle::try_current();
    runtime.is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

impl Drop for Core {
    /// A program may end right after its keeper. By then the store must be closed, or it leaves its files behind. So the thread
    /// ends first, with its references to the store; the last one is dropped with this value.
    fn drop(&mut self) {
        self.background.end();
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}
