//! An administrator's release.

use std::sync::Arc;

use super::client::wire::{Answer, Code, Kind, Op, Request};
use super::core::Core;
use super::data;
use super::fault::{self, Fault};
use super::look::{self, Seen};
use super::{names, tokens};
use crate::Error;
use crate::clock::{Clock, Moment};
use crate::store::{Break, BreakOutcome, BreakTarget, Holder};

/// Ends the holds that are meant.
pub async fn break_lock(core: Arc<Core>, request: Break) -> Result<BreakOutcome, Error> {
    match end(&core, &request).await {
        Ok(outcome) => Ok(outcome),
        Err(Fault::TooLate) => Ok(BreakOutcome::TooLate),
        Err(Fault::Store(error)) => Err(error),
    }
}

async fn end(core: &Core, request: &Break) -> Result<BreakOutcome, Fault> {
    let record = look::record_path(core, &request.name);
    let holders =
        |seen: Vec<Seen>| -> Vec<Holder> { seen.into_iter().map(|seen| seen.holder).collect() };
    for _ in 0..100 {
        if Moment::now() > request.not_after {
            return Err(Fault::TooLate);
        }
        let view = look::view(core, &request.name, true).await?;
        let meant = |seen: &Seen| request.target.means(seen.holder.claim, seen.grant);
        let (ended, others): (Vec<Seen>, Vec<Seen>) = view.holders.into_iter().partition(meant);
        if ended.is_empty() && request.target != BreakTarget::All {
            return Ok(BreakOutcome::NotHeld(holders(others)));
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
        let nodes = ended.iter().flat_map(|seen| &seen.nodes);
        let mut ops: Vec<Op> = nodes
            .map(|path| Op::Delete { path: path.clone() })
            .collect();
        ops.push(write);
        let replies = core
            .write(vec![Request::Multi(ops)], request.not_after)
            .await?;
        match replies.answers.into_iter().next() {
            Some(Ok(Answer::Multi(_))) => {
                core.committed(replies.sent);
                return Ok(BreakOutcome::Ended(holders(ended)));
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
        let base = Op::Create {
            path: core.own(names::BASE),
            data: Vec::new(),
            acl: core.acl(),
            kind: Kind::Persistent,
        };
        core.write(vec![Request::Do(base)], Moment::NEVER).await?;
        return Ok(0);
    }
    let step = core.base_step().await?;
    let now = u64::from(tokens::counter(core.client.last_zxid()));
    let base = step.map_or(0, |step| match step.op {
        // It is not raised here.
        Op::SetData { .. } => core.tokens().base.map_or(0, |base| base.micros),
        _ => step.micros,
    });
    debug_assert!(
        base < Clock::real().unix_micros() * 2,
        "a base is near the clock"
    );
    Ok(base.saturating_add(now * tokens::RUN + tokens::RUN - 1))
}
