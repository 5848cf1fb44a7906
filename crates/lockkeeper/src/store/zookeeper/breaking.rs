//! An administrator's release.

use std::sync::Arc;

use super::client::wire::{Answer, Code, Kind, Op, Request};
use super::core::{Core, LARGE};
use super::data;
use super::fault::{self, Fault};
use super::look::{self, Seen};
use super::tokens;
use crate::Error;
use crate::clock::Moment;
use crate::store::{Break, BreakOutcome, BreakTarget, ClaimId, Holder};

/// Ends the holds that are meant.
pub async fn break_lock(core: Arc<Core>, request: Break) -> Result<BreakOutcome, Error> {
    match end(&core, &request).await {
        Ok(outcome) => Ok(outcome),
        Err(Fault::TooLate) => Ok(BreakOutcome::TooLate),
        Err(Fault::Store(error)) => Err(error),
    }
}

async fn end(core: &Core, request: &Break) -> Result<BreakOutcome, Fault> {
    let mut done = Vec::new();
    match end_all(core, request, &mut done).await {
        // Some are ended.
        Err(Fault::TooLate) if !done.is_empty() => Err(fault::unclear("its time ended half way")),
        Err(Fault::Store(error)) if !done.is_empty() => Err(error.in_doubt().into()),
        outcome => outcome,
    }
}

async fn end_all(
    core: &Core,
    request: &Break,
    done: &mut Vec<Holder>,
) -> Result<BreakOutcome, Fault> {
    let record = look::record_path(core, &request.name);
    let holders =
        |seen: Vec<Seen>| -> Vec<Holder> { seen.into_iter().map(|seen| seen.holder).collect() };
    // A claim that comes after the first part was ended is not meant.
    let mut first: Option<Vec<ClaimId>> = None;
    for _ in 0..100 {
        if Moment::now() > request.not_after {
            return Err(Fault::TooLate);
        }
        // A leader that was deposed would say that nobody holds what was taken since.
        let view = look::view_behind(core, &core.barrier(), &request.name, true).await?;
        let meant = |seen: &Seen| {
            let claim = seen.holder.claim;
            request.target.means(claim, seen.grant)
                && first.as_ref().is_none_or(|first| first.contains(&claim))
        };
        let (mut ended, others): (Vec<Seen>, Vec<Seen>) = view.holders.into_iter().partition(meant);
        if ended.is_empty() && first.is_some() {
            return Ok(BreakOutcome::Ended(std::mem::take(done)));
        }
        if ended.is_empty() {
            return Ok(match request.target {
                BreakTarget::All => BreakOutcome::Ended(Vec::new()),
                _ => BreakOutcome::NotHeld(holders(others)),
            });
        }
        let fence = fence(core, &ended).await?;
        let fence = view
            .record
            .as_ref()
            .map_or(fence, |record| record.fence.max(fence));
        let mut json = String::from("{");
        data::text(&mut json, "reason", &request.reason);
        data::number(&mut json, "fence", fence);
        json.push('}');
        let write = match &view.record {
            Some(known) => Op::SetData {
                path: record.clone(),
                data: json.into_bytes(),
                version: known.version,
            },
            None => Op::Create {
                path: record.clone(),
                data: json.into_bytes(),
                acl: core.acl(),
                kind: Kind::Persistent,
            },
        };
        let all: Vec<ClaimId> = ended.iter().map(|seen| seen.holder.claim).collect();
        let (mut ops, fit) = deletions(&ended);
        ended.truncate(fit);
        ops.push(write);
        let last = ops.len() - 1;
        let replies = core
            .write(vec![Request::Multi(ops)], request.not_after)
            .await?;
        match replies.answers.into_iter().next() {
            Some(Ok(Answer::Multi(_))) => {
                done.extend(holders(ended));
                if fit == all.len() {
                    return Ok(BreakOutcome::Ended(std::mem::take(done)));
                }
                first.get_or_insert(all);
            }
            // There is no folder for what is kept about breaks.
            Some(Ok(Answer::Failed(at, Code::NO_NODE))) if at == last && view.record.is_none() => {
                core.write(core.own_folder(Vec::new()), request.not_after)
                    .await?;
            }
            // Somebody let go, or broke it, meanwhile.
            Some(Ok(Answer::Failed(_, Code::NO_NODE | Code::BAD_VERSION | Code::NODE_EXISTS))) => {}
            Some(Ok(Answer::Failed(_, code)) | Err(code)) => {
                return Err(fault::of_code(code, &record));
            }
            _ => return Err(fault::odd("no list")),
        }
    }
    Err(fault::odd("a name changes all the time"))
}

/// What deletes the nodes of as many of these as one request takes, and how many those are. One always fits.
fn deletions(ended: &[Seen]) -> (Vec<Op>, usize) {
    let (mut ops, mut length) = (Vec::new(), 0);
    for (at, seen) in ended.iter().enumerate() {
        let delete = |path: &String| Op::Delete { path: path.clone() };
        let more: Vec<Op> = seen.nodes.iter().map(delete).collect();
        length += more.iter().map(|op| 9 + op.length()).sum::<usize>();
        if length > LARGE && at > 0 {
            return (ops, at);
        }
        ops.extend(more);
    }
    (ops, ended.len())
}

/// Past every token of what is ended, and below those of who waits: these came later.
async fn fence(core: &Core, ended: &[Seen]) -> Result<u64, Fault> {
    if let Some(fence) = ended
        .iter()
        .map(|seen| seen.fence)
        .max()
        .filter(|fence| *fence > 0)
    {
        return Ok(fence);
    }
    if core.settings.native {
        return Ok(0);
    }
    let step = core.base_step().await?;
    let now = u64::from(tokens::counter(core.client.last_zxid()));
    let base = step.map_or(0, |step| match step.op {
        // It is not raised here.
        Op::SetData { .. } => core.tokens().base.map_or(0, |base| base.micros),
        _ => step.micros,
    });
    Ok(base.saturating_add(now * tokens::RUN + tokens::RUN - 1))
}
