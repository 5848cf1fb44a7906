//! What the nodes know of a name, put together.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;

use super::Inner;
use super::gather::Gather;
use super::node::Silence;
use crate::store::record::wall;
use crate::store::redis::answer::{self, Reply};
use crate::store::redis::keys::Keys;
use crate::store::{Broken, ClaimId, Holder, LockInfo, Mode};
use crate::{Error, Label, Name, Token};

/// A hold on one node.
pub(super) struct Seen {
    /// What it is known by on the node: a claim, or what another client wrote.
    id: String,
    /// Of which round of its claim it is; 0 if it is another client's.
    pub round: u64,
    pub holder: Holder,
}

/// What one node says of a name.
#[derive(Default)]
pub(super) struct Sight {
    pub holders: Vec<Seen>,
    /// Whether anything at all is at the name.
    is_taken: bool,
    last_token: u64,
    broken: Option<Broken>,
}

impl Sight {
    pub fn of(holders: Vec<Seen>) -> Sight {
        Sight {
            holders,
            ..Sight::default()
        }
    }
}

impl Inner {
    pub(super) async fn inspect(self: &Arc<Self>, name: &Name) -> Result<Option<LockInfo>, Error> {
        let keys = self.dialect.keys(name)?;
        let sights = self.sights(&keys).await?;
        let last_token = self.last_token(&sights);
        let broken = self.agreed_break(&sights);
        let info = LockInfo {
            name: name.clone(),
            holders: self.agreed(sights),
            waiters: 0,
            last_token,
            broken,
            queue: Vec::new(),
            free_permits: None,
        };
        Ok(info.if_known())
    }

    /// What a majority knows of a name, at least.
    async fn sights(self: &Arc<Self>, keys: &Keys) -> Result<Vec<Sight>, Error> {
        let mut answers = Gather::new();
        let mut silent = vec![None; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate() {
            match node.ticket() {
                Ok(ticket) => answers.add(number, self.dialect.inspect(node, ticket, keys)),
                Err(reason) => silent[number] = Some(reason),
            }
        }
        let replies = self.all(answers, &mut silent).await;
        self.check_majority(replies.len(), &silent, "say who holds")?;
        replies
            .into_iter()
            .map(|(_, reply)| self.read(reply))
            .collect()
    }

    /// Whether a majority answers, and none of these nodes has a vote for anybody, nor anything else at the name.
    pub(super) async fn is_free(self: &Arc<Self>, keys: &Keys) -> bool {
        let sights = self.sights(keys).await;
        sights.is_ok_and(|sights| !sights.iter().any(|sight| sight.is_taken))
    }

    /// Waits for all of them, but no longer than one may take. Answers which node said what.
    pub(super) async fn all<T: Send + 'static>(
        &self,
        mut answers: Gather<Result<T, Silence>>,
        silent: &mut [Option<String>],
    ) -> Vec<(usize, T)> {
        let mut replies = Vec::with_capacity(self.nodes.len());
        let mut patience = pin!(self.patience(self.node_timeout));
        while let Some((number, answer)) = answers.next(patience.as_mut()).await {
            match answer {
                Ok(reply) => replies.push((number, reply)),
                Err(silence) => silent[number] = Some(silence.reason()),
            }
        }
        self.overdue(&answers, silent);
        if !answers.is_done() {
            // A node that is behind stays so until it has answered.
            self.runtime
                .spawn(async move { while answers.next_at_last().await.is_some() {} });
        }
        replies
    }

    fn check_majority(
        &self,
        answered: usize,
        silent: &[Option<String>],
        what: &str,
    ) -> Result<(), Error> {
        match answered >= self.terms.majority {
            true => Ok(()),
            false => Err(self.unavailable(&format!("too few nodes answer to {what}"), silent)),
        }
    }

    /// The highest that a majority has seen: the next is above it. A vote that came to nothing may be higher.
    fn last_token(&self, sights: &[Sight]) -> Option<Token> {
        let mut tokens: Vec<u64> = sights.iter().map(|sight| sight.last_token).collect();
        tokens.sort_by_key(|token| std::cmp::Reverse(*token));
        let token = tokens.get(self.terms.majority - 1).copied()?;
        (token > 0).then_some(Token::new(token))
    }

    /// How many nodes did not answer, or have just started and may have forgotten what they knew.
    fn unheard(&self, sights: &[Sight]) -> usize {
        let forgetful = self.nodes.iter().filter(|node| node.sits_out()).count();
        self.nodes.len() - sights.len() + forgetful
    }

    /// The last break that a majority knows of, or may. What a break of a named hold found on fewer nodes was no hold.
    fn agreed_break(&self, sights: &[Sight]) -> Option<Broken> {
        let unheard = self.unheard(sights);
        let all = || sights.iter().filter_map(|sight| sight.broken.as_ref());
        let known = |broken: &&Broken| {
            let same = all().filter(|other| other.reason == broken.reason);
            same.count() + unheard >= self.terms.majority
        };
        all().filter(known).max_by_key(|broken| broken.at).cloned()
    }

    /// Those who hold on a majority, or may, as some nodes do not answer, or have just started and may have forgotten it.
    pub(super) fn agreed(&self, sights: Vec<Sight>) -> Vec<Holder> {
        let unheard = self.unheard(&sights);
        let mut by_id: BTreeMap<String, Vec<Holder>> = BTreeMap::new();
        for seen in sights.into_iter().flat_map(|sight| sight.holders) {
            by_id.entry(seen.id).or_default().push(seen.holder);
        }
        let mut holders = Vec::new();
        for mut votes in by_id.into_values() {
            if votes.len() + unheard < self.terms.majority {
                continue;
            }
            // It is over when a majority is; one without an end is the last to end.
            votes.sort_by_key(|vote| std::cmp::Reverse(vote.remaining.unwrap_or(Duration::MAX)));
            let last = votes.len().min(self.terms.majority) - 1;
            let lease = commonest(votes.iter().map(|vote| vote.lease));
            let label = commonest(votes.iter().map(|vote| vote.label.clone()));
            // A slow node may still have an earlier round of the claim, with a lower token.
            let token = votes.iter().filter_map(|vote| vote.token).max();
            let holder = votes.swap_remove(last);
            holders.push(Holder {
                token,
                lease,
                label,
                ..holder
            });
        }
        holders.sort_by_key(|holder| holder.token);
        holders
    }

    fn read(&self, reply: Value) -> Result<Sight, Error> {
        let reply = Reply::new(reply)?;
        let at = if self.dialect.plain { 2 } else { 4 };
        let holders = self.holders(&reply, 0)?;
        // In dialect redisson there may be what is no lock, and has no holders.
        let is_taken = !holders.is_empty() || !self.dialect.plain && !reply.text(2)?.is_empty();
        Ok(Sight {
            holders,
            is_taken,
            last_token: reply.number(at)?,
            broken: answer::broken(reply.list(at + 1)?)?,
        })
    }

    /// The holders, or those that were, from this place of an answer on.
    pub(super) fn holders(&self, reply: &Reply, at: usize) -> Result<Vec<Seen>, Error> {
        if self.dialect.plain {
            return Ok(plain_holder(reply, at)?.into_iter().collect());
        }
        let mut holders = holders(reply.list(at)?)?;
        let (mode, left) = (reply.text(at + 2)?, reply.signed(at + 3)?);
        for field in reply.list(at + 1)? {
            let field = answer::text(field)?;
            let id = field.strip_suffix(":write").unwrap_or(&field).to_owned();
            let holder = answer::stranger(&id, mode_of(&mode), left, answer::REDISSON);
            holders.push(Seen {
                id,
                round: 0,
                holder,
            });
        }
        Ok(holders)
    }

    pub(super) async fn list(self: &Arc<Self>, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let mut requests = Gather::new();
        let mut silent = vec![None; self.nodes.len()];
        for (number, node) in self.nodes.iter().enumerate() {
            match node.ticket() {
                Ok(_) => {
                    let (node, prefix) = (node.clone(), prefix.to_owned());
                    requests.add(number, async move { node.link.names(&prefix).await });
                }
                Err(reason) => silent[number] = Some(reason),
            }
        }
        let (mut names, mut answered) = (BTreeSet::new(), 0);
        let mut take = |(number, found): (usize, Result<BTreeSet<Name>, Error>)| match found {
            Ok(found) => {
                names.extend(found);
                answered += 1;
                answered
            }
            Err(error) => {
                silent[number] = Some(Silence::from(error).reason());
                answered
            }
        };
        // A look at all keys may take longer than other requests. But what is held a majority knows, and who is much
        // slower than that is not waited for.
        while let Some(found) = requests.next_at_last().await {
            if take(found) >= self.terms.majority {
                break;
            }
        }
        let mut patience = pin!(self.patience(self.node_timeout));
        while let Some(found) = requests.next(patience.as_mut()).await {
            take(found);
        }
        self.check_majority(answered, &silent, "list locks")?;
        let mut infos = Vec::new();
        for name in &names {
            infos.extend(self.inspect(name).await?);
        }
        infos.retain(|info| !info.holders.is_empty());
        Ok(infos)
    }
}

/// What most nodes say. One that has just got a hold back knows what is left of its lease.
fn commonest<T: Ord>(said: impl Iterator<Item = Option<T>>) -> Option<T> {
    let mut counts = BTreeMap::new();
    said.for_each(|one| *counts.entry(one).or_insert(0) += 1);
    counts.into_iter().max_by_key(|(_, count)| *count)?.0
}

fn mode_of(letter: &str) -> Mode {
    match letter {
        "r" => Mode::Read,
        "w" => Mode::Write,
        _ => Mode::Exclusive,
    }
}

/// Holds of ours: claim, mode, ms left, record, note.
fn holders(values: &[Value]) -> Result<Vec<Seen>, Error> {
    let replies = values.iter().map(|value| Reply::new(value.clone()));
    let holder = |reply: Result<Reply, Error>| {
        let reply = reply?;
        let (id, mode) = (reply.text(0)?, mode_of(&reply.text(1)?));
        let mut seen = seen(id, mode, reply.signed(2)?, &reply.text(3)?);
        if !reply.is_nil(4) {
            (seen.holder.lease, seen.holder.label) = noted(&reply.text(4)?);
        }
        Ok(seen)
    };
    replies.map(holder).collect()
}

/// The hold in a value of the plain dialect: `<claim> <record>`, or whatever another client wrote.
fn plain_holder(reply: &Reply, at: usize) -> Result<Option<Seen>, Error> {
    if reply.is_nil(at) {
        return Ok(None);
    }
    let (value, left) = (reply.text(at)?, reply.signed(at + 1)?);
    let ours = value.split_once(' ');
    let ours = ours.filter(|(claim, _)| claim.parse::<ClaimId>().is_ok());
    Ok(Some(match ours {
        Some((claim, record)) => seen(claim.to_owned(), Mode::Exclusive, left, record),
        None => {
            let holder = answer::stranger(&value, Mode::Exclusive, left, "another client");
            Seen {
                id: value,
                round: 0,
                holder,
            }
        }
    }))
}

/// `<lease in ms> <label>`, or the lease alone.
fn noted(note: &str) -> (Option<Duration>, Option<Label>) {
    let (lease, label) = match note.split_once(' ') {
        Some((lease, label)) => (lease, Label::shortened(label)),
        None => (note, None),
    };
    match lease.parse() {
        Ok(lease) => (Some(Duration::from_millis(lease)), label),
        Err(_) => (None, None),
    }
}

/// `<last token> <tokens> <round> <since> <who>`.
fn seen(id: String, mode: Mode, left: i64, record: &str) -> Seen {
    let mut parts = record.splitn(5, ' ');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (last, count) = (number().unwrap_or(0), number().unwrap_or(1));
    let (round, since) = (number().unwrap_or(0), number().unwrap_or(0));
    let token = last.saturating_add(1).saturating_sub(count);
    let who = parts.next().unwrap_or_default();
    let (lease, label) = answer::lease_and_label(who);
    let holder = Holder {
        process: answer::process(who),
        // A record that nobody of ours wrote says neither.
        token: (token > 0).then(|| Token::new(token)),
        since: (since > 0).then(|| wall(since)),
        lease,
        label,
        ..answer::stranger(&id, mode, left, "")
    };
    Seen { id, round, holder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_nobody_of_ours_wrote_does_no_harm() {
        let most = u64::MAX;
        for record in [
            "",
            "x",
            &format!("{most} {most} {most} {most} who"),
            &format!("{most} 0 "),
        ] {
            seen("claim".to_owned(), Mode::Exclusive, -1, record);
        }
    }
}
