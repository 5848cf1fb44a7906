//! An administrator's release, on the nodes that can be asked. It is in time or not at all: a node that gets it late may
//! have voted for the next holder by then.

use std::sync::Arc;

use super::Inner;
use super::gather::Gather;
use super::holds::NodeSet;
use super::look::{Seen, Sight};
use super::node::Silence;
use super::protocol::RoundId;
use crate::clock::Moment;
use crate::store::redis::keys::Keys;
use crate::store::{Break, BreakOutcome, BreakTarget};
use crate::{Error, Name};

/// What the nodes said. Each that answered has a sight of both kinds, one of them empty.
struct Said {
    ended: Vec<Sight>,
    /// Where the hold that was named is not there.
    instead: Vec<Sight>,
    silent: Vec<Option<String>>,
    late: NodeSet,
}

impl Inner {
    pub(super) async fn break_lock(
        self: &Arc<Self>,
        request: &Break,
    ) -> Result<BreakOutcome, Error> {
        if Moment::now() > request.not_after {
            return Ok(BreakOutcome::TooLate);
        }
        let keys = self.dialect.keys(&request.name)?;
        // A node keeps the reason also where it has no vote, since it cannot know whether others have one.
        if request.target == BreakTarget::All {
            // Half of the time is left for the break: a node may be silent.
            let half = request.not_after.remaining() / 2;
            let is_free = tokio::select! {
                is_free = self.is_free(&keys) => is_free,
                () = self.sleep(half) => false,
            };
            if is_free {
                return Ok(BreakOutcome::Ended(Vec::new()));
            }
        }
        let mut said = Said {
            ended: Vec::new(),
            instead: Vec::new(),
            silent: vec![None; self.nodes.len()],
            late: NodeSet::all(self.nodes.len()),
        };
        self.break_on_late(request, &keys, &mut said).await?;
        if said.late != NodeSet::default() && Moment::now() <= request.not_after {
            // Once more, with a better idea of the clocks of those nodes.
            self.break_on_late(request, &keys, &mut said).await?;
        }
        let answered = said.ended.len();
        let mut missed = NodeSet::default();
        for (number, _) in said
            .silent
            .iter()
            .enumerate()
            .filter(|(_, why)| why.is_some())
        {
            missed.add(number);
        }
        self.end_missed(&request.name, &keys, &said.ended, missed);
        if answered < self.terms.majority {
            let untouched = said.ended.iter().all(|sight| sight.holders.is_empty());
            if untouched && answered + said.late.len() == self.nodes.len() {
                return Ok(BreakOutcome::TooLate);
            }
            let reason = "too few nodes answered; it is broken on the others, so try again";
            return Err(Error::outcome_unknown(
                super::STORE,
                self.with_nodes(reason, &said.silent),
            ));
        }
        let ended = self.agreed(said.ended);
        Ok(
            match ended.is_empty() && request.target != BreakTarget::All {
                true => BreakOutcome::NotHeld(self.agreed(said.instead)),
                false => BreakOutcome::Ended(ended),
            },
        )
    }

    /// Asks those nodes that were late, which at first are all. One that does not answer in time does nothing later.
    async fn break_on_late(
        self: &Arc<Self>,
        request: &Break,
        keys: &Keys,
        said: &mut Said,
    ) -> Result<(), Error> {
        let mut answers = Gather::new();
        let not_after = request.not_after.min(Moment::now() + self.node_timeout);
        let asked = std::mem::take(&mut said.late);
        let mut sent = NodeSet::default();
        for (number, node) in self.nodes.iter().enumerate() {
            if !asked.has(number) {
                continue;
            }
            match node.ticket() {
                Ok(ticket) => {
                    said.silent[number] = None;
                    sent.add(number);
                    let dialect = &self.dialect;
                    let request = dialect.break_lock(node, ticket, keys, request, not_after);
                    // A refusal is an answer.
                    let answer = async move {
                        match request.await {
                            Err(Silence::Refused(reason)) => Ok(Err(reason)),
                            answer => answer.map(Ok),
                        }
                    };
                    answers.add(number, answer);
                }
                Err(reason) => said.silent[number] = Some(reason),
            }
        }
        let answered = self.all(answers, &mut said.silent).await;
        if answered.len() < sent.len() {
            // What is still on its way to a node does nothing once this has returned.
            self.sleep(not_after.remaining()).await;
        }
        for (number, broke) in answered {
            let broke = match broke {
                Ok(broke) => broke,
                Err(reason) => {
                    said.silent[number] = Some(reason);
                    continue;
                }
            };
            if broke.is_late()? {
                said.late.add(number);
                said.silent[number] = Some("the request reached it too late".into());
                continue;
            }
            let sight = Sight::of(self.holders(&broke.0, 2)?);
            let (ended, instead) = match broke.is_done()? {
                true => (sight, Sight::default()),
                false => (Sight::default(), sight),
            };
            said.ended.push(ended);
            said.instead.push(instead);
        }
        Ok(())
    }

    /// Nodes that were missed are to end the holds of ours that others have just ended. Not whatever is held there by
    /// then: that may be the next holder's, or of a later round of the same claim.
    fn end_missed(self: &Arc<Self>, name: &Name, keys: &Keys, ended: &[Sight], missed: NodeSet) {
        if missed == NodeSet::default() {
            return;
        }
        let mut told = Vec::new();
        for Seen { round, holder, .. } in ended.iter().flat_map(|sight| &sight.holders) {
            let round = RoundId {
                claim: holder.claim,
                number: *round,
            };
            if holder.is_foreign() || told.contains(&round) {
                continue;
            }
            told.push(round);
            let left = holder.remaining.unwrap_or_default();
            let ends = Moment::now() + left + self.node_timeout;
            self.end_on(name.clone(), keys, round, missed, ends);
        }
    }
}
