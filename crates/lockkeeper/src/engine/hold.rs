//! One grant of the store, as this process holds it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use super::event_order::{EndedTurn, EventOrder};
use super::lease::{Due, Lease, LeaseState};
use super::observers::Observers;
use crate::clock::Moment;
use crate::store::{Broken, ClaimId, Fencing, Grant, LockInfo, Mode, Renewal};
use crate::token::MAX_SKEW_MICROS;
use crate::{Error, Event, Label, LossCause, Name, Token};

/// How much the clocks of a store and of this machine may differ when a break is compared with the beginning of the hold.
///
/// Shorter than a break may be ahead of the store's clock. Otherwise a break close to that limit would seem to be older than the hold.
const SKEW: Duration = Duration::from_micros(MAX_SKEW_MICROS - 5_000_000);

fn is_held(state: LeaseState) -> bool {
    matches!(state, LeaseState::Held | LeaseState::AtRisk)
}

/// A grant of the store, with the claim that it is for.
#[derive(Debug)]
pub(crate) struct Granted {
    pub claim: ClaimId,
    pub grant: Grant,
    /// When the request was sent: the lease counts from then.
    pub sent: Moment,
    /// The first lease. A direct grant has a short one.
    pub lease: Duration,
    pub label: Option<Label>,
}

/// Learns at once that a hold is lost, so that local tasks contend anew.
pub(crate) trait LossListener: std::fmt::Debug + Send + Sync {
    fn hold_lost(self: Arc<Self>, claim: ClaimId);
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub name: Name,
    pub claim: ClaimId,
    pub mode: Mode,
    pub label: Option<Label>,
    lease: Mutex<Lease>,
    /// Notified at each change of the lease's state.
    changed: Notify,
    /// When the watchdog checks the hold next, in nanoseconds; 0 while it is not scheduled.
    next_check: AtomicU64,
    /// How many tasks use the hold. Changed only under the mutex of their queue.
    users: AtomicU32,
    /// The first of the tokens that came with the grant.
    first: Token,
    /// The token of the task that entered it last.
    token: AtomicU64,
    /// The store said that it does not have the hold.
    not_held: AtomicBool,
    /// Renewals fail, and that was reported.
    failing: AtomicBool,
    events: EventOrder,
    /// When the hold began.
    since: Moment,
    /// How it was lost, once the store has been inspected.
    cause: OnceLock<LossCause>,
    listener: Weak<dyn LossListener>,
}

impl Hold {
    pub fn new(
        name: Name,
        mode: Mode,
        granted: &Granted,
        lease: Lease,
        listener: Weak<dyn LossListener>,
    ) -> Arc<Hold> {
        Arc::new(Hold {
            name,
            claim: granted.claim,
            mode,
            label: granted.label.clone(),
            lease: Mutex::new(lease),
            changed: Notify::new(),
            next_check: AtomicU64::new(0),
            users: AtomicU32::new(0),
            first: granted.grant.token,
            token: AtomicU64::new(granted.grant.token.get()),
            not_held: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            events: EventOrder::default(),
            since: granted.sent,
            cause: OnceLock::new(),
            listener,
        })
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn state(&self) -> LeaseState {
        self.state_at(Moment::now())
    }

    pub fn state_at(&self, now: Moment) -> LeaseState {
        self.lease().state(now)
    }

    pub fn is_held(&self) -> bool {
        is_held(self.state())
    }

    pub fn deadline(&self) -> Moment {
        self.lease().deadline()
    }

    pub fn at_risk_at(&self) -> Moment {
        self.lease().at_risk_at()
    }

    pub fn ends_at(&self) -> Moment {
        self.lease().ends_at()
    }

    /// Ends the hold in this process. Returns whether it was still held.
    pub fn release(&self) -> bool {
        let held = self.lease().release(Moment::now());
        self.changed.notify_waiters();
        held
    }

    pub fn due(&self, now: Moment) -> Due {
        self.lease().due(now)
    }

    /// Whether it may be renewed together with others that are due.
    pub fn may_renew(&self, now: Moment) -> bool {
        self.lease().may_renew(now)
    }

    pub fn next_due(&self) -> Option<Moment> {
        self.lease().next_due()
    }

    /// Whether the watchdog renews it. It does not renew a fixed lease.
    pub fn is_renewed(&self) -> bool {
        self.lease().is_renewed()
    }

    /// A renewal by the usual length. Void once the hold counts as lost: a late one must not prolong a hold that was given up.
    pub fn renewal(&self) -> Renewal {
        let (length, deadline) = {
            let lease = self.lease();
            (lease.length(), lease.deadline())
        };
        self.renewal_by(length, deadline)
    }

    /// A renewal by another length, void as [`renewal`](Hold::renewal) is. From now on the lease may last that long in the store,
    /// whatever the response.
    pub fn renewal_for(&self, length: Duration) -> Renewal {
        let deadline = {
            let mut lease = self.lease();
            lease.may_last_until(Moment::now() + length);
            lease.deadline()
        };
        self.renewal_by(length, deadline)
    }

    /// A renewal that only asks whether the store still has the hold. It changes nothing, so it is never late.
    pub fn existence_query(&self) -> Renewal {
        self.renewal_by(Duration::ZERO, Moment::NEVER)
    }

    fn renewal_by(&self, lease: Duration, not_after: Moment) -> Renewal {
        Renewal {
            name: self.name.clone(),
            claim: self.claim,
            lease,
            not_after,
        }
    }

    /// How long one lease is.
    pub fn length(&self) -> Duration {
        self.lease().length()
    }

    /// The store renewed the hold, by a request sent at `sent`.
    pub fn renewed(&self, sent: Moment) {
        let mut lease = self.lease();
        let length = lease.length();
        // The clock is read under the mutex: no caller that saw the lock lost sees it held again.
        lease.confirmed(sent, length, Moment::now());
        drop(lease);
        self.failing.store(false, SeqCst);
    }

    /// The store extended the lease by a request sent at `sent`. False if the response came too late.
    pub fn extended(&self, sent: Moment, length: Duration) -> bool {
        self.lease().confirmed(sent, length, Moment::now())
    }

    /// A renewal failed. Reported once, until one succeeds.
    pub fn renewal_failed(&self, now: Moment, error: &Error, observers: &Observers) {
        let deadline = {
            let mut lease = self.lease();
            lease.renewal_failed(now);
            lease.deadline()
        };
        if !self.failing.swap(true, SeqCst) {
            observers.event(&Event::RenewalFailed {
                name: &self.name,
                token: self.token(),
                mode: self.mode,
                error,
                deadline,
            });
        }
    }

    /// The store says that it does not have the hold. Returns whether the hold had not ended yet.
    pub fn set_not_held(&self) -> bool {
        let mut lease = self.lease();
        // If the lease had run out before, that is the cause, and may have been reported. Set under the mutex: a holder that
        // sees the loss finds its cause.
        if is_held(lease.state(Moment::now())) {
            self.not_held.store(true, SeqCst);
        }
        lease.lose()
    }

    /// The store did not have the hold when it was released.
    pub fn note_not_held(&self) {
        self.not_held.store(true, SeqCst);
    }

    /// The hold is lost. Returns whether the caller has to report it, as the first to say so.
    pub fn begin_loss(&self) -> bool {
        let is_first = self.events.begin_loss();
        if is_first {
            self.changed.notify_waiters();
            if let Some(listener) = self.listener.upgrade() {
                listener.hold_lost(self.claim);
            }
        }
        is_first
    }

    /// Reports the loss, and the releases that ended meanwhile. Called once.
    pub fn report_loss(&self, observers: &Observers) {
        observers.event(&Event::Lost {
            name: &self.name,
            token: self.token(),
            mode: self.mode,
            cause: self.loss_cause(),
        });
        loop {
            let ended = self.events.next();
            if ended.is_empty() {
                return;
            }
            for one in ended {
                self.event_released(&one, observers);
            }
        }
    }

    /// Reports that a task's turn has ended: after the loss, if there is one.
    pub(super) fn report_release(&self, ended: EndedTurn, observers: &Observers) {
        if let Some(ended) = self.events.release(ended) {
            self.event_released(&ended, observers);
        }
    }

    fn event_released(&self, ended: &EndedTurn, observers: &Observers) {
        observers.event(&Event::Released {
            name: &self.name,
            token: ended.token,
            mode: self.mode,
            held: ended.held,
        });
    }

    /// Why the hold was lost, if it was, as far as is known by now.
    pub fn loss_cause(&self) -> LossCause {
        if let Some(cause) = self.cause.get() {
            return cause.clone();
        }
        match (self.not_held.load(SeqCst), self.is_renewed()) {
            (true, _) => LossCause::NotHeld,
            (false, true) => LossCause::NotRenewed,
            (false, false) => LossCause::LeaseOver,
        }
    }

    /// The error of what cannot go on without the hold.
    pub fn lost_error(&self) -> Error {
        Error::Lost {
            name: self.name.clone(),
            cause: self.loss_cause(),
            now_held_by: None,
        }
    }

    /// Finds the cause of a loss in what the store shows of the name: whether the hold was broken.
    pub fn explain(&self, info: &LockInfo, fencing: Fencing) {
        let Some(broken) = &info.broken else {
            return;
        };
        if self.loss_cause() == LossCause::NotHeld && self.was_there(broken, fencing) {
            let _ = self.cause.set(LossCause::Broken(broken.clone()));
        }
    }

    /// Whether the hold was granted before this break, and so ended by it.
    fn was_there(&self, broken: &Broken, fencing: Fencing) -> bool {
        let since = SystemTime::now() - Moment::now().since(self.since);
        let by_token = UNIX_EPOCH + Duration::from_micros(self.first.get());
        match fencing {
            // The time of a break is the token that it took, above those of earlier grants and below those of later ones. A token
            // that is far ahead of the clock, since the clock was set back, says nothing of the time.
            Fencing::DataOrClock if by_token <= since + SKEW => broken.at >= by_token,
            // Two clocks are compared.
            _ => broken.at + SKEW >= since,
        }
    }

    pub fn report_at_risk(&self, observers: &Observers) {
        self.changed.notify_waiters();
        // A fixed lease is meant to end.
        if self.is_renewed() {
            observers.event(&Event::AtRisk {
                name: &self.name,
                token: self.token(),
                mode: self.mode,
                deadline: self.deadline(),
            });
        }
    }

    /// One more task uses the hold, with this token.
    pub fn enter(&self, token: Token) {
        self.users.fetch_add(1, SeqCst);
        self.token.store(token.get(), SeqCst);
    }

    /// One task less uses the hold. Returns how many are left.
    pub fn exit(&self) -> u32 {
        self.users.fetch_sub(1, SeqCst) - 1
    }

    /// How many tasks use the hold.
    pub fn users(&self) -> u32 {
        self.users.load(SeqCst)
    }

    fn token(&self) -> Token {
        Token::new(self.token.load(SeqCst))
    }

    /// Waits until the hold is lost; for ever if it never is.
    pub async fn lost(&self) {
        self.wait_for(|state| state == LeaseState::Lost).await;
    }

    /// Waits until the hold is at risk or lost.
    pub async fn at_risk(&self) {
        self.wait_for(|state| matches!(state, LeaseState::AtRisk | LeaseState::Lost))
            .await;
    }

    async fn wait_for(&self, wanted: impl Fn(LeaseState) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted(self.state()) {
                return;
            }
            changed.await;
        }
    }

    pub fn take_check(&self) -> Option<Moment> {
        match self.next_check.swap(0, SeqCst) {
            0 => None,
            nanos => Some(Moment::from_nanos(nanos)),
        }
    }

    pub fn set_check(&self, at: Moment) {
        self.next_check.store(at.as_nanos(), SeqCst);
    }
}
