//! The plain recipe of redsync, redis-py, rslock and node-redlock: `SET name value NX PX`, compare and
//! delete, compare and expire. It has no queue: a waiter tries again, as its peers do.

use ::redis::{Cmd, Value};

use super::answer::{self, Reply, Tried};
use super::batch::{Op, id_arg};
use super::fault::Fault;
use super::keys::Keys;
use super::scripts;
use super::way::Way;
use super::{BREAK_MEMORY, millis};
use crate::Token;
use crate::clock::Moment;
use crate::store::record::wall;
use crate::store::*;

/// The verbs of the contract, as scripts.
#[derive(Debug)]
pub(super) struct Plain<'a> {
    pub connection: &'a Way<'a>,
    /// Our channel and our process, as they are written into holds.
    pub who: &'a str,
}

impl Plain<'_> {
    fn keys(&self, name: &Name) -> Result<Keys, Error> {
        Keys::of(self.connection.settings(), name)
    }

    pub async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        if claim.mode != Mode::Exclusive || claim.beside.is_some() {
            return Err(Error::Unsupported {
                store: super::PLAIN_CAPABILITIES.store,
                what: "other than exclusive locks",
            });
        }
        let keys = self.keys(&claim.name)?;
        // Twice at most: the second time with a better idea of the server's clock.
        for _ in 0..2 {
            match self.try_once(claim, &keys).await?.attempt()? {
                Attempt::TooLate if Moment::now() <= claim.not_after => {}
                attempt => return Ok(attempt),
            }
        }
        Ok(Attempt::TooLate)
    }

    async fn try_once(&self, claim: &Claim, keys: &Keys) -> Result<Tried, Error> {
        let clock = self.connection.clock();
        let (sent, not_after) = (Moment::now(), clock.at(claim.not_after));
        let who = answer::with_label(self.who, claim.label.as_ref());
        let op = Op {
            verb: &scripts::PLAIN_TRY,
            who: &who,
            keys: &|cmd: &mut Cmd| keys.write_plain(cmd),
            witness: None,
            weight: 1,
            args: &|cmd: &mut Cmd| {
                id_arg(cmd, claim.id);
                cmd.arg(millis(claim.lease))
                    .arg(claim.reserve)
                    .arg(not_after);
            },
        };
        let answer = match claim.label {
            None => self.connection.run_verb(op).await,
            // The verbs of a batch share who asks.
            Some(_) => self.connection.run_alone(op).await,
        };
        if answer.as_ref().is_err_and(Fault::came_midway) {
            // What it did until then must not stay.
            let _ = self.release(&claim.name, claim.id).await;
            self.connection.stay();
        }
        Tried::new(answer.map_err(Fault::of_change)?, clock, sent)
    }

    /// Lets go of a hold. A claim to queue finds no queue: it tries for itself.
    pub async fn release(&self, name: &Name, claim: ClaimId) -> Result<Released, Error> {
        let keys = self.keys(name)?;
        let op = Op {
            verb: &scripts::PLAIN_LET_GO,
            who: "",
            keys: &|cmd: &mut Cmd| {
                cmd.arg(&keys.main);
            },
            witness: None,
            weight: 1,
            args: &|cmd: &mut Cmd| id_arg(cmd, claim),
        };
        let answer = self.connection.run_verb(op).await;
        match answer.map_err(Fault::of_change)? {
            Value::Int(held) => Ok(Released {
                was_held: held == 1,
                regrant: None,
            }),
            other => Err(answer::nonsense(&other)),
        }
    }

    pub async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let clock = self.connection.clock();
        let write = |cmd: &mut Cmd, holds: &[(Keys, &Renewal)]| {
            cmd.arg(holds.len());
            for (keys, _) in holds {
                cmd.arg(&keys.main);
            }
            for (_, renewal) in holds {
                cmd.arg(renewal.claim.to_string())
                    .arg(millis(renewal.lease))
                    .arg(clock.at(renewal.not_after));
            }
            cmd.arg(self.connection.batch().keep());
        };
        let script = &scripts::PLAIN_RENEW;
        self.connection.renew(script, renewals, write).await
    }

    pub async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>, Error> {
        let keys = self.keys(name)?;
        let write = |cmd: &mut Cmd| {
            cmd.arg(3)
                .arg(&keys.main)
                .arg(keys.plain_token())
                .arg(keys.broken());
        };
        let answer = self.connection.run(&scripts::PLAIN_INSPECT, write).await;
        let reply = Reply::new(answer.map_err(Fault::of_look)?)?;
        let info = LockInfo {
            name: name.clone(),
            holders: held(&reply, 0)?,
            waiters: 0,
            last_token: Some(reply.number(2)?)
                .filter(|token| *token > 0)
                .map(Token::new),
            broken: answer::broken(reply.list(3)?)?,
            queue: Vec::new(),
            free_permits: None,
        };
        Ok(info.if_known())
    }

    pub async fn break_lock(&self, request: &Break) -> Result<BreakOutcome, Error> {
        let keys = self.keys(&request.name)?;
        let write = |cmd: &mut Cmd, not_after: u64| {
            cmd.arg(3)
                .arg(&keys.main)
                .arg(keys.plain_token())
                .arg(keys.broken())
                .arg(&request.reason)
                .arg(millis(BREAK_MEMORY))
                .arg(self.connection.batch().keep())
                .arg(not_after)
                .arg(&request.target.as_args());
        };
        let script = &scripts::PLAIN_BREAK;
        let answer = self.connection.break_lock(script, request, write);
        answer.await?.outcome(|reply| held(reply, 2))
    }
}

/// The holder, from the value of the key and the time it has left, at this place and the next.
fn held(reply: &Reply, at: usize) -> Result<Vec<Holder>, Error> {
    if reply.is_nil(at) {
        return Ok(Vec::new());
    }
    let value = reply.text(at)?;
    Ok(vec![holder(&value, reply.signed(at + 1)?)])
}

/// `<claim> <token> <tokens> <since> <lease>ms <who>`, or whatever a peer of ours wrote. An older version leaves out the lease.
fn holder(value: &str, left: i64) -> Holder {
    let ours = || {
        let mut parts = value.splitn(5, ' ');
        let id = parts.next()?;
        let _: ClaimId = id.parse().ok()?;
        let token = parts.next()?.parse().ok()?;
        let _tokens: u32 = parts.next()?.parse().ok()?;
        let since = parts.next()?.parse().ok()?;
        let who = parts.next()?;
        let (lease, label) = answer::lease_and_label(who);
        Some(Holder {
            process: answer::process(who),
            lease,
            label,
            token: Some(Token::new(token)),
            since: Some(wall(since)),
            ..answer::stranger(id, Mode::Exclusive, left, "")
        })
    };
    ours().unwrap_or_else(|| answer::stranger("", Mode::Exclusive, left, "another client"))
}
