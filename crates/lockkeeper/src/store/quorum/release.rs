//! Lets go of holds, and of what rounds that failed may have left, on every node that was asked.

use std::pin::pin;
use std::sync::Arc;

use super::Inner;
use super::dialect::LettingGo;
use super::gather::Gather;
use super::holds::{Entry, NodeSet};
use super::node::Silence;
use super::protocol::{Life, Outcome, Poll, RoundId};
use crate::clock::Moment;
use crate::store::{ClaimId, Released};
use crate::{Error, Name};

/// Requests to let go of one round.
struct Parting {
    name: Name,
    what: LettingGo,
    /// When the leases have ended anyway.
    ends: Moment,
    answers: Gather<Result<Life, Silence>>,
}

impl Inner {
    pub(super) async fn release(
        self: &Arc<Self>,
        name: &Name,
        claim: ClaimId,
    ) -> Result<Released, Error> {
        // Of a claim that is not known, perhaps of another keeper, any round is meant.
        let entry = self.holds.begin_end(claim);
        let what = entry.map_or_else(|| any(claim), |entry| entry.letting_go());
        let asked = entry.map_or(NodeSet::all(self.nodes.len()), |entry| entry.asked);
        let ends = entry.map_or_else(Moment::now, |entry| self.end_of(&entry));
        self.dialect.keys(name)?;
        let mut poll = self.poll(entry.as_ref());
        let mut outcome = None;
        let mut silent = vec![None; self.nodes.len()];
        let mut parting = self.part(name.clone(), what, asked, ends, |number, life| {
            outcome = poll.answer(number, life).or(outcome);
        });
        let began = Moment::now();
        {
            let mut patience = pin!(self.patience(self.node_timeout));
            while outcome.is_none() {
                match parting.answers.next(patience.as_mut()).await {
                    Some((number, answer)) => {
                        let life = self.settle(&parting, number, answer, &mut silent);
                        outcome = poll.answer(number, life);
                    }
                    None => {
                        self.overdue(&parting.answers, &mut silent);
                        outcome = poll.close();
                    }
                }
            }
        }
        self.finish_later(parting, began + self.node_timeout);
        if entry.is_some() {
            self.holds.end(what.round);
        }
        match outcome {
            Some(Outcome::Kept) => Ok(released(true)),
            Some(Outcome::Gone) => Ok(released(false)),
            Some(Outcome::Unknown) | None => {
                let reason = "too few nodes answered to tell; those that did not are told when they are back";
                Err(Error::OutcomeUnknown {
                    store: super::STORE,
                    reason: self.with_nodes(reason, &silent),
                })
            }
        }
    }

    /// The answers about a hold, if it is one.
    fn poll(&self, entry: Option<&Entry>) -> Poll {
        let mut poll = Poll::new(self.terms);
        let now = Moment::now();
        let Some(entry) = entry.filter(|entry| entry.granted && now < entry.ends) else {
            return poll;
        };
        for (number, node) in self.nodes.iter().enumerate() {
            if entry.holds.has(number) && node.sits_out() {
                poll.excuse(number);
            }
        }
        poll
    }

    /// Takes back a round in the background. What is sent afterwards arrives afterwards.
    pub(super) async fn undo(self: &Arc<Self>, name: Name, entry: Entry) {
        let what = entry.letting_go();
        let mut parting = self.part(name, what, entry.asked, self.end_of(&entry), |_, _| {});
        parting.answers.start().await;
        self.finish_later(parting, Moment::now() + self.node_timeout);
    }

    /// When every node has ended a round by itself, if it came as late as it can.
    pub(super) fn end_of(&self, entry: &Entry) -> Moment {
        entry.ends.max(Moment::now()) + entry.lease + 2 * self.node_timeout
    }

    /// Asks every node that was asked. `silent` is told of those that need not be, or cannot be now.
    fn part(
        self: &Arc<Self>,
        name: Name,
        what: LettingGo,
        asked: NodeSet,
        ends: Moment,
        mut known: impl FnMut(usize, Life),
    ) -> Parting {
        let mut answers = Gather::new();
        for (number, node) in self.nodes.iter().enumerate() {
            if !asked.has(number) {
                known(number, Life::Gone);
                continue;
            }
            match node.ticket() {
                Ok(ticket) => {
                    answers.add(number, self.dialect.let_go(node, ticket, &name, what));
                }
                Err(_) => {
                    node.owe(name.clone(), what, ends);
                    known(number, Life::Silent);
                }
            }
        }
        Parting {
            name,
            what,
            ends,
            answers,
        }
    }

    fn settle(
        &self,
        parting: &Parting,
        number: usize,
        answer: Result<Life, Silence>,
        silent: &mut [Option<String>],
    ) -> Life {
        answer.unwrap_or_else(|silence| {
            if let Silence::Lost(_) = &silence {
                // It may have been done or not; to ask again is harmless.
                self.nodes[number].owe(parting.name.clone(), parting.what, parting.ends);
            }
            silent[number] = Some(silence.reason());
            Life::Silent
        })
    }

    fn finish_later(self: &Arc<Self>, mut parting: Parting, late: Moment) {
        if parting.answers.is_done() {
            return;
        }
        let inner = self.clone();
        self.runtime.spawn(async move {
            let mut silent = vec![None; inner.nodes.len()];
            {
                let mut patience = pin!(inner.patience(late.remaining()));
                while let Some((number, answer)) = parting.answers.next(patience.as_mut()).await {
                    inner.settle(&parting, number, answer, &mut silent);
                }
            }
            inner.overdue(&parting.answers, &mut silent);
            while let Some((number, answer)) = parting.answers.next_at_last().await {
                inner.settle(&parting, number, answer, &mut silent);
            }
        });
    }
}

/// Whatever round of a claim there is.
pub(super) fn any(claim: ClaimId) -> LettingGo {
    LettingGo {
        round: RoundId { claim, number: 0 },
        run: None,
    }
}

fn released(was_held: bool) -> Released {
    Released {
        was_held,
        regrant: None,
    }
}
