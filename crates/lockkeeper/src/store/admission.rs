//! From when on a server that may have forgotten holds votes: what a quorum concludes of a connection, and the connection
//! keeps for it.

#[cfg(feature = "redlock")]
use std::time::Duration;

use crate::clock::Moment;

/// From when on a node may vote, and above which token. Belongs to the connection that was checked: over that no
/// later run of the node can be reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Admission {
    pub(in crate::store) votes_from: Moment,
    pub(in crate::store) forgot_until: Moment,
    /// Whether the node has the same longest lease on record as the client. One that has none votes for nobody until it
    /// has one.
    pub agrees: bool,
    /// The node may have forgotten tokens up to this one; goes into each request for a vote.
    pub floor: u64,
}

#[cfg(feature = "redlock")]
impl Admission {
    /// For how long the node may not vote and not be re-added; `None` when it may.
    pub fn sits_out(&self, now: Moment) -> Option<Duration> {
        let left = self.votes_from.since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Whether the node sits out because it restarted under the client's eyes: what it voted for before that it has forgotten,
    /// and it has voted for nobody else since. A node that sits out for another reason may have.
    pub fn forgot(&self, now: Moment) -> bool {
        self.forgot_until > now
    }
}
