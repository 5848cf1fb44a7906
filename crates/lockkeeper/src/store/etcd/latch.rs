//! Latches: a number in a key, and behind it who has arrived. A latch that is open has no key.

use std::sync::Arc;

use super::client::messages::{Compare, Operation, TxnRequest};
use super::core::Core;
use super::fault::{self, Fault};
use crate::Error;
use crate::clock::Moment;
use crate::store::record::{Latch, LatchChange};
use crate::store::{ClaimId, LatchOp, LatchRequest, LatchState};

/// How many of the last arrivals are remembered. A repeated request comes soon, or not at all.
const ARRIVALS: usize = 4096;
/// How long an arrival is: its keeper, and its number.
const ID: usize = 24;

fn bytes(id: ClaimId) -> [u8; ID] {
    let mut bytes = [0; ID];
    bytes[..16].copy_from_slice(&id.keeper.to_bits().to_be_bytes());
    bytes[16..].copy_from_slice(&id.number.to_be_bytes());
    bytes
}

/// Reads or changes a latch.
pub async fn latch(core: Arc<Core>, request: LatchRequest) -> Result<LatchState, Error> {
    core.keys().check(&request.name)?;
    let mut outcome = apply(&core, &request).await;
    if let Err(Fault::TooLate) = outcome {
        // What it is now, and nothing is changed.
        let read = LatchRequest {
            op: LatchOp::Read,
            not_after: Moment::NEVER,
            ..request
        };
        outcome = apply(&core, &read).await;
    }
    super::core::answer(outcome, LatchState::new(0, false))
}

async fn apply(core: &Core, request: &LatchRequest) -> Result<LatchState, Fault> {
    let key = core.keys().latch(&request.name);
    let id = bytes(request.id);
    for _ in 0..1_000 {
        let found = core.read(vec![Operation::get(&key)]).await?;
        let found = found.lists().next().unwrap_or_default();
        let data = found.first().map(|kv| &kv.value[..]).unwrap_or_default();
        let (count, arrived) = data.split_at_checked(4).unwrap_or_default();
        let count: [u8; 4] = count.try_into().unwrap_or_default();
        let latch = Latch {
            count: u32::from_be_bytes(count),
            arrived: arrived.chunks(ID).any(|one| one == id),
        };
        let (state, change) = latch.apply(request, Moment::now());
        let Some(change) = change else {
            return Ok(state);
        };
        let mut data = state.count.to_be_bytes().to_vec();
        if change == LatchChange::Arrive {
            let skip = arrived.len().saturating_sub((ARRIVALS - 1) * ID);
            data.extend_from_slice(&arrived[skip..]);
            data.extend_from_slice(&id);
        }
        let written = found.first().map_or(0, |kv| kv.mod_revision);
        let write = match change {
            LatchChange::Open => Operation::delete(&key),
            LatchChange::Set(_) | LatchChange::Arrive => Operation::put(&key, data, 0),
        };
        let txn = TxnRequest {
            compare: vec![Compare::modified(&key, written)],
            success: vec![write],
            failure: Vec::new(),
        };
        if core.write(txn, request.not_after).await?.succeeded {
            return Ok(state);
        }
    }
    Err(fault::odd("a latch changes all the time"))
}
