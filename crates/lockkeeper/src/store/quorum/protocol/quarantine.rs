//! Keeps a node that restarted from voting until it is older than any lease.

use std::time::Duration;

use super::terms::Terms;
use crate::clock::Moment;
use crate::store::admission::Admission;

/// What a node says of itself on a new connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Check<R> {
    /// Names its run: another after every restart.
    pub run: R,
    /// For how long it is up, by its own clock.
    pub uptime: Duration,
    /// Its clock, in microseconds.
    pub now: u64,
    /// The longest lease of its clients, if it has a record of that.
    pub record: Option<Duration>,
}

/// What one client knows of one node, over all its connections.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Quarantine<R> {
    run: Option<R>,
    votes_from: Moment,
    /// Until when it votes for nobody, as it restarted under our eyes.
    forgot_until: Moment,
    /// It was a replica when it was looked at last.
    replica: bool,
    /// What it may have voted for before it was one, in the same run.
    floor: u64,
}

impl<R> Default for Quarantine<R> {
    fn default() -> Quarantine<R> {
        Quarantine {
            run: None,
            votes_from: Moment::BOOT,
            forgot_until: Moment::BOOT,
            replica: false,
            floor: 0,
        }
    }
}

impl<R: PartialEq> Quarantine<R> {
    /// A new connection is there, and the node said this of itself; `now` is a time after its answer came.
    pub fn connected(&mut self, terms: &Terms, check: Check<R>, now: Moment) -> Admission {
        let by_its_clock = match terms.sit_out.saturating_sub(check.uptime) {
            Duration::ZERO => Moment::BOOT,
            left => now + left,
        };
        let waited_out = now + terms.sit_out;
        if self.run.as_ref().is_some_and(|run| *run != check.run) {
            // It restarted under our eyes. Its clock may have been set in between; ours was not.
            self.votes_from = waited_out;
            // Other clients may take its vote from then on.
            self.forgot_until = by_its_clock;
            self.floor = 0;
        }
        if std::mem::take(&mut self.replica) {
            // As if it had started just now, whatever its age. Until it was a replica it may have voted for anybody.
            self.votes_from = waited_out;
            self.forgot_until = Moment::BOOT;
            self.floor = check.now.saturating_add(micros(terms.lead));
        }
        self.run = Some(check.run);
        self.votes_from = by_its_clock.max(self.votes_from);
        let booted = micros(check.uptime.saturating_sub(terms.grain));
        let booted = check.now.saturating_sub(booted);
        Admission {
            votes_from: self.votes_from,
            forgot_until: self.forgot_until,
            agrees: check.record == Some(terms.max_lease),
            floor: booted.saturating_add(micros(terms.lead)).max(self.floor),
        }
    }

    /// The node is a replica, and has what its master has: it may have forgotten all that it knew, without a restart.
    pub fn is_replica(&mut self) {
        self.replica = true;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn check(run: u32, uptime: u64) -> Check<u32> {
        Check {
            run,
            uptime: S(uptime),
            now: 1_000_000_000,
            record: None,
        }
    }

    #[test]
    fn a_young_node_sits_out_until_it_is_older_than_any_lease() {
        let terms = Terms::new(3, S(100));
        let now = Moment::BOOT + S(50);
        let mut node = Quarantine::default();
        let admission = node.connected(&terms, check(1, 60), now);
        assert_eq!(admission.sits_out(now), Some(S(42)));
        assert_eq!(admission.sits_out(now + S(42)), None);
        // It may have booted 59 seconds ago, and voted for a token a lead ahead just before.
        assert_eq!(admission.floor, 1_000_000_000 - 59_000_000 + 100_000_000);
        let old = Quarantine::default().connected(&terms, check(1, 102), now);
        assert_eq!(old.sits_out(now), None);
        assert!(old.floor < 1_000_000_000);
    }

    #[test]
    fn a_restart_that_was_seen_is_waited_out_by_our_clock_too() {
        let terms = Terms::new(3, S(100));
        let mut node = Quarantine::default();
        let t = Moment::BOOT + S(1_000);
        assert_eq!(node.connected(&terms, check(1, 500), t).sits_out(t), None);
        // Its clock was set forward with the restart: it seems old.
        let seen = node.connected(&terms, check(2, 500), t + S(1));
        assert_eq!(seen.sits_out(t + S(1)), Some(S(102)));
        let again = node.connected(&terms, check(2, 501), t + S(2));
        assert_eq!(again.sits_out(t + S(2)), Some(S(101)), "still");
        assert_eq!(
            node.connected(&terms, check(2, 900), t + S(103))
                .sits_out(t + S(103)),
            None
        );
    }

    #[test]
    fn a_node_that_was_a_replica_is_waited_out_whether_it_was_known_or_not() {
        let terms = Terms::new(3, S(100));
        let t = Moment::BOOT + S(1_000);
        let mut known = Quarantine::default();
        assert_eq!(known.connected(&terms, check(1, 500), t).sits_out(t), None);
        for mut node in [known, Quarantine::default()] {
            node.is_replica();
            let master = node.connected(&terms, check(1, 600), t);
            assert_eq!(master.sits_out(t), Some(S(102)));
            assert_eq!(master.sits_out(t + S(102)), None);
            // It may have voted for a token a lead ahead, just before it was a replica.
            assert_eq!(master.floor, 1_000_000_000 + 100_000_000);
            let later = Check {
                now: 1_050_000_000,
                ..check(1, 650)
            };
            let again = node.connected(&terms, later, t + S(50));
            assert_eq!(again.sits_out(t + S(50)), Some(S(52)), "still");
            assert_eq!(again.floor, master.floor, "still");
            // What it votes above after a restart does not depend on what was before.
            let restarted = node.connected(&terms, check(2, 0), t + S(60));
            assert_eq!(restarted.floor, 1_000_000_000 + 100_000_000);
            let older = node.connected(&terms, check(2, 500), t + S(560));
            assert!(older.floor < 1_000_000_000);
        }
    }

    #[test]
    fn only_a_node_that_restarted_is_known_to_have_voted_for_nobody_since() {
        let terms = Terms::new(3, S(100));
        let t = Moment::BOOT + S(1_000);
        let mut known = Quarantine::default();
        // It is young, but it was never seen before.
        assert!(!known.connected(&terms, check(1, 5), t).forgot(t));
        let t = t + S(500);
        // Its clock was set back.
        let set_back = known.clone().connected(&terms, check(1, 0), t);
        assert!(set_back.sits_out(t).is_some() && !set_back.forgot(t));
        let restarted = known.connected(&terms, check(2, 0), t);
        assert!(restarted.forgot(t) && !restarted.forgot(t + S(102)));
        assert!(
            known
                .connected(&terms, check(2, 1), t + S(1))
                .forgot(t + S(1))
        );
        let late = known.clone().connected(&terms, check(3, 500), t);
        assert!(
            late.sits_out(t).is_some() && !late.forgot(t),
            "it may vote for others"
        );
        // As a replica, and after that for clients that did not look, it may have done anything before it restarted.
        known.is_replica();
        let replica = known.connected(&terms, check(3, 0), t);
        assert!(replica.sits_out(t).is_some() && !replica.forgot(t));
    }

    #[test]
    fn only_a_record_of_the_same_longest_lease_agrees() {
        let terms = Terms::new(3, S(100));
        let agrees = |record| {
            let check = Check {
                record,
                ..check(1, 500)
            };
            let admission = Quarantine::default().connected(&terms, check, Moment::BOOT);
            admission.agrees
        };
        assert!(agrees(Some(S(100))));
        assert!(!agrees(Some(S(99))) && !agrees(None));
    }
}
