//! Asks every node whether it keeps a hold: to renew it, or to let go of it.

use super::terms::Terms;

/// A node's answer about one hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Life {
    /// It kept the hold until the request came.
    Alive,
    /// It does not keep it: it never voted for it, or its lease ended, or it lost its data.
    Gone,
    /// There is no answer (yet).
    Silent,
}

/// What the answers come to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// A majority kept it, and nobody else can have had it.
    Kept,
    /// So many did not that there is no majority left that can have kept it.
    Gone,
    /// Too many did not answer to tell.
    Unknown,
}

/// The answers about one hold. To release it, ask every node and take the first outcome for the answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Poll {
    terms: Terms,
    answers: Vec<Option<Life>>,
    /// Nodes whose [`Life::Gone`] does not mean that another may have had their vote.
    excused: Vec<usize>,
    outcome: Option<Outcome>,
}

impl Poll {
    /// A poll that nobody answered yet.
    pub fn new(terms: Terms) -> Poll {
        Poll {
            terms,
            answers: vec![None; terms.nodes],
            excused: Vec::new(),
            outcome: None,
        }
    }

    /// A node voted for the hold, whose lease has not ended, has restarted since and sits out: if it keeps the hold no more,
    /// it forgot it, and has voted for nobody else since. So it counts as if it had kept it.
    pub fn excuse(&mut self, node: usize) {
        self.excused.push(node);
    }

    /// Each node's answer so far.
    pub fn answers(&self) -> &[Option<Life>] {
        &self.answers
    }

    /// What came out, once that is known.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// A node answered. After [`Life::Silent`] it may still do so; else its first answer counts. Answers the outcome
    /// when it is known by this; [`Outcome::Unknown`] may be followed by another.
    pub fn answer(&mut self, node: usize, life: Life) -> Option<Outcome> {
        let life = match life {
            Life::Gone if self.excused.contains(&node) => Life::Alive,
            life => life,
        };
        let heard = &mut self.answers[node];
        if heard.is_none_or(|heard| heard == Life::Silent) {
            *heard = Some(life);
        }
        self.decide()
    }

    /// Waits no longer: who has not answered is silent.
    pub fn close(&mut self) -> Option<Outcome> {
        for answer in &mut self.answers {
            answer.get_or_insert(Life::Silent);
        }
        self.decide()
    }

    /// How many nodes answered this.
    pub fn count(&self, life: Life) -> usize {
        let heard = self.answers.iter().flatten();
        heard.filter(|heard| **heard == life).count()
    }

    fn decide(&mut self) -> Option<Outcome> {
        let outcome = if self.count(Life::Alive) >= self.terms.majority {
            Outcome::Kept
        } else if self.count(Life::Gone) > self.terms.minority() {
            Outcome::Gone
        } else if self.answers.iter().all(Option::is_some) {
            Outcome::Unknown
        } else {
            return None;
        };
        let before = self.outcome.replace(outcome);
        (before != Some(outcome)).then_some(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(answers: &[Life]) -> Option<Outcome> {
        let mut poll = Poll::new(Terms::new(3, Duration::from_secs(1)));
        let told = answers
            .iter()
            .enumerate()
            .map(|(node, life)| poll.answer(node, *life));
        told.last().flatten()
    }

    #[test]
    fn a_majority_tells_and_so_does_its_absence() {
        use Life::*;
        assert_eq!(outcome(&[Alive]), None);
        assert_eq!(outcome(&[Alive, Alive]), Some(Outcome::Kept));
        assert_eq!(outcome(&[Gone, Gone]), Some(Outcome::Gone));
        assert_eq!(outcome(&[Gone, Alive, Silent]), Some(Outcome::Unknown));
        assert_eq!(outcome(&[Gone, Silent, Silent]), Some(Outcome::Unknown));
    }

    #[test]
    fn a_node_that_forgot_it_and_sits_out_has_given_it_to_nobody_else() {
        use Life::*;
        // Held on three of five.
        let outcome = |excused: &[usize], answers: [Life; 5]| {
            let mut poll = Poll::new(Terms::new(5, Duration::from_secs(1)));
            excused.iter().for_each(|node| poll.excuse(*node));
            for (node, life) in answers.into_iter().enumerate() {
                poll.answer(node, life);
            }
            poll.outcome()
        };
        let one_forgot = [Alive, Alive, Gone, Gone, Gone];
        assert_eq!(outcome(&[2], one_forgot), Some(Outcome::Kept));
        // It votes again, or another ended the hold there.
        assert_eq!(outcome(&[], one_forgot), Some(Outcome::Gone));
        let broken = [Gone, Gone, Gone, Gone, Gone];
        assert_eq!(outcome(&[2], broken), Some(Outcome::Gone));
        // It is silent as any other.
        let silent = [Alive, Alive, Silent, Gone, Gone];
        assert_eq!(outcome(&[2], silent), Some(Outcome::Unknown));
    }

    #[test]
    fn a_late_answer_can_still_tell() {
        let mut poll = Poll::new(Terms::new(3, Duration::from_secs(1)));
        poll.answer(0, Life::Alive);
        assert_eq!(poll.close(), Some(Outcome::Unknown));
        assert_eq!(poll.answer(2, Life::Alive), Some(Outcome::Kept));
        assert_eq!(poll.answer(1, Life::Gone), None, "told once");
        assert_eq!(poll.outcome(), Some(Outcome::Kept));
    }
}
