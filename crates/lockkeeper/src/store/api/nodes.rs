//! The nodes of a store: the state of each, and whether it keeps a hold.

use std::fmt;
use std::time::Duration;

/// The state of one node of a store that has several.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:").await?;
/// for status in keeper.nodes() {
///     println!("{}: {}", status.node, status.state);
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Where it is.
    pub node: String,
    /// Its state.
    pub state: NodeState,
}

impl NodeStatus {
    /// The node at this address is in this state.
    pub fn new(node: impl Into<String>, state: NodeState) -> NodeStatus {
        NodeStatus {
            node: node.into(),
            state,
        }
    }
}

/// The state of a node.
///
/// ```
/// use lockkeeper::store::{NodeState, NodeStatus};
/// let up = |nodes: &[NodeStatus]| nodes.iter().filter(|node| node.state == NodeState::Up).count();
/// assert_eq!(up(&[NodeStatus::new("a:6379", NodeState::Up)]), 1);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeState {
    /// It votes.
    Up,
    /// It is connected, but has not answered a request in time. It gets no more requests until it does.
    Behind,
    /// It started not long ago and may have forgotten locks, so it does not vote yet.
    SittingOut {
        /// How long until it votes.
        ready_in: Duration,
    },
    /// It can be reached but does not vote: it is not known which longest lease its clients have agreed on.
    NotVoting {
        /// Why that is not known.
        reason: String,
    },
    /// It cannot be reached or used.
    Down {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeState::Up => f.write_str("is up"),
            NodeState::Behind => f.write_str("is behind: it did not answer in time"),
            NodeState::SittingOut { ready_in } => write!(
                f,
                "sits out for {:.1}s more: it has just started and may have forgotten locks",
                ready_in.as_secs_f64()
            ),
            NodeState::NotVoting { reason } => write!(f, "does not vote: {reason}"),
            NodeState::Down { reason } => write!(f, "is down: {reason}"),
        }
    }
}

/// Whether a node is known to keep a hold.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:").await?;
/// let guard = keeper.lock("job")?.acquire().await?;
/// for vote in guard.votes().unwrap_or_default() {          // on redlock:
///     println!("{} {}", vote.node, if vote.holds { "keeps it" } else { "does not keep it" });
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeVote {
    /// Which node.
    pub node: String,
    /// Whether it keeps the hold, by its last answer.
    pub holds: bool,
}

impl NodeVote {
    /// Whether the node at this address keeps a hold.
    pub fn new(node: impl Into<String>, holds: bool) -> NodeVote {
        NodeVote {
            node: node.into(),
            holds,
        }
    }
}
