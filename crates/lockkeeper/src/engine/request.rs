//! What a caller asks for when it acquires a lock.

use std::time::Duration;

use crate::Label;
use crate::clock::Moment;
use crate::owner::OwnerId;
use crate::store::Mode;

/// How, for how long and by whom a lock is wanted, and how long the caller waits for it.
#[derive(Clone, Debug)]
pub(crate) struct AcquireRequest {
    pub mode: Mode,
    pub lease: LeaseKind,
    /// A label that is not the keeper's.
    pub label: Option<Label>,
    pub owner: Option<OwnerId>,
    pub wait_limit: WaitLimit,
}

impl AcquireRequest {
    /// Whether the process's claim will do, which tasks share: it has the keeper's label and lease.
    pub fn is_usual(&self) -> bool {
        self.lease == LeaseKind::Usual && self.label.is_none()
    }
}

/// The lease that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// The keeper's lease, renewed. Tasks may share such a hold.
    Usual,
    /// Another lease, renewed.
    Renewed(Duration),
    /// A lease that ends by itself.
    Fixed(Duration),
}

impl LeaseKind {
    /// Its length, if the keeper's is `usual`.
    pub fn length(self, usual: Duration) -> Duration {
        match self {
            LeaseKind::Usual => usual,
            LeaseKind::Renewed(length) | LeaseKind::Fixed(length) => length,
        }
    }

    pub fn is_renewed(self) -> bool {
        !matches!(self, LeaseKind::Fixed(_))
    }
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// Not at all.
    NoWait,
    /// Until a moment.
    Until(Moment),
    /// For ever.
    Forever,
}

impl WaitLimit {
    pub fn for_at_most(d: Duration) -> WaitLimit {
        WaitLimit::Until(Moment::now() + d)
    }

    /// Whether the caller waits at all.
    pub fn waits(self) -> bool {
        self != WaitLimit::NoWait
    }

    pub fn deadline(self) -> Moment {
        match self {
            WaitLimit::NoWait => Moment::BOOT,
            WaitLimit::Until(moment) => moment,
            WaitLimit::Forever => Moment::NEVER,
        }
    }
}
