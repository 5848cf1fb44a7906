//! Letting go, and what else makes keys go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::RETRY;
use super::acquire::{self, Placed};
use super::claims::{Entry, Seat, State, Turn};
use super::client::messages::{Compare, Operation, TxnRequest, after};
use super::core::Core;
use super::fault::{self, Fault};
use crate::clock::Moment;
use crate::store::{Attempt, Claim, ClaimId, Release, Released};
use crate::{Error, Name};

const NOT_HELD: Released = Released {
    was_held: false,
    regrant: None,
};

/// Applies to a claim what has happened meanwhile: its lease of etcd's may be gone, or its time over; it may have been in doubt.
pub async fn settle(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    if entry.session.is_gone() && !entry.unsettled {
        *turn.entry() = None;
        return Ok(());
    }
    let now = Moment::now();
    match entry.state {
        State::Doubt(_) => resolve(core, turn).await,
        State::Ending(_) => remove(core, turn).await,
        State::Waiting(until) | State::Granted(until) | State::Held(until, _) if until <= now => {
            remove(core, turn).await
        }
        _ => Ok(()),
    }
}

/// Deletes the key of a claim. Until that is known to be done, the claim is `Ending`.
pub async fn remove(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    if matches!(entry.state, State::Doubt(_)) {
        return resolve(core, turn).await;
    }
    entry.state = State::Ending(Moment::now() + RETRY);
    depart(core, entry).await?;
    *turn.entry() = None;
    Ok(())
}

/// Deletes a key that was created. Returns whether it was there.
async fn depart(core: &Core, entry: &Entry) -> Result<bool, Fault> {
    let mine = Compare::created(&entry.key, entry.created);
    if entry.beside > 0 {
        return leave_readers(core, entry, mine).await;
    }
    let txn = TxnRequest {
        compare: vec![mine],
        success: vec![Operation::delete(&entry.key)],
        failure: Vec::new(),
    };
    let there = core.write(txn, Moment::NEVER).await?.succeeded;
    if let Some(writer) = entry.in_place_of {
        let beside = core
            .keys()
            .beside(&entry.claim.name, entry.key_lease, writer);
        let place = Place {
            name: &entry.claim.name,
            lease: entry.key_lease,
            writer,
        };
        let cleared = place.clear(core, &beside).await;
        // The reader's key is gone, whatever becomes of the writer's.
        cleared.map_err(|fault| if there { fault.after_a_part() } else { fault })?;
    }
    Ok(there)
}

/// The place of a writer that has gone, which readers keep.
pub struct Place<'a> {
    pub name: &'a Name,
    pub lease: i64,
    pub writer: u64,
}

impl Place<'_> {
    /// Clears it, if no reader is left and the writer has gone.
    pub async fn clear(&self, core: &Core, beside: &[u8]) -> Result<(), Fault> {
        let keys = core.keys();
        let gone = keys.gone(self.name, self.lease, self.writer);
        let mode = crate::store::Mode::Write;
        let writer = keys.claim(self.name, mode, self.lease, self.writer);
        let txn = TxnRequest {
            compare: vec![
                Compare::none_in(beside, &after(beside)),
                Compare::exists(&gone),
            ],
            success: vec![Operation::delete(&writer), Operation::delete(&gone)],
            failure: Vec::new(),
        };
        core.write(txn, Moment::NEVER).await?;
        Ok(())
    }
}

/// A writer lets go that readers may stand beside: its key stays for as long as they do, as clients of other projects know
/// no other place than that of a key.
async fn leave_readers(core: &Core, entry: &Entry, mine: Compare) -> Result<bool, Fault> {
    let keys = core.keys();
    let beside = keys.beside(&entry.claim.name, entry.key_lease, entry.number);
    let gone = keys.gone(&entry.claim.name, entry.key_lease, entry.number);
    for _ in 0..100 {
        let leave = TxnRequest {
            compare: vec![mine.clone(), Compare::none_in(&beside, &after(&beside))],
            success: vec![Operation::delete(&entry.key), Operation::delete(&gone)],
            failure: vec![Operation::get(&entry.key)],
        };
        let stay = TxnRequest {
            compare: vec![mine.clone(), Compare::some_below(&beside)],
            success: vec![Operation::put(&gone, Vec::new(), entry.session.id)],
            failure: vec![Operation::get(&entry.key)],
        };
        for txn in [leave, stay] {
            let answer = match core.write(txn, Moment::NEVER).await {
                Err(Fault::NoLease) => return Ok(false),
                answer => answer?,
            };
            if answer.succeeded {
                return Ok(true);
            }
            let found = answer.lists().next().unwrap_or_default();
            if found.first().map(|kv| kv.create_revision) != Some(entry.created) {
                return Ok(false);
            }
        }
    }
    Err(fault::odd("readers come and go all the time"))
}

/// Deletes a key that may be there, and sees to it that it does not come any more: whatever creates a key of this lease expects
/// the doubt key as it was.
async fn resolve(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    entry.state = State::Doubt(Moment::now() + RETRY);
    let doubt = core.keys().doubt(entry.session.id);
    let txn = TxnRequest {
        success: vec![
            Operation::delete(&entry.key),
            Operation::put(&doubt, Vec::new(), entry.session.id),
        ],
        ..TxnRequest::default()
    };
    match core.write(txn, Moment::NEVER).await {
        Ok(answer) => entry
            .session
            .doubt
            .store(answer.revision(), Ordering::SeqCst),
        // Without its lease it is not there, and cannot come.
        Err(Fault::NoLease) => entry.session.end(),
        Err(fault) => return Err(fault),
    }
    if let Some(writer) = entry.in_place_of {
        let place = Place {
            name: &entry.claim.name,
            lease: entry.key_lease,
            writer,
        };
        let beside = core
            .keys()
            .beside(&entry.claim.name, entry.key_lease, writer);
        place.clear(core, &beside).await?;
    }
    *turn.entry() = None;
    Ok(())
}

/// Takes a claim back.
pub async fn withdraw(core: Arc<Core>, name: Name, claim: ClaimId) -> Result<(), Error> {
    core.keys().check(&name)?;
    let Some(mut turn) = core.claims.take_known(claim).await else {
        return Ok(());
    };
    // The name is part of what a claim holds.
    if turn.is_elsewhere(&name) {
        return Ok(());
    }
    turn.withdraw();
    let withdrawn = async {
        settle(&core, &mut turn).await?;
        remove(&core, &mut turn).await
    };
    super::core::answer(withdrawn.await, ())
}

/// Lets go of a hold.
pub async fn release(
    core: Arc<Core>,
    release: Release,
    next: Option<Seat>,
) -> Result<Released, Error> {
    core.keys().check(&release.name)?;
    let Some(mut turn) = core.claims.take_known(release.claim).await else {
        return Ok(NOT_HELD);
    };
    let outcome = let_go(&core, &release, next, &mut turn).await;
    if let (Err(fault), Some(entry)) = (&outcome, turn.entry().as_mut())
        && fault.is_doubt()
    {
        entry.leaving = true;
    }
    super::core::answer(outcome, NOT_HELD)
}

async fn let_go(
    core: &Arc<Core>,
    release: &Release,
    seat: Option<Seat>,
    turn: &mut Turn,
) -> Result<Released, Fault> {
    if turn.is_elsewhere(&release.name) {
        return Ok(NOT_HELD);
    }
    // One that was sent and not answered may have been done.
    let was_leaving = turn.entry().as_ref().is_some_and(|entry| entry.leaving);
    settle(core, turn).await?;
    let now = Moment::now();
    let Some(entry) = turn.entry().as_mut() else {
        return Ok(NOT_HELD);
    };
    if !entry.holds(now) {
        return Ok(NOT_HELD);
    }
    let next = release.requeue.as_ref();
    let next = next.filter(|next| next.not_after >= now && next.mode.admits([]) && !was_leaving);
    if let (Some(next), Some(seat)) = (next, seat) {
        let mut other = core.claims.enter(seat).await;
        if !other.is_withdrawn() && other.entry().is_none() {
            other.attend(&next.name);
            match requeue(core, next, turn, &mut other).await {
                // Its time ended before it was sent: only the release is left to do.
                Err(Fault::TooLate) => {}
                released => return released,
            }
        }
    }
    let Some(entry) = turn.entry().as_ref() else {
        return Ok(NOT_HELD);
    };
    let there = depart(core, entry).await?;
    *turn.entry() = None;
    core.found(&release.name, false);
    Ok(Released {
        was_held: there || was_leaving,
        regrant: None,
    })
}

/// Lets go, and puts the next claim in line in the same transaction. Where it is too late for that, nothing was done.
async fn requeue(
    core: &Arc<Core>,
    next: &Claim,
    turn: &mut Turn,
    other: &mut Turn,
) -> Result<Released, Fault> {
    // Whatever it says: it is here to wait.
    let next = &next.clone().with_enqueue(true).with_beside(None);
    core.capabilities.check_lease(next.lease)?;
    let Some(entry) = turn.entry().as_ref() else {
        return Ok(NOT_HELD);
    };
    let shares = entry.beside > 0 || entry.in_place_of.is_some();
    if shares {
        // What becomes of its place takes more than one transaction.
        let there = depart(core, entry).await?;
        *turn.entry() = None;
        if !there {
            return Ok(NOT_HELD);
        }
    }
    let gone = turn
        .entry()
        .as_ref()
        .map(|entry| (entry.key.clone(), entry.created));
    let placed = match acquire::stand_in_line(core, next, gone, false, other).await {
        Ok(Placed::In(placed)) => placed,
        Ok(_) => {
            *turn.entry() = None;
            return Ok(NOT_HELD);
        }
        Err(_) if shares => return Ok(Released::new(true)),
        Err(fault) => return Err(fault),
    };
    *turn.entry() = None;
    let settled = acquire::settle_in(core, next, other, *placed, true).await;
    let regrant = match settled {
        Ok(Attempt::Granted(grant)) => Some(grant),
        // It waits. If it could not be found out what for, it asks again soon.
        _ => None,
    };
    Ok(Released {
        was_held: true,
        regrant,
    })
}
