//! Drives rounds: asks the nodes, reports their answers, and does what the protocol says.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::gather::Gather;
use super::holds::{Entry, NodeSet};
use super::node::Silence;
use super::protocol::{Ask, Granted, Refusal, Round, RoundId, Run, Step, Vote};
use super::{Inner, renew};
use crate::clock::{Clock, Moment};
use crate::store::redis::keys::Keys;
use crate::store::{Attempt, Claim, Grant};
use crate::{Error, Name, Token};

/// How many rounds a try has at most: the first, another token, a better idea of the nodes' clocks.
const ROUNDS: usize = 4;
/// The furthest that a reserved run may be ahead of the clock, in microseconds.
const MOST_TOKENS: u64 = 1_000_000;
/// Those who tried at once try again after a pause in this range.
const SPLIT_PAUSE_MICROS: std::ops::Range<u64> = 2_000..20_000;

/// What a round came to, and why which nodes said nothing.
enum Ended {
    Granted(Granted),
    Refused(Refusal, Vec<Option<String>>),
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
            match self.round(claim, &keys, first).await {
                Ended::Granted(won) => return Ok(granted(won.run)),
                Ended::Refused(Refusal::Again { first: better }, _) => first = better,
                // Once more, with a better idea of the nodes' clocks.
                Ended::Refused(Refusal::TooLate, _) if Moment::now() <= claim.not_after => {
                    first = first.max(Clock::real().unix_micros());
                }
                Ended::Refused(refusal, silent) => return self.explain(refusal, silent),
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
        };
        let answers = self.renew(std::slice::from_ref(&renewal)).await?;
        match answers.first() {
            Some(crate::store::Renewed::Renewed) => {
                self.holds
                    .change(entry.round, |entry| entry.lease = claim.lease);
                Ok(true)
            }
            Some(crate::store::Renewed::NotHeld) | None => Ok(false),
            Some(crate::store::Renewed::Unknown) => Err(renew::unknown(self)),
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
        let mut silent: Vec<Option<String>> = vec![None; self.nodes.len()];
        let mut tickets = Vec::with_capacity(self.nodes.len());
        let mut step = Step::Wait;
        for (number, node) in self.nodes.iter().enumerate() {
            let vote = match node.ticket() {
                Err(reason) => {
                    silent[number] = Some(reason);
                    Vote::Silent
                }
                Ok(ticket) => match ticket.admission.sits_out(began) {
                    Some(ready_in) => Vote::SittingOut { ready_in },
                    None => {
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
        let mut asked = NodeSet::default();
        let mut votes = Gather::new();
        // What comes after the round is over anyway does no good, and is to do no harm.
        let not_after = claim.not_after.min(began + 2 * self.node_timeout);
        for (number, ticket) in tickets {
            let node = &self.nodes[number];
            let ask = Ask {
                round: id,
                mode: claim.mode,
                lease: claim.lease,
                run,
                floor: ticket.admission.floor,
                not_after: node.link.server_time(not_after),
                beside: claim.beside,
            };
            asked.add(number);
            votes.add(number, self.dialect.vote(node, ticket, keys, ask, false));
        }
        self.holds.begin(Entry {
            round: id,
            run,
            mode: claim.mode,
            lease: claim.lease,
            asked,
            holds: NodeSet::default(),
            granted: false,
            ending: false,
            ends: began + claim.lease + self.node_timeout,
        });
        let mut patience = pin!(self.sleep(self.node_timeout));
        while step == Step::Wait {
            step = match votes.next(patience.as_mut()).await {
                Some((number, vote)) => self.count(&mut round, number, vote, &mut silent),
                None => {
                    self.overdue(&votes, &mut silent);
                    round.close(Moment::now())
                }
            };
        }
        self.conclude(claim, round, votes, began, step, silent)
            .await
    }

    fn count(
        &self,
        round: &mut Round,
        number: usize,
        vote: Result<Vote, Silence>,
        silent: &mut [Option<String>],
    ) -> Step {
        let vote = vote.unwrap_or_else(|silence| {
            silent[number] = Some(silence.reason());
            Vote::Silent
        });
        if vote == Vote::Yes {
            self.holds
                .change(round.id(), |entry| entry.holds.add(number));
        }
        round.vote(number, vote, Moment::now())
    }

    async fn conclude(
        self: &Arc<Self>,
        claim: &Claim,
        round: Round,
        votes: Gather<Result<Vote, Silence>>,
        began: Moment,
        step: Step,
        silent: Vec<Option<String>>,
    ) -> Ended {
        let id = round.id();
        let mut undone = None;
        let ended = match step {
            Step::Granted(won) => {
                self.holds.change(id, |entry| entry.granted = true);
                Ended::Granted(won)
            }
            Step::Refused(refusal) => {
                if let Some(entry) = self.holds.get(id.claim).filter(|entry| entry.round == id) {
                    self.holds.end(id);
                    self.undo(claim.name.clone(), entry).await;
                    undone = Some((claim.name.clone(), entry));
                }
                Ended::Refused(refusal, silent)
            }
            _ => unreachable!("a decided round says yes or no"),
        };
        if !votes.is_done() {
            let inner = self.clone();
            let late = began + self.node_timeout;
            self.runtime
                .spawn(async move { inner.collect(round, votes, late, undone).await });
        }
        ended
    }

    /// Takes the answers that come after the decision. `undone`: what was taken back.
    async fn collect(
        self: Arc<Self>,
        mut round: Round,
        mut votes: Gather<Result<Vote, Silence>>,
        late: Moment,
        undone: Option<(Name, Entry)>,
    ) {
        let mut silent = vec![None; self.nodes.len()];
        let mut take = |number, vote| {
            if let (Step::Withdraw, Some((name, entry))) =
                (self.count(&mut round, number, vote, &mut silent), &undone)
            {
                let ends = self.end_of(entry);
                self.nodes[number].owe(name.clone(), entry.letting_go(), ends);
            }
        };
        {
            let mut patience = pin!(tokio::time::sleep(late.remaining()));
            while let Some((number, vote)) = votes.next(patience.as_mut()).await {
                take(number, vote);
            }
        }
        for number in votes.pending() {
            self.nodes[number].overdue();
        }
        while let Some((number, vote)) = votes.next_at_last().await {
            take(number, vote);
        }
    }

    /// Who has not answered by now is behind.
    pub(super) fn overdue<T>(&self, requests: &Gather<T>, silent: &mut [Option<String>]) {
        for number in requests.pending() {
            self.nodes[number].overdue();
            silent[number] = Some(format!("it did not answer within {:?}", self.node_timeout));
        }
    }

    /// Why nothing was granted: busy is a value.
    fn explain(&self, refusal: Refusal, silent: Vec<Option<String>>) -> Result<Attempt, Error> {
        let reason = match refusal {
            Refusal::Busy { split: true, .. } => {
                return Ok(Attempt::Busy {
                    free_in: Some(pause()),
                });
            }
            Refusal::Busy { free_in, .. } => return Ok(Attempt::Busy { free_in }),
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
        Err(self.unavailable(&reason, &silent))
    }
}

fn granted(run: Run) -> Attempt {
    Attempt::Granted(Grant {
        token: Token::new(run.first),
        tokens: run.count,
    })
}

/// So that those who got in each other's way do not do so again.
fn pause() -> Duration {
    let range = SPLIT_PAUSE_MICROS.end - SPLIT_PAUSE_MICROS.start;
    let spread = Uuid::new_v4().as_u128() % u128::from(range);
    Duration::from_micros(SPLIT_PAUSE_MICROS.start + spread as u64)
}
