//! One name's leases and queue inside one transaction, and the rules by which they change.
//!
//! The rules are those of the memory store. Leases are loaded, changed here and written back once; the
//! queue may be long, so only its head is looked at and every change to it goes straight to its table.

use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::session::Now;
use super::sql;
use crate::clock::Moment;
use crate::store::{BreakTarget, Claim, ClaimId, GRANT_LEASE, Grant, KeeperId, Mode, QUEUE_TTL};
use crate::token::next_run;
use crate::{Name, Token};

/// The row of an open store in the process table.
pub(super) type ProcessId = i64;

#[derive(Debug)]
pub(super) struct Hold {
    pub claim: ClaimId,
    pub process: ProcessId,
    pub mode: Mode,
    pub grant: Grant,
    pub expires: Moment,
    pub since_micros: u64,
    /// Whether its table has a row of it, and whether that row is up to date.
    stored: bool,
    dirty: bool,
}

#[derive(Debug)]
struct Queued {
    claim: ClaimId,
    process: ProcessId,
    mode: Mode,
    lease: Duration,
    reserve: u32,
    until: Moment,
    seq: i64,
}

/// What is known about the head of the queue.
#[derive(Debug)]
enum Head {
    /// It has changed: look again.
    Unknown,
    /// Nobody waits.
    Nobody,
    /// The first row, live or not.
    First(Queued),
}

/// A claim that got the lock from the queue, to be hinted once that is committed.
#[derive(Debug)]
pub(super) struct Granted {
    pub claim: ClaimId,
    pub process: ProcessId,
}

#[derive(Debug)]
pub(super) struct Record<'c> {
    conn: &'c Connection,
    name: &'c Name,
    now: Now,
    pub holds: Vec<Hold>,
    head: Head,
    pub last_token: u64,
    /// Whether anyone may wait.
    waited: bool,
    /// The last token and `waited` as the fence's row has them; `None` without one.
    fence: Option<(u64, bool)>,
    ended: Vec<ClaimId>,
    pub granted: Vec<Granted>,
    /// Whether anything was written.
    pub changed: bool,
}

impl<'c> Record<'c> {
    pub fn load(conn: &'c Connection, name: &'c Name, now: Now) -> Result<Record<'c>, Fault> {
        let mut record = Record {
            conn,
            name,
            now,
            holds: Vec::new(),
            head: Head::Nobody,
            last_token: 0,
            waited: false,
            fence: None,
            ended: Vec::new(),
            granted: Vec::new(),
            changed: false,
        };
        let mut load = conn.prepare_cached(sql::LOAD)?;
        let mut rows = load.query([name.as_str()])?;
        while let Some(row) = rows.next()? {
            match row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)? {
                [] => record.fence = Some((row.get::<_, i64>(1)? as u64, row.get(9)?)),
                _ => record.holds.push(hold(row)?),
            }
        }
        if let Some((last, true)) = record.fence {
            (record.last_token, record.waited) = (last, true);
            record.head = Head::Unknown;
        } else if let Some((last, false)) = record.fence {
            record.last_token = last;
        } else {
            let mut floor = conn.prepare_cached(sql::FLOOR)?;
            record.last_token = floor.query_row([], |row| row.get::<_, i64>(0))? as u64;
        }
        // Tokens grow, so this is the order of the grants.
        record.holds.sort_by_key(|hold| hold.grant.token);
        Ok(record)
    }

    /// Whether the file knows the name at all.
    pub fn exists(&self) -> bool {
        self.fence.is_some() || !self.holds.is_empty()
    }

    /// Ends what time has ended, then makes the head of the queue the holder for as long as it fits.
    /// `is_dead` keeps the lock from going to a process that is gone.
    pub fn settle(
        &mut self,
        mut is_dead: impl FnMut(ProcessId) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let now = self.now.moment;
        self.end(|hold| hold.expires <= now);
        while !self.is_closed() && self.someone_waits()? {
            let Head::First(head) = &self.head else {
                break;
            };
            if !head.mode.admits(self.holds.iter().map(|hold| hold.mode)) {
                break;
            }
            let Head::First(head) = std::mem::replace(&mut self.head, Head::Unknown) else {
                break;
            };
            if is_dead(head.process)? {
                self.write(
                    sql::QUEUE_LEAVE_ALL,
                    params![self.name.as_str(), head.process],
                )?;
                continue;
            }
            self.write(sql::QUEUE_POP, params![self.name.as_str(), head.seq])?;
            let lease = head.lease.min(GRANT_LEASE);
            self.grant(head.claim, head.process, head.mode, head.reserve, lease);
            self.granted.push(Granted {
                claim: head.claim,
                process: head.process,
            });
        }
        Ok(())
    }

    /// Whether a live claim waits. The head of the queue is then loaded and live.
    pub fn someone_waits(&mut self) -> Result<bool, Fault> {
        let now = self.now.moment;
        loop {
            match &self.head {
                Head::Nobody => {
                    self.waited = false;
                    return Ok(false);
                }
                Head::First(head) if head.until > now => return Ok(true),
                Head::First(_) => {
                    let stale = params![self.name.as_str(), nanos(now)];
                    self.write(sql::QUEUE_EXPIRE, stale)?;
                    self.head = Head::Unknown;
                }
                Head::Unknown => {
                    let mut head = self.conn.prepare_cached(sql::QUEUE_HEAD)?;
                    let mut rows = head.query([self.name.as_str()])?;
                    self.head = match rows.next()? {
                        Some(row) => Head::First(queued(row)?),
                        None => Head::Nobody,
                    };
                }
            }
        }
    }

    /// The process of the claim that is first in the queue, as far as it was looked at.
    pub fn head_process(&self) -> Option<ProcessId> {
        match &self.head {
            Head::First(head) => Some(head.process),
            _ => None,
        }
    }

    /// A hold that nothing can stand beside: no need to look at the queue.
    fn is_closed(&self) -> bool {
        self.holds.iter().any(|hold| hold.mode.is_exclusive())
    }

    pub fn grant(
        &mut self,
        claim: ClaimId,
        process: ProcessId,
        mode: Mode,
        reserve: u32,
        lease: Duration,
    ) -> Grant {
        let (token, tokens) = next_run(self.last_token, self.now.micros, reserve);
        self.last_token = token + u64::from(tokens) - 1;
        let grant = Grant {
            token: Token::new(token),
            tokens,
        };
        self.holds.push(Hold {
            claim,
            process,
            mode,
            grant,
            expires: self.now.moment + lease,
            since_micros: self.now.micros,
            stored: false,
            dirty: true,
        });
        grant
    }

    /// A hold goes on for at least `lease` from now.
    pub fn prolong(&mut self, claim: ClaimId, lease: Duration) -> Option<Grant> {
        let end = self.now.moment + lease;
        let hold = self.holds.iter_mut().find(|hold| hold.claim == claim)?;
        if end > hold.expires {
            hold.expires = end;
            hold.dirty = true;
        }
        Some(hold.grant)
    }

    /// Ends the holds that match; answers how many.
    pub fn end(&mut self, matches: impl Fn(&Hold) -> bool) -> usize {
        let before = self.holds.len();
        let ended = &mut self.ended;
        self.holds.retain(|hold| {
            let ends = matches(hold);
            if ends && hold.stored {
                ended.push(hold.claim);
            }
            !ends
        });
        before - self.holds.len()
    }

    /// Ends the holds that are meant and moves the fence past them, for a reason.
    pub fn break_holds(&mut self, target: BreakTarget, reason: &str) -> Result<(), Fault> {
        self.end(|hold| target.means(hold.claim, hold.grant));
        self.last_token = next_run(self.last_token, self.now.micros, 1).0;
        self.save_fence()?;
        let at = self.now.micros as i64;
        self.write(sql::FENCE_BREAK, params![self.name.as_str(), reason, at])?;
        Ok(())
    }

    /// Puts a claim at the end of the queue, or keeps its place.
    pub fn enqueue(&mut self, claim: &Claim, process: ProcessId) -> Result<(), Fault> {
        let (name, id) = (self.name.as_str(), claim_bytes(claim.id));
        let (now, until) = (self.now.moment, nanos(self.now.moment + QUEUE_TTL));
        if self.write(sql::QUEUE_KEEP, params![name, id, until, nanos(now)])? > 0 {
            return Ok(());
        }
        // A claim whose place lapsed has left the queue and comes back at its end.
        self.write(sql::QUEUE_LEAVE, params![name, id])?;
        let (mode, permits, taken) = mode_columns(claim.mode);
        let lease = i64::try_from(claim.lease.as_nanos()).unwrap_or(i64::MAX);
        self.write(
            sql::ENQUEUE,
            params![
                name,
                id,
                process,
                mode,
                permits,
                taken,
                lease,
                claim.reserve,
                until
            ],
        )?;
        self.head = Head::Unknown;
        self.waited = true;
        Ok(())
    }

    pub fn leave_queue(&mut self, claim: ClaimId) -> Result<(), Fault> {
        let row = params![self.name.as_str(), claim_bytes(claim)];
        if self.write(sql::QUEUE_LEAVE, row)? > 0 {
            self.head = Head::Unknown;
        }
        Ok(())
    }

    /// How many live claims wait.
    pub fn waiters(&self) -> Result<usize, Fault> {
        let live = params![self.name.as_str(), nanos(self.now.moment)];
        let mut count = self.conn.prepare_cached(sql::QUEUE_COUNT)?;
        Ok(count.query_row(live, |row| row.get::<_, i64>(0))? as usize)
    }

    /// Writes back what changed.
    pub fn save(&mut self) -> Result<(), Fault> {
        let name = self.name.as_str();
        for claim in std::mem::take(&mut self.ended) {
            self.write(sql::LEASE_END, params![name, claim_bytes(claim)])?;
        }
        for at in 0..self.holds.len() {
            let hold = &self.holds[at];
            if !hold.dirty {
                continue;
            }
            let (id, expires) = (claim_bytes(hold.claim), nanos(hold.expires));
            if hold.stored {
                self.write(sql::LEASE_MOVE, params![name, id, expires])?;
                continue;
            }
            let (mode, permits, taken) = mode_columns(hold.mode);
            let (token, tokens) = (hold.grant.token.get() as i64, hold.grant.tokens);
            let (process, since) = (hold.process, hold.since_micros as i64);
            self.write(
                sql::LEASE_START,
                params![
                    name, id, token, process, mode, permits, taken, tokens, expires, since
                ],
            )?;
        }
        // For a name that nobody ever held or waits for, the floor says enough.
        if self.fence.is_some() || self.waited || !self.holds.is_empty() {
            self.save_fence()?;
        }
        Ok(())
    }

    fn save_fence(&mut self) -> Result<(), Fault> {
        let now = (self.last_token, self.waited);
        let row = params![self.name.as_str(), now.0 as i64, now.1];
        match self.fence {
            Some(before) if before == now => {}
            Some(_) => {
                self.write(sql::FENCE_MOVE, row)?;
            }
            None => {
                self.write(sql::FENCE_START, row)?;
            }
        }
        self.fence = Some(now);
        Ok(())
    }

    fn write(&mut self, sql: &str, params: impl rusqlite::Params) -> Result<usize, Fault> {
        let rows = self.conn.prepare_cached(sql)?.execute(params)?;
        self.changed |= rows > 0;
        Ok(rows)
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
        stored: true,
        dirty: false,
    })
}

fn queued(row: &Row<'_>) -> Result<Queued, Fault> {
    Ok(Queued {
        claim: claim_of(row.get(0)?),
        process: row.get(1)?,
        mode: mode(row, 2)?,
        lease: Duration::from_nanos(row.get::<_, i64>(5)? as u64),
        reserve: row.get(6)?,
        until: Moment::from_nanos(row.get::<_, i64>(7)? as u64),
        seq: row.get(8)?,
    })
}

pub(super) fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
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
