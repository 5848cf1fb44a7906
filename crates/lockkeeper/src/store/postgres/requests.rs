//! Steps as one message, and its answer as replies.

use std::time::Duration;

use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use super::statements::{self as sql, Dialect, Value};
use super::wake;
use crate::clock::Moment;
use crate::store::record::{Hold, Latch, LatchChange, Queue, Queued, Record, wall};
use crate::store::sql::engine::{
    Loaded, Looked, Op, Reply, Save, claim_of, length, micros, mode_columns, mode_of, moment,
};
use crate::store::{Broken, Claim, Grant, KeeperId, Process, QUEUE_TTL};
use crate::{Label, Token};

/// Commits of others are waited for, and nothing that takes longer.
const HURRY: &str = "SET LOCAL lock_timeout TO '10ms';\n";

/// A message for the server.
#[derive(Debug)]
pub(super) struct Request {
    pub text: String,
    /// How many statements come before the first step.
    before: usize,
    /// How many statements each step has.
    each: Vec<usize>,
    /// Whether it notifies anybody.
    pub notifies: bool,
}

/// How a transaction is done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// Its commit waits for the disk.
    pub durable: bool,
    /// It does not wait for a row that somebody keeps.
    pub hurried: bool,
    /// It notifies nobody: the server cannot take it.
    pub silent: bool,
}

/// What the server answered.
#[derive(Debug)]
pub(super) struct Response {
    pub replies: Vec<Reply>,
    /// Its clock, if it said so.
    pub now: Option<u64>,
    /// From when on it may grant; `None` inside if that is not known there.
    pub ready_at: Option<Option<u64>>,
}

/// The answer is none to what was asked.
#[derive(Debug)]
pub(super) struct Malformed;

impl Request {
    /// Steps as one transaction.
    pub fn new(dialect: &Dialect, ops: &[Op], how: How, limits: &str) -> Request {
        let mut text = String::new();
        let mut before = 0;
        let lazy = !how.durable && ops.iter().any(|op| op.is_durable().is_some());
        if !dialect.prepared {
            // The session may be another's: all that matters is said each time.
            text.push_str("BEGIN ISOLATION LEVEL READ COMMITTED;\n");
            text.push_str(limits);
            before += 1 + limits.matches(';').count();
        }
        if lazy || !dialect.prepared {
            let sync = if lazy { "off" } else { "on" };
            text.push_str("SET LOCAL synchronous_commit TO ");
            text.push_str(sync);
            text.push_str(";\n");
            before += 1;
        }
        if how.hurried {
            text.push_str(HURRY);
            before += 1;
        }
        let mut each = Vec::with_capacity(ops.len());
        for op in ops {
            let mut said = Said {
                dialect,
                text: &mut text,
                many: 0,
            };
            said.op(op, how);
            each.push(said.many);
        }
        if !dialect.prepared {
            text.push_str("COMMIT;");
        }
        let wakes = |op: &Op| matches!(op, Op::Save(save) if !save.wake.is_empty());
        Request {
            text,
            before,
            each,
            notifies: !how.durable && !how.silent && ops.iter().any(wakes),
        }
    }

    /// Reads the answer.
    pub fn read(
        &self,
        ops: &[Op],
        messages: Vec<SimpleQueryMessage>,
    ) -> Result<Response, Malformed> {
        let mut results: Vec<Vec<SimpleQueryRow>> = vec![Vec::new()];
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => match results.last_mut() {
                    Some(rows) => rows.push(row),
                    None => return Err(Malformed),
                },
                SimpleQueryMessage::CommandComplete(_) => results.push(Vec::new()),
                _ => {}
            }
        }
        results.pop();
        let mut response = Response {
            replies: Vec::with_capacity(ops.len()),
            now: None,
            ready_at: None,
        };
        let mut at = self.before;
        for (op, many) in ops.iter().zip(&self.each) {
            let rows = results.get(at).ok_or(Malformed)?;
            at += many;
            let reply = reply(op, rows, &mut response).ok_or(Malformed)?;
            response.replies.push(reply);
        }
        match results.len() >= at {
            true => Ok(response),
            false => Err(Malformed),
        }
    }
}

/// Adds statements to a message.
struct Said<'a> {
    dialect: &'a Dialect,
    text: &'a mut String,
    many: usize,
}

impl Said<'_> {
    fn say(
        &mut self,
        statement: (&'static str, &'static [&'static str], &'static str),
        values: &[Value<'_>],
    ) {
        self.dialect.say(self.text, statement, values);
        self.many += 1;
    }

    fn op(&mut self, op: &Op, how: How) {
        match op {
            Op::Take { claim, not_after } => {
                let version = crate::store::sql::new_version();
                self.say(
                    sql::TAKE,
                    &[
                        Value::Text(&claim.name),
                        Value::Claim(claim.id),
                        Value::Int(mode_columns(claim.mode).0),
                        Value::Int(length(claim.lease)),
                        Value::Int(claim.reserve.max(1).into()),
                        label(claim.label.as_ref()),
                        Value::Int(*not_after as i64),
                        Value::Int(version),
                    ],
                );
            }
            Op::Append { claim, not_after } => self.append(claim, *not_after),
            Op::Free { name, claim } => {
                self.say(sql::FREE, &[Value::Text(name), Value::Claim(*claim)]);
            }
            Op::Prolong {
                name,
                claim,
                lease,
                not_after,
            } => self.say(
                sql::PROLONG,
                &[
                    Value::Text(name),
                    Value::Claim(*claim),
                    Value::Int(length(*lease)),
                    Value::Int(*not_after as i64),
                ],
            ),
            Op::Load { name, limit } => {
                self.say(sql::LOAD, &[Value::Text(name), Value::Int(*limit as i64)]);
            }
            Op::Save(save) => self.save(save, how),
            Op::Count { name } => self.say(sql::COUNT, &[Value::Text(name)]),
            Op::Names {
                prefix,
                after,
                limit,
            } => {
                let after = after.as_deref().unwrap_or_default();
                let values = [
                    Value::Text(prefix),
                    Value::Text(after),
                    Value::Int(*limit as i64),
                ];
                self.say(sql::NAMES, &values);
            }
            Op::Processes(keepers) => {
                let keepers = keepers.iter().map(|id| format!("{:032x}", id.to_bits()));
                let keepers: Vec<String> = keepers.collect();
                self.say(sql::PROCESSES, &[Value::Text(&keepers.join(","))]);
            }
            Op::Enlist(keeper, process) => self.say(
                sql::ENLIST,
                &[
                    Value::Bytes(&keeper.to_bits().to_be_bytes()),
                    Value::Text(&process.host),
                    Value::Int(process.pid.into()),
                    Value::Text(&process.program),
                ],
            ),
            Op::Look { after } => self.say(sql::LOOK, &[Value::Text(after)]),
            Op::Forget(names) => {
                // The floor first: a name that is forgotten then has a token that is not above it.
                let floor = names.iter().map(|name| name.token).max().unwrap_or(0);
                self.say(sql::FLOOR, &[Value::Int(floor)]);
                for name in names {
                    let (version, tail) = (Value::Int(name.version), Value::Int(name.tail));
                    self.say(sql::FORGET, &[Value::Text(&name.name), version, tail]);
                }
            }
            Op::LoadLatch { name, id } => {
                self.say(sql::LATCH, &[Value::Text(name), Value::Claim(*id)]);
            }
            Op::SaveLatch {
                name,
                id,
                seen,
                version,
                change,
                not_after,
            } => {
                let (statement, count) = match change {
                    LatchChange::Set(count) => (sql::LATCH_SET, i64::from(*count)),
                    LatchChange::Arrive => (sql::LATCH_ARRIVE, 0),
                    LatchChange::Open => (sql::LATCH_OPEN, 0),
                };
                self.say(
                    statement,
                    &[
                        Value::Text(name),
                        Value::Claim(*id),
                        Value::Int(seen.unwrap_or(0)),
                        Value::Int(*version),
                        Value::Int(count),
                        Value::Int(*not_after as i64),
                    ],
                );
            }
        }
    }

    fn append(&mut self, claim: &Claim, not_after: u64) {
        let (mode, permits, taken) = mode_columns(claim.mode);
        self.say(
            sql::APPEND,
            &[
                Value::Text(&claim.name),
                Value::Claim(claim.id),
                Value::Int(mode),
                Value::Int(permits),
                Value::Int(taken),
                Value::Int(length(claim.lease)),
                Value::Int(claim.reserve.into()),
                label(claim.label.as_ref()),
                Value::Int(not_after as i64),
                Value::Int(length(QUEUE_TTL)),
            ],
        );
    }

    fn save(&mut self, save: &Save, how: How) {
        let name = Value::Text(&save.name);
        let version = Value::Int(save.version);
        let (seen, tail) = save.seen.unwrap_or_default();
        let statement = match save.seen {
            Some(_) => sql::SAVE,
            None => sql::SAVE_NEW,
        };
        let hold = save.exclusive.as_ref();
        let of = |read: fn(&Hold) -> i64| hold.map_or(Value::Null, |hold| Value::Int(read(hold)));
        let broken = save.broken.as_ref();
        let broken_at = broken.map(|broken| {
            let since = broken.at.duration_since(std::time::UNIX_EPOCH);
            length(since.unwrap_or_default())
        });
        self.say(
            statement,
            &[
                name,
                Value::Int(seen),
                Value::Int(tail),
                Value::Bool(save.same_tail),
                Value::Bool(save.grants),
                Value::Int(save.not_after as i64),
                version,
                Value::Int(save.token as i64),
                hold.map_or(Value::Null, |hold| Value::Claim(hold.claim)),
                of(|hold| mode_columns(hold.mode).0),
                of(|hold| hold.grant.token.get() as i64),
                of(|hold| hold.grant.tokens.into()),
                of(|hold| length(hold.lease)),
                of(|hold| micros(hold.expires) as i64),
                of(|hold| hold.since_micros as i64),
                hold.map_or(Value::Null, |hold| label(hold.label.as_ref())),
                Value::Int(save.shared as i64),
                Value::Bool(save.waited),
                broken.map_or(Value::Null, |broken| Value::Text(&broken.reason)),
                broken_at.map_or(Value::Null, Value::Int),
                Value::Int(save.enqueue.is_some().into()),
            ],
        );
        for claim in &save.ended {
            self.say(sql::HOLD_END, &[name, version, Value::Claim(*claim)]);
        }
        for hold in &save.holds {
            let (mode, permits, taken) = mode_columns(hold.mode);
            self.say(
                sql::HOLD_PUT,
                &[
                    name,
                    version,
                    Value::Claim(hold.claim),
                    Value::Int(mode),
                    Value::Int(permits),
                    Value::Int(taken),
                    Value::Int(hold.grant.token.get() as i64),
                    Value::Int(hold.grant.tokens.into()),
                    Value::Int(length(hold.lease)),
                    Value::Int(micros(hold.expires) as i64),
                    Value::Int(hold.since_micros as i64),
                    label(hold.label.as_ref()),
                ],
            );
        }
        if let Some(until) = save.lapse {
            self.say(
                sql::LAPSE,
                &[name, version, Value::Int(micros(until) as i64)],
            );
        }
        for claim in &save.leave {
            self.say(sql::LEAVE, &[name, version, Value::Claim(*claim)]);
        }
        for (claim, until) in &save.keep {
            let until = Value::Int(micros(*until) as i64);
            self.say(sql::KEEP, &[name, version, Value::Claim(*claim), until]);
        }
        if let Some(entry) = &save.enqueue {
            self.enqueue(name, version, entry);
        }
        // A commit that waits for the disk would keep every other commit with a notification waiting.
        if !how.durable && !how.silent {
            for wake in &save.wake {
                let (channel, payload) = wake::message(&save.name, wake);
                let values = [name, version, Value::Text(&channel), Value::Text(&payload)];
                self.say(sql::NOTIFY, &values);
            }
        }
    }

    fn enqueue(&mut self, name: Value<'_>, version: Value<'_>, entry: &Queued) {
        let (mode, permits, taken) = mode_columns(entry.mode);
        self.say(
            sql::ENQUEUE,
            &[
                name,
                version,
                Value::Claim(entry.claim),
                Value::Int(mode),
                Value::Int(permits),
                Value::Int(taken),
                Value::Int(length(entry.lease)),
                Value::Int(entry.reserve.into()),
                Value::Int(entry.since_micros as i64),
                Value::Int(micros(entry.until) as i64),
                label(entry.label.as_ref()),
            ],
        );
    }
}

fn label(label: Option<&Label>) -> Value<'_> {
    label.map_or(Value::Null, |label| Value::Text(label.as_str()))
}

fn text(row: &SimpleQueryRow, at: usize) -> Option<&str> {
    row.try_get(at).ok().flatten()
}

fn int(row: &SimpleQueryRow, at: usize) -> Option<i64> {
    text(row, at)?.parse().ok()
}

fn time(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0) as u64)
}

/// The reply to a step, from the rows of its first statement.
fn reply(op: &Op, rows: &[SimpleQueryRow], response: &mut Response) -> Option<Reply> {
    // Column 3 is the time in every answer that has rows.
    if let Some(now) = rows.first().and_then(|row| int(row, 3))
        && now > 0
    {
        response.now = Some(now as u64);
    }
    let first = |kind: &str| rows.iter().find(|row| text(row, 0) == Some(kind));
    Some(match op {
        Op::Load { limit, .. } => {
            let (loaded, ready_at) = loaded(rows, *limit)?;
            response.ready_at = Some(ready_at);
            Reply::Loaded(Box::new(loaded))
        }
        Op::Names { .. } => {
            let names = rows.iter();
            let names =
                names.map(|row| Some((text(row, 4)?.to_owned(), int(row, 1)?.max(0) as usize)));
            Reply::Names(names.collect::<Option<_>>()?)
        }
        Op::Processes(_) => {
            let processes = rows.iter().map(|row| {
                let id = u128::from_str_radix(text(row, 4)?, 16).ok()?;
                let process = Process {
                    host: text(row, 5)?.to_owned(),
                    pid: int(row, 1)?.try_into().ok()?,
                    program: text(row, 6)?.to_owned(),
                };
                Some((KeeperId::from_bits(id), process))
            });
            Reply::Processes(processes.collect::<Option<_>>()?)
        }
        Op::LoadLatch { .. } => match first("a") {
            Some(row) => Reply::Latch(
                Some(int(row, 1)?),
                Latch {
                    count: int(row, 2)?.try_into().ok()?,
                    arrived: text(row, 4)? == "t",
                },
            ),
            None => Reply::Latch(None, Latch::default()),
        },
        Op::Count { .. } => Reply::Count(int(first("c")?, 1)?.max(0) as usize),
        Op::Look { .. } => {
            let names = rows.iter().map(|row| {
                Some(Looked {
                    name: text(row, 4)?.to_owned(),
                    version: int(row, 1)?,
                    tail: int(row, 2)?,
                    token: int(row, 5)?,
                    unused: text(row, 6)? == "t",
                })
            });
            Reply::Looked(names.collect::<Option<_>>()?)
        }
        Op::Forget(_) => Reply::Done,
        _ => {
            if let Some(row) = first("g") {
                return Some(Reply::Granted(Grant {
                    token: Token::new(int(row, 1)? as u64),
                    tokens: int(row, 2)?.try_into().ok()?,
                }));
            }
            if let Some(row) = first("h") {
                let free_in = time(int(row, 1)?);
                return Some(Reply::Held { free_in });
            }
            match first("d") {
                Some(_) => Reply::Done,
                None => Reply::Miss,
            }
        }
    })
}

fn loaded(rows: &[SimpleQueryRow], limit: usize) -> Option<(Loaded, Option<u64>)> {
    let head = rows.iter().find(|row| text(row, 0) == Some("m"))?;
    let now = int(head, 3)? as u64;
    let ready_at = int(head, 1).map(|ready_at| ready_at.max(0) as u64);
    let mut loaded = Loaded {
        now,
        seen: None,
        may_grant: ready_at.is_some_and(|ready_at| ready_at <= now),
        record: Record {
            last_token: int(head, 2)? as u64,
            ..Record::default()
        },
    };
    let mut queue: Vec<(i64, Queued)> = Vec::new();
    for row in rows {
        let record = &mut loaded.record;
        match text(row, 0)? {
            "l" => {
                loaded.seen = Some((int(row, 1)?, int(row, 2)?));
                record.last_token = int(row, 4)? as u64;
                record.broken = text(row, 16).zip(int(row, 5)).map(|(reason, at)| Broken {
                    reason: reason.to_owned(),
                    at: wall(at as u64),
                });
                if text(row, 6).is_some() {
                    record.holds.push(hold(row)?);
                }
            }
            "h" => record.holds.push(hold(row)?),
            "w" => queue.push((int(row, 1)?, queued(row)?)),
            _ => {}
        }
    }
    queue.sort_by_key(|(seq, _)| *seq);
    loaded.record.queue = Queue {
        more: queue.len() >= limit,
        first: queue.into_iter().map(|(_, entry)| entry).collect(),
    };
    Some((loaded, ready_at))
}

fn hold(row: &SimpleQueryRow) -> Option<Hold> {
    Some(Hold {
        claim: claim(row)?,
        process: 0,
        mode: mode_of(int(row, 7)?, int(row, 8)?, int(row, 9)?)?,
        grant: Grant {
            token: Token::new(int(row, 10)? as u64),
            tokens: int(row, 11)?.try_into().ok()?,
        },
        lease: time(int(row, 12)?),
        expires: at(row)?,
        since_micros: int(row, 14)? as u64,
        label: text(row, 15).and_then(Label::shortened),
    })
}

fn queued(row: &SimpleQueryRow) -> Option<Queued> {
    Some(Queued {
        claim: claim(row)?,
        process: 0,
        mode: mode_of(int(row, 7)?, int(row, 8)?, int(row, 9)?)?,
        lease: time(int(row, 12)?),
        reserve: int(row, 11)?.try_into().ok()?,
        label: text(row, 15).and_then(Label::shortened),
        since_micros: int(row, 14)? as u64,
        until: at(row)?,
    })
}

fn at(row: &SimpleQueryRow) -> Option<Moment> {
    Some(moment(int(row, 13)?.max(0) as u64))
}

fn claim(row: &SimpleQueryRow) -> Option<crate::store::ClaimId> {
    let hex = text(row, 6)?;
    let digits = (0..hex.len()).step_by(2);
    let bytes = digits.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
    claim_of(&bytes.collect::<Option<Vec<u8>>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::store::ClaimId;
    use crate::store::sql::engine::Wake;

    fn save() -> Op {
        let claim = ClaimId {
            keeper: KeeperId::new(),
            number: 1,
        };
        let grant = Grant {
            token: Token::new(5),
            tokens: 1,
        };
        Op::Save(Box::new(Save {
            name: Name::new("x").expect("a name"),
            seen: Some((1, 0)),
            same_tail: false,
            grants: true,
            not_after: 0,
            durable: false,
            version: 9,
            token: 5,
            exclusive: None,
            shared: 0,
            waited: false,
            broken: None,
            ended: Vec::new(),
            holds: Vec::new(),
            lapse: None,
            leave: vec![claim],
            keep: Vec::new(),
            enqueue: None,
            wake: vec![Wake::Granted {
                claim,
                grant,
                lease: Duration::from_secs(1),
            }],
        }))
    }

    /// Such a commit would keep every other notification of the server waiting for the disk.
    #[test]
    fn no_commit_that_waits_for_the_disk_notifies() {
        let dialect = Dialect {
            schema: "s".into(),
            prepared: true,
            sits_out: true,
            system: String::new(),
        };
        let how = How::default();
        let lazy = Request::new(&dialect, &[save()], how, "");
        assert!(lazy.text.contains("lk_notify") && lazy.text.contains("synchronous_commit TO off"));
        assert_eq!((lazy.before, lazy.each), (1, vec![3]));
        let silent = How {
            silent: true,
            ..how
        };
        let silent = Request::new(&dialect, &[save()], silent, "");
        assert!(!silent.text.contains("notify"));
        assert_eq!((silent.before, silent.each), (1, vec![2]));
        let how = How {
            durable: true,
            ..how
        };
        let durable = Request::new(&dialect, &[save()], how, "");
        assert!(!durable.text.contains("notify") && !durable.text.contains("synchronous_commit"));
        assert_eq!((durable.before, durable.each), (0, vec![2]));
        let how = How {
            hurried: true,
            ..how
        };
        let hurried = Request::new(&dialect, &[save()], how, "");
        assert!(hurried.text.starts_with(HURRY));
        assert_eq!((hurried.before, hurried.each), (1, vec![2]));
    }

    /// Behind a pooler a transaction says all that matters by itself.
    #[test]
    fn behind_a_pooler_a_transaction_stands_alone() {
        let dialect = Dialect {
            schema: "s".into(),
            prepared: false,
            sits_out: true,
            system: String::new(),
        };
        let how = How {
            durable: true,
            ..How::default()
        };
        let request = Request::new(&dialect, &[save()], how, "SET LOCAL a TO b;\n");
        assert!(
            request
                .text
                .starts_with("BEGIN ISOLATION LEVEL READ COMMITTED;")
        );
        assert!(request.text.ends_with("COMMIT;"));
        assert!(request.text.contains("synchronous_commit TO on"));
        assert_eq!(request.before, 3);
    }
}
