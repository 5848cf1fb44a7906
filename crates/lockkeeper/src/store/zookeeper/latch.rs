//! Latches: a number in a node, as Curator's `SharedCount` has it, and behind it who has arrived.

use std::sync::Arc;

use super::client::wire::{Answer, Code, Kind, Op, Request};
use super::core::Core;
use super::fault::{self, Fault};
use super::{names, node_id};
use crate::clock::Moment;
use crate::store::record::{Latch, LatchChange};
use crate::store::{LatchOp, LatchRequest, LatchState};
use crate::{Error, Name};

/// How many of the last arrivals are remembered. A repeated request comes soon, or not at all.
const ARRIVALS: usize = 4096;

/// The path of a latch.
pub fn path(core: &Core, name: &Name) -> String {
    format!("{}/{}", core.own(names::LATCHES), names::flat(name))
}

/// Reads or changes a latch.
pub async fn latch(core: Arc<Core>, request: LatchRequest) -> Result<LatchState, Error> {
    match apply(&core, &request).await {
        Ok(state) => Ok(state),
        Err(Fault::Store(error)) => Err(error),
        // Read what it is now, and change nothing.
        Err(Fault::TooLate) => {
            let op = LatchOp::Read;
            let not_after = Moment::NEVER;
            let read = LatchRequest {
                op,
                not_after,
                ..request
            };
            match apply(&core, &read).await {
                Ok(state) => Ok(state),
                Err(Fault::Store(error)) => Err(error),
                Err(Fault::TooLate) => Err(Error::Closed),
            }
        }
    }
}

async fn apply(core: &Core, request: &LatchRequest) -> Result<LatchState, Fault> {
    let path = path(core, &request.name);
    let id = node_id(request.id).to_be_bytes();
    let mut is_current = false;
    for _ in 0..1_000 {
        let requests = vec![
            if is_current {
                core.barrier()
            } else {
                Request::Sync { path: path.clone() }
            },
            Request::GetData {
                path: path.clone(),
                watch: false,
            },
        ];
        let (data, version) = match core.read(requests).await?.pop() {
            Some(Ok(Answer::Data(data, stat))) => (data, Some(stat.version)),
            Some(Err(Code::NO_NODE)) => (Vec::new(), None),
            Some(Err(code)) => return Err(fault::of_code(code, &path)),
            _ => return Err(fault::odd("no data")),
        };
        let (count, arrived) = data.split_at_checked(4).unwrap_or_default();
        let count: [u8; 4] = count.try_into().unwrap_or_default();
        let latch = Latch {
            count: u32::from_be_bytes(count),
            arrived: arrived.chunks(16).any(|one| one == id),
        };
        let (state, change) = latch.apply(request, Moment::now());
        let Some(change) = change else {
            // A leader that was deposed answers `sync`. A latch that it takes for closed delays those who wait; one that it takes for
            // open lets them through, and loses their counts.
            let delays = matches!(request.op, LatchOp::Read) && state.count > 0;
            if delays || is_current {
                return Ok(state);
            }
            is_current = true;
            continue;
        };
        let mut data = state.count.to_be_bytes().to_vec();
        if change == LatchChange::Arrive {
            let skip = arrived.len().saturating_sub((ARRIVALS - 1) * 16);
            data.extend_from_slice(&arrived[skip..]);
            data.extend_from_slice(&id);
        }
        let op = match version {
            Some(version) => Op::SetData {
                path: path.clone(),
                data,
                version,
            },
            None => Op::Create {
                path: path.clone(),
                data,
                acl: core.acl(),
                kind: Kind::Persistent,
            },
        };
        let replies = core.write(vec![Request::Do(op)], request.not_after).await?;
        match replies.answers.into_iter().next() {
            Some(Ok(_)) => return Ok(state),
            Some(Err(Code::BAD_VERSION | Code::NODE_EXISTS)) => {}
            Some(Err(Code::NO_NODE)) if version.is_some() => {}
            Some(Err(Code::NO_NODE)) => {
                let mut folders = match core.settings.chroot.as_str() {
                    "" => Vec::new(),
                    chroot => core.folders(chroot),
                };
                let latches = core.own(names::LATCHES);
                let op = Op::Create {
                    path: latches,
                    data: Vec::new(),
                    acl: core.acl(),
                    kind: Kind::Persistent,
                };
                folders.push(Request::Do(op));
                core.write(folders, request.not_after).await?;
            }
            Some(Err(code)) => return Err(fault::of_code(code, &path)),
            None => return Err(fault::odd("nothing")),
        }
    }
    Err(fault::odd("a latch changes all the time"))
}
