//! The verbs of the contract, each inside one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::params;

use super::fault::Fault;
use super::liveness::Peer;
use super::record::{Hold, ProcessId, Record, claim_bytes, nanos};
use super::session::Tx;
use super::sql;
use crate::store::{
    Attempt, Break, BreakOutcome, BreakTarget, Broken, Claim, ClaimId, Holder, LatchOp,
    LatchRequest, LatchState, LockInfo, Mode, Process, Release, Released, Renewal, Renewed,
};
use crate::{Name, Token};

/// How many fences are looked at in one transaction.
const SLICE: usize = 500;
/// How many leases of a dead process are ended in one transaction.
const BURY_SLICE: usize = 2000;

/// One try, and which other stores are in its way.
pub(super) fn acquire(tx: &mut Tx<'_>, claim: &Claim) -> Result<(Attempt, Vec<Arc<Peer>>), Fault> {
    tx.on_record(&claim.name, |tx, record| {
        let attempt = attempt(tx, record, claim)?;
        let mut in_the_way = Vec::new();
        if let Attempt::Busy { .. } = attempt {
            in_the_way = peers(tx, record)?;
        }
        Ok((attempt, in_the_way))
    })
}

fn attempt(tx: &Tx<'_>, record: &mut Record<'_>, claim: &Claim) -> Result<Attempt, Fault> {
    if tx.now.moment > claim.not_after {
        return Ok(Attempt::TooLate);
    }
    if let Some(grant) = record.prolong(claim.id, claim.lease) {
        return Ok(Attempt::Granted(grant));
    }
    let beside = claim.beside.filter(|&beside| {
        let own = beside.keeper == claim.id.keeper && claim.mode == Mode::Read;
        let hold = record.holds.iter().find(|hold| hold.claim == beside);
        own && hold.is_some_and(|hold| hold.mode.is_exclusive())
    });
    let others = record.holds.iter();
    let others = others.filter(|hold| Some(hold.claim) != beside);
    let fits = claim.mode.admits(others.map(|hold| hold.mode));
    // Settled: a queue that is not empty has a live head that goes first.
    if fits && (beside.is_some() || !record.someone_waits()?) {
        let (mode, reserve) = (claim.mode, claim.reserve);
        let grant = record.grant(claim.id, tx.me, mode, reserve, claim.lease);
        return Ok(Attempt::Granted(grant));
    }
    if claim.enqueue && claim.beside.is_none() && claim.mode.admits([]) {
        record.enqueue(claim, tx.me)?;
    }
    let first_end = record.holds.iter().map(|hold| hold.expires).min();
    Ok(Attempt::Busy {
        free_in: first_end.map(|end| end.since(tx.now.moment)),
    })
}

/// The other stores that hold or are first to wait.
fn peers(tx: &mut Tx<'_>, record: &Record<'_>) -> Result<Vec<Arc<Peer>>, Fault> {
    let mut processes: Vec<ProcessId> = record.holds.iter().map(|hold| hold.process).collect();
    processes.extend(record.head_process());
    processes.sort_unstable();
    processes.dedup();
    let mut peers = Vec::new();
    for process in processes {
        peers.extend(tx.peer(process)?);
    }
    Ok(peers)
}

pub(super) fn withdraw(tx: &mut Tx<'_>, (name, claim): &(Name, ClaimId)) -> Result<(), Fault> {
    tx.on_record(name, |_, record| {
        record.leave_queue(*claim)?;
        record.end(|hold| hold.claim == *claim);
        Ok(())
    })
}

pub(super) fn release(tx: &mut Tx<'_>, release: &Release) -> Result<Released, Fault> {
    tx.on_record(&release.name, |tx, record| {
        let was_held = record.end(|hold| hold.claim == release.claim) > 0;
        let mut regrant = None;
        if let (true, Some(next)) = (was_held, &release.requeue)
            && tx.now.moment <= next.not_after
            && next.mode.admits([])
        {
            record.enqueue(next, tx.me)?;
            record.settle(|process| tx.is_dead(process))?;
            regrant = record.prolong(next.id, next.lease);
        }
        Ok(Released { was_held, regrant })
    })
}

pub(super) fn renew(tx: &mut Tx<'_>, renewals: &[Renewal]) -> Result<Vec<Renewed>, Fault> {
    // Sorted by name, so that several share a page.
    tx.effects.wrote += 1 + renewals.len() / 8;
    renewals
        .iter()
        .map(|renewal| renew_one(tx, renewal))
        .collect()
}

fn renew_one(tx: &mut Tx<'_>, renewal: &Renewal) -> Result<Renewed, Fault> {
    if tx.now.moment > renewal.not_after {
        return Ok(Renewed::TooLate);
    }
    let end = nanos(tx.now.moment + renewal.lease);
    let claim = claim_bytes(renewal.claim);
    let waited_for: Option<bool> = {
        let mut renew = tx.conn.prepare_cached(sql::RENEW)?;
        let row = params![renewal.name.as_str(), claim, end, nanos(tx.now.moment)];
        let mut rows = renew.query(row)?;
        let mut found = None;
        while let Some(row) = rows.next()? {
            found = Some(row.get(0)?);
        }
        found
    };
    // With nobody waiting there is nothing else that time could have changed.
    if waited_for == Some(false) {
        return Ok(Renewed::Renewed);
    }
    tx.on_record(&renewal.name, |_, record| {
        Ok(match record.prolong(renewal.claim, renewal.lease) {
            Some(_) => Renewed::Renewed,
            None => Renewed::NotHeld,
        })
    })
}

pub(super) fn break_lock(tx: &mut Tx<'_>, request: &Break) -> Result<BreakOutcome, Fault> {
    tx.on_record(&request.name, |tx, record| {
        if tx.now.moment > request.not_after {
            return Ok(BreakOutcome::TooLate);
        }
        let mut ended = Vec::new();
        for hold in &record.holds {
            if request.target.means(hold.claim, hold.grant) {
                ended.push(holder(tx, hold)?);
                let peer = tx.peer(hold.process)?;
                tx.effects.broken.push((hold.claim, peer));
            }
        }
        if ended.is_empty() && request.target != BreakTarget::All {
            return Ok(BreakOutcome::NotHeld(holders(tx, record)?));
        }
        record.break_holds(request.target, &request.reason)?;
        Ok(BreakOutcome::Ended(ended))
    })
}

pub(super) fn inspect(tx: &mut Tx<'_>, name: &Name) -> Result<Option<LockInfo>, Fault> {
    tx.on_record(name, |tx, record| {
        if !record.exists() {
            return Ok(None);
        }
        Ok(Some(LockInfo {
            name: name.clone(),
            holders: holders(tx, record)?,
            waiters: record.waiters()?,
            last_token: (record.last_token > 0).then(|| Token::new(record.last_token)),
            broken: broken(tx, name)?,
            queue: Vec::new(),
        }))
    })
}

/// The names in use that start with a prefix.
pub(super) fn names(tx: &mut Tx<'_>, prefix: &str) -> Result<Vec<String>, Fault> {
    let mut names = tx.conn.prepare_cached(sql::NAMES)?;
    let names = names.query_map([prefix], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Several names at once, without those that turned out to be free.
pub(super) fn inspect_all(tx: &mut Tx<'_>, names: &[Name]) -> Result<Vec<LockInfo>, Fault> {
    let mut infos = Vec::with_capacity(names.len());
    for name in names {
        infos.extend(inspect(tx, name)?);
    }
    infos.retain(|info| !info.holders.is_empty() || info.waiters > 0);
    Ok(infos)
}

fn holders(tx: &mut Tx<'_>, record: &Record<'_>) -> Result<Vec<Holder>, Fault> {
    record.holds.iter().map(|hold| holder(tx, hold)).collect()
}

fn holder(tx: &mut Tx<'_>, hold: &Hold) -> Result<Holder, Fault> {
    let process = if hold.process == tx.me {
        Process::current()
    } else {
        match tx.peer(hold.process)? {
            Some(peer) => peer.process.clone(),
            None => Process {
                host: "unknown".into(),
                pid: 0,
                program: "unknown".into(),
            },
        }
    };
    Ok(Holder {
        claim: hold.claim,
        process,
        mode: hold.mode,
        token: hold.grant.token,
        since: wall(hold.since_micros),
        remaining: hold.expires.since(tx.now.moment),
        depth: None,
        lease: None,
        label: None,
    })
}

fn broken(tx: &Tx<'_>, name: &Name) -> Result<Option<Broken>, Fault> {
    let mut find = tx.conn.prepare_cached(sql::FENCE_BROKEN)?;
    let mut rows = find.query([name.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let (reason, at): (Option<String>, Option<i64>) = (row.get(0)?, row.get(1)?);
    Ok(reason.zip(at).map(|(reason, at)| Broken {
        reason,
        at: wall(at as u64),
    }))
}

fn wall(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

pub(super) fn latch(tx: &mut Tx<'_>, request: &LatchRequest) -> Result<LatchState, Fault> {
    let name = request.name.as_str();
    let late = tx.now.moment > request.not_after;
    let count = latch_count(tx, name)?;
    let mut state = LatchState {
        count,
        changed: false,
    };
    match request.op {
        LatchOp::Set(initial) if !late && count == 0 && initial > 0 => {
            let mut set = tx.conn.prepare_cached(sql::LATCH_SET)?;
            set.execute(params![name, initial])?;
            state = LatchState {
                count: initial,
                changed: true,
            };
        }
        LatchOp::CountDown if !late && count > 0 => {
            let mut arrive = tx.conn.prepare_cached(sql::LATCH_ARRIVE)?;
            if arrive.execute(params![name, claim_bytes(request.id)])? > 0 {
                tx.conn.prepare_cached(sql::LATCH_DOWN)?.execute([name])?;
                state = LatchState {
                    count: count - 1,
                    changed: true,
                };
            }
        }
        LatchOp::Open if !late && count > 0 => {
            state = LatchState {
                count: 0,
                changed: true,
            };
        }
        _ => {}
    }
    if state.changed {
        if state.count == 0 {
            tx.conn.prepare_cached(sql::LATCH_OPEN)?.execute([name])?;
            tx.conn.prepare_cached(sql::LATCH_FORGET)?.execute([name])?;
        }
        tx.effects.wrote += 2;
        tx.effects.latches.push(request.name.clone());
    }
    Ok(state)
}

fn latch_count(tx: &Tx<'_>, name: &str) -> Result<u32, Fault> {
    let mut find = tx.conn.prepare_cached(sql::LATCH)?;
    let mut rows = find.query([name])?;
    Ok(match rows.next()? {
        Some(row) => row.get(0)?,
        None => 0,
    })
}

/// Ends what a dead process held and waited for, and lets the next ones in. Answers whether all is done;
/// if not, call again: a process may have held very many locks.
pub(super) fn bury(tx: &mut Tx<'_>, process: &ProcessId) -> Result<bool, Fault> {
    let mut names: BTreeMap<String, bool> = BTreeMap::new();
    let mut ended = 0;
    {
        let mut bury = tx.conn.prepare_cached(sql::BURY)?;
        let mut rows = bury.query(params![process, BURY_SLICE as i64])?;
        while let Some(row) = rows.next()? {
            ended += 1;
            *names.entry(row.get(0)?).or_default() |= row.get::<_, Option<bool>>(1)? != Some(false);
        }
    }
    let done = ended < BURY_SLICE;
    if done {
        let mut leave = tx.conn.prepare_cached(sql::WAITERS_GONE)?;
        let mut rows = leave.query([process])?;
        while let Some(row) = rows.next()? {
            names.insert(row.get(0)?, true);
        }
        let mut gone = tx.conn.prepare_cached(sql::PROCESS_GONE)?;
        gone.execute([process])?;
    }
    tx.effects.wrote += names.len();
    // Their fences are idle now.
    tx.effects.new_names += names.len();
    for (name, waited) in names {
        // A row that does not hold a name is not ours to settle.
        let Ok(name) = Name::new(&name) else {
            continue;
        };
        if waited {
            tx.on_record(&name, |_, _| Ok(()))?;
        }
        tx.effects.changed.push(name);
    }
    Ok(done)
}

/// Takes a process out of its table, unless it holds or waits. Answers whether it did.
pub(super) fn leave(tx: &mut Tx<'_>, process: &ProcessId) -> Result<bool, Fault> {
    Ok(tx.conn.execute(sql::PROCESS_LEAVE, [process])? > 0)
}

/// Forgets idle fences after a name; their tokens live on in the floor. Answers where to go on.
pub(super) fn forget_fences(tx: &mut Tx<'_>, after: &str) -> Result<Option<String>, Fault> {
    let mut slice: Vec<(String, i64, bool)> = Vec::new();
    {
        let mut fences = tx.conn.prepare_cached(sql::FENCES)?;
        let mut rows = fences.query(params![after, SLICE as i64])?;
        while let Some(row) = rows.next()? {
            slice.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    let idle = slice.iter().filter(|(_, _, in_use)| !in_use);
    if let Some(floor) = idle.clone().map(|(_, last, _)| last).max() {
        tx.conn.execute(sql::FLOOR_RAISE, [floor])?;
        tx.effects.wrote += slice.len() / 8;
    }
    for (name, _, _) in idle {
        tx.conn.prepare_cached(sql::FENCE_FORGET)?.execute([name])?;
    }
    Ok(match slice.len() {
        SLICE => slice.pop().map(|(name, _, _)| name),
        _ => None,
    })
}

/// Starts the log over, if it can be: see the worker.
pub(super) fn turn_log(tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.conn.prepare_cached(sql::TURN)?.execute([])?;
    Ok(())
}
