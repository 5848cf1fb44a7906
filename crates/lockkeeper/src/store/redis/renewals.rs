//! One batch of renewals, wherever its names are, in scripts of a few.

use std::collections::BTreeMap;
use std::time::Duration;

use ::redis::Cmd;

use super::keys::Keys;
use super::scripts::Script;
use super::servers::{Servers, visit};
use super::way::Way;
use super::{RedisStore, answer, join};
use crate::Error;
use crate::clock::Moment;
use crate::store::{Renewal, Renewed};

/// How many holds one script renews: longer ones would keep others waiting, as each may have a thousand permits.
const RENEW_SLICE: usize = 32;
/// Below this lease, slots are waited for as long as with it before a renewal goes on without them.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(600);

impl RedisStore {
    /// In a cluster a script touches one slot. A slot whose node does not answer must not cost the others their
    /// renewal.
    pub(super) async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let cluster = match &*self.servers {
            Servers::One(connection) => {
                return self.renew_holds(&Way::to(connection), renewals).await;
            }
            Servers::Many(cluster) => cluster,
        };
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (number, renewal) in renewals.iter().enumerate() {
            let slot = self.servers.keys(&renewal.name)?.slot();
            by_slot.entry(slot).or_default().push(number);
        }
        let parts = by_slot.iter().map(|(slot, numbers)| async move {
            let part: Vec<Renewal> = numbers.iter().map(|at| renewals[*at].clone()).collect();
            visit!(cluster.route(*slot), |way| self.renew_holds(way, &part))
        });
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        let patience = cluster.sleep(shortest.unwrap_or_default().max(SHORTEST_PATIENCE) / 6);
        let answers = join::all_within(parts.collect(), patience).await;
        let mut renewed = vec![Renewed::Unknown; renewals.len()];
        let mut failure = None;
        for (numbers, answer) in by_slot.values().zip(answers) {
            match answer {
                Some(Ok(part)) => {
                    for (at, answer) in numbers.iter().zip(part) {
                        renewed[*at] = answer;
                    }
                }
                Some(Err(error)) => failure = Some(error),
                None => {}
            }
        }
        match failure {
            Some(error) if renewed.iter().all(|answer| *answer == Renewed::Unknown) => Err(error),
            _ => Ok(renewed),
        }
    }
}

impl Way<'_> {
    /// Renews by this script: `write` adds the keys and arguments of some, the number of keys first. What came too late by
    /// the server's clock and not by ours is asked for once more, with a better idea of that clock.
    pub(super) async fn renew(
        &self,
        script: &Script,
        renewals: &[Renewal],
        write: impl Fn(&mut Cmd, &[(Keys, &Renewal)]),
    ) -> Result<Vec<Renewed>, Error> {
        let mut answers = Vec::with_capacity(renewals.len());
        for slice in renewals.chunks(RENEW_SLICE) {
            let mut holds = Vec::with_capacity(slice.len());
            for renewal in slice {
                holds.push((Keys::of(self.settings(), &renewal.name)?, renewal));
            }
            self.renew_some(script, &holds, &write, &mut answers)
                .await?;
        }
        let now = Moment::now();
        let again = (0..renewals.len())
            .filter(|at| answers[*at] == Renewed::TooLate && now <= renewals[*at].not_after);
        let again: Vec<usize> = again.collect();
        for slice in again.chunks(RENEW_SLICE) {
            let mut holds = Vec::with_capacity(slice.len());
            for at in slice {
                let renewal = &renewals[*at];
                holds.push((Keys::of(self.settings(), &renewal.name)?, renewal));
            }
            // They stand behind the others, and then take their places.
            self.renew_some(script, &holds, &write, &mut answers)
                .await?;
            for (at, answer) in slice.iter().zip(answers.split_off(renewals.len())) {
                answers[*at] = answer;
            }
        }
        Ok(answers)
    }

    async fn renew_some(
        &self,
        script: &Script,
        holds: &[(Keys, &Renewal)],
        write: &impl Fn(&mut Cmd, &[(Keys, &Renewal)]),
        answers: &mut Vec<Renewed>,
    ) -> Result<(), Error> {
        let sent = Moment::now();
        let answer = self.run(script, |cmd| write(cmd, holds)).await;
        answer::renewed(answer, self.clock(), sent, answers)
    }
}
