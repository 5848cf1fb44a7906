//! One name's rows inside one transaction: loaded as a [`Record`], and written as its rules changed it.
//!
//! Leases are loaded whole. The queue may be long, so it is loaded by pages and only where a rule asks for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::sql;
use crate::clock::Moment;
use crate::store::record::{Change, Hold, Queued, Record, wall};
use crate::store::{Broken, ClaimId, Grant, KeeperId, MAX_LISTED, Mode};
use crate::{Label, Name, Token};

#[derive(Debug)]
pub(super) struct Rows<'c> {
    conn: &'c Connection,
    name: &'c Name,
    pub record: Record,
    /// Whether the name has a fence.
    has_fence: bool,
    /// The last token, and whether anyone may wait, as they are stored.
    stored: (u64, bool),
    /// The place of the last entry of the queue that is loaded.
    last_seq: i64,
}

impl<'c> Rows<'c> {
    pub fn load(conn: &'c Connection, name: &'c Name) -> Result<Rows<'c>, Fault> {
        let mut record = Record::default();
        let mut fence = None;
        let mut load = conn.prepare_cached(sql::LOAD)?;
        let mut rows = load.query([name.as_str()])?;
        while let Some(row) = rows.next()? {
            match row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)? {
                [] => fence = Some((row.get::<_, i64>(1)? as u64, row.get(9)?)),
                _ => record.holds.push(hold(row)?),
            }
        }
        let has_fence = fence.is_some();
        let stored = match fence {
            Some(fence) => fence,
            None => {
                let mut floor = conn.prepare_cached(sql::FLOOR)?;
                let floor: i64 = floor.query_row([], |row| row.get(0))?;
                (floor as u64, false)
            }
        };
        (record.last_token, record.queue.more) = stored;
        // Tokens grow, so this is the order of the grants.
        record.holds.sort_by_key(|hold| hold.grant.token);
        Ok(Rows {
            conn,
            name,
            record,
            has_fence,
            stored,
            last_seq: 0,
        })
    }

    /// Whether the file knows the name at all.
    pub fn exists(&self) -> bool {
        self.has_fence || !self.record.holds.is_empty()
    }

    /// Loads as much of the queue again as is loaded. Mostly one entry is enough: the one that is next.
    pub fn load_more(&mut self) -> Result<(), Fault> {
        let queue = &mut self.record.queue;
        let page = queue.first.len().max(1);
        let mut load = self.conn.prepare_cached(sql::QUEUE_PAGE)?;
        let mut rows = load.query(params![self.name.as_str(), self.last_seq])?;
        for _ in 0..page {
            let Some(row) = rows.next()? else {
                queue.more = false;
                break;
            };
            self.last_seq = row.get(0)?;
            queue.first.push_back(queued(row)?);
        }
        Ok(())
    }

    /// Writes changes as rows. Returns whether any was written.
    pub fn save(&mut self, changes: Vec<Change>, now: Moment) -> Result<bool, Fault> {
        let mut wrote = 0;
        for change in &changes {
            wrote += self.save_one(change, now)?;
        }
        self.record.commit(changes);
        wrote += self.save_fence()?;
        Ok(wrote > 0)
    }

    fn save_one(&self, change: &Change, now: Moment) -> Result<usize, Fault> {
        let name = self.name.as_str();
        match change {
            Change::Start { hold, .. } => self.start(hold),
            Change::Prolong {
                claim,
                expires,
                lease,
            } => {
                let row = params![name, claim_bytes(*claim), nanos(*expires), length(*lease)];
                self.write(sql::LEASE_MOVE, row)
            }
            Change::End(claim) => self.write(sql::LEASE_END, params![name, claim_bytes(*claim)]),
            Change::Enqueue(entry) => {
                // The claim may stand where the queue is not loaded.
                if self.record.queue.more && self.keep(entry.claim, entry.until, now)? > 0 {
                    return Ok(1);
                }
                self.enqueue(entry)
            }
            Change::Keep { claim, until } => self.keep(*claim, *until, now),
            Change::Leave(claim) => {
                self.write(sql::QUEUE_LEAVE, params![name, claim_bytes(*claim)])
            }
            Change::Lapse(now) => self.write(sql::QUEUE_EXPIRE, params![name, nanos(*now)]),
            Change::LeaveAll(process) => self.write(sql::QUEUE_LEAVE_ALL, params![name, process]),
            // In the fence, which is written once all is known.
            Change::Fence(_) | Change::Break(_) => Ok(0),
        }
    }

    fn start(&self, hold: &Hold) -> Result<usize, Fault> {
        let (mode, permits, taken) = mode_columns(hold.mode);
        self.write(
            sql::LEASE_START,
            params![
                self.name.as_str(),
                claim_bytes(hold.claim),
                hold.grant.token.get() as i64,
                hold.process,
                mode,
                permits,
                taken,
                hold.grant.tokens,
                nanos(hold.expires),
                hold.since_micros as i64,
                length(hold.lease),
                hold.label.as_ref().map(Label::as_str),
            ],
        )
    }

    fn keep(&self, claim: ClaimId, until: Moment, now: Moment) -> Result<usize, Fault> {
        let (until, now) = (nanos(until), nanos(now));
        let row = params![self.name.as_str(), claim_bytes(claim), until, now];
        self.write(sql::QUEUE_KEEP, row)
    }

    fn enqueue(&self, entry: &Queued) -> Result<usize, Fault> {
        let (mode, permits, taken) = mode_columns(entry.mode);
        self.write(
            sql::ENQUEUE,
            params![
                self.name.as_str(),
                claim_bytes(entry.claim),
                entry.process,
                mode,
                permits,
                taken,
                length(entry.lease),
                entry.reserve,
                nanos(entry.until),
                entry.since_micros as i64,
                entry.label.as_ref().map(Label::as_str),
            ],
        )
    }

    /// Writes what has changed of the fence. A name that nobody ever held or waited for needs none: the floor says
    /// enough.
    fn save_fence(&mut self) -> Result<usize, Fault> {
        let (name, queue) = (self.name.as_str(), &self.record.queue);
        let fence = (
            self.record.last_token,
            queue.more || !queue.first.is_empty(),
        );
        let mut wrote = 0;
        if fence != self.stored {
            let statement = if self.has_fence {
                sql::FENCE_MOVE
            } else {
                sql::FENCE_START
            };
            wrote += self.write(statement, params![name, fence.0 as i64, fence.1])?;
            (self.stored, self.has_fence) = (fence, true);
        }
        // It is not loaded, so this one is new.
        if let Some(broken) = &self.record.broken {
            let row = params![name, broken.reason, micros(broken.at)];
            wrote += self.write(sql::FENCE_BREAK, row)?;
        }
        Ok(wrote)
    }

    fn write(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, Fault> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    /// How many live claims wait.
    pub fn waiters(&self, now: Moment) -> Result<usize, Fault> {
        // Surely nobody.
        if !self.stored.1 {
            return Ok(0);
        }
        let mut count = self.conn.prepare_cached(sql::QUEUE_COUNT)?;
        let live = params![self.name.as_str(), nanos(now)];
        Ok(count.query_row(live, |row| row.get::<_, i64>(0))? as usize)
    }

    /// Has a record without a queue list the first of those that wait.
    pub fn load_listed(&mut self, now: Moment) -> Result<(), Fault> {
        if !self.stored.1 {
            return Ok(());
        }
        let mut load = self.conn.prepare_cached(sql::QUEUE_LIVE)?;
        let mut rows = load.query(params![self.name.as_str(), nanos(now)])?;
        while self.record.queue.first.len() < MAX_LISTED
            && let Some(row) = rows.next()?
        {
            self.record.queue.first.push_back(queued(row)?);
        }
        Ok(())
    }

    /// Has the record tell when it was last broken.
    pub fn load_broken(&mut self) -> Result<(), Fault> {
        let mut find = self.conn.prepare_cached(sql::FENCE_BROKEN)?;
        let mut rows = find.query([self.name.as_str()])?;
        if let Some(row) = rows.next()? {
            let (reason, at): (Option<String>, Option<i64>) = (row.get(0)?, row.get(1)?);
            self.record.broken = reason.zip(at).map(|(reason, at)| Broken {
                reason,
                at: wall(at as u64),
            });
        }
        Ok(())
    }
}

fn hold(row: &Row<'_>) -> Result<Hold, Fault> {
    Ok(Hold {
        claim: claim_of(row.get(0)?),
        process: row.get(2)?,
        mode: mode(row, 3)?,
        grant: Grant {
            token: Token::new(row.get::<_, i64>(1)? as u64),
            tokens: row.get(6)?,
        },
        expires: Moment::from_nanos(row.get::<_, i64>(7)? as u64),
        since_micros: row.get::<_, i64>(8)? as u64,
        lease: Duration::from_nanos(row.get::<_, i64>(10)? as u64),
        label: label(row, 11)?,
    })
}

fn queued(row: &Row<'_>) -> Result<Queued, Fault> {
    Ok(Queued {
        claim: claim_of(row.get(1)?),
        process: row.get(2)?,
        mode: mode(row, 3)?,
        lease: Duration::from_nanos(row.get::<_, i64>(6)? as u64),
        reserve: row.get(7)?,
        until: Moment::from_nanos(row.get::<_, i64>(8)? as u64),
        since_micros: row.get::<_, i64>(9)? as u64,
        label: label(row, 10)?,
    })
}

/// Others can write to the file, so what stands there may be no label: then the nearest one.
fn label(row: &Row<'_>, column: usize) -> Result<Option<Label>, Fault> {
    let text = row.get_ref(column)?.as_str_or_null();
    Ok(text
        .map_err(rusqlite::Error::from)?
        .and_then(Label::shortened))
}

pub(super) fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn length(lease: Duration) -> i64 {
    i64::try_from(lease.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn claim_bytes(claim: ClaimId) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&claim.keeper.to_bits().to_be_bytes());
    bytes[16..].copy_from_slice(&claim.number.to_be_bytes());
    bytes
}

pub(super) fn claim_of(bytes: [u8; 24]) -> ClaimId {
    let number = u128::from_be_bytes(std::array::from_fn(
        |at| if at < 8 { 0 } else { bytes[at + 8] },
    ));
    ClaimId {
        keeper: KeeperId::from_bits(u128::from_be_bytes(std::array::from_fn(|at| bytes[at]))),
        number: number as u64,
    }
}

fn mode_columns(mode: Mode) -> (i64, u32, u32) {
    match mode {
        Mode::Exclusive => (0, 0, 0),
        Mode::Fair => (1, 0, 0),
        Mode::Read => (2, 0, 0),
        Mode::Write => (3, 0, 0),
        Mode::Permit { limit, count } => (4, limit, count),
    }
}

fn mode(row: &Row<'_>, column: usize) -> Result<Mode, Fault> {
    Ok(match row.get::<_, i64>(column)? {
        0 => Mode::Exclusive,
        1 => Mode::Fair,
        2 => Mode::Read,
        3 => Mode::Write,
        4 => Mode::Permit {
            limit: row.get(column + 1)?,
            count: row.get(column + 2)?,
        },
        other => {
            return Err(rusqlite::Error::IntegralValueOutOfRange(column, other).into());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_ids_survive_their_bytes() {
        for number in [0, 1, 255, 256, u64::MAX] {
            let claim = ClaimId {
                keeper: KeeperId::new(),
                number,
            };
            assert_eq!(claim_of(claim_bytes(claim)), claim);
        }
    }
}
