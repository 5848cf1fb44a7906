//! An administrator's release.

use std::sync::Arc;

use super::client::messages::{Compare, Operation, TxnRequest, after};
use super::core::Core;
use super::fault::{self, Fault};
use super::keys::Kind;
use super::line::Line;
use super::look::{self, Seen};
use super::release::Place;
use crate::clock::Moment;
use crate::store::common::json::{number, text};
use crate::store::{Break, BreakOutcome, BreakTarget, Holder};
use crate::{Error, Name};

/// How many holds are ended in one transaction. Members refuse more than 128 parts by default.
const MOST: usize = 50;

/// Ends the holds that are meant.
pub async fn break_lock(core: Arc<Core>, request: Break) -> Result<BreakOutcome, Error> {
    core.keys().check(&request.name)?;
    let mut done = Vec::new();
    let outcome = end(&core, &request, &mut done).await;
    let outcome = match outcome {
        // Some are ended.
        Err(fault) if !done.is_empty() => Err(fault.after_a_part()),
        outcome => outcome,
    };
    super::core::answer(outcome, BreakOutcome::TooLate)
}

async fn end(core: &Core, request: &Break, done: &mut Vec<Holder>) -> Result<BreakOutcome, Fault> {
    let holders =
        |seen: Vec<Seen>| -> Vec<Holder> { seen.into_iter().map(|seen| seen.holder).collect() };
    // A claim that comes after the first part was ended is not meant.
    let mut first: Option<Vec<Vec<u8>>> = None;
    for _ in 0..100 {
        if Moment::now() > request.not_after {
            return Err(Fault::TooLate);
        }
        let view = look::view(core, &request.name).await?;
        let meant = |seen: &Seen| {
            let key = &seen.contender.key;
            request.target.means(seen.holder.claim, seen.grant)
                && first.as_ref().is_none_or(|first| first.contains(key))
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
        let all: Vec<Vec<u8>> = ended
            .iter()
            .map(|seen| seen.contender.key.clone())
            .collect();
        ended.truncate(MOST);
        let fences = ended.iter().map(|seen| seen.fence);
        let fences = fences.chain(view.record.as_ref().map(|record| record.fence));
        let mut json = String::from("{");
        text(&mut json, "reason", &request.reason);
        number(&mut json, "fence", fences.max().unwrap_or_default());
        number(&mut json, "at_ms", core.wall_micros() / 1_000);
        json.push('}');
        let record = core.keys().broken(&request.name);
        let written = view.record.as_ref().map_or(0, |record| record.written);
        let mut compare = vec![Compare::modified(&record, written)];
        let mut success = vec![Operation::put(&record, json.into_bytes(), 0)];
        for seen in &ended {
            let (condition, operation) = ending(core, &request.name, &view.line, seen);
            compare.push(Compare::created(
                &seen.contender.key,
                seen.contender.created,
            ));
            compare.extend(condition);
            success.push(operation);
        }
        let txn = TxnRequest {
            compare,
            success,
            failure: Vec::new(),
        };
        let answer = match core.write(txn, request.not_after).await {
            // The writer that was to keep a reader's place has gone with its lease.
            Err(Fault::NoLease) => continue,
            answer => answer?,
        };
        // Otherwise somebody let go, or broke it, meanwhile.
        if answer.succeeded {
            let ended_all = ended.len() == all.len();
            for seen in &ended {
                clear(core, &request.name, seen).await?;
            }
            done.extend(holders(ended));
            if ended_all {
                return Ok(BreakOutcome::Ended(std::mem::take(done)));
            }
            first.get_or_insert(all);
        }
    }
    Err(fault::odd("a name changes all the time"))
}

/// What ends a hold, and what has to be so for that. The key of a writer stays for the readers that stand in its place.
fn ending(core: &Core, name: &Name, line: &Line, seen: &Seen) -> (Option<Compare>, Operation) {
    let one = &seen.contender;
    let delete = Operation::delete(&one.key);
    let (Kind::Write, Some((lease, writer))) = (one.part.kind, one.part.id) else {
        return (None, delete);
    };
    let keys = core.keys();
    let beside = keys.beside(name, lease, writer);
    let mut all = line.all().iter();
    if all.any(|one| one.key.starts_with(&beside)) {
        (
            Some(Compare::some_below(&beside)),
            Operation::put(&keys.gone(name, lease, writer), Vec::new(), one.lease),
        )
    } else {
        (Some(Compare::none_in(&beside, &after(&beside))), delete)
    }
}

/// Clears the place of a writer that was kept for this hold.
async fn clear(core: &Core, name: &Name, seen: &Seen) -> Result<(), Fault> {
    let part = seen.contender.part;
    let (Some((lease, _)), Some(writer)) = (part.id, part.in_place_of) else {
        return Ok(());
    };
    let place = Place {
        name,
        lease,
        writer,
    };
    place
        .clear(core, &core.keys().beside(name, lease, writer))
        .await
}
