//! Going on holding: a keep-alive and a transaction that finds the keys there, both answered in one term.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::GUARD_AFTER;
use super::claims::{Entry, State, Turn};
use super::client::messages::{Compare, Operation, TxnRequest};
use super::config::KIND;
use super::core::Core;
use super::fault::{self, Fault};
use crate::Error;
use crate::clock::Moment;
use crate::store::{Renewal, Renewed};

/// How many keys are looked at in one transaction. Members refuse more than 128 by default.
const MOST: usize = 100;
/// How often a lease is asked for that was not proved to live.
pub const PROOFS: usize = 4;

/// The lease may live, and nothing says so.
pub fn unproven() -> Fault {
    Fault::Store(KIND.unavailable(
        "no keep-alive and transaction were answered in one term; the cluster elects a leader, or a member lags behind",
    ))
}

/// A renewal that was sent then has been done, and the lease of etcd's lives until then.
fn prolong(entry: &mut Entry, lease: Duration, sent: Moment, until: Moment) {
    if lease.is_zero() {
        return;
    }
    let end = (sent + lease).min(until);
    match entry.state {
        State::Held(now, _) if end <= now => return,
        State::Held(..) => {}
        _ => entry.guard_at = Some(Moment::now() + GUARD_AFTER),
    }
    entry.behind = None;
    entry.state = State::Held(end, lease);
}

/// Asks whether a claim still holds, and prolongs its lease. False if its key is gone.
pub async fn confirm(
    core: &Core,
    entry: &mut Entry,
    lease: Duration,
    not_after: Moment,
) -> Result<bool, Fault> {
    if lease > entry.session.ttl {
        return change_lease(core, entry, lease, not_after).await;
    }
    for _ in 0..PROOFS {
        let txn = look(std::slice::from_ref(&(&entry.key, entry.created)));
        let (answer, sent, until) = match core.prove(&entry.session, txn, not_after).await {
            Err(Fault::NoLease) => return Ok(false),
            proved => proved?,
        };
        if !answer.succeeded || entry.session.is_gone() {
            return Ok(false);
        }
        if let Some(until) = until {
            prolong(entry, lease, sent, until);
            return Ok(true);
        }
    }
    Err(unproven())
}

/// A transaction that succeeds if all of these keys are there, and otherwise says which are.
fn look(keys: &[(&Vec<u8>, i64)]) -> TxnRequest {
    let created = keys.iter().map(|(key, at)| Compare::created(key, *at));
    let get = keys.iter().map(|(key, _)| Operation::get(key));
    TxnRequest {
        compare: created.collect(),
        // It has to read something: what reads nothing is answered without the quorum.
        success: keys
            .iter()
            .take(1)
            .map(|(key, _)| Operation::count(key))
            .collect(),
        failure: get.collect(),
    }
}

/// Hands a hold over to a longer lease of etcd's. That writes its key again, which only the recipe for readers and writers of
/// Go's client takes for another claim. False if its key is gone.
async fn change_lease(
    core: &Core,
    entry: &mut Entry,
    lease: Duration,
    not_after: Moment,
) -> Result<bool, Fault> {
    if entry.in_place_of.is_some() || entry.beside > 0 {
        return Err(Error::InvalidArgument {
            what: "lease",
            reason: "a writer that goes on as a reader cannot get a longer lease".into(),
        }
        .into());
    }
    for _ in 0..PROOFS {
        let session = core
            .sessions
            .for_lease(&core.client, lease, not_after)
            .await?;
        let data = core.data_of(entry, lease);
        let txn = TxnRequest {
            compare: vec![
                Compare::created(&entry.key, entry.created),
                Compare::modified(&entry.key, entry.modified),
            ],
            success: vec![Operation::put(&entry.key, data.write(), session.id)],
            failure: vec![Operation::get(&entry.key)],
        };
        let (answer, sent, until) = match core.prove(&session, txn, not_after).await {
            Ok(proved) => proved,
            Err(Fault::NoLease) => continue,
            // Which of the two leases it has is not known: the next renewal writes it again.
            Err(fault) => {
                entry.unsettled |= fault.is_doubt();
                return Err(fault);
            }
        };
        if !answer.succeeded {
            match answer.lists().next().unwrap_or_default().first() {
                Some(kv) if kv.create_revision == entry.created => {
                    entry.modified = kv.mod_revision;
                    continue;
                }
                _ => return Ok(false),
            }
        }
        entry.modified = answer.revision();
        entry.session = session;
        entry.told = lease;
        entry.unsettled = false;
        match until {
            Some(until) => prolong(entry, lease, sent, until),
            None => return Err(unproven().after_a_part()),
        }
        return Ok(true);
    }
    Err(unproven())
}

/// One hold that is renewed, and which renewals ask for that.
struct Hold {
    turn: Turn,
    wants: Vec<usize>,
}

/// Renews holds.
pub async fn renew(core: Arc<Core>, renewals: Vec<Renewal>) -> Result<Vec<Renewed>, Error> {
    for renewal in &renewals {
        if !renewal.lease.is_zero() {
            core.capabilities.check_lease(renewal.lease)?;
        }
    }
    let mut renewed = vec![Renewed::NotHeld; renewals.len()];
    // Each hold once, however often it is named, and in one order: two renewals would wait for each other.
    let mut order: Vec<usize> = (0..renewals.len()).collect();
    order.sort_by_key(|&at| renewals[at].claim);
    let mut by_session: HashMap<i64, Vec<Hold>> = HashMap::new();
    let mut alone: Vec<Hold> = Vec::new();
    for group in order.chunk_by(|&one, &other| renewals[one].claim == renewals[other].claim) {
        let now = Moment::now();
        let (late, wants): (Vec<usize>, Vec<usize>) =
            group.iter().partition(|&&at| now > renewals[at].not_after);
        late.iter().for_each(|&at| renewed[at] = Renewed::TooLate);
        let Some(first) = wants.first().map(|&at| &renewals[at]) else {
            continue;
        };
        let Some(mut turn) = core.claims.take_known(first.claim).await else {
            continue;
        };
        if turn.is_elsewhere(&first.name) {
            continue;
        }
        // What is over is cleared away in its time. It is not held.
        let now = Moment::now();
        let Some(entry) = turn.entry().as_ref().filter(|entry| entry.holds(now)) else {
            continue;
        };
        if entry.session.is_gone() && !entry.unsettled {
            *turn.entry() = None;
            continue;
        }
        let longest = wants.iter().map(|&at| renewals[at].lease).max();
        let longer = longest.is_some_and(|longest| longest > entry.session.ttl);
        let lease = entry.session.id;
        let apart = longer || entry.unsettled;
        let hold = Hold { turn, wants };
        if apart {
            alone.push(hold);
        } else {
            by_session.entry(lease).or_default().push(hold);
        }
    }
    let mut failed = None;
    let mut some_done = false;
    for mut hold in alone {
        let outcome = one(&core, &renewals, &mut hold).await;
        note(
            &mut renewed,
            &hold.wants,
            outcome,
            &mut failed,
            &mut some_done,
        );
    }
    for holds in by_session.into_values() {
        let mut holds = holds.into_iter().peekable();
        while holds.peek().is_some() {
            let mut chunk: Vec<Hold> = holds.by_ref().take(MOST).collect();
            let outcome = some(&core, &renewals, &mut chunk).await;
            match outcome {
                Ok(held) => {
                    for (hold, held) in chunk.iter_mut().zip(held) {
                        if !held {
                            *hold.turn.entry() = None;
                        }
                        note(
                            &mut renewed,
                            &hold.wants,
                            Ok(held),
                            &mut failed,
                            &mut some_done,
                        );
                    }
                }
                Err(fault) => {
                    for hold in &chunk {
                        let fault = Err(fault.clone());
                        note(
                            &mut renewed,
                            &hold.wants,
                            fault,
                            &mut failed,
                            &mut some_done,
                        );
                    }
                }
            }
        }
    }
    match failed {
        Some(Fault::Store(error)) if !some_done => Err(error),
        _ => Ok(renewed),
    }
}

/// Notes what became of one hold.
fn note(
    renewed: &mut [Renewed],
    wants: &[usize],
    outcome: Result<bool, Fault>,
    failed: &mut Option<Fault>,
    some_done: &mut bool,
) {
    let answer = match outcome {
        Ok(true) => Renewed::Renewed,
        Ok(false) => Renewed::NotHeld,
        Err(Fault::TooLate) => Renewed::TooLate,
        Err(fault) => {
            *failed = Some(fault);
            Renewed::Unknown
        }
    };
    *some_done |= answer == Renewed::Renewed;
    for &at in wants {
        renewed[at] = answer;
    }
}

/// The time by which all of these have to be asked for.
fn in_time(renewals: &[Renewal], wants: &[usize]) -> Moment {
    let ends = wants.iter().map(|&at| renewals[at].not_after);
    ends.fold(Moment::NEVER, Moment::min)
}

/// Renews one hold that may need a longer lease of etcd's.
async fn one(core: &Core, renewals: &[Renewal], hold: &mut Hold) -> Result<bool, Fault> {
    let not_after = in_time(renewals, &hold.wants);
    let Some(entry) = hold.turn.entry() else {
        return Ok(false);
    };
    let mut lease = hold.wants.iter().map(|&at| renewals[at].lease).max();
    if entry.unsettled {
        // It may have the longer one already, which is not kept.
        let longer = entry.session.ttl + Duration::from_millis(1);
        lease = lease.max(Some(longer));
    }
    let held = confirm(core, entry, lease.unwrap_or_default(), not_after).await?;
    if !held {
        *hold.turn.entry() = None;
    }
    Ok(held)
}

/// Renews holds that one lease of etcd's keeps. Returns which of them are there.
async fn some(core: &Core, renewals: &[Renewal], holds: &mut [Hold]) -> Result<Vec<bool>, Fault> {
    let not_after = holds.iter().map(|hold| in_time(renewals, &hold.wants));
    let not_after = not_after.fold(Moment::NEVER, Moment::min);
    let entries: Vec<Entry> = holds
        .iter_mut()
        .filter_map(|hold| hold.turn.entry().clone())
        .collect();
    let Some(session) = entries.first().map(|entry| entry.session.clone()) else {
        return Ok(Vec::new());
    };
    let none = vec![false; holds.len()];
    for _ in 0..PROOFS {
        let keys: Vec<(&Vec<u8>, i64)> = entries
            .iter()
            .map(|entry| (&entry.key, entry.created))
            .collect();
        let (answer, sent, until) = match core.prove(&session, look(&keys), not_after).await {
            Err(Fault::NoLease) => return Ok(none),
            // It only reads.
            Err(fault) => return Err(fault::as_read(fault)),
            Ok(proved) => proved,
        };
        if session.is_gone() {
            return Ok(none);
        }
        let Some(until) = until else { continue };
        let there: Vec<bool> = if answer.succeeded {
            vec![true; entries.len()]
        } else {
            let created = answer
                .lists()
                .map(|kvs| kvs.first().map(|kv| kv.create_revision));
            let mine = created.zip(&entries);
            mine.map(|(created, entry)| created == Some(entry.created))
                .collect()
        };
        if there.len() != entries.len() {
            return Err(fault::odd("it read fewer keys than it was asked for"));
        }
        for (hold, there) in holds.iter_mut().zip(&there) {
            if let Some(entry) = hold.turn.entry().as_mut().filter(|_| *there) {
                for &at in &hold.wants {
                    prolong(entry, renewals[at].lease, sent, until);
                }
            }
        }
        return Ok(there);
    }
    Err(unproven())
}
