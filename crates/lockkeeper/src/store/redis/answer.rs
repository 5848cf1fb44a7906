//! What scripts answer, in our types.

use std::borrow::Cow;
use std::time::Duration;

use ::redis::Value;

use super::fault::{Fault, refused};
use crate::clock::Moment;
use crate::store::common::ServerClock;
use crate::store::record::wall;
use crate::store::*;
use crate::{Label, Token};

/// An answer that is a list.
#[derive(Debug)]
pub(in crate::store) struct Reply(Vec<Value>);

impl Reply {
    pub fn new(value: Value) -> Result<Reply, Error> {
        match value {
            Value::Array(values) => Ok(Reply(values)),
            other => Err(nonsense(&other)),
        }
    }

    fn at(&self, index: usize) -> &Value {
        self.0.get(index).unwrap_or(&Value::Nil)
    }

    pub fn number(&self, index: usize) -> Result<u64, Error> {
        u64::try_from(self.signed(index)?).map_err(|_| nonsense(self.at(index)))
    }

    pub fn signed(&self, index: usize) -> Result<i64, Error> {
        number(self.at(index))
    }

    pub fn text(&self, index: usize) -> Result<String, Error> {
        text(self.at(index))
    }

    pub fn is_nil(&self, index: usize) -> bool {
        *self.at(index) == Value::Nil
    }

    pub fn list(&self, index: usize) -> Result<&[Value], Error> {
        match self.at(index) {
            Value::Array(values) => Ok(values),
            other => Err(nonsense(other)),
        }
    }

    /// A token and the number of tokens after it.
    pub fn grant(&self, index: usize) -> Result<Grant, Error> {
        Ok(Grant {
            token: Token::new(self.number(index)?),
            tokens: self.number(index + 1)? as u32,
        })
    }
}

/// The answer to a try.
pub(super) struct Tried(Reply);

impl Tried {
    /// A number is short for a grant of the token that it is, and is the time.
    pub fn new(value: Value, clock: &ServerClock, sent: Moment) -> Result<Tried, Error> {
        let reply = match value {
            us @ Value::Int(_) => {
                let one = Value::Int(1);
                Reply(vec![one.clone(), us.clone(), one, us])
            }
            other => Reply::new(other)?,
        };
        clock.saw(reply.number(3)?, sent, Moment::now());
        Ok(Tried(reply))
    }

    /// Whether it is a client of Redisson's that is in the way.
    pub fn is_behind_a_stranger(&self) -> Result<bool, Error> {
        Ok(self.0.number(0)? == 0 && self.0.number(2)? == 1)
    }

    pub fn attempt(self) -> Result<Attempt, Error> {
        let Tried(reply) = self;
        Ok(match reply.number(0)? {
            1 => Attempt::Granted(reply.grant(1)?),
            0 => Attempt::Busy {
                free_in: u64::try_from(reply.signed(1)?)
                    .ok()
                    .map(Duration::from_millis),
            },
            _ => Attempt::TooLate,
        })
    }
}

/// The server answered something that no script of ours does.
pub(in crate::store) fn nonsense(value: &Value) -> Error {
    let value: String = format!("{value:?}").chars().take(160).collect();
    refused(format!("the server gave an unexpected answer: {value}"))
}

fn number(value: &Value) -> Result<i64, Error> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(nonsense(other)),
    }
}

pub(in crate::store) fn text(value: &Value) -> Result<String, Error> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Ok(text.clone()),
        other => Err(nonsense(other)),
    }
}

/// Adds the answers to one part of a batch of renewals; the server's time comes behind them. A batch that was done in part is in doubt.
pub(super) fn renewed(
    answer: Result<Value, Fault>,
    clock: &ServerClock,
    sent: Moment,
    answers: &mut Vec<Renewed>,
) -> Result<(), Error> {
    let value = answer.map_err(|fault| match fault.of_change() {
        error if !answers.is_empty() => error.in_doubt(),
        error => error,
    })?;
    let Value::Array(values) = &value else {
        return Err(nonsense(&value));
    };
    let [values @ .., Value::Int(us)] = values.as_slice() else {
        return Err(nonsense(&value));
    };
    clock.saw(us.unsigned_abs(), sent, Moment::now());
    for value in values {
        answers.push(match number(value)? {
            1 => Renewed::Renewed,
            2 => Renewed::TooLate,
            _ => Renewed::NotHeld,
        });
    }
    Ok(())
}

/// Holds as inspect and break answer them.
pub(super) fn holders(values: &[Value]) -> Result<Vec<Holder>, Error> {
    let replies = values.iter().map(|value| Reply::new(value.clone()));
    replies.map(|reply| holder(&reply?)).collect()
}

/// The mode that a letter stands for, its limit and count from this place on.
fn mode(letter: &str, reply: &Reply, at: usize) -> Result<Mode, Error> {
    let (limit, count) = (reply.number(at)? as u32, reply.number(at + 1)? as u32);
    Ok(match letter {
        "f" => Mode::Fair,
        "r" => Mode::Read,
        "w" => Mode::Write,
        "p" => Mode::Permit { limit, count },
        _ => Mode::Exclusive,
    })
}

fn holder(reply: &Reply) -> Result<Holder, Error> {
    Ok(Holder {
        claim: reply.text(0)?.parse()?,
        process: process(&reply.text(7)?),
        mode: mode(&reply.text(1)?, reply, 5)?,
        token: Some(Token::new(reply.number(3)?)),
        since: Some(wall(reply.number(4)?)),
        remaining: Some(Duration::from_millis(reply.number(2)?)),
        depth: None,
        lease: match reply.is_nil(8) {
            true => None,
            false => Some(Duration::from_millis(reply.number(8)?)),
        },
        label: label(reply, 9)?,
    })
}

/// Any client may have written it, so it is made fit to be shown.
fn label(reply: &Reply, at: usize) -> Result<Option<Label>, Error> {
    match reply.is_nil(at) {
        true => Ok(None),
        false => Ok(Label::shortened(&reply.text(at)?)),
    }
}

/// The claims that wait, as the inspect script returns them.
pub(super) fn waiters(values: &[Value]) -> Result<Vec<Waiter>, Error> {
    let replies = values.iter().map(|value| Reply::new(value.clone()));
    replies.map(|reply| waiter(&reply?)).collect()
}

fn waiter(reply: &Reply) -> Result<Waiter, Error> {
    let id = reply.text(0)?;
    if reply.is_nil(1) {
        // In Redisson's line.
        let Holder { claim, process, .. } = stranger(&id, Mode::Fair, -1, REDISSON);
        return Ok(Waiter {
            claim,
            process,
            mode: Mode::Fair,
            label: None,
            since: None,
        });
    }
    Ok(Waiter {
        claim: id.parse()?,
        process: process(&reply.text(5)?),
        mode: mode(&reply.text(1)?, reply, 3)?,
        label: label(reply, 6)?,
        since: Some(wall(reply.number(2)?)),
    })
}

/// How a client of Redisson's is called: nothing more is known of it.
pub(in crate::store) const REDISSON: &str = "a Redisson client";

/// A hold of another kind of client, as far as its key tells. It has so many ms left; less than none where it has no end.
pub(in crate::store) fn stranger(id: &str, mode: Mode, left: i64, program: &str) -> Holder {
    let claim = id.parse().unwrap_or(ClaimId::UNKNOWN);
    let left = u64::try_from(left).ok().map(Duration::from_millis);
    Holder::foreign(claim, Process::unknown(program), mode).with_remaining(left)
}

/// Why and when a lock was broken, if it was.
pub(in crate::store) fn broken(values: &[Value]) -> Result<Option<Broken>, Error> {
    let [Value::BulkString(_), Value::BulkString(_)] = values else {
        return Ok(None);
    };
    Ok(Some(Broken {
        reason: text(&values[0])?,
        at: wall(text(&values[1])?.parse().unwrap_or(0)),
    }))
}

/// How we are written into holds: the program comes last, as it may have any character.
pub(in crate::store) fn describe(channel: &str, process: &Process) -> String {
    let Process { host, pid, program } = process;
    format!("{channel}\n{host}\n{pid}\n{program}")
}

/// What [`describe`] wrote, with a label behind the channel. Older versions show nothing of the first line.
pub(in crate::store) fn with_label<'a>(who: &'a str, label: Option<&Label>) -> Cow<'a, str> {
    match (label, who.split_once('\n')) {
        (Some(label), Some((channel, process))) => format!("{channel} {label}\n{process}").into(),
        _ => who.into(),
    }
}

/// The lease and the label of a first line `<lease>ms <channel> <label>`. Older versions write the channel alone.
pub(in crate::store) fn lease_and_label(who: &str) -> (Option<Duration>, Option<Label>) {
    let mut parts = who.lines().next().unwrap_or_default().splitn(3, ' ');
    let lease = parts.next().and_then(|part| part.strip_suffix("ms"));
    let Some(lease) = lease.and_then(|lease| lease.parse().ok()) else {
        return (None, None);
    };
    let label = parts.nth(1).and_then(Label::shortened);
    (Some(Duration::from_millis(lease)), label)
}

/// The process that [`describe`] wrote.
pub(in crate::store) fn process(text: &str) -> Process {
    let mut parts = text.splitn(4, '\n').skip(1).map(str::to_owned);
    Process {
        host: parts.next().unwrap_or_default(),
        pid: parts.next().and_then(|pid| pid.parse().ok()).unwrap_or(0),
        program: parts.next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_back() {
        for program in ["app", "odd\nname", ""] {
            let process = Process {
                host: "machine".into(),
                pid: 42,
                program: program.into(),
            };
            assert_eq!(super::process(&describe("channel", &process)), process);
        }
    }

    #[test]
    fn a_first_line_reads_back_and_an_older_one_has_neither_lease_nor_label() {
        let process = Process::current();
        let who = describe("lockkeeper_wake:1", &process);
        let lease = Duration::from_millis(30_000);
        for label in [None, Label::shortened("order 42"), Label::shortened(" ")] {
            let text = format!("30000ms {}", with_label(&who, label.as_ref()));
            assert_eq!(lease_and_label(&text), (Some(lease), label));
            assert_eq!(super::process(&text), process);
        }
        assert_eq!(lease_and_label(&who), (None, None));
        assert_eq!(lease_and_label(""), (None, None));
    }

    #[test]
    fn a_strange_answer_is_told_in_part() {
        for length in 0..200 {
            let answer = format!("{}{}", "x".repeat(length), "\u{fc}".repeat(200));
            let text = nonsense(&Value::SimpleString(answer)).to_string();
            assert!(text.len() < 400, "{text}");
        }
    }
}
