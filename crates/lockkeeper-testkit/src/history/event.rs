//! What can happen, as histories tell it.

use lockkeeper::store;
use serde::{Deserialize, Serialize};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of [`Moment`](lockkeeper::clock::Moment).
    pub at: u64,
    /// In which process; unique for each one started.
    pub process: String,
    /// What.
    pub what: What,
}

/// What happened. An operation is numbered within its process; a hold goes by its acquire's number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// An operation is about to start. Without an outcome it counts as unknown: its process was killed.
    Invoke {
        /// Its number.
        op: u64,
        /// What it asks.
        call: Call,
    },
    /// The operation was answered.
    Ok {
        /// Its number.
        op: u64,
        /// The answer.
        answer: Answer,
    },
    /// The operation failed and certainly did nothing.
    Fail {
        /// Its number.
        op: u64,
        /// Why.
        reason: String,
    },
    /// Nobody knows whether the operation took effect.
    Unknown {
        /// Its number.
        op: u64,
        /// Why.
        reason: String,
    },
    /// The holder was told that it no longer holds.
    Lost {
        /// The acquire that began the hold.
        hold: u64,
    },
    /// The holder looked at its guard, which said that it holds.
    Look {
        /// The acquire that began the hold.
        hold: u64,
        /// When the look began, in nanoseconds: its process may have been stopped before it could write this.
        asked: u64,
        /// Until when the guard said to hold.
        deadline: u64,
    },
    /// A fault was made.
    Fault(Fault),
    /// Something is about to be broken: until the next [`What::Healed`] and a while longer, nobody is sure of its place
    /// in line.
    Trouble,
    /// The faults are over: from here on the locks have to work again.
    Healed,
    /// Something that nobody uses any more is still there.
    Left {
        /// What.
        what: String,
    },
    /// A write as the fenced resource itself remembers it.
    Entry(Entry),
}

/// What an operation asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// To hold a lock.
    Acquire {
        /// Which.
        lock: String,
        /// For whom: who may hold it again meanwhile.
        owner: String,
        /// How.
        mode: Mode,
        /// The acquires of one `MultiLock` share a number, the first one's: all of them are granted, or none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        together: Option<u64>,
    },
    /// To hold for reading what is held for writing, with nobody else in between.
    Downgrade {
        /// The acquire that began the hold for writing.
        hold: u64,
    },
    /// To see how many claims wait in the store.
    Inspect {
        /// For which lock.
        lock: String,
    },
    /// Something about a latch.
    Latch {
        /// Which.
        latch: String,
        /// What.
        ask: LatchAsk,
    },
    /// To go on holding.
    Renew {
        /// The acquire that began the hold.
        hold: u64,
    },
    /// To let go.
    Release {
        /// The acquire that began the hold.
        hold: u64,
        /// The owner that lets go.
        owner: String,
    },
    /// To end whatever holds there are, as an administrator.
    Break {
        /// Of which lock.
        lock: String,
    },
    /// To change a fenced resource from `base`, which was read before, to `value`.
    Write {
        /// Which.
        resource: String,
        /// The token of the hold under which it happens.
        token: u64,
        /// What was read.
        base: u64,
        /// What is to be written.
        value: u64,
    },
}

/// What is asked of a latch. A latch of a history is set once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatchAsk {
    /// To close it with this count.
    Set(u32),
    /// To count down by one.
    CountDown,
    /// To see its count.
    Read,
    /// To wait until it is open.
    Wait,
    /// To open it, whatever its count.
    Open,
}

/// What an operation was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The lock is held.
    Granted {
        /// The fencing token.
        token: u64,
        /// When the holder stops believing in it, in nanoseconds.
        deadline: u64,
        /// How deep the owner is in: 1 unless it held already.
        depth: u32,
    },
    /// Others hold it.
    Busy,
    /// The hold goes on.
    Renewed {
        /// The new deadline.
        deadline: u64,
    },
    /// The lock was let go of.
    Released,
    /// One level of re-entry was left.
    StillHeld {
        /// How many remain.
        depth: u32,
    },
    /// There was no such hold; nothing was changed.
    NotHeld,
    /// The guard was dropped by a healthy program on a healthy store. Nobody is told of the outcome, and yet the lock is let
    /// go of.
    Dropped,
    /// How many claims wait in the store.
    Waiting(usize),
    /// What the latch had left to count; for a wait, 0 when it was open.
    Count(u32),
    /// Whether the latch was changed.
    Changed(bool),
    /// The holds were ended.
    Broken,
    /// The resource took the write.
    Accepted {
        /// The resource's own count of accepted writes, with this one.
        seq: u64,
    },
    /// The resource refused the write: it has seen a higher token.
    Refused {
        /// That token.
        highest: u64,
    },
}

/// One accepted write, from the resource's own books.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Which resource.
    pub resource: String,
    /// Counts its accepted writes from 1.
    pub seq: u64,
    /// The token it came with.
    pub token: u64,
    /// What the writer had read.
    pub base: u64,
    /// What it wrote.
    pub value: u64,
}

/// A fault that a test makes or sees.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// A process is about to be killed: what it holds counts no longer. Proves something only if it held.
    Killed {
        /// Which.
        process: String,
    },
    /// A process was stopped for a while, and is still. Proves something only if it held.
    Stopped {
        /// Which.
        process: String,
    },
    /// A lock was broken by an administrator.
    Broken,
    /// A request did not arrive.
    RequestLost,
    /// A request arrived and its answer did not.
    ReplyLost,
    /// A message arrived late.
    Delayed,
    /// A message arrived twice.
    Repeated,
    /// Anything else.
    Other(String),
}

/// How a hold excludes others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It stands alone.
    Exclusive,
    /// It stands alone, and came in the order of asking.
    Fair,
    /// It stands alone.
    Write,
    /// It stands beside other readers.
    Read,
    /// It stands beside other permits up to the limit.
    Permits {
        /// How many there are.
        limit: u32,
        /// How many it takes.
        count: u32,
    },
}

impl Mode {
    /// Whether nobody else may hold beside it.
    pub fn is_alone(self) -> bool {
        matches!(self, Mode::Exclusive | Mode::Fair | Mode::Write)
    }
}

impl From<store::Mode> for Mode {
    fn from(mode: store::Mode) -> Mode {
        match mode {
            store::Mode::Read => Mode::Read,
            store::Mode::Write => Mode::Write,
            store::Mode::Fair => Mode::Fair,
            store::Mode::Permit { limit, count } => Mode::Permits { limit, count },
            _ => Mode::Exclusive,
        }
    }
}
