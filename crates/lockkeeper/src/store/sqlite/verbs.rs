//! The verbs of the contract, each inside one transaction. Two more tidy the file, in slices: one frees what a dead process
//! held, the other forgets fences that no name in use needs.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rusqlite::{ToSql, params};

use super::fault::Fault;
use super::liveness::Peer;
use super::rows::claim_bytes;
use super::session::Tx;
use super::statements;
use crate::Name;
use crate::store::record::{Ended, Hold, Latch, LatchChange, Now, ProcessId, Record};
use crate::store::{
    Attempt, Break, BreakOutcome, Claim, ClaimId, Holder, LatchRequest, LatchState, LockInfo,
    Release, Released, Renewal, Renewed,
};

/// How many fences are read in one transaction.
const FENCE_SLICE: usize = 500;
/// How many leases of a dead process are ended in one transaction.
const RECLAIM_SLICE: usize = 2000;

/// One try. If it is busy, returns the other stores that hold or wait before it, too: they may be dead.
pub(super) fn acquire(tx: &mut Tx<'_>, claim: &Claim) -> Result<(Attempt, Vec<Arc<Peer>>), Fault> {
    let (attempt, rows) = tx.apply(&claim.name, |record, now| record.try_acquire(claim, now))?;
    let mut blockers = Vec::new();
    if let Attempt::Busy { .. } = attempt {
        blockers = holders_and_head(tx, &rows.record)?;
    }
    Ok((attempt, blockers))
}

/// The other stores that hold, and that of the queue's head if the queue is loaded.
fn holders_and_head(tx: &mut Tx<'_>, record: &Record) -> Result<Vec<Arc<Peer>>, Fault> {
    let mut processes: Vec<ProcessId> = record.holds.iter().map(|hold| hold.process).collect();
    processes.extend(record.queue.first.front().map(|head| head.process));
    processes.sort_unstable();
    processes.dedup();
    let mut peers = Vec::new();
    for process in processes {
        peers.extend(tx.peer(process)?);
    }
    Ok(peers)
}

pub(super) fn withdraw(tx: &mut Tx<'_>, (name, claim): &(Name, ClaimId)) -> Result<(), Fault> {
    tx.apply(name, |record, now| record.withdraw(*claim, now))?;
    Ok(())
}

pub(super) fn release(tx: &mut Tx<'_>, release: &Release) -> Result<Released, Fault> {
    let rule = |record: &Record, now: Now<'_>| record.release(release, now);
    Ok(tx.apply(&release.name, rule)?.0)
}

pub(super) fn renew(tx: &mut Tx<'_>, renewals: &[Renewal]) -> Result<Vec<Renewed>, Fault> {
    // Sorted by name, so that about eight leases share a page.
    let pages_written = tx.effects.pages_written + 1 + renewals.len() / 8;
    let mut renewed = Vec::with_capacity(renewals.len());
    // Many holds may have one name. Its rows are loaded once for all of them.
    for of_one in renewals.chunk_by(|one, next| one.name == next.name) {
        let rule = |record: &Record, now: Now<'_>| record.renew_all(of_one, now);
        renewed.extend(tx.apply(&of_one[0].name, rule)?.0);
    }
    tx.effects.pages_written = pages_written;
    Ok(renewed)
}

pub(super) fn break_lock(tx: &mut Tx<'_>, request: &Break) -> Result<BreakOutcome, Fault> {
    let rule = |record: &Record, now: Now<'_>| record.break_lock(request, now);
    Ok(match tx.apply(&request.name, rule)?.0 {
        Ended::These(holds) => {
            for hold in &holds {
                let peer = tx.peer(hold.process)?;
                tx.effects.broken.push((hold.claim, peer));
            }
            BreakOutcome::Ended(holders(tx, &holds)?)
        }
        Ended::NotHeld(holds) => BreakOutcome::NotHeld(holders(tx, &holds)?),
        Ended::TooLate => BreakOutcome::TooLate,
    })
}

pub(super) fn inspect(tx: &mut Tx<'_>, name: &Name) -> Result<Option<LockInfo>, Fault> {
    describe(tx, name, true)
}

/// What is known about a name, with its queue if `with_queue`, else with the queue's length alone.
fn describe(tx: &mut Tx<'_>, name: &Name, with_queue: bool) -> Result<Option<LockInfo>, Fault> {
    let ((), mut rows) = tx.apply(name, Record::inspect)?;
    if !rows.exists() {
        return Ok(None);
    }
    rows.load_broken()?;
    rows.record.queue.first.clear();
    if with_queue {
        rows.load_listed(tx.now.moment)?;
    }
    let record = &rows.record;
    let holding = record.holds.iter().map(|hold| hold.process);
    let waiting = record.queue.first.iter().map(|entry| entry.process);
    let mut processes = HashMap::new();
    for process in holding.chain(waiting) {
        if let Entry::Vacant(unknown) = processes.entry(process) {
            unknown.insert(tx.process(process)?);
        }
    }
    let mut info = record.info(name, tx.now.moment, |process| processes[&process].clone());
    info.waiters = rows.waiters(tx.now.moment)?;
    Ok(Some(info))
}

fn holders(tx: &mut Tx<'_>, holds: &[Hold]) -> Result<Vec<Holder>, Fault> {
    let now = tx.now.moment;
    let holder = |hold: &Hold| Ok(hold.holder(now, tx.process(hold.process)?));
    holds.iter().map(holder).collect()
}

/// The names in use that start with a prefix.
pub(super) fn names_in_use(tx: &mut Tx<'_>, prefix: &str) -> Result<Vec<String>, Fault> {
    let mut names = tx.conn.prepare_cached(statements::NAMES)?;
    let names = names.query_map([prefix], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// What is known about several names, without those that are free by now.
pub(super) fn inspect_all(tx: &mut Tx<'_>, names: &[Name]) -> Result<Vec<LockInfo>, Fault> {
    let mut infos = Vec::with_capacity(names.len());
    for name in names {
        infos.extend(describe(tx, name, false)?);
    }
    infos.retain(|info| !info.holders.is_empty() || info.waiters > 0);
    Ok(infos)
}

pub(super) fn latch(tx: &mut Tx<'_>, request: &LatchRequest) -> Result<LatchState, Fault> {
    let (name, id) = (request.name.as_str(), claim_bytes(request.id));
    let latch = {
        let mut find = tx.conn.prepare_cached(statements::LATCH)?;
        let mut rows = find.query(params![name, id])?;
        match rows.next()? {
            Some(row) => Latch {
                count: row.get(0)?,
                arrived: row.get(1)?,
            },
            None => Latch::default(),
        }
    };
    let (state, change) = latch.apply(request, tx.now.moment);
    let write = |sql, row: &[&dyn ToSql]| tx.conn.prepare_cached(sql)?.execute(row);
    match change {
        Some(LatchChange::Set(count)) => {
            write(statements::LATCH_SET, params![name, count])?;
        }
        Some(LatchChange::Arrive) => {
            write(statements::LATCH_ARRIVE, params![name, id])?;
            write(statements::LATCH_DOWN, params![name])?;
        }
        Some(LatchChange::Open) => {
            write(statements::LATCH_OPEN, params![name])?;
            write(statements::LATCH_FORGET, params![name])?;
        }
        None => return Ok(state),
    }
    tx.effects.pages_written += 2;
    tx.effects.latches.push(request.name.clone());
    Ok(state)
}

/// Ends what a dead process held and waited for, and grants to the heads of the queues. Returns whether all is done. If
/// not, call again: a process may have held very many locks.
pub(super) fn reclaim(tx: &mut Tx<'_>, process: &ProcessId) -> Result<bool, Fault> {
    let mut names: BTreeMap<String, bool> = BTreeMap::new();
    let mut ended = 0;
    {
        let mut reclaim = tx.conn.prepare_cached(statements::RECLAIM)?;
        let mut rows = reclaim.query(params![process, RECLAIM_SLICE as i64])?;
        while let Some(row) = rows.next()? {
            ended += 1;
            *names.entry(row.get(0)?).or_default() |= row.get::<_, Option<bool>>(1)? != Some(false);
        }
    }
    let done = ended < RECLAIM_SLICE;
    if done {
        let mut waiters = tx.conn.prepare_cached(statements::WAITERS_REMOVE)?;
        let mut rows = waiters.query([process])?;
        while let Some(row) = rows.next()? {
            names.insert(row.get(0)?, true);
        }
        let mut remove = tx.conn.prepare_cached(statements::PROCESS_REMOVE)?;
        remove.execute([process])?;
    }
    tx.effects.pages_written += names.len();
    // Their fences are idle now.
    tx.effects.new_names += names.len();
    for (name, waited) in names {
        // Other programs can write to the file, and a row of theirs may have no valid name.
        let Ok(name) = Name::new(&name) else {
            continue;
        };
        if waited {
            tx.apply(&name, Record::inspect)?;
        }
        tx.effects.changed.push(name);
    }
    Ok(done)
}

/// Removes the row of a process, unless it holds or waits. Returns whether it did.
pub(super) fn unregister(tx: &mut Tx<'_>, process: &ProcessId) -> Result<bool, Fault> {
    Ok(tx
        .conn
        .execute(statements::PROCESS_REMOVE_IDLE, [process])?
        > 0)
}

/// Forgets the idle fences of the names that come after this one, up to a slice. The floor keeps their tokens. Returns
/// the name after which to go on, if there is more.
pub(super) fn forget_fences(tx: &mut Tx<'_>, after: &str) -> Result<Option<String>, Fault> {
    let mut slice: Vec<(String, i64, bool)> = Vec::new();
    {
        let mut fences = tx.conn.prepare_cached(statements::FENCES)?;
        let mut rows = fences.query(params![after, FENCE_SLICE as i64])?;
        while let Some(row) = rows.next()? {
            slice.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    let idle = slice.iter().filter(|(_, _, in_use)| !in_use);
    if let Some(floor) = idle.clone().map(|(_, last, _)| last).max() {
        tx.conn.execute(statements::FLOOR_RAISE, [floor])?;
        tx.effects.pages_written += slice.len() / 8;
    }
    for (name, _, _) in idle {
        tx.conn
            .prepare_cached(statements::FENCE_FORGET)?
            .execute([name])?;
    }
    Ok(match slice.len() {
        FENCE_SLICE => slice.pop().map(|(name, _, _)| name),
        _ => None,
    })
}

/// Writes a page, so that a log which is copied back starts over with it.
pub(super) fn restart_log(tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.conn
        .prepare_cached(statements::LOG_RESTART)?
        .execute([])?;
    Ok(())
}
