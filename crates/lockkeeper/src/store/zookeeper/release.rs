//! Letting go, and what else makes nodes go.

use std::sync::Arc;

use super::acquire;
use super::claims::{Entry, Seat, State, Turn};
use super::client::wire::{Answer, Code, Op, Request};
use super::core::Core;
use super::fault::{self, Fault};
use super::line::{self, Line};
use super::{RETRY, names, node_id, permits};
use crate::clock::Moment;
use crate::store::{Attempt, ClaimId, Mode, Release, Released};
use crate::{Error, Name};

const NOT_HELD: Released = Released {
    was_held: false,
    regrant: None,
};

/// Applies to a claim what has happened meanwhile: its session may be over, or its time; it may have been in doubt.
pub async fn settle(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    if entry.session != core.client.session() {
        // Its session is over, here first: its nodes go with it, and are never taken for those of another.
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

/// Deletes the nodes of a claim. Until that is known to be done, the claim is `Ending`.
pub async fn remove(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    entry.state = State::Ending(Moment::now() + RETRY);
    let delete = |path: &String| Request::Do(Op::Delete { path: path.clone() });
    let requests: Vec<Request> = entry.nodes.iter().map(delete).collect();
    let replies = core.write(requests, Moment::NEVER).await?;
    for (answer, node) in replies.answers.iter().zip(&entry.nodes) {
        match answer {
            Ok(_) | Err(Code::NO_NODE) => {}
            Err(code) => return Err(fault::of_code(*code, node)),
        }
    }
    sweep(core, ending_line(core, entry));
    *turn.entry() = None;
    Ok(())
}

/// A claim is in line no more, or holds no more: one of its nodes is gone. The others go, too.
pub async fn forget(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    match turn.entry() {
        Some(entry) if entry.nodes.len() > 1 && entry.session == core.client.session() => {
            remove(core, turn).await
        }
        entry => {
            *entry = None;
            Ok(())
        }
    }
}

/// Looks for nodes that a claim may have, in the session in which they may have been created, and deletes them.
async fn resolve(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    entry.state = State::Doubt(Moment::now() + RETRY);
    let place = core.place(&entry.claim.name);
    let id = node_id(entry.claim.id);
    let folders = match entry.claim.mode {
        Mode::Permit { .. } => vec![&place.queue, &place.leases],
        _ => vec![&place.path],
    };
    // A server that lags behind has caught up with what came before it.
    let mut requests = vec![core.barrier()];
    for folder in &folders {
        requests.push(Request::GetChildren {
            path: (*folder).clone(),
            watch: false,
        });
    }
    let replies = core.write(requests, Moment::NEVER).await?;
    let mut found = Vec::new();
    for (folder, answer) in folders.into_iter().zip(replies.answers.into_iter().skip(1)) {
        for node in super::core::listed(answer, folder)? {
            let of = line::Contender::parse(&node).and_then(|one| one.id);
            if of.or_else(|| permits::lease_id(&node)) == Some(id) {
                found.push(format!("{folder}/{node}"));
            }
        }
    }
    if found.is_empty() {
        *turn.entry() = None;
        return Ok(());
    }
    entry.nodes = found;
    remove(core, turn).await
}

/// The folder in which a claim stood in line, if its numbers are about to end or have ended.
fn ending_line(core: &Core, entry: &Entry) -> Option<String> {
    let ends = !(0..line::NEARLY_LAST).contains(&entry.number);
    ends.then(|| {
        let place = core.place(&entry.claim.name);
        acquire::folder(&entry.claim, &place).to_owned()
    })
}

/// Starts the numbers of a line again: an empty folder that is deleted begins at 0.
fn sweep(core: &Core, ending: Option<String>) {
    let Some(path) = ending else { return };
    if core.warns_of_numbers() {
        tracing::warn!(
            target: crate::SETUP_TARGET,
            path,
            "the numbers of this path are nearly used up; they begin again once nobody holds or waits"
        );
    }
    let client = core.client.clone();
    tokio::spawn(async move {
        let delete = Request::Do(Op::Delete { path });
        // It is refused as long as somebody is there.
        let _ = client.send(vec![delete], Moment::NEVER).await;
    });
}

/// Takes a claim back.
pub async fn withdraw(core: Arc<Core>, name: Name, claim: ClaimId) -> Result<(), Error> {
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
    match withdrawn.await {
        Ok(()) | Err(Fault::TooLate) => Ok(()),
        Err(Fault::Store(error)) => Err(error),
    }
}

/// Lets go of a hold.
pub async fn release(
    core: Arc<Core>,
    release: Release,
    next: Option<Seat>,
) -> Result<Released, Error> {
    let Some(mut turn) = core.claims.take_known(release.claim).await else {
        return Ok(NOT_HELD);
    };
    match let_go(&core, &release, next, &mut turn).await {
        Ok(released) => Ok(released),
        Err(Fault::TooLate) => Ok(NOT_HELD),
        Err(Fault::Store(error)) => {
            if let (Error::OutcomeUnknown { .. }, Some(entry)) = (&error, turn.entry().as_mut()) {
                entry.leaving = true;
            }
            Err(error)
        }
    }
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
    // One that was sent and not answered, in a session that goes on, may have been done.
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
    let (nodes, ending) = (entry.nodes.clone(), ending_line(core, entry));
    if let (Some(next), Some(seat)) = (next, seat) {
        let mut other = core.claims.enter(seat).await;
        if !other.is_withdrawn() {
            match requeue(core, next, nodes.clone(), turn, &mut other).await {
                // Its time ended before it was sent: only the release is left to do.
                Err(Fault::TooLate) => {}
                released => return released,
            }
        }
    }
    let delete = |path: &String| Op::Delete { path: path.clone() };
    let ops: Vec<Op> = nodes.iter().map(delete).collect();
    let request = match <[Op; 1]>::try_from(ops) {
        Ok([one]) => Request::Do(one),
        Err(several) => Request::Multi(several),
    };
    let replies = core.write(vec![request], Moment::NEVER).await?;
    let gone = match replies.answers.into_iter().next() {
        Some(Ok(Answer::Failed(_, Code::NO_NODE)) | Err(Code::NO_NODE)) => true,
        Some(Ok(Answer::Failed(_, code)) | Err(code)) => {
            return Err(fault::of_code(code, &core.place(&release.name).path));
        }
        _ => false,
    };
    sweep(core, ending);
    if gone {
        // Some may be left, if not all were broken.
        remove(core, turn).await?;
    } else {
        *turn.entry() = None;
    }
    core.found(&release.name, false);
    Ok(Released {
        was_held: !gone || was_leaving,
        regrant: None,
    })
}

/// Lets go, and puts the next claim in line in the same transaction. Where it is too late for that, nothing was done.
async fn requeue(
    core: &Arc<Core>,
    next: &crate::store::Claim,
    nodes: Vec<String>,
    turn: &mut Turn,
    other: &mut Turn,
) -> Result<Released, Fault> {
    // Whatever it says: it is here to wait.
    let next = &next.clone().with_enqueue(true);
    let place = core.place(&next.name);
    let placed = match acquire::stand_in_line(core, next, &place, nodes, other).await {
        Ok(Some((entry, lists))) => {
            *turn.entry() = None;
            *other.entry() = Some(entry);
            lists
        }
        Ok(None) => {
            remove(core, turn).await?;
            return Ok(NOT_HELD);
        }
        Err(fault) => return Err(fault),
    };
    let settled = acquire::settle_in(core, next, &place, other, placed, true).await;
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

/// Whether somebody holds or waits in these lists of a name.
pub fn is_in_use(lists: &super::standing::Lists) -> bool {
    !Line::of(&lists.main).all().is_empty()
        || !Line::of(&lists.queue).all().is_empty()
        || lists
            .leases
            .iter()
            .any(|node| permits::lease_id(node).is_some())
}

/// The keeper of a hold may have lost it.
pub fn tell(core: &Core, name: &Name, claim: ClaimId) {
    core.hints.keeper(claim.keeper);
    core.hints.claim(name, claim);
}

/// What stands below a path without being a contender: a folder of other names.
pub fn is_folder(node: &str) -> bool {
    line::Contender::parse(node).is_none()
        && permits::lease_id(node).is_none()
        && !matches!(node, names::PERMIT_LINE | names::PERMIT_LEASES)
}
