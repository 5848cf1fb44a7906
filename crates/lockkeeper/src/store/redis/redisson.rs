//! The dialect that Redisson speaks: its keys, fields, channels and messages, with a queue of ours beside
//! them. See `docs/redis.md`.

use ::redis::{Cmd, Value};

use super::answer::{self, REDISSON, Reply, Tried};
use super::batch::{Op, id_arg};
use super::fault::Fault;
use super::keys::Keys;
use super::scripts::{self, Verb};
use super::transport::Topic;
use super::way::Way;
use super::{BREAK_MEMORY, MAX_PERMITS, millis};
use crate::clock::Moment;
use crate::store::*;
use crate::{Label, Token};

/// The verbs of the contract, as scripts.
#[derive(Debug)]
pub(super) struct Redisson<'a> {
    pub connection: &'a Way<'a>,
    /// Our channel and our process, as they are written into holds and queue entries.
    pub who: &'a str,
}

/// How a mode is written.
fn letter(mode: Mode) -> (&'static str, u32, u32) {
    match mode {
        Mode::Exclusive => ("x", 0, 0),
        Mode::Fair => ("f", 0, 0),
        Mode::Read => ("r", 0, 0),
        Mode::Write => ("w", 0, 0),
        Mode::Permit { limit, count } => ("p", limit, count),
    }
}

fn check_permits(mode: Mode) -> Result<(), Error> {
    match mode {
        Mode::Permit { count, .. } if count > MAX_PERMITS => Err(Error::LimitExceeded {
            what: "permits in one claim",
            limit: u64::from(MAX_PERMITS),
        }),
        _ => Ok(()),
    }
}

impl Redisson<'_> {
    fn keys(&self, name: &Name) -> Result<Keys, Error> {
        Keys::of(self.connection.settings(), name)
    }

    /// The arguments that come first in every script with a record.
    fn write_head(&self, cmd: &mut Cmd) {
        cmd.arg(self.who).arg(self.connection.batch().keep());
    }

    async fn run_verb(
        &self,
        verb: &'static Verb,
        who: &str,
        keys: &Keys,
        weight: u32,
        args: &(dyn Fn(&mut Cmd) + Sync),
    ) -> Result<Value, Fault> {
        let write = |cmd: &mut Cmd| match verb.letter {
            "r" | "R" | "S" => keys.write_release(cmd),
            _ => keys.write_record(cmd),
        };
        let op = Op {
            verb,
            who,
            keys: &write,
            witness: keys.witness(),
            weight,
            args,
        };
        self.connection.run_verb(op).await
    }

    pub async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        check_permits(claim.mode)?;
        let keys = self.keys(&claim.name)?;
        // Twice at most: the second time with a better idea of the server's clock.
        for _ in 0..2 {
            let tried = self.try_once(claim, &keys).await?;
            if claim.enqueue && tried.is_behind_a_stranger()? {
                self.listen(claim, &keys);
            }
            match tried.attempt()? {
                Attempt::TooLate if Moment::now() <= claim.not_after => {}
                attempt => return Ok(attempt),
            }
        }
        Ok(Attempt::TooLate)
    }

    async fn try_once(&self, claim: &Claim, keys: &Keys) -> Result<Tried, Error> {
        let (mode, limit, count) = letter(claim.mode);
        let label = claim.label.as_ref().map(Label::as_str);
        let clock = self.connection.clock();
        let (sent, not_after) = (Moment::now(), clock.at(claim.not_after));
        let enqueue = match claim.enqueue {
            true => self.ears(claim, sent),
            false => 0,
        };
        let least = !claim.enqueue && claim.beside.is_none() && count == 0 && label.is_none();
        let args = |cmd: &mut Cmd| {
            id_arg(cmd, claim.id);
            let mode = match (mode, label) {
                ("x", Some(_)) => "X",
                _ => mode,
            };
            cmd.arg(mode)
                .arg(millis(claim.lease))
                .arg(claim.reserve)
                .arg(not_after);
            if !least {
                cmd.arg(enqueue).arg(limit).arg(count);
                match claim.beside {
                    Some(beside) => id_arg(cmd, beside),
                    None => {
                        cmd.arg("");
                    }
                }
                cmd.arg(label);
            }
        };
        let verb = match (least, label) {
            (true, _) => &scripts::TRY,
            (false, None) => &scripts::TRY_OR_QUEUE,
            (false, Some(_)) => &scripts::TRY_WITH_LABEL,
        };
        let weight = count.max(1);
        let answer = self.run_verb(verb, self.who, keys, weight, &args).await;
        if answer.as_ref().is_err_and(Fault::came_midway) {
            // What it did until then must not stay; least of all a key that never expires.
            let _ = self.withdraw(&claim.name, claim.id).await;
            self.connection.stay();
        }
        Tried::new(answer.map_err(Fault::of_change)?, clock, sent)
    }

    /// How a claim that waits hears of its turn, as the scripts have it: 2 not at all, 1 by a hint. Or by its grant, which
    /// says when the claim last asked. Where replicas have to confirm a grant it must ask, and so be told to.
    fn ears(&self, claim: &Claim, sent: Moment) -> u64 {
        let connection = self.connection;
        // Elsewhere a process listens for all of its claims at once.
        if connection.sharded() && !connection.subscriptions().has(claim.id) {
            return 2;
        }
        match claim.mode {
            Mode::Exclusive if connection.settings().replicas == 0 => sent.as_nanos(),
            _ => 1,
        }
    }

    /// Hears when a client of Redisson's that is in the way leaves.
    fn listen(&self, claim: &Claim, keys: &Keys) {
        let fair = || format!("{}:{}", keys.lock_channel(), claim.id);
        let theirs = || {
            [
                keys.lock_channel(),
                keys.rw_channel(),
                keys.permit_channel(),
            ]
        };
        let topics = || match self.connection.sharded() {
            true => theirs()
                .into_iter()
                .chain([keys.listen_channel(), fair()])
                .map(Topic::Shard)
                .collect(),
            false => theirs()
                .iter()
                .map(|channel| Topic::quietly(channel))
                .chain([Topic::Channel(fair())])
                .collect(),
        };
        let subscriptions = self.connection.subscriptions();
        subscriptions.listen(&claim.name, claim.id, keys.slot(), topics);
    }

    pub async fn withdraw(&self, name: &Name, claim: ClaimId) -> Result<(), Error> {
        let keys = self.keys(name)?;
        let write = |cmd: &mut Cmd| {
            keys.write_alone(cmd, None);
            self.write_head(cmd);
            id_arg(cmd, claim);
        };
        let answer = self.connection.run(&scripts::WITHDRAW, write).await;
        answer.map(|_| ()).map_err(Fault::of_change)
    }

    pub async fn release(&self, release: &Release) -> Result<Released, Error> {
        let keys = self.keys(&release.name)?;
        let next = release.requeue.as_ref();
        if let Some(next) = next {
            check_permits(next.mode)?;
        }
        let sent = Moment::now();
        let args = |cmd: &mut Cmd| {
            id_arg(cmd, release.claim);
            if let Some(next) = next {
                let (mode, limit, count) = letter(next.mode);
                id_arg(cmd, next.id);
                cmd.arg(mode)
                    .arg(millis(next.lease))
                    .arg(next.reserve)
                    .arg(self.connection.clock().at(next.not_after))
                    .arg(limit)
                    .arg(count)
                    .arg(self.ears(next, sent))
                    .arg(next.label.as_ref().map(Label::as_str));
            }
        };
        let (verb, who) = match next {
            Some(next) if next.label.is_some() => (&scripts::LET_GO_AND_QUEUE_WITH_LABEL, self.who),
            Some(_) => (&scripts::LET_GO_AND_QUEUE, self.who),
            None => (&scripts::LET_GO, ""),
        };
        let answer = self.run_verb(verb, who, &keys, 1, &args).await;
        let reply = match answer.map_err(Fault::of_change)? {
            Value::Int(held) => {
                return Ok(Released {
                    was_held: held == 1,
                    regrant: None,
                });
            }
            other => Reply::new(other)?,
        };
        let clock = self.connection.clock();
        clock.saw(reply.number(3)?, sent, Moment::now());
        Ok(Released {
            was_held: reply.number(0)? == 1,
            regrant: match reply.number(1)? {
                0 => None,
                _ => Some(reply.grant(1)?),
            },
        })
    }

    pub async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let clock = self.connection.clock();
        let write = |cmd: &mut Cmd, holds: &[(Keys, &Renewal)]| {
            cmd.arg(4 * holds.len());
            for (keys, _) in holds {
                cmd.arg(&keys.main)
                    .arg(keys.holders())
                    .arg(keys.aside())
                    .arg(keys.permits());
            }
            for (keys, renewal) in holds {
                cmd.arg(keys.tag().to_string())
                    .arg(renewal.claim.to_string())
                    .arg(millis(renewal.lease))
                    .arg(clock.at(renewal.not_after));
            }
            cmd.arg(self.connection.batch().keep());
        };
        let script = &scripts::RENEW;
        self.connection.renew(script, renewals, write).await
    }

    /// Describes a name, with so many of those who wait.
    pub async fn inspect(&self, name: &Name, listed: usize) -> Result<Option<LockInfo>, Error> {
        let keys = self.keys(name)?;
        let write = |cmd: &mut Cmd| {
            keys.write_alone(cmd, Some(keys.broken()));
            self.write_head(cmd);
            cmd.arg(listed);
        };
        let answer = self.connection.run(&scripts::INSPECT, write).await;
        let reply = Reply::new(answer.map_err(Fault::of_look)?)?;
        let permits = Permits::of(&reply, 8)?;
        let mut holders = holders(&reply, 0)?;
        holders.extend(permits.as_ref().and_then(Permits::holder));
        let info = LockInfo {
            name: name.clone(),
            holders,
            waiters: reply.number(4)? as usize,
            last_token: Some(reply.number(5)?)
                .filter(|token| *token > 0)
                .map(Token::new),
            broken: answer::broken(reply.list(6)?)?,
            queue: answer::waiters(reply.list(7)?)?,
            free_permits: permits.and_then(|permits| permits.free),
        };
        Ok(info.if_known())
    }

    pub async fn break_lock(&self, request: &Break) -> Result<BreakOutcome, Error> {
        let keys = self.keys(&request.name)?;
        let write = |cmd: &mut Cmd, not_after: u64| {
            keys.write_alone(cmd, Some(keys.broken()));
            self.write_head(cmd);
            cmd.arg(&request.reason)
                .arg(millis(BREAK_MEMORY))
                .arg(not_after)
                .arg(&request.target.as_args());
        };
        let answer = self.connection.break_lock(&scripts::BREAK, request, write);
        answer.await?.outcome(|reply| {
            let mut holders = holders(reply, 2)?;
            let permits = Permits::of(reply, 6)?;
            holders.extend(permits.as_ref().and_then(Permits::holder));
            Ok(holders)
        })
    }

    pub async fn latch(&self, request: &LatchRequest) -> Result<LatchState, Error> {
        let keys = self.keys(&request.name)?;
        // Twice at most, as for an acquire.
        for last in [false, true] {
            let not_after = self.connection.clock().at(request.not_after);
            let reply = self.latch_once(request, &keys, not_after).await?;
            let late = not_after != 0 && reply.number(2)? > not_after;
            if last || !late || Moment::now() > request.not_after {
                return Ok(LatchState {
                    count: reply.number(0)? as u32,
                    changed: reply.number(1)? == 1,
                });
            }
        }
        unreachable!("the last round returns")
    }

    async fn latch_once(
        &self,
        request: &LatchRequest,
        keys: &Keys,
        not_after: u64,
    ) -> Result<Reply, Error> {
        let (op, count) = match request.op {
            LatchOp::Read => ("read", 0),
            LatchOp::Set(count) => ("set", count),
            LatchOp::CountDown => ("down", 0),
            LatchOp::Open => ("open", 0),
        };
        let write = |cmd: &mut Cmd| {
            cmd.arg(3)
                .arg(&keys.main)
                .arg(keys.holders())
                .arg(keys.latch())
                .arg(op)
                .arg(request.id.to_string())
                .arg(count)
                .arg(not_after)
                .arg(keys.latch_channel());
        };
        let sent = Moment::now();
        let answer = self.connection.run(&scripts::LATCH, write).await;
        let explain = match request.op {
            LatchOp::Read => Fault::of_look,
            _ => Fault::of_change,
        };
        let reply = Reply::new(answer.map_err(explain)?)?;
        let clock = self.connection.clock();
        clock.saw(reply.number(2)?, sent, Moment::now());
        Ok(reply)
    }
}

/// The holders, or those that were: our holds, fields of others, the mode of those and how long they had left, from this place on.
fn holders(reply: &Reply, at: usize) -> Result<Vec<Holder>, Error> {
    let mut holders = answer::holders(reply.list(at)?)?;
    let (mode, left) = (reply.text(at + 2)?, reply.signed(at + 3)?);
    for field in reply.list(at + 1)? {
        holders.push(foreign(&answer::text(field)?, &mode, left));
    }
    Ok(holders)
}

/// The permits of clients of Redisson's, and those that are free, as `permits.lua` returns them.
struct Permits {
    taken: u32,
    all: u32,
    /// `None` where a claim of ours has said how many there are.
    free: Option<u32>,
    /// Until the last that is taken ends, in ms.
    left: i64,
}

impl Permits {
    /// From this place of an answer; `None` if the name has no permits.
    fn of(reply: &Reply, at: usize) -> Result<Option<Permits>, Error> {
        if reply.is_nil(at) {
            return Ok(None);
        }
        let reply = Reply::new(Value::Array(reply.list(at)?.to_vec()))?;
        let count = |at: usize| -> Result<u32, Error> {
            Ok(u32::try_from(reply.signed(at)?.max(0)).unwrap_or(u32::MAX))
        };
        Ok(Some(Permits {
            taken: count(0)?,
            all: count(1)?,
            free: match reply.signed(2)? {
                -1 => None,
                _ => Some(count(2)?),
            },
            left: reply.signed(3)?,
        }))
    }

    /// Those who have some, as one: which client has which is not known.
    fn holder(&self) -> Option<Holder> {
        let who = match self.taken {
            0 => return None,
            1 => REDISSON,
            _ => "Redisson clients",
        };
        let mode = Mode::Permit {
            limit: self.all,
            count: self.taken,
        };
        Some(answer::stranger("", mode, self.left, who))
    }
}

/// A hold of a client of Redisson's.
fn foreign(field: &str, mode: &str, left: i64) -> Holder {
    let id = field.strip_suffix(":write").unwrap_or(field);
    let mode = match mode {
        "r" => Mode::Read,
        "w" => Mode::Write,
        _ => Mode::Exclusive,
    };
    answer::stranger(id, mode, left, REDISSON)
}
