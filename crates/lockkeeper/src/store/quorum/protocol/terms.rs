//! What all clients of one set of nodes have to agree on.

use std::time::Duration;

use crate::MAX_LEASE;
use crate::clock::Moment;

/// The numbers of the protocol. [`Terms::new`] gives those that are safe; a test may weaken one of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terms {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many of them have to say yes.
    pub majority: usize,
    /// The longest lease.
    pub max_lease: Duration,
    /// How far ahead of a node's clock a token may be. At most the longest lease: a node that votes again is older than
    /// that, so its floor is behind its clock.
    pub lead: Duration,
    /// How far behind a node's clock a token may be. Token keys are kept for longer than this after their token, by the
    /// node's clock: so a node that forgot a token because its key ended takes none that is lower. The clock may be set
    /// back by the difference.
    pub lag: Duration,
    /// What two clocks may be apart after a lease: this part of it, in percent...
    pub drift_percent: u32,
    /// ...and this much more. A node's clock and its leases count in whole milliseconds.
    pub drift_least: Duration,
    /// How exactly a node tells for how long it is up.
    pub grain: Duration,
    /// For how long a node must be up before it votes.
    pub sit_out: Duration,
    /// For how long a node must be up to outlive every lease of before its start, whatever the clients' longest was.
    pub outlives: Duration,
}

impl Terms {
    /// The terms for this many nodes and leases of at most this.
    pub fn new(nodes: usize, max_lease: Duration) -> Terms {
        Terms::with_grain(nodes, max_lease, Duration::from_secs(1))
    }

    /// The terms for nodes that tell more exactly than Redis servers for how long they are up.
    pub fn with_grain(nodes: usize, max_lease: Duration, grain: Duration) -> Terms {
        Terms {
            nodes,
            majority: nodes / 2 + 1,
            max_lease,
            lead: max_lease,
            lag: Duration::from_secs(30 * 60),
            drift_percent: 1,
            drift_least: Duration::from_millis(2),
            grain,
            sit_out: max_lease + max_lease / 100 + grain,
            outlives: MAX_LEASE + MAX_LEASE / 100 + grain,
        }
    }

    /// What a lease of this length loses to clocks that run differently.
    pub fn drift(&self, lease: Duration) -> Duration {
        lease * self.drift_percent / 100 + self.drift_least
    }

    /// Until when a majority keeps a hold whose first request was sent at `sent`. Not after `sent` if the lease is
    /// shorter than what it loses.
    pub fn deadline(&self, sent: Moment, lease: Duration) -> Moment {
        sent + lease.saturating_sub(self.drift(lease))
    }

    /// How many nodes may be without a hold that is still valid.
    pub fn minority(&self) -> usize {
        self.nodes.saturating_sub(self.majority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safe_numbers() {
        let terms = Terms::new(5, Duration::from_secs(30));
        assert_eq!((terms.majority, terms.minority()), (3, 2));
        assert_eq!(Terms::new(4, terms.max_lease).majority, 3);
        assert_eq!(Terms::new(1, terms.max_lease).majority, 1);
        assert_eq!(terms.sit_out, Duration::from_millis(31_300));
        assert_eq!(
            terms.deadline(Moment::BOOT, Duration::from_secs(10)),
            Moment::BOOT + Duration::from_millis(9_898)
        );
        assert_eq!(
            terms.deadline(Moment::BOOT, Duration::from_millis(1)),
            Moment::BOOT
        );
    }
}
