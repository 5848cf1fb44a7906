//! Drives rounds: asks the nodes, reports their answers, and does what the protocol says.

use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;
use uuid::Uuid;

use super::dialect::{on_node, read_vote};
use super::holds::{Entry, NodeSet};
use super::node::Silence;
use super::protocol::{Ask, Granted, Refusal, Rivals, Round, RoundId, Run, Step, Vote};
use super::question::{Count, Question, Silent};
use super::{Inner, renew};
use crate::clock::{Clock, Moment};
use crate::store::redis::keys::Keys;
use crate::store::{Attempt, Claim};
use crate::{Error, Name};

/// How many rounds a try has at most: the first, another token, a better idea of the nodes' clocks.
const ROUNDS: usize = 4;
/// The furthest that a reserved run may be ahead of the clock, in microseconds.
const MOST_TOKENS: u64 = 1_000_000;
/// Those who tried at once try again after a random pause. It is up to twice as long as the votes took, so that the nodes
/// are free of one while another asks them, also where the way to them is long; within these bounds, as a node may be stalled.
const LEAST_PAUSE: Duration = Duration::from_millis(2);
const LONG_PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_millis(200);

/// What a round came to, and why which nodes said nothing.
enum Ended {
    Granted(Granted),
    Refused(Refusal, Silent),
}

impl Inner {
    pub(super) async fn acquire(self: &Arc<Self>, claim: &Claim) -> Result<Attempt, Error> {
        self.check_mode(claim.mode)?;
        self.check_lease(claim.lease)?;
        let keys = self.dialect.keys(&claim.name)?;
        if Moment::now() > claim.not_after {
            return Ok(Attempt::TooLate);
        }
        if let Some(entry) = self.holds.get(claim.id).filter(|entry| entry.granted)
            && self.is_still_held(claim, &entry).await?
        {
            return Ok(granted(entry.run));
        }
        let mut first = Clock::real().unix_micros();
        for _ in 0..ROUNDS {
            let began = Moment::now();
            match self.round(claim, &keys, first).await {
                Ended::Granted(won) => return Ok(granted(won.run)),
                Ended::Refused(Refusal::Again { first: better }, _) => first = better,
                // Once more, with a better idea of the nodes' clocks.
                Ended::Refused(Refusal::TooLate, _) if Moment::now() <= claim.not_after => {
                    first = first.max(Clock::real().unix_micros());
                }
                Ended::Refused(refusal, silent) => {
                    // Here, as waiters follow hints: votes given back are some, and with them those who keep a
                    // node each would take it again at once, for ever.
                    if claim.enqueue && may_be_split(&refusal) {
                        self.sleep(pause(began)).await;
                    }
                    return self.explain(refusal, silent);
                }
            }
        }
        Ok(Attempt::TooLate)
    }

    /// The same claim once more, after it was granted.
    async fn is_still_held(self: &Arc<Self>, claim: &Claim, entry: &Entry) -> Result<bool, Error> {
        let renewal = crate::store::Renewal {
            name: claim.name.clone(),
            claim: claim.id,
            lease: claim.lease.max(Duration::from_millis(1)),
            not_after: claim.not_after,
        };
        let answers = self.renew(std::slice::from_ref(&renewal)).await?;
        match answers.first() {
            Some(crate::store::Renewed::Renewed) => {
                self.holds
                    .change(entry.round, |entry| entry.lease = claim.lease);
                Ok(true)
            }
            Some(crate::store::Renewed::NotHeld) | None => Ok(false),
            Some(crate::store::Renewed::Unknown | crate::store::Renewed::TooLate) => {
                Err(renew::unknown(self))
            }
        }
    }

    async fn round(self: &Arc<Self>, claim: &Claim, keys: &Keys, first: u64) -> Ended {
        let began = Moment::now();
        let id = RoundId {
            claim: claim.id,
            number: self.next_round(),
        };
        let lead = self.terms.lead.as_micros() as u64;
        let most = MOST_TOKENS.min(lead / 2).max(1);
        let run = Run {
            first,
            count: u64::from(claim.reserve).clamp(1, most) as u32,
        };
        let mut round = Round::new(self.terms, id, run, claim.lease, began);
        let mut silent = Silent::default();
        let mut asked = NodeSet::default();
        let mut tickets = Vec::with_capacity(self.nodes.len());
        let mut step = Step::Wait;
        for (number, node) in self.nodes.iter().enumerate() {
            let vote = match node.ticket() {
                Err(reason) => {
                    silent.note(number, reason);
                    Vote::Silent
                }
                Ok(ticket) if !node.agrees(&ticket) => {
                    silent.note(number, node.why_unagreed());
                    Vote::Silent
                }
                Ok(ticket) => match ticket.admission.sits_out(began) {
                    Some(ready_in) => Vote::SittingOut { ready_in },
                    None => {
                        asked.add(number);
                        tickets.push((number, ticket));
                        continue;
                    }
                },
            };
            step = round.vote(number, vote, began);
        }
        if let Step::Refused(refusal) = step {
            // Nobody was asked.
            return Ended::Refused(refusal, silent);
        }
        let entry = Entry {
            round: id,
            run,
            mode: claim.mode,
            lease: claim.lease,
            label: claim.label.clone(),
            asked,
            holds: NodeSet::default(),
            granted: false,
            ending: false,
            ends: began + claim.lease + self.node_timeout,
        };
        self.holds.begin(entry.clone());
        // What comes after the round is over anyway does no good, and is to do no harm.
        let not_after = claim.not_after.min(began + 2 * self.node_timeout);
        let votes = self.dialect.votes(
            keys,
            &Ask {
                round: id,
                mode: claim.mode,
                lease: claim.lease,
                run,
                floor: 0,
                not_after: None,
                beside: claim.beside,
            },
            claim.label.as_ref(),
            false,
        );
        let voting = Voting {
            round,
            name: claim.name.clone(),
            entry,
            sent: Moment::now(),
        };
        let question = Question::put(self, voting, None, silent, tickets, |node, ticket| {
            let not_after = node.link.server_time(not_after);
            let (floor, label) = (ticket.admission.floor, claim.label.as_ref());
            on_node(votes.clone(), floor, not_after, label).into()
        });
        let (ended, silent) = question.outcome().await;
        match ended {
            Ok(won) => {
                self.holds.change(id, |entry| entry.granted = true);
                Ended::Granted(won)
            }
            Err(refusal) => {
                if let Some(entry) = self.holds.get(id.claim).filter(|entry| entry.round == id) {
                    self.holds.end(id);
                    self.undo(claim.name.clone(), entry);
                }
                Ended::Refused(refusal, silent)
            }
        }
    }

    /// Why nothing was granted: busy is a value.
    fn explain(&self, refusal: Refusal, silent: Silent) -> Result<Attempt, Error> {
        let reason = match refusal {
            Refusal::Busy { free_in, rivals } => {
                let now = (rivals == Rivals::Split).then_some(Duration::ZERO);
                let free_in = now.or(free_in);
                return Ok(Attempt::Busy { free_in });
            }
            Refusal::TooLate | Refusal::Again { .. } => return Ok(Attempt::TooLate),
            Refusal::TooSlow => "a majority of the nodes agreed only when the lease was as good as over; ask for a longer \
                 lease"
                .to_owned(),
            Refusal::ClocksApart => "the nodes' clocks are too far apart for a token that a majority takes; look at them, \
                 and at this machine's"
                .to_owned(),
            Refusal::SittingOut { ready_in } => format!(
                "{} of {} nodes are needed, and enough of them may vote in {:.1}s",
                self.terms.majority,
                self.terms.nodes,
                ready_in.as_secs_f64()
            ),
            Refusal::Unavailable => format!(
                "{} of {} nodes are needed, and too few answer",
                self.terms.majority, self.terms.nodes
            ),
        };
        Err(self.unavailable(&reason, silent.reasons()))
    }
}

/// The votes for one round.
struct Voting {
    round: Round,
    name: Name,
    entry: Entry,
    sent: Moment,
}

impl Count for Voting {
    type Outcome = Result<Granted, Refusal>;

    fn take(
        &mut self,
        inner: &Inner,
        number: usize,
        answer: Result<Value, Silence>,
        silent: &mut Silent,
    ) -> Option<Self::Outcome> {
        let node = &inner.nodes[number];
        let vote = answer.and_then(|answer| Ok(read_vote(node, answer, self.sent)?));
        let vote = vote.unwrap_or_else(|silence| {
            silent.note(number, silence.reason());
            Vote::Silent
        });
        if vote == Vote::Yes {
            inner
                .holds
                .change(self.entry.round, |entry| entry.holds.add(number));
        }
        let step = self.round.vote(number, vote, Moment::now());
        if step == Step::Withdraw {
            let ends = inner.end_of(&self.entry);
            node.owe(self.name.clone(), self.entry.letting_go(), ends);
        }
        decision(step)
    }

    fn close(&mut self) -> Option<Self::Outcome> {
        decision(self.round.close(Moment::now()))
    }
}

fn decision(step: Step) -> Option<Result<Granted, Refusal>> {
    match step {
        Step::Granted(won) => Some(Ok(won)),
        Step::Refused(refusal) => Some(Err(refusal)),
        Step::Wait | Step::Joined | Step::Withdraw => None,
    }
}

fn granted(run: Run) -> Attempt {
    Attempt::Granted(run.grant())
}

fn may_be_split(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Busy { rivals, .. } if *rivals != Rivals::Hold)
}

/// How long to leave the nodes to others after a round that began then.
fn pause(began: Moment) -> Duration {
    let took = 2 * Moment::now().since(began);
    let longest = took.clamp(*LONG_PAUSES.start(), *LONG_PAUSES.end());
    let range = (longest - LEAST_PAUSE).as_micros();
    LEAST_PAUSE + Duration::from_micros((Uuid::new_v4().as_u128() % range) as u64)
}
