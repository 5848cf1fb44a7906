//! When a command has to end: the one rule that `lockkeeper` and its guardian both follow.

use std::time::Duration;

use lockkeeper::clock::Moment;

/// When a command that is still running is asked to end, and when it is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// TERM.
    pub term_at: Moment,
    /// KILL: the lock counts as lost from here on, and the lease ends on the server only later.
    pub kill_at: Moment,
}

impl Plan {
    /// For a lock that is at risk and lost at these moments, unless it is renewed: TERM half-way between.
    pub fn between(at_risk_at: Moment, lost_at: Moment) -> Plan {
        let at_risk_at = at_risk_at.min(lost_at);
        Plan {
            term_at: at_risk_at + lost_at.since(at_risk_at) / 2,
            kill_at: lost_at,
        }
    }

    /// For a lock that is gone already, perhaps into other hands: TERM now, KILL after a short grace.
    pub fn at_once(now: Moment, lease: Duration, lost_at: Moment) -> Plan {
        let grace = (lease / 10).min(Duration::from_secs(3));
        Plan {
            term_at: now,
            kill_at: (now + grace).min(lost_at.max(now)),
        }
    }

    /// As one line of text, for the guardian.
    pub fn to_line(self) -> String {
        let (term, kill) = (self.term_at.as_nanos(), self.kill_at.as_nanos());
        format!("plan {term} {kill}\n")
    }

    /// Inverse of [`Plan::to_line`], without the line end.
    pub fn from_line(line: &str) -> Option<Plan> {
        let (term, kill) = line.strip_prefix("plan ")?.split_once(' ')?;
        Some(Plan {
            term_at: Moment::from_nanos(term.parse().ok()?),
            kill_at: Moment::from_nanos(kill.parse().ok()?),
        })
    }
}

/// Follows a plan. Pure: the time is an argument.
#[derive(Debug)]
pub struct Enforcer {
    plan: Plan,
    termed: bool,
}

/// What a plan asks for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Nothing yet; look again after this long at the latest.
    Wait(Duration),
    /// Ask the command to end. Said once a plan.
    Term,
    /// End the command.
    Kill,
}

impl Enforcer {
    pub fn new(plan: Plan) -> Enforcer {
        Enforcer {
            plan,
            termed: false,
        }
    }

    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Follows another plan from now on.
    pub fn follow(&mut self, plan: Plan) {
        // A plan that still lies ahead came with a renewal: should that lock be lost too, ask again.
        if plan.term_at > self.plan.term_at {
            self.termed = false;
        }
        self.plan = plan;
    }

    pub fn due(&mut self, now: Moment) -> Due {
        if now >= self.plan.kill_at {
            Due::Kill
        } else if self.termed {
            Due::Wait(self.plan.kill_at.since(now))
        } else if now >= self.plan.term_at {
            self.termed = true;
            Due::Term
        } else {
            Due::Wait(self.plan.term_at.since(now))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::BOOT + Duration::from_secs(seconds)
    }

    #[test]
    fn term_comes_half_way_and_kill_when_the_lock_is_lost() {
        let mut enforcer = Enforcer::new(Plan::between(at(20), at(27)));
        assert_eq!(
            enforcer.due(at(0)),
            Due::Wait(Duration::from_millis(23_500))
        );
        assert_eq!(enforcer.due(at(24)), Due::Term);
        assert_eq!(enforcer.due(at(24)), Due::Wait(Duration::from_secs(3)));
        assert_eq!(enforcer.due(at(27)), Due::Kill);
        assert_eq!(enforcer.due(at(90)), Due::Kill);
    }

    #[test]
    fn a_renewal_puts_everything_off() {
        let mut enforcer = Enforcer::new(Plan::between(at(20), at(27)));
        assert_eq!(enforcer.due(at(24)), Due::Term);
        enforcer.follow(Plan::between(at(44), at(51)));
        assert!(matches!(enforcer.due(at(30)), Due::Wait(_)));
        assert_eq!(enforcer.due(at(48)), Due::Term);
    }

    #[test]
    fn a_broken_lock_ends_the_command_soon_but_never_after_its_deadline() {
        let lease = Duration::from_secs(30);
        let plan = Plan::at_once(at(10), lease, at(27));
        assert_eq!((plan.term_at, plan.kill_at), (at(10), at(13)));
        assert_eq!(Plan::at_once(at(26), lease, at(27)).kill_at, at(27));
        assert_eq!(Plan::at_once(at(28), lease, at(27)).kill_at, at(28));
    }

    #[test]
    fn plans_read_back() {
        let plan = Plan::between(at(1), at(2));
        assert_eq!(Plan::from_line(plan.to_line().trim_end()), Some(plan));
        for line in ["", "plan", "plan 1", "plan 1 x", "plan -1 2", "done"] {
            assert_eq!(Plan::from_line(line), None);
        }
    }
}
