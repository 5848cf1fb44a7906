//! The lease as its holder sees it: Held, AtRisk, Lost, Released. Pure; time is an argument.
//!
//! Everything counts from *before* the request was sent that the store served: the store cannot have
//! started the lease any earlier. After the last success at 0 and with lease L:
//!
//! ```text
//! 0 ........ L/3 ........ 2L/3 ........ L − max(10 %, 50 ms) ........ L (the store may grant to others)
//!            renew        AtRisk        Lost, for good
//! ```
//!
//! The first lease may be a shorter one (a direct grant): it has the same stages, until a renewal makes it the full one.

use std::time::Duration;

use crate::clock::Moment;

/// The state of a lease at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseState {
    Held,
    /// Renewal is overdue. A success brings it back to `Held`.
    AtRisk,
    /// For good: a late renewal does not bring it back.
    Lost,
    Released,
}

/// What the watchdog has to do for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Due {
    pub renew: bool,
    /// It has just come to be at risk.
    pub at_risk: bool,
    /// It has just been lost.
    pub lost: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    length: Duration,
    /// The length of the lease that `lost_at` is of.
    counted: Duration,
    renewed: bool,
    at_risk_at: Moment,
    lost_at: Moment,
    /// The latest time at which the lease may end in the store if nobody releases or renews it.
    ends_at: Moment,
    next_renewal: Moment,
    reported_at_risk: bool,
    end: Option<LeaseState>,
}

impl Lease {
    /// A lease of `first` granted to a request sent at `sent`; `renewed` if the watchdog is to renew it, to `length`.
    pub fn granted(sent: Moment, first: Duration, length: Duration, renewed: bool) -> Lease {
        let mut lease = Lease {
            length,
            counted: first,
            renewed,
            at_risk_at: sent,
            lost_at: sent,
            ends_at: sent,
            next_renewal: Moment::NEVER,
            reported_at_risk: false,
            end: None,
        };
        lease.count_from(sent, first);
        lease
    }

    fn count_from(&mut self, sent: Moment, length: Duration) {
        self.ends_at = self.ends_at.max(sent + length);
        let lost_at = sent + until_lost(length);
        if lost_at > self.lost_at {
            self.lost_at = lost_at;
            self.counted = length;
            self.reported_at_risk = false;
        }
        // Both count back from the loss, so that an extended lease is not renewed, nor at risk, too early.
        let usual = if self.renewed { self.pace() } else { length };
        let lost = until_lost(usual);
        // In a very short lease Lost comes before two thirds: stay a little ahead of it.
        let alarm = lost
            .saturating_sub(usual * 2 / 3)
            .max((lost - usual / 3) / 4);
        self.at_risk_at = self.lost_at - alarm;
        if self.renewed {
            // A short first lease is renewed soon, as a stall may outlast it, but not at once: a short hold needs no renewal.
            let part = if self.counted < self.length { 10 } else { 3 };
            self.next_renewal = self.lost_at - (lost - usual / part);
        }
    }

    /// The length that renewals are paced by: the usual one, unless the lease in the store is shorter.
    fn pace(&self) -> Duration {
        self.length.min(self.counted)
    }

    pub fn state(&self, now: Moment) -> LeaseState {
        match self.end {
            Some(end) => end,
            None if now >= self.lost_at => LeaseState::Lost,
            None if now >= self.at_risk_at => LeaseState::AtRisk,
            None => LeaseState::Held,
        }
    }

    /// When the lock counts as lost unless something happens before.
    pub fn deadline(&self) -> Moment {
        self.lost_at
    }

    pub fn ends_at(&self) -> Moment {
        self.ends_at
    }

    /// A request is on its way after which the lease may last until then in the store. In this process it counts once it is confirmed.
    pub fn may_last_until(&mut self, end: Moment) {
        self.ends_at = self.ends_at.max(end);
    }

    pub fn at_risk_at(&self) -> Moment {
        self.at_risk_at
    }

    pub fn length(&self) -> Duration {
        self.length
    }

    pub fn is_renewed(&self) -> bool {
        self.renewed
    }

    /// The store confirmed the hold for `length`, to a request sent at `sent`. False if that came too late.
    pub fn confirmed(&mut self, sent: Moment, length: Duration, now: Moment) -> bool {
        match self.state(now) {
            LeaseState::Held | LeaseState::AtRisk => {
                self.count_from(sent, length);
                true
            }
            // `end` stays empty: the loss is still to be reported.
            LeaseState::Lost | LeaseState::Released => false,
        }
    }

    /// A renewal failed. The nearer the deadline, the sooner is the next one.
    pub fn renewal_failed(&mut self, now: Moment) {
        if self.renewed {
            self.next_renewal = now + self.pause(now);
        }
    }

    fn pause(&self, now: Moment) -> Duration {
        let left = self.lost_at.since(now);
        (left / 6).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// The store does not have the hold. False if it had ended already.
    pub fn lose(&mut self) -> bool {
        let over = self.end.is_some();
        self.end.get_or_insert(LeaseState::Lost);
        !over
    }

    /// The holder releases it. Returns whether it was held until now.
    pub fn release(&mut self, now: Moment) -> bool {
        let held = matches!(self.state(now), LeaseState::Held | LeaseState::AtRisk);
        self.end.get_or_insert(if held {
            LeaseState::Released
        } else {
            LeaseState::Lost
        });
        held
    }

    /// What is due now. Each thing is returned once.
    pub fn due(&mut self, now: Moment) -> Due {
        let mut due = Due::default();
        if self.end.is_some() {
            return due;
        }
        if now >= self.lost_at {
            self.end = Some(LeaseState::Lost);
            due.lost = true;
            return due;
        }
        if now >= self.at_risk_at && !self.reported_at_risk {
            self.reported_at_risk = true;
            due.at_risk = true;
        }
        if self.may_renew(now) {
            due.renew = true;
            // The request may get lost, so another is sent after a pause, unless there is a response.
            self.next_renewal = now + (self.pace() / 6).max(self.pause(now));
        }
        due
    }

    /// Whether a renewal makes sense by now: a little early, so that leases which began one after the other can be renewed in one
    /// request.
    pub fn may_renew(&self, now: Moment) -> bool {
        self.end.is_none() && now + self.pace() / 30 >= self.next_renewal
    }

    /// When something is due next; `None` once it has ended.
    pub fn next_due(&self) -> Option<Moment> {
        if self.end.is_some() {
            return None;
        }
        let mut next = self.lost_at.min(self.next_renewal);
        if !self.reported_at_risk {
            next = next.min(self.at_risk_at);
        }
        Some(next)
    }
}

/// How long after its last success a lease counts as lost: the rest is the safety margin.
pub(crate) fn until_lost(length: Duration) -> Duration {
    length - (length / 10).max(Duration::from_millis(50)).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const S: fn(u64) -> Duration = Duration::from_secs;
    const T: Moment = Moment::from_nanos(1_000_000_000_000);

    fn full(sent: Moment, length: Duration, renewed: bool) -> Lease {
        Lease::granted(sent, length, length, renewed)
    }

    #[test]
    fn a_default_lease_passes_through_its_stages() {
        let lease = full(T, S(30), true);
        assert_eq!(lease.state(T + MS(19_999)), LeaseState::Held);
        assert_eq!(lease.state(T + S(20)), LeaseState::AtRisk);
        assert_eq!(lease.state(T + MS(26_999)), LeaseState::AtRisk);
        assert_eq!(lease.state(T + S(27)), LeaseState::Lost);
    }

    #[test]
    fn even_the_shortest_lease_has_every_stage_in_order() {
        let lease = full(T, crate::MIN_LEASE, true);
        assert!(lease.next_renewal < lease.at_risk_at);
        assert!(lease.at_risk_at < lease.lost_at);
        assert_eq!(lease.lost_at, T + MS(50));
    }

    #[test]
    fn each_thing_is_due_once() {
        let mut lease = full(T, S(30), true);
        assert_eq!(lease.due(T), Due::default());
        assert_eq!(lease.next_due(), Some(T + S(10)));
        let due = lease.due(T + S(10));
        assert!(due.renew && !due.at_risk);
        assert_eq!(lease.next_due(), Some(T + S(15)));
        assert!(lease.due(T + S(20)).at_risk);
        assert!(!lease.due(T + S(21)).at_risk);
        assert!(lease.due(T + S(27)).lost);
        assert_eq!(lease.due(T + S(28)), Due::default());
        assert_eq!(lease.next_due(), None);
    }

    #[test]
    fn a_renewal_may_come_a_little_early() {
        let mut lease = full(T, S(30), true);
        assert!(!lease.may_renew(T + MS(8_999)));
        assert!(lease.may_renew(T + S(9)));
        assert!(lease.due(T + S(9)).renew);
        assert!(!lease.may_renew(T + S(10)), "one is under way");
        assert!(!full(T, S(30), false).may_renew(T + S(26)));
    }

    #[test]
    fn a_renewal_counts_from_its_sending_and_ends_the_risk() {
        let mut lease = full(T, S(30), true);
        assert!(lease.confirmed(T + S(21), S(30), T + S(26)));
        assert_eq!(lease.deadline(), T + S(48));
        assert_eq!(lease.state(T + S(26)), LeaseState::Held);
    }

    #[test]
    fn a_renewal_after_the_loss_changes_nothing() {
        let mut lease = full(T, S(30), true);
        assert!(!lease.confirmed(T + S(26), S(30), T + S(27)));
        assert_eq!(lease.state(T + S(27)), LeaseState::Lost);
        assert!(lease.due(T + S(27)).lost, "reported all the same");
    }

    #[test]
    fn a_failed_renewal_is_retried_sooner_near_the_deadline() {
        let mut lease = full(T, S(30), true);
        lease.renewal_failed(T + S(10));
        assert_eq!(lease.next_renewal, T + S(11));
        lease.renewal_failed(T + MS(26_400));
        assert_eq!(lease.next_renewal, T + MS(26_500));
    }

    #[test]
    fn a_fixed_lease_is_never_renewed() {
        let mut lease = full(T, S(30), false);
        lease.renewal_failed(T + S(10));
        assert_eq!(lease.due(T + S(15)), Due::default());
        assert_eq!(lease.next_due(), Some(T + S(20)));
    }

    #[test]
    fn an_extension_is_not_shortened_by_the_renewals_that_follow() {
        let mut lease = full(T, S(30), true);
        assert!(lease.confirmed(T + S(1), S(300), T + S(1)));
        assert_eq!(lease.deadline(), T + S(271));
        assert!(lease.confirmed(T + S(10), S(30), T + S(10)));
        assert_eq!(lease.deadline(), T + S(271));
        // Nor is it renewed or at risk before its last part.
        assert_eq!(lease.next_renewal, T + S(254));
        assert_eq!(lease.at_risk_at(), T + S(264));
    }

    #[test]
    fn a_short_first_lease_has_stages_of_its_own_until_it_is_renewed() {
        let mut lease = Lease::granted(T, S(1), S(30), true);
        assert!(!lease.may_renew(T + MS(66)));
        assert_eq!(lease.next_due().map(|at| at.since(T)), Some(MS(100)));
        assert_eq!(lease.state(T + MS(666)), LeaseState::Held);
        assert_eq!(lease.state(T + MS(667)), LeaseState::AtRisk);
        assert_eq!(lease.state(T + MS(900)), LeaseState::Lost);
        assert!(lease.due(T + MS(100)).renew);
        // Unanswered, it is sent again while there is time.
        assert!(!lease.due(T + MS(200)).renew);
        assert!(lease.due(T + MS(267)).renew);
        assert!(lease.confirmed(T + MS(100), S(30), T + MS(268)));
        assert_eq!(lease.deadline(), T + MS(27_100));
        assert_eq!(lease.at_risk_at(), T + MS(20_100));
        assert_eq!(lease.next_renewal, T + MS(10_100));
        assert!(!lease.due(T + MS(999)).at_risk);
    }

    #[test]
    fn a_first_lease_that_is_past_its_tenth_is_renewed_at_once() {
        let now = T + MS(590);
        let mut lease = Lease::granted(T, S(1), S(30), true);
        assert!(lease.next_due().is_some_and(|at| at < now));
        let due = lease.due(now);
        assert!(due.renew && !due.at_risk && !due.lost);
        assert!(lease.confirmed(now, S(30), now + MS(1)));
        assert_eq!(lease.deadline(), now + S(27));
    }

    #[test]
    fn a_first_lease_that_is_extended_counts_from_that() {
        let mut lease = Lease::granted(T, S(1), S(30), true);
        assert!(lease.confirmed(T + MS(100), S(6), T + MS(100)));
        assert_eq!(lease.deadline(), T + MS(5_500));
        assert_eq!(lease.state(T + S(4)), LeaseState::Held);
        assert_eq!(lease.next_renewal, T + MS(700));
    }

    #[test]
    fn release_returns_whether_it_was_still_held() {
        let mut lease = full(T, S(30), true);
        assert!(lease.release(T + S(26)));
        assert!(!lease.release(T + S(26)));
        let mut lease = full(T, S(30), true);
        assert!(!lease.release(T + S(27)));
        assert!(!lease.lose());
    }
}
