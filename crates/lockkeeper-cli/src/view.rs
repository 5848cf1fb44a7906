//! What a store knows about a lock, as JSON shows it. The fields are part of the command's interface.

use lockkeeper::store::{Broken, Holder, LockInfo, Mode, NodeState, NodeStatus};
use serde::Serialize;

use crate::output::{millis, unix_ms};

/// One lock.
#[derive(Debug, Serialize)]
pub struct LockView<'a> {
    pub name: &'a str,
    pub held: bool,
    /// Whether the store knows anything about the name.
    pub known: bool,
    pub holders: Vec<HolderView<'a>>,
    pub waiters: usize,
    pub last_token: Option<u64>,
    pub broken: Option<BrokenView<'a>>,
    /// How the nodes of a quorum are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeView>,
}

impl<'a> LockView<'a> {
    pub fn new(info: &'a LockInfo) -> LockView<'a> {
        LockView {
            name: &info.name,
            held: !info.holders.is_empty(),
            known: true,
            holders: info.holders.iter().map(HolderView::new).collect(),
            waiters: info.waiters,
            last_token: info.last_token.map(|token| token.get()),
            broken: info.broken.as_ref().map(BrokenView::new),
            nodes: Vec::new(),
        }
    }

    /// A name that the store knows nothing about.
    pub fn unknown(name: &'a str) -> LockView<'a> {
        LockView {
            name,
            held: false,
            known: false,
            holders: Vec::new(),
            waiters: 0,
            last_token: None,
            broken: None,
            nodes: Vec::new(),
        }
    }
}

/// One hold.
#[derive(Debug, Serialize)]
pub struct HolderView<'a> {
    pub owner: String,
    pub host: &'a str,
    pub pid: u32,
    pub program: &'a str,
    pub mode: String,
    /// Of a semaphore: how many permits this hold has, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<(u32, u32)>,
    pub token: u64,
    pub since_unix_ms: u64,
    pub remaining_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

impl<'a> HolderView<'a> {
    pub fn new(holder: &'a Holder) -> HolderView<'a> {
        let (mode, permits) = match holder.mode {
            Mode::Permit { limit, count } => ("permit".to_owned(), Some((count, limit))),
            mode => (mode.to_string(), None),
        };
        HolderView {
            owner: holder.claim.to_string(),
            host: &holder.process.host,
            pid: holder.process.pid,
            program: &holder.process.program,
            mode,
            permits,
            token: holder.token.get(),
            since_unix_ms: unix_ms(holder.since),
            remaining_ms: millis(holder.remaining),
            depth: holder.depth,
        }
    }
}

/// When and why a lock was broken.
#[derive(Debug, Serialize)]
pub struct BrokenView<'a> {
    pub reason: &'a str,
    pub at_unix_ms: u64,
}

impl<'a> BrokenView<'a> {
    pub fn new(broken: &'a Broken) -> BrokenView<'a> {
        BrokenView {
            reason: &broken.reason,
            at_unix_ms: unix_ms(broken.at),
        }
    }
}

/// How one node of a quorum is.
#[derive(Debug, Serialize)]
pub struct NodeView {
    pub node: String,
    /// up, behind, sitting_out or down.
    pub state: &'static str,
    /// For how long it still sits out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_in_ms: Option<u64>,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip)]
    pub text: String,
}

impl NodeView {
    pub fn new(status: &NodeStatus) -> NodeView {
        let (state, ready_in_ms, reason) = match &status.state {
            NodeState::Up => ("up", None, None),
            NodeState::Behind => ("behind", None, None),
            NodeState::SittingOut { ready_in } => ("sitting_out", Some(millis(*ready_in)), None),
            NodeState::Down { reason } => ("down", None, Some(reason.clone())),
            _ => ("other", None, None),
        };
        NodeView {
            node: status.node.clone(),
            state,
            ready_in_ms,
            reason,
            text: crate::output::plain(&status.state.to_string()),
        }
    }
}
