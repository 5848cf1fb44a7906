//! One grant of the store, as this process holds it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Observers;
use super::arbiter::Arbiter;
use super::lease::{Due, Lease, Standing};
use super::waiting::Won;
use crate::clock::Moment;
use crate::store::{ClaimId, Mode, Renewal};
use crate::{Error, Event, Label, Name};

#[derive(Debug)]
pub(crate) struct Hold {
    pub name: Name,
    pub claim: ClaimId,
    pub mode: Mode,
    pub label: Option<Label>,
    lease: Mutex<Lease>,
    /// Notified at each change of the lease's standing.
    changed: Notify,
    /// The watchdog's next look, in nanoseconds; 0 when it does not look after this hold.
    look: AtomicU64,
    /// How many readers of this process use the hold. Changed only under the arbiter's mutex.
    sharers: AtomicU32,
    /// Whom to tell of the loss, so that local waiters contend anew.
    arbiter: Weak<Arbiter>,
}

impl Hold {
    pub fn new(
        name: Name,
        won: &Won,
        mode: Mode,
        lease: Lease,
        arbiter: &Arc<Arbiter>,
    ) -> Arc<Hold> {
        Arc::new(Hold {
            name,
            claim: won.claim,
            mode,
            label: won.label.clone(),
            lease: Mutex::new(lease),
            changed: Notify::new(),
            look: AtomicU64::new(0),
            sharers: AtomicU32::new(0),
            arbiter: Arc::downgrade(arbiter),
        })
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn standing(&self) -> Standing {
        self.standing_at(Moment::now())
    }

    pub fn standing_at(&self, now: Moment) -> Standing {
        self.lease().standing(now)
    }

    pub fn is_held(&self) -> bool {
        matches!(self.standing(), Standing::Held | Standing::AtRisk)
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

    /// Ends the hold on this side. Answers whether it was still held.
    pub fn release(&self) -> bool {
        let held = self.lease().release(Moment::now());
        self.changed.notify_waiters();
        held
    }

    pub fn due(&self, now: Moment) -> Due {
        self.lease().due(now)
    }

    /// Whether a renewal makes sense by now, if others are renewed anyway.
    pub fn may_renew(&self, now: Moment) -> bool {
        self.lease().may_renew(now)
    }

    pub fn next_due(&self) -> Option<Moment> {
        self.lease().next_due()
    }

    /// Whether the watchdog renews it; a fixed lease it does not.
    pub fn is_renewed(&self) -> bool {
        self.lease().is_renewed()
    }

    /// Asks for the usual length. Void when the hold counts as lost: one that is late must not prolong what was given up.
    pub fn renewal(&self) -> Renewal {
        let (length, deadline) = {
            let lease = self.lease();
            (lease.length(), lease.deadline())
        };
        self.ask(length, deadline)
    }

    /// Asks for another length, void as [`renewal`](Hold::renewal) is.
    pub fn renewal_for(&self, length: Duration) -> Renewal {
        self.ask(length, self.deadline())
    }

    /// Asks whether the store still has the hold. It changes nothing, so it is never late.
    pub fn question(&self) -> Renewal {
        self.ask(Duration::ZERO, Moment::NEVER)
    }

    fn ask(&self, lease: Duration, not_after: Moment) -> Renewal {
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

    /// The store renewed the hold, asked at `sent`.
    pub fn renewed(&self, sent: Moment) {
        let mut lease = self.lease();
        let length = lease.length();
        // The clock is read under the mutex: whoever saw the lock lost never sees it held again.
        lease.confirmed(sent, length, Moment::now());
    }

    /// The store granted `length` more, asked for at `sent`. False if that came too late.
    pub fn extended(&self, sent: Moment, length: Duration) -> bool {
        self.lease().confirmed(sent, length, Moment::now())
    }

    pub fn renewal_failed(&self, now: Moment, error: &Error, observers: &Observers) {
        let deadline = {
            let mut lease = self.lease();
            lease.renewal_failed(now);
            lease.deadline()
        };
        observers.event(&Event::RenewalFailed {
            name: &self.name,
            error,
            deadline,
        });
    }

    /// The store says that the hold is gone.
    pub fn gone(&self, observers: &Observers) {
        if self.lease().lose() {
            self.tell_lost(observers);
        }
    }

    pub fn tell_lost(&self, observers: &Observers) {
        self.changed.notify_waiters();
        if let Some(arbiter) = self.arbiter.upgrade() {
            arbiter.hold_lost(self.claim);
        }
        observers.event(&Event::Lost { name: &self.name });
    }

    pub fn tell_at_risk(&self, observers: &Observers) {
        self.changed.notify_waiters();
        observers.event(&Event::AtRisk {
            name: &self.name,
            deadline: self.deadline(),
        });
    }

    /// Waits until the hold is lost; for ever if it never is.
    pub async fn lost(&self) {
        self.wait_for(|standing| standing == Standing::Lost).await;
    }

    /// Waits until the hold is at risk or lost.
    pub async fn at_risk(&self) {
        self.wait_for(|standing| matches!(standing, Standing::AtRisk | Standing::Lost))
            .await;
    }

    async fn wait_for(&self, wanted: impl Fn(Standing) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted(self.standing()) {
                return;
            }
            changed.await;
        }
    }

    pub fn join_shared(&self) {
        self.sharers.fetch_add(1, SeqCst);
    }

    /// Answers how many readers are left.
    pub fn leave_shared(&self) -> u32 {
        self.sharers.fetch_sub(1, SeqCst) - 1
    }

    pub fn take_look(&self) -> Option<Moment> {
        match self.look.swap(0, SeqCst) {
            0 => None,
            nanos => Some(Moment::from_nanos(nanos)),
        }
    }

    pub fn set_look(&self, at: Moment) {
        self.look.store(at.as_nanos(), SeqCst);
    }
}
