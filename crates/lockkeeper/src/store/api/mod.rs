//! What a [`Store`](crate::store::Store) is asked and what it returns: plain data that imports nothing of a store.
//!
//! `claim` is one try to hold a name and what became of it; `request` has the other verbs; `subscription` carries hints.
//! `info` is what people see of a lock. `capabilities` says what a store can do, and `nodes` how its servers are.

mod capabilities;
mod claim;
mod info;
mod nodes;
mod request;
mod subscription;

pub use self::capabilities::{
    Capabilities, Fencing, Health, LeaseEnd, Reach, TimeAuthority, Wakeups,
};
pub(crate) use self::claim::may_stand_beside;
pub use self::claim::{Attempt, Claim, ClaimId, DirectGrant, Grant, KeeperId, Mode};
pub use self::info::{Broken, Holder, LockInfo, MAX_LISTED, Process, Waiter};
pub use self::nodes::{NodeState, NodeStatus, NodeVote};
pub use self::request::{
    Break, BreakOutcome, BreakTarget, LatchOp, LatchRequest, LatchState, Release, Released,
    Renewal, Renewed,
};
pub(in crate::store) use self::subscription::GrantSlot;
pub use self::subscription::{Interest, Subscription};
