//! What turns a [`Store`] into locks, built once over any of them. No driver is named here.
//!
//! Two levels: the store knows *claims* of processes, the [`arbiter`] knows *tasks*. [`waiting`] has the
//! only wait loop, [`watchdog`] the only renewal loop, [`lease`] the only arithmetic about time.

pub(crate) mod arbiter;
pub(crate) mod background;
pub(crate) mod handle;
pub(crate) mod hold;
pub(crate) mod lease;
mod line;
mod loss;
pub(crate) mod observers;
mod outage;
pub(crate) mod parting;
pub(crate) mod reaper;
mod reign;
pub(crate) mod tenure;
mod turns;
mod wait;
pub(crate) mod waiting;
pub(crate) mod watchdog;
pub(crate) mod wish;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::RuntimeFlavor;
use tokio::sync::{Notify, Semaphore};
use tokio::task::unconstrained;

use crate::clock::Moment;
use crate::store::caller::apart;
use crate::store::{ClaimId, Interest, KeeperId, NodeState, Store};
use crate::{Error, HandOff, Label, Name, Observer};
use arbiter::Arbiter;
use background::{Background, END_PATIENCE, Pends, Spawner, State};
use handle::Home;
use observers::Observers;
use outage::Outage;
use reaper::REQUEST_WINDOW;
use watchdog::Watchdog;

/// What one keeper is made of.
pub(crate) struct Core {
    pub id: KeeperId,
    pub home: Home,
    /// How many handles users have.
    users: AtomicUsize,
    /// When a user last sent something that may be on its way, in nanoseconds of [`Moment`].
    newest: AtomicU64,
    next_claim: AtomicU64,
    pub shared: Arc<Shared>,
    /// The lease of locks that ask for no other.
    pub lease: Duration,
    /// What claims are called that ask for no other label.
    pub label: Option<Label>,
    pub hand_off: HandOff,
    ends_in_time: bool,
    /// Whether the keeper's thread drives what the store needs driven.
    drives_store: bool,
    pub background: Background,
    pub watchdog: Arc<Watchdog>,
    arbiters: Mutex<HashMap<Name, Weak<Arbiter>>>,
    closed: AtomicBool,
    closing: Notify,
}

/// What the keeper's background work needs, without keeping the keeper alive.
#[derive(Debug)]
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub observers: Observers,
    outage: Outage,
    spawner: Spawner,
    /// Lets so many ask for the cause of a loss at a time.
    asks: Semaphore,
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
            // Before the first acquire, or a break of it might be missed.
            let subscribe = async move { store.subscribe(Interest::Keeper(id)).await };
            background.run(subscribe).await?.ok()
        };
        let ends_in_time = store.capabilities().ends_in_time;
        let shared = Arc::new(Shared {
            store,
            observers: Observers::new(observer),
            outage: Outage::default(),
            spawner: background.spawner(),
            asks: Semaphore::new(loss::ASKS),
        });
        let watchdog = Arc::<Watchdog>::default();
        background.spawn(watchdog.clone().run(shared.clone()));
        background.spawn(watchdog.clone().notice_breaks(shared.clone(), id, breaks));
        background.spawn(shared.clone().watch_outages(id));
        Ok(Arc::new(Core {
            id,
            home: Home::here(),
            users: AtomicUsize::new(0),
            newest: AtomicU64::new(0),
            next_claim: AtomicU64::new(1),
            shared,
            lease,
            label,
            hand_off,
            ends_in_time,
            drives_store,
            background,
            watchdog,
            arbiters: Mutex::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }))
    }

    pub fn store(&self) -> &dyn Store {
        &*self.shared.store
    }

    /// Waits for a store's answer, but not for ever: a store that stays silent must not hang a line of
    /// waiters. No timer is set when the answer is there at once, or the store sees to it by itself.
    pub async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        // Its task may have no budget left, and no way to get another: see `turns.rs`.
        unconstrained(async {
            if self.ends_in_time {
                return answer.await;
            }
            tokio::select! {
                biased;
                answer = answer => answer,
                () = async { self.background.sleep_until(Moment::now() + REQUEST_WINDOW).await } => {
                    Err(Error::outcome_unknown(self.store().capabilities().store, format!("no answer within {REQUEST_WINDOW:?}")))
                }
            }
        })
        .await
    }

    /// Why the store could not have granted to anybody, if so: whoever waited in vain is to know.
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

    /// A claim id that was never used before.
    pub fn new_claim_id(&self) -> ClaimId {
        ClaimId {
            keeper: self.id,
            number: self.next_claim.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn arbiters(&self) -> MutexGuard<'_, HashMap<Name, Weak<Arbiter>>> {
        self.arbiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one arbiter of a name.
    pub fn arbiter(self: &Arc<Core>, name: Name) -> Arc<Arbiter> {
        let mut arbiters = self.arbiters();
        if let Some(arbiter) = arbiters.get(&name).and_then(Weak::upgrade) {
            return arbiter;
        }
        let arbiter = Arc::new(Arbiter::new(self.clone(), name.clone()));
        arbiters.insert(name, Arc::downgrade(&arbiter));
        arbiter
    }

    /// The arbiter of a name, if anyone uses it.
    pub fn known_arbiter(&self, name: &Name) -> Option<Arc<Arbiter>> {
        self.arbiters().get(name).and_then(Weak::upgrade)
    }

    /// An arbiter of this name is gone.
    fn arbiter_dropped(&self, name: &Name) {
        let mut arbiters = self.arbiters();
        // A new one of the same name may have come in between.
        if arbiters.get(name).is_some_and(|a| a.strong_count() == 0) {
            arbiters.remove(name);
        }
    }

    /// Whether a verb may begin.
    pub fn check_usable(&self) -> Result<(), Error> {
        self.home.check()?;
        self.check_open()
    }

    pub fn check_open(&self) -> Result<(), Error> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Acquires nothing more; whoever waits learns it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        let arbiters: Vec<_> = self.arbiters().values().filter_map(Weak::upgrade).collect();
        arbiters.iter().for_each(|arbiter| arbiter.close());
    }

    /// Waits until nothing is on its way to the store any more.
    pub async fn cleaned_up(&self) {
        self.background.cleaned_up().await;
        self.store().settled().await;
    }

    /// Until when the last handle waits: for a second after something was sent.
    fn end_patience(&self) -> Moment {
        Moment::from_nanos(self.newest.load(Ordering::SeqCst)) + END_PATIENCE
    }

    /// Waits until nothing is on its way to the store any more, for at most a second after it was sent.
    async fn settled(&self) {
        if self.background.is_here() {
            return;
        }
        tokio::select! {
            biased;
            () = self.cleaned_up() => {}
            () = self.background.sleep_until(self.end_patience()) => {}
        }
    }

    /// As [`settled`](Core::settled), but blocks.
    fn settle(&self) {
        self.settle_until(self.end_patience(), State::is_empty);
    }

    /// Blocks until the clean-ups up to this one are done, for at most a second after the last was sent. Others may go on
    /// waiting, and leave more behind meanwhile.
    fn settle_clean_ups(&self, last: u64, sent: Moment) {
        let last = last.min(self.background.last_clean_up());
        self.settle_until(sent + END_PATIENCE, |pending| {
            pending.clean_ups.have_ended(last)
        });
    }

    fn settle_until(&self, until: Moment, so: impl Fn(&State) -> bool) {
        // What the caller's runtime drives does not go on while it is blocked, nor does the keeper's own thread.
        if !self.drives_store && is_single_threaded() || self.background.is_here() {
            return;
        }
        self.background.wait_for(until, so);
        if until.remaining().is_zero() {
            return;
        }
        let shared = self.shared.clone();
        let mut settled = Box::pin(async move { shared.store.settled().await });
        let mut context = Context::from_waker(Waker::noop());
        if apart(|| settled.as_mut().poll(&mut context)).is_pending() {
            let number = self.background.spawn_pending(Pends::CleanUp, settled);
            self.background
                .wait_for(until, |pending| !pending.clean_ups.is_under_way(number));
        }
    }

    /// Waits until the keeper is closed.
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
    /// A program may end right after its keeper: by then the store must be closed, or it leaves its files behind.
    /// So the thread's share of it ends first, and ours, the last, with this drop.
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
