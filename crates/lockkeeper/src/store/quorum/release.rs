//! Lets go of holds, and of what rounds that failed may have left, on every node that was asked.

use std::cell::OnceCell;
use std::sync::Arc;

use ::redis::Value;

use super::Inner;
use super::dialect::{LettingGo, read_life};
use super::holds::{Entry, NodeSet};
use super::node::{Node, Silence};
use super::protocol::{Life, Outcome, Poll, RoundId};
use super::question::{Count, Question, Silent};
use crate::clock::Moment;
use crate::store::redis::keys::Keys;
use crate::store::redis::node::Ticket;
use crate::store::{ClaimId, Released};
use crate::{Error, Name};

/// The answers of nodes that let go of one round.
struct Parting {
    name: Name,
    what: LettingGo,
    /// When the leases have ended anyway.
    ends: Moment,
    poll: Poll,
    leaves: Option<Leaves>,
}

/// Nodes have not answered yet that they let go.
struct Leaves {
    inner: Arc<Inner>,
    number: u64,
}

impl Leaves {
    fn of(inner: &Arc<Inner>) -> Leaves {
        let mut number = 0;
        inner
            .partings
            .send_modify(|partings| number = partings.begin());
        Leaves {
            inner: inner.clone(),
            number,
        }
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        let Leaves { inner, number } = self;
        inner.partings.send_modify(|partings| partings.end(*number));
    }
}

impl Inner {
    pub(super) async fn release(
        self: &Arc<Self>,
        name: &Name,
        claim: ClaimId,
    ) -> Result<Released, Error> {
        let keys = self.dialect.keys(name)?;
        // Of a claim that is not known, perhaps of another keeper, any round is meant.
        let entry = self.holds.begin_end(claim);
        let known = entry.as_ref();
        let what = known.map_or_else(|| any(claim), Entry::letting_go);
        let asked = known.map_or(NodeSet::all(self.nodes.len()), |entry| entry.asked);
        let ends = known.map_or_else(Moment::now, |entry| self.end_of(entry));
        let poll = self.poll(known);
        let parting = self.part(name.clone(), &keys, what, asked, ends, poll);
        let (outcome, silent) = parting.outcome().await;
        if entry.is_some() {
            self.holds.end(what.round);
        }
        match outcome {
            Outcome::Kept => Ok(released(true)),
            Outcome::Gone => Ok(released(false)),
            Outcome::Unknown => {
                let reason = "too few nodes answered to tell; those that did not are told when they are back";
                Err(Error::outcome_unknown(
                    super::STORE,
                    self.with_nodes(reason, silent.reasons()),
                ))
            }
        }
    }

    /// Waits until every node that keeps up has answered that it let go of what it was asked to by now.
    pub(super) async fn have_parted(&self) {
        let mut partings = self.partings.subscribe();
        let last = partings.borrow().last_begun();
        let _ = partings
            .wait_for(|partings| partings.have_ended(last))
            .await;
    }

    /// The answers about a hold, if it is one.
    fn poll(&self, entry: Option<&Entry>) -> Poll {
        let mut poll = Poll::new(self.terms);
        let now = Moment::now();
        let Some(entry) = entry.filter(|entry| entry.granted && now < entry.ends) else {
            return poll;
        };
        for (number, node) in self.nodes.iter().enumerate() {
            if entry.holds.has(number) && node.forgot() {
                poll.excuse(number);
            }
        }
        poll
    }

    /// Takes back a round in the background. What is sent afterwards arrives afterwards.
    pub(super) fn undo(self: &Arc<Self>, name: Name, entry: Entry) {
        if let Ok(keys) = self.dialect.keys(&name) {
            let (what, ends) = (entry.letting_go(), self.end_of(&entry));
            let poll = Poll::new(self.terms);
            self.part(name, &keys, what, entry.asked, ends, poll);
        }
    }

    /// Has these nodes let go of a round, in the background. `ends`: when its lease has ended it anyway.
    pub(super) fn end_on(
        self: &Arc<Self>,
        name: Name,
        keys: &Keys,
        round: RoundId,
        nodes: NodeSet,
        ends: Moment,
    ) {
        let what = LettingGo { round, run: None };
        self.part(name, keys, what, nodes, ends, Poll::new(self.terms));
    }

    /// When every node has ended a round by itself, if it came as late as it can.
    pub(super) fn end_of(&self, entry: &Entry) -> Moment {
        entry.ends.max(Moment::now()) + entry.lease + 2 * self.node_timeout
    }

    /// Asks every node that was asked. Those that are behind are told and not waited for; those that cannot be told now
    /// are owed it.
    fn part(
        self: &Arc<Self>,
        name: Name,
        keys: &Keys,
        what: LettingGo,
        asked: NodeSet,
        ends: Moment,
        mut poll: Poll,
    ) -> Arc<Question<Parting>> {
        let mut silent = Silent::default();
        let mut tickets = Vec::with_capacity(self.nodes.len());
        let mut behind = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            if !asked.has(number) {
                poll.answer(number, Life::Gone);
                continue;
            }
            match node.ticket() {
                Ok(ticket) => tickets.push((number, ticket)),
                Err(reason) => {
                    match node.behind_on() {
                        Some(ticket) => behind.push((number, ticket)),
                        None => node.owe(name.clone(), what, ends),
                    }
                    silent.note(number, reason);
                    poll.answer(number, Life::Silent);
                }
            }
        }
        let call = Arc::new(self.dialect.letting_go(keys, what));
        // Nobody stays for the answers after the majority's: a process may end by then. A node that had to ask for the
        // script would not get it, and would keep its vote.
        let in_full = OnceCell::new();
        let call = |node: &Node, ticket: &Ticket| match node.to_be_taught(ticket) {
            true => Arc::clone(in_full.get_or_init(|| Arc::new(call.written_out()))),
            false => call.clone(),
        };
        let parting = |poll, leaves| Parting {
            name: name.clone(),
            what,
            ends,
            poll,
            leaves,
        };
        if !behind.is_empty() {
            let told = parting(Poll::new(self.terms), None);
            let unknown = Some(Outcome::Unknown);
            Question::put(self, told, unknown, Silent::default(), behind, call);
        }
        let known = poll.outcome();
        let parting = parting(poll, Some(Leaves::of(self)));
        Question::put(self, parting, known, silent, tickets, call)
    }
}

impl Count for Parting {
    type Outcome = Outcome;

    fn take(
        &mut self,
        inner: &Inner,
        number: usize,
        answer: Result<Value, Silence>,
        silent: &mut Silent,
    ) -> Option<Outcome> {
        let life = match answer {
            Ok(answer) => read_life(&answer),
            Err(silence) => {
                if let Silence::Lost(_) = &silence {
                    // It may have been done or not; to ask again is harmless.
                    inner.nodes[number].owe(self.name.clone(), self.what, self.ends);
                }
                silent.note(number, silence.reason());
                Life::Silent
            }
        };
        self.poll.answer(number, life)
    }

    fn close(&mut self) -> Option<Outcome> {
        self.poll.close()
    }

    fn overdue(&mut self) {
        self.leaves = None;
    }
}

/// Whatever round of a claim there is.
fn any(claim: ClaimId) -> LettingGo {
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
