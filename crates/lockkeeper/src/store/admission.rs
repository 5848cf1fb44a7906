//! Whether a Redis server may vote in a quorum, or may have forgotten holds. The quorum decides it when a connection is made,
//! and the connection keeps it.

#[cfg(feature = "redlock")]
use std::time::Duration;

use crate::clock::Moment;

/// From when on a node may vote, and above which token. It belongs to the connection that was checked: after a restart the
/// node cannot be reached over that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Admission {
    pub(in crate::store) votes_from: Moment,
    pub(in crate::store) forgot_until: Moment,
    /// Whether the node has the same longest lease on record as the client. A node that has none on record does not vote.
    pub agrees: bool,
    /// The node may have forgotten tokens up to this one. Each request for a vote carries it.
    pub floor: u64,
}

#[cfg(feature = "redlock")]
impl Admission {
    /// For how long the node may not vote and not be re-added; `None` when it may.
    pub fn sits_out(&self, now: Moment) -> Option<Duration> {
        let left = self.votes_from.since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Whether the node sits out because it restarted while the client was connected. It has then forgotten its votes before
    /// the restart, and has given none since. A node that sits out for another reason may have given some.
    pub fn forgot(&self, now: Moment) -> bool {
        self.forgot_until > now
    }
}
