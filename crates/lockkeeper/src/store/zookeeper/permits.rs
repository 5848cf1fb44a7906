//! Permits, as Curator's semaphore has them: a line, and a node for each permit that is held.

use super::claims::{Entry, State};
use super::client::wire::{Answer, Code, Kind, Op, Request};
use super::core::{Core, LARGE, Place};
use super::data::{Data, Fence};
use super::fault::{self, Fault};
use super::{data_of, node_id};
use crate::clock::Moment;
use crate::store::{Claim, Mode};
use crate::{Error, Token};
use uuid::Uuid;

/// How the nodes of permits are called, behind their id.
pub const LEASE: &str = "lease-";

/// The limit and the count that a node tells. One of another client is one permit, and its limit is its own affair.
pub fn weight(data: &[u8]) -> (u32, u32) {
    match Data::read(data).map(|data| data.mode) {
        Some(Mode::Permit { limit, count }) => (limit, count),
        _ => (u32::MAX, 1),
    }
}

/// The id of a node that stands for a permit.
pub fn lease_id(node: &str) -> Option<u128> {
    let (prefix, _) = node.rsplit_once(LEASE)?;
    super::line::id(prefix)
}

/// Whether a claim's permits can be taken at all: each has a node, and all are made in one request.
pub fn check(core: &Core, claim: &Claim) -> Result<(), Error> {
    let Mode::Permit { count, .. } = claim.mode else {
        return Ok(());
    };
    if count == 0 {
        return Err(Error::InvalidArgument {
            what: "permits",
            reason: "a claim for no permits has nothing to hold; ask for at least one".into(),
        });
    }
    let place = core.place(&claim.name);
    let one = creation(core, &place, claim, Token::new(u64::MAX), u32::MAX);
    let most = LARGE / (9 + one.length());
    if count as usize > most {
        return Err(super::url::KIND.refused(format!(
            "{count} permits are more than a ZooKeeper server takes in one request; ask for at most {most} at once"
        )));
    }
    Ok(())
}

/// What makes the node of one permit.
fn creation(core: &Core, place: &Place, claim: &Claim, token: Token, tokens: u32) -> Op {
    let data = data_of(core, claim, Fence::Token(token), tokens);
    let uuid = Uuid::from_u128(node_id(claim.id));
    Op::Create {
        path: format!("{}/_c_{uuid}-{LEASE}", place.leases),
        data: data.write(),
        acl: core.acl(),
        kind: Kind::Sequential,
    }
}

/// Takes the permits of a claim whose turn it is: it leaves the line and gets a node for each, in one transaction. False if
/// it is in line no more.
pub async fn take(
    core: &Core,
    place: &Place,
    entry: &mut Entry,
    not_after: Moment,
) -> Result<bool, Fault> {
    let Mode::Permit { count, .. } = entry.claim.mode else {
        return Err(fault::odd("permits of a lock"));
    };
    let (token, tokens) = (entry.grant.token, entry.grant.tokens);
    let create = creation(core, place, &entry.claim, token, tokens);
    let mut ops: Vec<Op> = entry
        .nodes
        .iter()
        .map(|path| Op::Delete { path: path.clone() })
        .collect();
    let leave = ops.len();
    ops.extend(std::iter::repeat_n(create, count as usize));
    let mut folders = Vec::new();
    for _ in 0..20 {
        let mut requests = std::mem::take(&mut folders);
        requests.push(Request::Multi(ops.clone()));
        let replies = match core.prove(requests, not_after).await {
            Ok(replies) => replies,
            Err(fault) => {
                if let Fault::Store(Error::OutcomeUnknown { .. }) = fault {
                    entry.state = State::Doubt(Moment::now());
                }
                return Err(fault);
            }
        };
        let sent = replies.sent;
        match replies.answers.into_iter().last() {
            Some(Ok(Answer::Multi(done))) => {
                core.committed(sent);
                let nodes: Vec<String> = done.into_iter().filter_map(created_path).collect();
                if nodes.len() < count as usize {
                    entry.state = State::Doubt(Moment::now());
                    return Err(fault::unclear("it made fewer nodes than it was asked for"));
                }
                entry.nodes = nodes;
                entry.session = replies.session;
                entry.asked = sent;
                return Ok(true);
            }
            Some(Ok(Answer::Failed(at, Code::NO_NODE))) if at < leave => return Ok(false),
            Some(Ok(Answer::Failed(_, Code::NO_NODE))) => folders = core.folders(&place.leases),
            Some(Ok(Answer::Failed(_, code)) | Err(code)) => {
                return Err(fault::of_code(code, &place.leases));
            }
            _ => return Err(fault::odd("no list")),
        }
    }
    Err(fault::odd("the folder of permits is swept all the time"))
}

pub fn created_path(answer: Answer) -> Option<String> {
    match answer {
        Answer::Created { path, .. } => Some(path),
        _ => None,
    }
}
