//! Keeps a hold alive.

use std::time::Duration;

use super::poll::{Life, Outcome, Poll};
use super::terms::Terms;
use crate::clock::Moment;

/// One renewal of one hold: which nodes still keep it, and which are to be re-added.
///
/// Ask every node to renew; report each answer, and [close](Renewal::close) it when none is waited for any longer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Renewal {
    poll: Poll,
    /// Until when the hold is valid if this succeeds.
    deadline: Moment,
    renewed: bool,
}

/// What to do after an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Wait for more answers.
    Wait,
    /// The hold goes on. Re-add these nodes, if they may vote; they count from the next renewal on.
    Renewed {
        /// Until when it is valid now.
        deadline: Moment,
        /// The nodes that do not keep it.
        re_add: Vec<usize>,
    },
    /// This node does not keep a hold that goes on: re-add it, if it may vote.
    ReAdd,
    /// The hold is lost for good. Withdraw it everywhere, unless it is being released: every node is asked to let go of it
    /// then, and which of them still had it is the answer.
    Lost,
    /// Too few answered to tell, or too late. The hold is as valid as it was before: try again.
    Unknown,
}

impl Renewal {
    /// A renewal for `lease`. `sent` is a time *before* the first request was sent.
    pub fn new(terms: Terms, lease: Duration, sent: Moment) -> Renewal {
        Renewal {
            poll: Poll::new(terms),
            deadline: terms.deadline(sent, lease),
            renewed: false,
        }
    }

    /// Each node's answer so far.
    pub fn answers(&self) -> &[Option<Life>] {
        self.poll.answers()
    }

    /// A node answered.
    pub fn answer(&mut self, node: usize, life: Life, now: Moment) -> Step {
        let first = self.poll.answers()[node].is_none_or(|heard| heard == Life::Silent);
        match self.poll.answer(node, life) {
            Some(outcome) => self.step(outcome, now),
            None if self.renewed && first && life == Life::Gone => Step::ReAdd,
            None => Step::Wait,
        }
    }

    /// Waits no longer: who has not answered is silent.
    pub fn close(&mut self, now: Moment) -> Step {
        match self.poll.close() {
            Some(outcome) => self.step(outcome, now),
            None => Step::Wait,
        }
    }

    fn step(&mut self, outcome: Outcome, now: Moment) -> Step {
        let gone =
            |(node, life): (usize, &Option<Life>)| (*life == Some(Life::Gone)).then_some(node);
        match outcome {
            Outcome::Kept if now >= self.deadline => Step::Unknown,
            Outcome::Kept => {
                self.renewed = true;
                Step::Renewed {
                    deadline: self.deadline,
                    re_add: self.answers().iter().enumerate().filter_map(gone).collect(),
                }
            }
            Outcome::Gone => Step::Lost,
            Outcome::Unknown => Step::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Moment = Moment::BOOT;
    const LEASE: Duration = Duration::from_secs(10);

    fn renewal() -> Renewal {
        Renewal::new(Terms::new(3, LEASE), LEASE, T)
    }

    #[test]
    fn nodes_are_re_added_once_a_majority_kept_the_hold() {
        let mut renewal = renewal();
        assert_eq!(renewal.answer(0, Life::Gone, T), Step::Wait);
        assert_eq!(renewal.answer(1, Life::Alive, T), Step::Wait);
        let renewed = Step::Renewed {
            deadline: T + Duration::from_millis(9_898),
            re_add: vec![0],
        };
        assert_eq!(renewal.answer(2, Life::Alive, T), renewed);
        let mut renewal = self::renewal();
        renewal.answer(0, Life::Alive, T);
        renewal.answer(1, Life::Alive, T);
        assert_eq!(renewal.answer(2, Life::Gone, T), Step::ReAdd, "late");
        assert_eq!(renewal.answer(2, Life::Gone, T), Step::Wait, "told once");
    }

    #[test]
    fn a_hold_without_a_majority_is_lost_and_nothing_is_re_added() {
        let mut renewal = renewal();
        assert_eq!(renewal.answer(0, Life::Gone, T), Step::Wait);
        assert_eq!(renewal.answer(1, Life::Gone, T), Step::Lost);
        assert_eq!(renewal.answer(2, Life::Alive, T), Step::Wait);
    }

    #[test]
    fn silence_decides_nothing() {
        let mut renewal = renewal();
        renewal.answer(0, Life::Gone, T);
        renewal.answer(1, Life::Alive, T);
        assert_eq!(renewal.close(T), Step::Unknown);
        // In time after all.
        assert!(matches!(
            renewal.answer(2, Life::Alive, T),
            Step::Renewed { .. }
        ));
        let mut renewal = self::renewal();
        renewal.answer(0, Life::Alive, T);
        assert_eq!(renewal.answer(1, Life::Alive, T + LEASE), Step::Unknown);
        assert_eq!(renewal.answer(2, Life::Gone, T + LEASE), Step::Wait);
    }
}
