//! Going on holding: one write for all holds of the session, which has to be committed.

use std::sync::Arc;
use std::time::Duration;

use super::claims::{Entry, State, Turn};
use super::client::wire::{Answer, Code, Op, Request};
use super::core::Core;
use super::data::{Data, Fence};
use super::fault::{self, Fault};
use super::{GUARD_AFTER, data_of, permits, release};
use crate::Error;
use crate::clock::Moment;
use crate::store::{Mode, Renewal, Renewed};

/// How many nodes are renewed in one write.
const MOST: usize = 500;

/// What a renewal writes: that the nodes are there, and their lease where it changes.
pub fn touch(core: &Core, entry: &Entry, lease: Duration, now: Moment) -> Vec<Op> {
    let tells = lease != entry.told && moves(entry, lease, now);
    if !tells {
        return checks(entry);
    }
    let op = |path: &String| Op::SetData {
        path: path.clone(),
        data: told(core, entry, lease),
        version: -1,
    };
    entry.nodes.iter().map(op).collect()
}

/// Writes nothing, if the nodes of a claim are all there.
pub fn checks(entry: &Entry) -> Vec<Op> {
    let op = |path: &String| Op::Check {
        path: path.clone(),
        version: -1,
    };
    entry.nodes.iter().map(op).collect()
}

/// Whether a lease that begins now ends later than the one that runs.
fn moves(entry: &Entry, lease: Duration, now: Moment) -> bool {
    match entry.state {
        State::Held(until, _) => now + lease > until,
        _ => true,
    }
}

fn told(core: &Core, entry: &Entry, lease: Duration) -> Vec<u8> {
    let claim = crate::store::Claim {
        lease,
        ..entry.claim.clone()
    };
    let fence = if core.settings.native {
        Fence::Native
    } else {
        Fence::Token(entry.grant.token)
    };
    Data {
        place: Some(entry.czxid),
        ..data_of(core, &claim, fence, entry.grant.tokens)
    }
    .write()
}

/// A renewal that was sent then has been done.
pub fn prolong(entry: &mut Entry, lease: Duration, sent: Moment) {
    if !lease.is_zero() && moves(entry, lease, sent) {
        if !matches!(entry.state, State::Held(..)) {
            entry.guard_at = Some(Moment::now() + GUARD_AFTER);
        }
        entry.state = State::Held(sent + lease, lease);
        entry.told = lease;
    }
}

/// Renews holds.
pub async fn renew(core: Arc<Core>, renewals: Vec<Renewal>) -> Result<Vec<Renewed>, Error> {
    for renewal in &renewals {
        if !renewal.lease.is_zero() {
            core.check_lease(renewal.lease)?;
        }
    }
    let mut renewed = vec![Renewed::NotHeld; renewals.len()];
    // Each hold once, however often it is named: two turns of one claim would wait for each other.
    let mut order: Vec<usize> = (0..renewals.len()).collect();
    order.sort_by_key(|&at| renewals[at].claim);
    let mut some_done = false;
    for chunk in groups(&renewals, &order) {
        match some(&core, &renewals, chunk, &mut renewed).await {
            Ok(()) => some_done = true,
            // Nothing was done for those that have no answer yet.
            Err(Fault::TooLate) => {
                for &at in chunk {
                    if renewed[at] == Renewed::NotHeld {
                        renewed[at] = Renewed::TooLate;
                    }
                }
            }
            Err(Fault::Store(error @ Error::Unavailable { .. })) if some_done => {
                return Err(error.in_doubt());
            }
            Err(Fault::Store(error)) => return Err(error),
        }
    }
    Ok(renewed)
}

/// Parts of the renewals, sorted by claim, that are written together; those of one claim are in one part.
fn groups<'a>(renewals: &[Renewal], order: &'a [usize]) -> Vec<&'a [usize]> {
    let mut groups = Vec::new();
    let mut rest = order;
    while !rest.is_empty() {
        let mut end = MOST.min(rest.len());
        while end < rest.len() && renewals[rest[end]].claim == renewals[rest[end - 1]].claim {
            end += 1;
        }
        let (group, after) = rest.split_at(end);
        groups.push(group);
        rest = after;
    }
    groups
}

async fn some(
    core: &Arc<Core>,
    renewals: &[Renewal],
    group: &[usize],
    renewed: &mut [Renewed],
) -> Result<(), Fault> {
    let mut holds: Vec<(Turn, Vec<usize>)> = Vec::new();
    let mut last = None;
    for &at in group {
        let renewal = &renewals[at];
        if Moment::now() > renewal.not_after {
            renewed[at] = Renewed::TooLate;
            continue;
        }
        if last == Some(renewal.claim) {
            if let Some((_, wants)) = holds.last_mut() {
                wants.push(at);
            }
            continue;
        }
        let Some(mut turn) = core.claims.take_known(renewal.claim).await else {
            continue;
        };
        if turn.is_elsewhere(&renewal.name) {
            continue;
        }
        release::settle(core, &mut turn).await?;
        let held = turn
            .entry()
            .as_ref()
            .is_some_and(|entry| entry.holds(Moment::now()));
        if held {
            last = Some(renewal.claim);
            holds.push((turn, vec![at]));
        }
    }
    // A permit whose turn has come takes it now.
    for (turn, wants) in &mut holds {
        let not_after = renewals[wants[0]].not_after;
        if let Some(entry) = turn.entry()
            && matches!(entry.state, State::Granted(_))
            && matches!(entry.claim.mode, Mode::Permit { .. })
        {
            let place = core.place(&entry.claim.name);
            if !permits::take(core, &place, entry, not_after).await? {
                *turn.entry() = None;
            }
        }
    }
    holds.retain_mut(|(turn, _)| turn.entry().is_some());
    let (mut some_done, mut cuts) = (false, 0);
    while !holds.is_empty() {
        let now = Moment::now();
        let (mut ops, mut owners, mut not_after) = (Vec::new(), Vec::new(), Moment::NEVER);
        // As many as one request takes.
        let (mut length, mut fit) = (0, 0);
        for (which, (turn, wants)) in holds.iter_mut().enumerate() {
            let Some(entry) = turn.entry() else { continue };
            let longest = wants
                .iter()
                .map(|&at| renewals[at].lease)
                .max()
                .unwrap_or_default();
            let touched = if longest.is_zero() {
                checks(entry)
            } else {
                touch(core, entry, longest, now)
            };
            let more = touched.iter().map(|op| 9 + op.length()).sum::<usize>();
            if length + more > core.splits.at() && fit > 0 {
                break;
            }
            length += more;
            fit = which + 1;
            owners.extend(std::iter::repeat_n(which, touched.len()));
            ops.extend(touched);
            not_after = wants
                .iter()
                .map(|&at| renewals[at].not_after)
                .fold(not_after, Moment::min);
        }
        let replies = match core.prove(vec![Request::Multi(ops)], not_after).await {
            Ok(replies) => replies,
            Err(Fault::TooLate) => {
                for at in holds.iter().flat_map(|(_, wants)| wants) {
                    renewed[*at] = Renewed::TooLate;
                }
                return Ok(());
            }
            // To renew twice is to renew.
            Err(Fault::Store(Error::OutcomeUnknown { .. }))
                if fit > 1 && core.splits.was_cut(length, &mut cuts) =>
            {
                continue;
            }
            Err(Fault::Store(error)) if some_done => return Err(error.in_doubt().into()),
            Err(fault) => return Err(fault),
        };
        cuts = 0;
        match replies.answers.into_iter().next() {
            Some(Ok(Answer::Multi(_))) => {
                core.committed(replies.sent);
                some_done = true;
                for (mut turn, wants) in holds.drain(..fit) {
                    let Some(entry) = turn.entry() else { continue };
                    if entry.session != replies.session {
                        *turn.entry() = None;
                        continue;
                    }
                    for &at in wants.iter() {
                        prolong(entry, renewals[at].lease, replies.sent);
                        renewed[at] = Renewed::Renewed;
                    }
                }
            }
            Some(Ok(Answer::Failed(at, Code::NO_NODE))) => {
                let Some(which) = owners.get(at) else {
                    return Err(fault::odd("a failure of nothing"));
                };
                // It was broken. The others go on.
                let (mut turn, _) = holds.remove(*which);
                // What is left of its nodes is tried again later.
                let _ = release::forget(core, &mut turn).await;
            }
            Some(Ok(Answer::Failed(_, code)) | Err(code)) => {
                return Err(fault::of_code(code, "a hold"));
            }
            _ => return Err(fault::odd("no list")),
        }
    }
    Ok(())
}
