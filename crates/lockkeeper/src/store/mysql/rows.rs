//! Rows that a server selected, as what they mean. `None` where a row is not what was asked for.

use std::str::FromStr;
use std::time::Duration;

use super::reply::Row;
use crate::store::record::{Hold, Latch, Queued, Record, wall};
use crate::store::sql::engine::{Loaded, Looked, Reply, claim_of, mode_of, moment};
use crate::store::{Broken, ClaimId, Grant, KeeperId, Mode, Process};
use crate::{Label, Token};

/// A number in a row.
pub(super) fn number<T: FromStr>(row: &Row, at: usize) -> Option<T> {
    let value = row.get(at)?.as_ref()?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Bytes in a row; `None` for NULL.
fn bytes(row: &Row, at: usize) -> Option<&[u8]> {
    row.get(at)?.as_deref()
}

/// Text in a row. Others can write to the tables, so it may be none: then the nearest.
pub(super) fn text(row: &Row, at: usize) -> Option<String> {
    bytes(row, at).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// What `Tables::load` selects.
pub(super) fn loaded(rows: &[Row], limit: usize) -> Option<Reply> {
    let mut loaded = None;
    let mut record = Record::default();
    let (mut seen, mut waited, mut queue) = (None, false, Vec::new());
    for row in rows {
        match number::<u8>(row, 0)? {
            0 => {
                let may: i64 = number(row, 3).unwrap_or_default();
                loaded = Some((number(row, 1)?, number::<u64>(row, 2)?, may != 0));
            }
            1 => {
                seen = Some((number(row, 1)?, number(row, 2)?));
                waited = number::<u8>(row, 3)? != 0;
                record.last_token = number(row, 4)?;
                if bytes(row, 5).is_some() {
                    record.holds.push(hold(row, (0, 0))?);
                }
                record.broken = text(row, 13)
                    .zip(number(row, 14))
                    .map(|(reason, at)| Broken {
                        reason,
                        at: wall(at),
                    });
            }
            2 => record
                .holds
                .push(hold(row, (number(row, 1)?, number(row, 2)?))?),
            _ => queue.push((number::<i64>(row, 3)?, queued(row)?)),
        }
    }
    let (now, floor, may_grant) = loaded?;
    if seen.is_none() {
        record.last_token = floor;
    }
    // A UNION has no order of its own.
    queue.sort_by_key(|(seq, _)| *seq);
    if waited {
        record.queue.more = queue.len() >= limit;
        record.queue.first = queue.into_iter().map(|(_, entry)| entry).collect();
    }
    Some(Reply::Loaded(Box::new(Loaded {
        now,
        seen,
        may_grant,
        record,
    })))
}

/// What `Tables::look_for_unused` selects. A name that is none of ours stays.
pub(super) fn looked(rows: &[Row]) -> Option<Reply> {
    let names = rows.iter().map(|row| {
        let name = std::str::from_utf8(bytes(row, 0)?);
        Some(Looked {
            name: text(row, 0)?,
            version: number(row, 1)?,
            tail: number(row, 2)?,
            token: number(row, 3)?,
            unused: number::<u8>(row, 4)? == 1 && name.is_ok(),
        })
    });
    names.collect::<Option<_>>().map(Reply::Looked)
}

fn claim(row: &Row) -> Option<ClaimId> {
    claim_of(bytes(row, 5)?)
}

fn mode(row: &Row, (permits, taken): (i64, i64)) -> Option<Mode> {
    mode_of(number(row, 6)?, permits, taken)
}

fn label(row: &Row) -> Option<Label> {
    Label::shortened(&text(row, 12)?)
}

fn micros(row: &Row, at: usize) -> Option<Duration> {
    number(row, at).map(Duration::from_micros)
}

fn hold(row: &Row, permits: (i64, i64)) -> Option<Hold> {
    Some(Hold {
        claim: claim(row)?,
        process: 0,
        mode: mode(row, permits)?,
        grant: Grant {
            token: Token::new(number(row, 7)?),
            tokens: number(row, 8)?,
        },
        lease: micros(row, 9)?,
        expires: moment(number(row, 10)?),
        since_micros: number(row, 11)?,
        label: label(row),
    })
}

fn queued(row: &Row) -> Option<Queued> {
    Some(Queued {
        claim: claim(row)?,
        process: 0,
        mode: mode(row, (number(row, 1)?, number(row, 2)?))?,
        lease: micros(row, 9)?,
        reserve: number(row, 4)?,
        label: label(row),
        since_micros: number(row, 11)?,
        until: moment(number(row, 10)?),
    })
}

pub(super) fn names(rows: &[Row]) -> Option<Reply> {
    let names = rows
        .iter()
        .map(|row| Some((text(row, 0)?, number(row, 1)?)));
    names.collect::<Option<Vec<_>>>().map(Reply::Names)
}

pub(super) fn processes(rows: &[Row]) -> Option<Reply> {
    let found = rows.iter().map(|row| {
        let id = u128::from_be_bytes(bytes(row, 0)?.try_into().ok()?);
        let process = Process {
            host: text(row, 1)?,
            pid: number(row, 2)?,
            program: text(row, 3)?,
        };
        Some((KeeperId::from_bits(id), process))
    });
    found.collect::<Option<Vec<_>>>().map(Reply::Processes)
}

pub(super) fn latch(rows: &[Row]) -> Option<Reply> {
    let Some(row) = rows.first() else {
        return Some(Reply::Latch(None, Latch::default()));
    };
    let latch = Latch {
        count: number(row, 1)?,
        arrived: number::<u8>(row, 2)? != 0,
    };
    Some(Reply::Latch(Some(number(row, 0)?), latch))
}
