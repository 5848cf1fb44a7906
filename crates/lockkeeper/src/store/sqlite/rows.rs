//! One name's rows inside one transaction: loaded as a [`Record`], and written as the rules changed it.
//!
//! All leases of the name are loaded. The queue may be long, so it is loaded by pages, and only if a rule asks for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::statements;
use crate::clock::Moment;
use crate::store::record::{Change, Hold, Queued, Record, wall};
use crate::store::{Broken, ClaimId, Grant, KeeperId, MAX_LISTED, Mode};
use crate::{Label, Name, Token};

/// The rows of a name, and the record that they are.
#[derive(Debug)]
pub(super) struct Rows<'c> {
    conn: &'c Connection,
    name: &'c Name,
    pub record: Record,
    /// Whether the name has a fence row.
    has_fence: bool,
    /// What the file says now. Without a fence row: the floor, and that nobody waits.
    stored: Fence,
    /// The number of the last queue entry that is loaded.
    last_seq: i64,
}

/// What a fence row says besides a break.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fence {
    last_token: u64,
    /// Whether anyone may wait. False only if nobody does.
    waited: bool,
}

impl<'c> Rows<'c> {
    pub fn load(conn: &'c Connection, name: &'c Name) -> Result<Rows<'c>, Fault> {
        let mut record = Record::default();
        let mut fence = None;
        let mut load = conn.prepare_cached(statements::LOAD)?;
        let mut rows = load.query([name.as_str()])?;
        while let Some(row) = rows.next()? {
            match row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)? {
                [] => {
                    fence = Some(Fence {
                        last_token: row.get::<_, i64>(1)? as u64,
                        waited: row.get(9)?,
                    });
                }
                _ => record.holds.push(read_hold(row)?),
            }
        }
        let has_fence = fence.is_some();
        let stored = match fence {
            Some(fence) => fence,
            None => {
                let mut floor = conn.prepare_cached(statements::FLOOR)?;
                let floor: i64 = floor.query_row([], |row| row.get(0))?;
                Fence {
                    last_token: floor as u64,
                    waited: false,
                }
            }
        };
        (record.last_token, record.queue.more) = (stored.last_token, stored.waited);
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

    /// Whether the file has any row of the name.
    pub fn exists(&self) -> bool {
        self.has_fence || !self.record.holds.is_empty()
    }

    /// Loads more of the queue: first one entry, which is mostly enough, then each time as many as are loaded.
    pub fn load_more(&mut self) -> Result<(), Fault> {
        let queue = &mut self.record.queue;
        let page = queue.first.len().max(1);
        let mut load = self.conn.prepare_cached(statements::QUEUE_PAGE)?;
        let mut rows = load.query(params![self.name.as_str(), self.last_seq])?;
        for _ in 0..page {
            let Some(row) = rows.next()? else {
                queue.more = false;
                break;
            };
            self.last_seq = row.get(0)?;
            queue.first.push_back(read_entry(row)?);
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
                let row = params![
                    name,
                    claim_bytes(*claim),
                    nanos(*expires),
                    lease_nanos(*lease)
                ];
                self.write(statements::LEASE_MOVE, row)
            }
            Change::End(claim) => {
                self.write(statements::LEASE_END, params![name, claim_bytes(*claim)])
            }
            Change::Enqueue(entry) => {
                // The claim may have an entry in the part of the queue that is not loaded.
                if self.record.queue.more && self.keep(entry.claim, entry.until, now)? > 0 {
                    return Ok(1);
                }
                self.enqueue(entry)
            }
            Change::Keep { claim, until } => self.keep(*claim, *until, now),
            Change::Leave(claim) => {
                self.write(statements::QUEUE_LEAVE, params![name, claim_bytes(*claim)])
            }
            Change::Lapse(now) => self.write(statements::QUEUE_EXPIRE, params![name, nanos(*now)]),
            Change::LeaveAll(process) => {
                self.write(statements::QUEUE_LEAVE_ALL, params![name, process])
            }
            // The fence row is written once all changes are known.
            Change::Fence(_) | Change::Break(_) => Ok(0),
        }
    }

    fn start(&self, hold: &Hold) -> Result<usize, Fault> {
        let (mode, permits, taken) = mode_columns(hold.mode);
        self.write(
            statements::LEASE_START,
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
                lease_nanos(hold.lease),
                hold.label.as_ref().map(Label::as_str),
            ],
        )
    }

    fn keep(&self, claim: ClaimId, until: Moment, now: Moment) -> Result<usize, Fault> {
        let (until, now) = (nanos(until), nanos(now));
        let row = params![self.name.as_str(), claim_bytes(claim), until, now];
        self.write(statements::QUEUE_KEEP, row)
    }

    fn enqueue(&self, entry: &Queued) -> Result<usize, Fault> {
        let (mode, permits, taken) = mode_columns(entry.mode);
        self.write(
            statements::ENQUEUE,
            params![
                self.name.as_str(),
                claim_bytes(entry.claim),
                entry.process,
                mode,
                permits,
                taken,
                lease_nanos(entry.lease),
                entry.reserve,
                nanos(entry.until),
                entry.since_micros as i64,
                entry.label.as_ref().map(Label::as_str),
            ],
        )
    }

    /// Writes what has changed of the fence row. A name that nobody ever held or waited for needs none: the floor is
    /// enough.
    fn save_fence(&mut self) -> Result<usize, Fault> {
        let (name, queue) = (self.name.as_str(), &self.record.queue);
        let fence = Fence {
            last_token: self.record.last_token,
            waited: queue.more || !queue.first.is_empty(),
        };
        let mut wrote = 0;
        if fence != self.stored {
            let statement = if self.has_fence {
                statements::FENCE_MOVE
            } else {
                statements::FENCE_START
            };
            wrote += self.write(
                statement,
                params![name, fence.last_token as i64, fence.waited],
            )?;
            (self.stored, self.has_fence) = (fence, true);
        }
        // A break is not loaded before a rule is applied, so this one is new.
        if let Some(broken) = &self.record.broken {
            let row = params![name, broken.reason, micros(broken.at)];
            wrote += self.write(statements::FENCE_BREAK, row)?;
        }
        Ok(wrote)
    }

    fn write(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, Fault> {
        Ok(self.conn.prepare_cached(sql)?.execute(params)?)
    }

    /// How many live claims wait.
    pub fn waiters(&self, now: Moment) -> Result<usize, Fault> {
        if !self.stored.waited {
            return Ok(0);
        }
        let mut count = self.conn.prepare_cached(statements::QUEUE_COUNT)?;
        let live = params![self.name.as_str(), nanos(now)];
        Ok(count.query_row(live, |row| row.get::<_, i64>(0))? as usize)
    }

    /// Loads the first [`MAX_LISTED`] live entries into a record whose queue is empty.
    pub fn load_listed(&mut self, now: Moment) -> Result<(), Fault> {
        if !self.stored.waited {
            return Ok(());
        }
        let mut load = self.conn.prepare_cached(statements::QUEUE_LIVE)?;
        let mut rows = load.query(params![self.name.as_str(), nanos(now)])?;
        while self.record.queue.first.len() < MAX_LISTED
            && let Some(row) = rows.next()?
        {
            self.record.queue.first.push_back(read_entry(row)?);
        }
        Ok(())
    }

    /// Loads the last break.
    pub fn load_broken(&mut self) -> Result<(), Fault> {
        let mut find = self.conn.prepare_cached(statements::FENCE_BROKEN)?;
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

fn read_hold(row: &Row<'_>) -> Result<Hold, Fault> {
    Ok(Hold {
        claim: claim_from_bytes(row.get(0)?),
        process: row.get(2)?,
        mode: read_mode(row, 3)?,
        grant: Grant {
            token: Token::new(row.get::<_, i64>(1)? as u64),
            tokens: row.get(6)?,
        },
        expires: Moment::from_nanos(row.get::<_, i64>(7)? as u64),
        since_micros: row.get::<_, i64>(8)? as u64,
        lease: Duration::from_nanos(row.get::<_, i64>(10)? as u64),
        label: read_label(row, 11)?,
    })
}

fn read_entry(row: &Row<'_>) -> Result<Queued, Fault> {
    Ok(Queued {
        claim: claim_from_bytes(row.get(1)?),
        process: row.get(2)?,
        mode: read_mode(row, 3)?,
        lease: Duration::from_nanos(row.get::<_, i64>(6)? as u64),
        reserve: row.get(7)?,
        until: Moment::from_nanos(row.get::<_, i64>(8)? as u64),
        since_micros: row.get::<_, i64>(9)? as u64,
        label: read_label(row, 10)?,
    })
}

/// Reads a label. Other programs can write to the file, so the text may not be one: then the nearest label is taken.
fn read_label(row: &Row<'_>, column: usize) -> Result<Option<Label>, Fault> {
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

fn lease_nanos(lease: Duration) -> i64 {
    i64::try_from(lease.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn claim_bytes(claim: ClaimId) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&claim.keeper.to_bits().to_be_bytes());
    bytes[16..].copy_from_slice(&claim.number.to_be_bytes());
    bytes
}

pub(super) fn claim_from_bytes(bytes: [u8; 24]) -> ClaimId {
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

/// Reads a mode and its permits, from this column and the two after it.
fn read_mode(row: &Row<'_>, column: usize) -> Result<Mode, Fault> {
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
    fn claim_ids_read_back_from_their_bytes() {
        for number in [0, 1, 255, 256, u64::MAX] {
            let claim = ClaimId {
                keeper: KeeperId::new(),
                number,
            };
            assert_eq!(claim_from_bytes(claim_bytes(claim)), claim);
        }
    }
}
