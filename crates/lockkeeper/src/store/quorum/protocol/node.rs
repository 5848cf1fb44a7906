//! What a node does with each request: the reference for the scripts.

use std::time::Duration;

use super::ballot::{Ask, RoundId, Run, Vote};
use super::poll::Life;
use super::terms::Terms;
use crate::store::{Mode, may_stand_beside};

/// One name on one node: the votes that it keeps, as a [`Record`](crate::store::record::Record) has holds. Each verb is one
/// atomic step; `now` is the node's clock in microseconds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Node {
    /// The votes that stand, in the order in which they came.
    pub holds: Vec<Hold>,
    /// The last token it saw.
    pub last_token: u64,
}

/// One vote that stands. It is no hold by itself: a claim holds while a majority of nodes keeps one of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hold {
    /// For which round.
    pub round: RoundId,
    /// How it is held.
    pub mode: Mode,
    /// Its first token.
    pub token: u64,
    /// Its lease ends at this time of the node's clock.
    pub expires: u64,
}

/// What became of a re-add.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Added {
    /// The node keeps the hold again.
    Added,
    /// It keeps another, a rival's minority vote say.
    Busy,
}

impl Node {
    /// Votes, or says why not.
    pub fn acquire(&mut self, terms: &Terms, ask: &Ask, now: u64) -> Vote {
        if ask.not_after.is_some_and(|latest| now > latest) {
            return Vote::TooLate;
        }
        self.expire(now);
        let claim = ask.round.claim;
        match self.holds.iter().find(|hold| hold.round.claim == claim) {
            // The same request once more.
            Some(hold) if hold.round == ask.round => return Vote::Yes,
            Some(hold) if hold.round > ask.round => return Vote::TooLate,
            _ => {}
        }
        // An earlier round of the claim was refused, or there would be no later one.
        self.holds.retain(|hold| hold.round.claim != claim);
        if let Some(busy) = self.in_the_way(ask, now) {
            return busy;
        }
        let mut last = self.last_token.max(ask.floor);
        if ask.run.first < now.saturating_sub(micros(terms.lag)) {
            // Above its clock, and not just above what is too old now: that moves on.
            last = last.max(now);
        }
        if ask.run.first <= last {
            return Vote::Stale { last, now };
        }
        if ask.run.last() > now.saturating_add(micros(terms.lead)) {
            return Vote::Ahead { last, now };
        }
        self.keep(
            ask.round,
            ask.mode,
            ask.run,
            now.saturating_add(micros(ask.lease)),
        );
        Vote::Yes
    }

    /// Prolongs a hold that it keeps. Never shortens it.
    pub fn renew(&mut self, round: RoundId, lease: Duration, now: u64) -> Life {
        self.expire(now);
        match self.holds.iter_mut().find(|hold| hold.round == round) {
            Some(hold) => {
                hold.expires = hold.expires.max(now.saturating_add(micros(lease)));
                Life::Alive
            }
            None => Life::Gone,
        }
    }

    /// Keeps a hold again that a majority keeps and that this node lost, or never had. The hold has its tokens
    /// already, so they are not compared.
    pub fn re_add(
        &mut self,
        round: RoundId,
        mode: Mode,
        run: Run,
        lease: Duration,
        now: u64,
    ) -> Added {
        if self.renew(round, lease, now) == Life::Alive {
            return Added::Added;
        }
        if !mode.admits(self.holds.iter().map(|hold| hold.mode)) {
            return Added::Busy;
        }
        self.keep(round, mode, run, now.saturating_add(micros(lease)));
        Added::Added
    }

    /// Lets go of a hold: a release, or a withdrawal when it is not known to be one. What it undoes and arrives after
    /// it is refused, because its tokens are used up.
    pub fn release(&mut self, terms: &Terms, round: RoundId, run: Run, now: u64) -> Life {
        self.expire(now);
        let held = self.holds.iter().any(|hold| hold.round == round);
        let ends = |hold: &Hold| hold.round.claim == round.claim && hold.round <= round;
        self.holds.retain(|hold| !ends(hold));
        // Else a client whose clock is wrong could keep everybody out.
        if run.last() <= now.saturating_add(micros(terms.lead)) {
            self.last_token = self.last_token.max(run.last());
        }
        if held { Life::Alive } else { Life::Gone }
    }

    /// Forgets its last token, if its key was kept for this long.
    pub fn expire_token(&mut self, retention: Duration, now: u64) {
        if self.last_token.saturating_add(micros(retention)) < now {
            self.last_token = 0;
        }
    }

    /// Forgets what has ended.
    pub fn expire(&mut self, now: u64) {
        self.holds.retain(|hold| hold.expires > now);
    }

    fn keep(&mut self, round: RoundId, mode: Mode, run: Run, expires: u64) {
        self.last_token = self.last_token.max(run.last());
        self.holds.push(Hold {
            round,
            mode,
            token: run.first,
            expires,
        });
    }

    fn in_the_way(&self, ask: &Ask, now: u64) -> Option<Vote> {
        let excused = |hold: &Hold| {
            let held = (hold.round.claim, hold.mode);
            Some(held.0) == ask.beside && may_stand_beside((ask.round.claim, ask.mode), held)
        };
        let others = self.holds.iter().filter(|hold| !excused(hold));
        if ask.mode.admits(others.clone().map(|hold| hold.mode)) {
            return None;
        }
        let last_end = others.clone().map(|hold| hold.expires).max();
        Some(Vote::Busy {
            free_in: last_end.map(|end| Duration::from_micros(end - now)),
            holder: others.map(|hold| hold.token).max(),
        })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ClaimId, KeeperId};

    const NOW: u64 = 1_800_000_000_000_000;
    const S: u64 = 1_000_000;
    const LEASE: Duration = Duration::from_secs(10);

    fn terms() -> Terms {
        Terms::new(3, LEASE)
    }

    fn round(claim: u64, number: u64) -> RoundId {
        let keeper = KeeperId::from_bits(u128::from(claim));
        let claim = ClaimId {
            keeper,
            number: claim,
        };
        RoundId { claim, number }
    }

    fn ask(round: RoundId, first: u64) -> Ask {
        Ask {
            round,
            mode: Mode::Exclusive,
            lease: LEASE,
            run: Run { first, count: 10 },
            floor: 0,
            not_after: None,
            beside: None,
        }
    }

    #[test]
    fn a_vote_stands_until_its_lease_ends_and_is_given_once() {
        let mut node = Node::default();
        let (one, two) = (ask(round(1, 1), NOW), ask(round(2, 1), NOW + S));
        assert_eq!(node.acquire(&terms(), &one, NOW), Vote::Yes);
        assert_eq!(node.acquire(&terms(), &one, NOW + S), Vote::Yes, "the same");
        let busy = Vote::Busy {
            free_in: Some(Duration::from_secs(9)),
            holder: Some(NOW),
        };
        assert_eq!(node.acquire(&terms(), &two, NOW + S), busy);
        assert_eq!(node.acquire(&terms(), &two, NOW + 10 * S), Vote::Yes);
        assert_eq!(node.renew(one.round, LEASE, NOW + 10 * S), Life::Gone);
        assert_eq!(node.last_token, NOW + S + 9);
    }

    #[test]
    fn tokens_are_above_the_last_and_not_far_ahead() {
        let node = Node {
            last_token: NOW,
            ..Node::default()
        };
        let try_at = |first, floor| {
            let ask = Ask {
                floor,
                ..ask(round(1, 1), first)
            };
            node.clone().acquire(&terms(), &ask, NOW)
        };
        let (last, now) = (NOW, NOW);
        assert_eq!(try_at(NOW, 0), Vote::Stale { last, now });
        assert_eq!(try_at(NOW + 1, 0), Vote::Yes);
        assert_eq!(try_at(NOW + 10 * S - 9, 0), Vote::Yes);
        assert_eq!(try_at(NOW + 10 * S - 8, 0), Vote::Ahead { last, now });
        let last = NOW + 5;
        assert_eq!(try_at(NOW + 5, last), Vote::Stale { last, now });
    }

    #[test]
    fn a_token_that_was_forgotten_lets_no_lower_one_in() {
        let lag = micros(terms().lag);
        let retention = 2 * terms().lag;
        let mut node = Node {
            last_token: NOW,
            ..Node::default()
        };
        let at = |node: &Node, first, now| {
            node.clone()
                .acquire(&terms(), &ask(round(1, 1), first), now)
        };
        node.expire_token(retention, NOW + 2 * lag);
        assert_eq!(node.last_token, NOW, "it is kept until then");
        let now = NOW + 2 * lag + 1;
        node.expire_token(retention, now);
        assert_eq!(node.last_token, 0);
        // It is to be above the clock, and not just above what is too old now.
        let last = now;
        assert_eq!(at(&node, NOW, now), Vote::Stale { last, now });
        assert_eq!(at(&node, now - lag - 1, now), Vote::Stale { last, now });
        assert_eq!(at(&node, now - lag, now), Vote::Yes);
    }

    #[test]
    fn what_comes_after_its_withdrawal_is_refused() {
        let mut node = Node::default();
        let ask = ask(round(1, 1), NOW);
        assert_eq!(node.release(&terms(), ask.round, ask.run, NOW), Life::Gone);
        let (last, now) = (NOW + 9, NOW + 1);
        assert_eq!(node.acquire(&terms(), &ask, now), Vote::Stale { last, now });
        // A token far ahead would keep everybody out.
        let far = Run {
            first: NOW + 60 * S,
            count: 1,
        };
        node.release(&terms(), round(2, 1), far, NOW);
        assert_eq!(node.last_token, NOW + 9);
    }

    #[test]
    fn a_later_round_takes_the_place_of_an_earlier_one_and_never_the_reverse() {
        let mut node = Node::default();
        let (first, second) = (ask(round(1, 1), NOW), ask(round(1, 2), NOW + S));
        assert_eq!(node.acquire(&terms(), &first, NOW), Vote::Yes);
        assert_eq!(node.acquire(&terms(), &second, NOW), Vote::Yes);
        assert_eq!(node.acquire(&terms(), &first, NOW), Vote::TooLate);
        assert_eq!(
            node.release(&terms(), first.round, first.run, NOW),
            Life::Gone
        );
        assert_eq!(node.renew(second.round, LEASE, NOW), Life::Alive);
        assert_eq!(node.renew(first.round, LEASE, NOW), Life::Gone);
    }

    #[test]
    fn a_re_add_needs_room_but_no_token() {
        let mut node = Node {
            last_token: NOW + S,
            ..Node::default()
        };
        let (one, two) = (ask(round(1, 1), NOW), ask(round(2, 1), NOW + 2 * S));
        let mode = Mode::Exclusive;
        let add = |node: &mut Node, now| node.re_add(one.round, mode, one.run, LEASE, now);
        assert_eq!(add(&mut node, NOW), Added::Added);
        assert_eq!(add(&mut node, NOW + S), Added::Added, "prolonged");
        assert_eq!(node.holds.len(), 1);
        assert_eq!(node.last_token, NOW + S);
        assert_eq!(node.acquire(&terms(), &two, NOW + 11 * S), Vote::Yes);
        assert_eq!(add(&mut node, NOW + 11 * S), Added::Busy);
    }

    #[test]
    fn readers_share_and_a_writer_becomes_one() {
        let mut node = Node::default();
        let of = |claim, mode, first| Ask {
            mode,
            ..ask(round(claim, 1), first)
        };
        let write = of(1, Mode::Write, NOW);
        assert_eq!(node.acquire(&terms(), &write, NOW), Vote::Yes);
        let read = of(2, Mode::Read, NOW + S);
        let busy = |vote| matches!(vote, Vote::Busy { .. });
        assert!(busy(node.acquire(&terms(), &read, NOW)));
        let mut own = of(3, Mode::Read, NOW + S);
        own.round.claim.keeper = write.round.claim.keeper;
        own.beside = Some(write.round.claim);
        assert_eq!(node.acquire(&terms(), &own, NOW), Vote::Yes);
        let read = of(2, Mode::Read, NOW + 2 * S);
        assert!(busy(node.acquire(&terms(), &read, NOW)));
        node.release(&terms(), write.round, write.run, NOW);
        assert_eq!(node.acquire(&terms(), &read, NOW), Vote::Yes);
        let write = of(4, Mode::Write, NOW + 3 * S);
        assert!(busy(node.acquire(&terms(), &write, NOW)));
    }

    #[test]
    fn nothing_is_let_in_past_its_time() {
        let mut node = Node::default();
        let ask = Ask {
            not_after: Some(NOW),
            ..ask(round(1, 1), NOW)
        };
        assert_eq!(node.acquire(&terms(), &ask, NOW + 1), Vote::TooLate);
        assert_eq!(node.acquire(&terms(), &ask, NOW), Vote::Yes);
    }
}
