//! One try to get a majority of votes.

use std::cmp::Reverse;
use std::time::Duration;

use super::ballot::{RoundId, Run, Vote};
use super::terms::Terms;
use crate::clock::Moment;

/// The votes of one round, and what they come to.
///
/// Ask every node that may vote; report each answer, and [close](Round::close) it when none is waited for any longer. On
/// [`Step::Refused`], and when the round is given up undecided, withdraw it on **every** node that was asked, whatever
/// it answered or did not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Round {
    terms: Terms,
    id: RoundId,
    run: Run,
    lease: Duration,
    began: Moment,
    votes: Vec<Option<Vote>>,
    decision: Option<bool>,
}

/// What to do after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Wait for more answers.
    Wait,
    /// The claim holds. Answers still to come are reported all the same.
    Granted(Granted),
    /// It does not. Withdraw the round everywhere.
    Refused(Refusal),
    /// A late yes: this node keeps the hold as well.
    Joined,
    /// A late yes to a round that was refused: withdraw it at this node, again.
    Withdraw,
}

/// A majority keeps the hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Granted {
    /// Its tokens.
    pub run: Run,
    /// Until when, unless it is renewed.
    pub deadline: Moment,
    /// How many nodes said yes so far.
    pub votes: usize,
}

/// Why a round failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Others hold, or try.
    Busy {
        /// When enough nodes will be free for a majority, if each in the way has an end.
        free_in: Option<Duration>,
        /// Which of the two.
        rivals: Rivals,
    },
    /// Enough nodes would vote for another token. Try at once with a run that starts with this one.
    Again {
        /// The token that most nodes will take.
        first: u64,
    },
    /// The nodes' clocks and last tokens are so far apart that no token suits a majority.
    ClocksApart,
    /// Too many nodes got the request too late.
    TooLate,
    /// There is no majority until nodes that restarted may vote.
    SittingOut {
        /// When enough of them may.
        ready_in: Duration,
    },
    /// A majority does not answer.
    Unavailable,
    /// A majority said yes, but by then the lease was as good as over.
    TooSlow,
}

/// What is in the way of a round.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rivals {
    /// One that has a majority: wait until it is told that it ended.
    Hold,
    /// Several, none of whom can have one. Try again after a random pause, or they may do so for ever.
    Split,
    /// There may be a hold, or several that try, for all that was heard. The pause is needed here as well.
    Unclear,
}

impl Round {
    /// A round that proposes `run`. `began` is a time *before* the first request was sent.
    pub fn new(terms: Terms, id: RoundId, run: Run, lease: Duration, began: Moment) -> Round {
        Round {
            terms,
            id,
            run,
            lease,
            began,
            votes: vec![None; terms.nodes],
            decision: None,
        }
    }

    /// Which round.
    pub fn id(&self) -> RoundId {
        self.id
    }

    /// The tokens that it proposes.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Until when the hold would be valid.
    pub fn deadline(&self) -> Moment {
        self.terms.deadline(self.began, self.lease)
    }

    /// Each node's answer so far.
    pub fn votes(&self) -> &[Option<Vote>] {
        &self.votes
    }

    /// Whether it was granted; `None` while that is open.
    pub fn decision(&self) -> Option<bool> {
        self.decision
    }

    /// A node answered. After [`Vote::Silent`] it may still do so; else its first answer counts.
    pub fn vote(&mut self, node: usize, vote: Vote, now: Moment) -> Step {
        let heard = &mut self.votes[node];
        let first = heard.is_none_or(|heard| heard == Vote::Silent);
        if first {
            *heard = Some(vote);
        }
        match self.decision {
            None => self.decide(now),
            // Also a repeated one: the withdrawal of that node may be lost.
            Some(false) if vote == Vote::Yes => Step::Withdraw,
            Some(true) if vote == Vote::Yes && first => Step::Joined,
            Some(_) => Step::Wait,
        }
    }

    /// Waits no longer: who has not answered is silent.
    pub fn close(&mut self, now: Moment) -> Step {
        for vote in &mut self.votes {
            vote.get_or_insert(Vote::Silent);
        }
        match self.decision {
            None => self.decide(now),
            Some(_) => Step::Wait,
        }
    }

    /// How many nodes said yes.
    pub fn yes(&self) -> usize {
        self.count(|vote| vote == Vote::Yes)
    }

    fn count(&self, counts: impl Fn(Vote) -> bool) -> usize {
        let heard = self.votes.iter().flatten();
        heard.filter(|vote| counts(**vote)).count()
    }

    fn decide(&mut self, now: Moment) -> Step {
        let yes = self.yes();
        if yes >= self.terms.majority {
            let deadline = self.deadline();
            if now >= deadline {
                return self.refuse(Refusal::TooSlow);
            }
            self.decision = Some(true);
            return Step::Granted(Granted {
                run: self.run,
                deadline,
                votes: yes,
            });
        }
        let open = self.votes.iter().filter(|vote| vote.is_none()).count();
        let other_token = self.count(is_about_the_token);
        if other_token > 0 && yes + other_token >= self.terms.majority {
            // Do not wait for the rest: it may be stalled.
            let (first, takers) = self.another_token();
            if takers >= self.terms.majority {
                return self.refuse(Refusal::Again { first });
            }
            if takers.max(yes) + open < self.terms.majority {
                return self.refuse(Refusal::ClocksApart);
            }
            return Step::Wait;
        }
        // With those that would take another token, the rest may make a majority yet.
        if open > 0 && yes + other_token + open >= self.terms.majority {
            return Step::Wait;
        }
        let reason = self.reason(yes + other_token);
        // What is missing may be answers that are on their way.
        if open > 0 && !matches!(reason, Refusal::Busy { .. }) {
            return Step::Wait;
        }
        self.refuse(reason)
    }

    fn refuse(&mut self, refusal: Refusal) -> Step {
        self.decision = Some(false);
        Step::Refused(refusal)
    }

    /// Why there is no majority, if these many nodes might come to say yes at another try.
    fn reason(&self, willing: usize) -> Refusal {
        let missing = self.terms.majority.saturating_sub(willing);
        let busy = self.count(|vote| matches!(vote, Vote::Busy { .. }));
        if missing <= busy {
            return self.busy(missing);
        }
        let missing = missing - busy;
        let late = self.count(|vote| vote == Vote::TooLate);
        if missing <= late {
            return Refusal::TooLate;
        }
        let mut waits: Vec<Duration> = self.votes.iter().flatten().filter_map(sits_out).collect();
        waits.sort();
        match waits.get(missing - late - 1) {
            Some(ready_in) => Refusal::SittingOut {
                ready_in: *ready_in,
            },
            None => Refusal::Unavailable,
        }
    }

    fn busy(&self, missing: usize) -> Refusal {
        let (mut ends, mut holders) = (Vec::new(), Vec::new());
        for vote in self.votes.iter().flatten() {
            if let Vote::Busy { free_in, holder } = vote {
                ends.push(free_in.unwrap_or(Duration::MAX));
                holders.push(holder);
            }
        }
        ends.sort();
        let most = holders
            .iter()
            .map(|holder| holders.iter().filter(|other| *other == holder).count())
            .max();
        // The nodes that said nothing may be on its side.
        let heard = self.count(|vote| vote != Vote::Silent);
        let free_in = missing.checked_sub(1).and_then(|last| ends.get(last));
        let (most, majority) = (most.unwrap_or(0), self.terms.majority);
        Refusal::Busy {
            free_in: free_in.copied().filter(|end| *end != Duration::MAX),
            rivals: match most + self.terms.nodes - heard {
                _ if most >= majority => Rivals::Hold,
                at_most if at_most < majority => Rivals::Split,
                _ => Rivals::Unclear,
            },
        }
    }

    /// The first token of a run that most nodes would take, and how many would.
    fn another_token(&self) -> (u64, usize) {
        let used = self.run.last();
        let length = used - self.run.first;
        let lead = self.terms.lead.as_micros() as u64;
        // Once this round is withdrawn its own tokens are used up, but not where they were too far ahead. What nodes
        // say is not trusted to be sane.
        let wants = self.votes.iter().flatten().filter_map(wants);
        let wants = wants.map(|(last, now)| {
            let most = now.saturating_add(lead);
            (if used <= most { last.max(used) } else { last }, now, most)
        });
        let wants: Vec<(u64, u64, u64)> = wants.collect();
        let takers = |first: u64| {
            let takes = |(last, _, most): &&(u64, u64, u64)| {
                *last < first && first.saturating_add(length) <= *most
            };
            let yes = if first > used { self.yes() } else { 0 };
            yes + wants.iter().filter(takes).count()
        };
        let candidates = wants
            .iter()
            .map(|(last, now, _)| {
                // A claim that lagged behind goes just past the others; one that was ahead goes back to the clock.
                let above = last.saturating_add(1);
                if above > used { above } else { above.max(*now) }
            })
            .chain([used.saturating_add(1)]);
        let best = candidates
            .map(|first| (takers(first), Reverse(first)))
            .fold((0, Reverse(used)), Ord::max);
        (best.1.0, best.0)
    }
}

fn is_about_the_token(vote: Vote) -> bool {
    matches!(vote, Vote::Stale { .. } | Vote::Ahead { .. })
}

fn wants(vote: &Vote) -> Option<(u64, u64)> {
    match vote {
        Vote::Stale { last, now } | Vote::Ahead { last, now } => Some((*last, *now)),
        _ => None,
    }
}

fn sits_out(vote: &Vote) -> Option<Duration> {
    match vote {
        Vote::SittingOut { ready_in } => Some(*ready_in),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ClaimId, KeeperId};

    const T: Moment = Moment::BOOT;
    const LEASE: Duration = Duration::from_secs(10);
    const NOW: u64 = 1_800_000_000_000_000;

    fn round(nodes: usize, run: Run) -> Round {
        let claim = ClaimId {
            keeper: KeeperId::from_bits(7),
            number: 1,
        };
        let terms = Terms::new(nodes, LEASE);
        Round::new(terms, RoundId { claim, number: 1 }, run, LEASE, T)
    }

    fn of(nodes: usize) -> Round {
        let run = Run {
            first: NOW,
            count: 1,
        };
        round(nodes, run)
    }

    fn busy(secs: u64, holder: u64) -> Vote {
        Vote::Busy {
            free_in: Some(Duration::from_secs(secs)),
            holder: Some(holder),
        }
    }

    /// The step after the last of these answers.
    fn after(round: &mut Round, votes: &[Vote]) -> Step {
        let mut step = Step::Wait;
        for (node, vote) in votes.iter().enumerate() {
            assert_eq!(step, Step::Wait, "decided before node {node}");
            step = round.vote(node, *vote, T + Duration::from_secs(1));
        }
        step
    }

    fn refused(nodes: usize, votes: &[Vote]) -> Refusal {
        match after(&mut of(nodes), votes) {
            Step::Refused(refusal) => refusal,
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn a_majority_is_enough_and_later_votes_join() {
        let mut round = of(5);
        let step = after(&mut round, &[Vote::Yes, busy(1, 1), Vote::Yes, Vote::Yes]);
        let Step::Granted(granted) = step else {
            panic!("{step:?}")
        };
        assert_eq!(granted.votes, 3);
        assert_eq!(granted.deadline, T + Duration::from_millis(9_898));
        let late = T + Duration::from_secs(2);
        assert_eq!(round.vote(4, Vote::Yes, late), Step::Joined);
        assert_eq!(round.vote(4, Vote::Yes, late), Step::Wait, "told once");
        assert_eq!((round.yes(), round.decision()), (4, Some(true)));
    }

    #[test]
    fn a_majority_that_comes_when_the_lease_is_over_is_none() {
        let mut round = of(3);
        assert_eq!(round.vote(0, Vote::Yes, T), Step::Wait);
        let end = round.deadline();
        assert_eq!(
            round.vote(1, Vote::Yes, end),
            Step::Refused(Refusal::TooSlow)
        );
    }

    #[test]
    fn a_late_yes_to_a_refused_round_is_withdrawn_again() {
        let mut round = of(3);
        let step = after(&mut round, &[busy(3, 9), busy(2, 9)]);
        let busy = Refusal::Busy {
            free_in: Some(Duration::from_secs(3)),
            rivals: Rivals::Hold,
        };
        assert_eq!(step, Step::Refused(busy));
        assert_eq!(round.vote(2, Vote::Yes, T), Step::Withdraw);
        assert_eq!(round.vote(2, Vote::Yes, T), Step::Withdraw);
    }

    #[test]
    fn a_silent_node_may_still_vote_until_the_round_is_decided() {
        let mut round = of(3);
        assert_eq!(round.vote(0, Vote::Silent, T), Step::Wait);
        assert_eq!(round.vote(1, Vote::Yes, T), Step::Wait);
        assert!(matches!(round.vote(0, Vote::Yes, T), Step::Granted(_)));
        let mut round = of(3);
        round.vote(1, Vote::Yes, T);
        assert_eq!(round.close(T), Step::Refused(Refusal::Unavailable));
        assert_eq!(round.vote(0, Vote::Yes, T), Step::Withdraw);
    }

    #[test]
    fn reasons_name_what_stands_between_us_and_a_majority() {
        let rivals = |nodes, votes: &[Vote]| match refused(nodes, votes) {
            Refusal::Busy { rivals, .. } => rivals,
            refusal => panic!("{refusal:?}"),
        };
        let split = [Vote::Yes, busy(9, 1), busy(9, 2)];
        assert_eq!(rivals(3, &split), Rivals::Split);
        let late = [Vote::Yes, Vote::TooLate, busy(9, 2)];
        assert_eq!(rivals(3, &late), Rivals::Split);
        let missed = [busy(9, 1), Vote::Yes, Vote::Silent];
        assert_eq!(rivals(3, &missed), Rivals::Unclear);
        let early = [busy(9, 1), busy(9, 2)];
        assert_eq!(rivals(3, &early), Rivals::Unclear);
        let held = [Vote::Silent, busy(9, 1), busy(9, 1)];
        assert_eq!(rivals(3, &held), Rivals::Hold);
        let sitting = |secs| Vote::SittingOut {
            ready_in: Duration::from_secs(secs),
        };
        let wait = |secs| Refusal::SittingOut {
            ready_in: Duration::from_secs(secs),
        };
        assert_eq!(refused(3, &[sitting(5), sitting(3), Vote::Silent]), wait(5));
        assert_eq!(refused(3, &[Vote::Yes, sitting(5), sitting(3)]), wait(3));
        let down = [Vote::Yes, Vote::Silent, Vote::Silent];
        assert_eq!(refused(3, &down), Refusal::Unavailable);
        assert_eq!(
            refused(3, &[busy(1, 1), Vote::Silent, Vote::Silent]),
            Refusal::Unavailable
        );
        assert_eq!(
            refused(3, &[Vote::TooLate, Vote::TooLate, Vote::Silent]),
            Refusal::TooLate
        );
    }

    #[test]
    fn a_stale_token_is_followed_by_one_that_most_nodes_take() {
        let stale = |last| Vote::Stale { last, now: NOW };
        // At once: the third node may be stalled.
        let again = |first| Refusal::Again { first };
        assert_eq!(refused(3, &[Vote::Yes, stale(NOW + 7)]), again(NOW + 8));
        // A node that is busy does not keep the others from another token.
        assert_eq!(
            refused(3, &[stale(NOW + 7), busy(9, 1), Vote::Yes]),
            again(NOW + 8)
        );
        // One node's token is a day ahead; the others need not follow it.
        let day = 24 * 3_600 * 1_000_000;
        assert_eq!(
            refused(3, &[stale(NOW + day), stale(NOW + 7), stale(NOW + 5)]),
            again(NOW + 8)
        );
        // Our own clock is an hour ahead.
        let ahead = Vote::Ahead {
            last: NOW - day,
            now: NOW - day / 24,
        };
        assert_eq!(refused(3, &[ahead, ahead]), again(NOW - day / 24));
        assert_eq!(
            refused(3, &[stale(u64::MAX), stale(u64::MAX)]),
            Refusal::ClocksApart
        );
    }

    #[test]
    fn the_next_run_is_above_the_whole_run_that_some_took() {
        let run = Run {
            first: NOW,
            count: 100,
        };
        let mut round = round(3, run);
        let stale = Vote::Stale {
            last: NOW + 7,
            now: NOW,
        };
        let first = NOW + 100;
        assert_eq!(
            after(&mut round, &[Vote::Yes, stale]),
            Step::Refused(Refusal::Again { first })
        );
    }
}
