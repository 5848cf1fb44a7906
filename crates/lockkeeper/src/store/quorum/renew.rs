//! Keeps holds alive on a majority, and brings them back to nodes that lost them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::dialect::Asked;
use super::gather::Gather;
use super::holds::Entry;
use super::node::Silence;
use super::protocol::{Ask, Life, Outcome, Poll, Renewal, RenewalStep, Vote};
use super::{Inner, STORE};
use crate::clock::Moment;
use crate::store::{self, Renewed};
use crate::{Error, Name};

/// One hold of a batch.
struct Hold {
    name: Name,
    /// Unknown if the claim is not of this store.
    entry: Option<Entry>,
    asks: Asks,
    answer: Option<Renewed>,
}

/// What is asked about it.
enum Asks {
    ToGoOn(Renewal),
    /// Only whether it is held.
    After(Poll),
}

/// A batch of renewals under way.
struct Batch {
    holds: Vec<Hold>,
    lease_ends: Vec<Moment>,
    answers: Gather<Result<Vec<Life>, Silence>>,
    silent: Vec<Option<String>>,
}

impl Inner {
    pub(super) async fn renew(
        self: &Arc<Self>,
        renewals: &[store::Renewal],
    ) -> Result<Vec<Renewed>, Error> {
        let now = Moment::now();
        let is_late = |renewal: &store::Renewal| now > renewal.not_after;
        if !renewals.iter().any(is_late) {
            return self.renew_in_time(renewals).await;
        }
        let in_time = renewals.iter().filter(|renewal| !is_late(renewal));
        let in_time: Vec<store::Renewal> = in_time.cloned().collect();
        let mut answers = self.renew_in_time(&in_time).await?.into_iter();
        let answer = |renewal| match is_late(renewal) {
            true => Some(Renewed::TooLate),
            false => answers.next(),
        };
        Ok(renewals.iter().filter_map(answer).collect())
    }

    async fn renew_in_time(
        self: &Arc<Self>,
        renewals: &[store::Renewal],
    ) -> Result<Vec<Renewed>, Error> {
        if renewals.is_empty() {
            return Ok(Vec::new());
        }
        let sent = Moment::now();
        let mut batch = self.ask_all(renewals, sent)?;
        {
            let mut patience = pin!(self.patience(self.node_timeout));
            while batch.holds.iter().any(|hold| hold.answer.is_none()) {
                match batch.answers.next(patience.as_mut()).await {
                    Some((number, answer)) => self.report(&mut batch, number, answer),
                    None => {
                        self.overdue(&batch.answers, &mut batch.silent);
                        self.close(&mut batch);
                    }
                }
            }
        }
        let answers: Vec<Renewed> = batch.holds.iter().filter_map(|hold| hold.answer).collect();
        let failed = answers.iter().all(|answer| *answer == Renewed::Unknown);
        let error =
            failed.then(|| self.unavailable("too few nodes answered a renewal", &batch.silent));
        if !batch.answers.is_done() {
            let inner = self.clone();
            self.runtime
                .spawn(async move { inner.collect_lives(batch, sent).await });
        }
        error.map_or(Ok(answers), Err)
    }

    fn ask_all(
        self: &Arc<Self>,
        renewals: &[store::Renewal],
        sent: Moment,
    ) -> Result<Batch, Error> {
        let mut holds = Vec::with_capacity(renewals.len());
        let mut asked = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            let store::Renewal {
                name,
                claim,
                lease,
                not_after,
            } = renewal;
            self.check_lease(*lease)?;
            let entry = self.holds.get(*claim);
            asked.push(Asked {
                main: self.dialect.keys(name)?.main,
                claim: *claim,
                round: entry.as_ref().map_or(0, |entry| entry.round.number),
                lease: *lease,
                not_after: *not_after,
            });
            holds.push(Hold {
                name: name.clone(),
                entry,
                asks: match lease.is_zero() {
                    true => Asks::After(Poll::new(self.terms)),
                    false => Asks::ToGoOn(Renewal::new(self.terms, *lease, sent)),
                },
                answer: None,
            });
        }
        let mut batch = Batch {
            holds,
            lease_ends: renewals
                .iter()
                .map(|renewal| sent + renewal.lease)
                .collect(),
            answers: Gather::new(),
            silent: vec![None; self.nodes.len()],
        };
        let asked: Arc<[Asked]> = asked.into();
        for (number, node) in self.nodes.iter().enumerate() {
            match node.ticket() {
                Ok(ticket) => {
                    let request = self.dialect.renew(node, ticket, asked.clone());
                    batch.answers.add(number, request);
                }
                Err(reason) => self.report(&mut batch, number, Err(Silence::Lost(reason))),
            }
        }
        Ok(batch)
    }

    /// Reports one node's answer about all holds.
    fn report(
        self: &Arc<Self>,
        batch: &mut Batch,
        number: usize,
        answer: Result<Vec<Life>, Silence>,
    ) {
        let lives = answer.unwrap_or_else(|silence| {
            batch.silent[number] = Some(silence.reason());
            Vec::new()
        });
        if lives.contains(&Life::Silent) {
            let late = || "a renewal reached it too late to count".into();
            batch.silent[number].get_or_insert_with(late);
        }
        for at in 0..batch.holds.len() {
            let life = lives.get(at).copied().unwrap_or(Life::Silent);
            let ends = batch.lease_ends[at];
            let hold = &mut batch.holds[at];
            self.note(hold, number, life);
            let step = match &mut hold.asks {
                Asks::ToGoOn(renewal) => renewal.answer(number, life, Moment::now()),
                Asks::After(poll) => match poll.answer(number, life) {
                    Some(outcome) => after(outcome),
                    None => RenewalStep::Wait,
                },
            };
            self.go_on(hold, number, step, ends);
        }
    }

    fn note(&self, hold: &Hold, number: usize, life: Life) {
        let Some(entry) = &hold.entry else { return };
        self.holds.change(entry.round, |entry| match life {
            Life::Alive => entry.holds.add(number),
            Life::Gone => entry.holds.remove(number),
            Life::Silent => {}
        });
    }

    /// Waits no longer.
    fn close(self: &Arc<Self>, batch: &mut Batch) {
        for at in 0..batch.holds.len() {
            let ends = batch.lease_ends[at];
            let hold = &mut batch.holds[at];
            let step = match &mut hold.asks {
                Asks::ToGoOn(renewal) => renewal.close(Moment::now()),
                Asks::After(poll) => poll.close().map_or(RenewalStep::Wait, after),
            };
            self.go_on(hold, 0, step, ends);
            hold.answer.get_or_insert(Renewed::Unknown);
        }
    }

    fn go_on(self: &Arc<Self>, hold: &mut Hold, number: usize, step: RenewalStep, ends: Moment) {
        match step {
            RenewalStep::Wait => {}
            RenewalStep::Renewed { re_add, .. } => {
                hold.answer = Some(Renewed::Renewed);
                if let (Some(entry), Asks::ToGoOn(_)) = (&hold.entry, &hold.asks) {
                    self.holds.change(entry.round, |entry| {
                        entry.ends = entry.ends.max(ends + 2 * self.node_timeout);
                    });
                    for number in re_add {
                        self.re_add(hold.name.clone(), entry, number, ends);
                    }
                }
            }
            RenewalStep::ReAdd => {
                if let Some(entry) = &hold.entry {
                    self.re_add(hold.name.clone(), entry, number, ends);
                }
            }
            RenewalStep::Lost => {
                // For good, and as an answer only if there was no other before.
                hold.answer.get_or_insert(Renewed::NotHeld);
                // A release that is under way may be what ended it. To take it back as well could overtake that on its way
                // to a node, which would then say that it had lost the hold before.
                if let (Some(entry), Asks::ToGoOn(_)) = (&hold.entry, &hold.asks)
                    && let Some(entry) = self.holds.lose(entry.round)
                {
                    self.undo(hold.name.clone(), entry);
                }
            }
            RenewalStep::Unknown => {
                hold.answer.get_or_insert(Renewed::Unknown);
            }
        }
    }

    /// Brings a hold that goes on to a node that does not have it. It counts from the next renewal on.
    fn re_add(self: &Arc<Self>, name: Name, entry: &Entry, number: usize, ends: Moment) {
        let (inner, entry) = (self.clone(), entry.clone());
        let node = self.nodes[number].clone();
        let (Ok(ticket), Ok(keys)) = (node.ticket(), self.dialect.keys(&name)) else {
            return;
        };
        let lease = ends.remaining();
        let votes = node.agrees(&ticket) && ticket.admission.sits_out(Moment::now()).is_none();
        if !votes || lease < Duration::from_millis(1) {
            return;
        }
        // From now on it has to be told of the release.
        let mut stands = false;
        self.holds.change(entry.round, |entry| {
            stands = !entry.ending;
            if stands {
                entry.asked.add(number);
            }
        });
        if !stands {
            return;
        }
        let ask = Ask {
            round: entry.round,
            mode: entry.mode,
            lease,
            run: entry.run,
            floor: ticket.admission.floor,
            not_after: node
                .link
                .server_time(ends.min(Moment::now() + self.node_timeout)),
            beside: None,
        };
        let label = entry.label.as_ref();
        let vote = self.dialect.vote(&node, ticket, &keys, ask, label, true);
        self.runtime.spawn(async move {
            let vote = vote.await;
            let mut stands = false;
            inner.holds.change(entry.round, |entry| {
                stands = !entry.ending;
                if let Ok(Vote::Yes) = vote {
                    entry.holds.add(number);
                }
            });
            match vote {
                // Let go of meanwhile, perhaps before this came.
                Ok(Vote::Yes) | Err(Silence::Lost(_)) if !stands => {
                    node.owe(name, entry.letting_go(), inner.end_of(&entry));
                }
                Ok(Vote::Yes) => {
                    tracing::debug!(node = node.address, %name, "the node has the hold again");
                }
                _ => {}
            }
        });
    }

    /// Takes the answers that come after all is decided.
    async fn collect_lives(self: Arc<Self>, mut batch: Batch, sent: Moment) {
        {
            let late = sent + self.node_timeout;
            let mut patience = pin!(self.patience(late.remaining()));
            while let Some((number, answer)) = batch.answers.next(patience.as_mut()).await {
                self.report(&mut batch, number, answer);
            }
        }
        self.overdue(&batch.answers, &mut batch.silent);
        while let Some((number, answer)) = batch.answers.next_at_last().await {
            self.report(&mut batch, number, answer);
        }
    }
}

fn after(outcome: Outcome) -> RenewalStep {
    match outcome {
        Outcome::Kept => RenewalStep::Renewed {
            deadline: Moment::NEVER,
            re_add: Vec::new(),
        },
        Outcome::Gone => RenewalStep::Lost,
        Outcome::Unknown => RenewalStep::Unknown,
    }
}

pub(super) fn unknown(inner: &Inner) -> Error {
    Error::outcome_unknown(
        STORE,
        inner.with_nodes("too few nodes answered to tell", &[]),
    )
}
