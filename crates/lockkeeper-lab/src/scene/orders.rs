//! What an actor is told and what it says: lines of JSON.

use serde::{Deserialize, Serialize};

/// The part of an actor: its first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Casting {
    /// Its name.
    pub name: String,
    /// Which lock it takes.
    pub lock: LockOrder,
    /// The URL of the stock that it sells from.
    pub stock: Option<String>,
}

/// Which lock an actor takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockOrder {
    /// `none`, `mutex`, `ours`, or a naive lock of the testkit.
    pub kind: String,
    /// The store.
    pub url: String,
    /// The lock's name.
    pub name: String,
    /// The lease.
    pub lease_ms: u64,
    /// Whether it is renewed.
    pub renewed: bool,
}

/// One thing to do. They are done one after the other.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Wait for the lock, at most so long.
    Acquire {
        /// How long.
        within_ms: u64,
    },
    /// Take it once more, as the same owner, as a nested call does.
    Again {
        /// How long.
        within_ms: u64,
    },
    /// Leave what `Again` took.
    Leave,
    /// Look whether it is still held, where the lock can tell.
    Look,
    /// Read the stock, in order to change it.
    Read,
    /// Think for so long. Work under a lock that knows of its loss stops then.
    Work {
        /// How long.
        ms: u64,
    },
    /// Write one less than was read, unless that was nothing or the lock is known to be lost.
    Write,
    /// The same without another look at the lock: what follows a look too late.
    WriteBlindly,
    /// Let go.
    Release,
    /// All of it: wait for the lock, read, think, write, let go. An actor that does not get the lock does nothing.
    Sell {
        /// How long to wait.
        within_ms: u64,
        /// How long to think.
        thinks_ms: u64,
    },
}

/// What an actor says, and when it happened, in nanoseconds since boot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    /// When.
    pub at: u64,
    /// What.
    pub event: Event,
}

/// What happened to an actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It can be told what to do.
    Ready,
    /// It asked for the lock.
    Asked,
    /// It got it.
    Acquired {
        /// Its token, if the lock has some.
        token: Option<u64>,
        /// Until when it believes, in nanoseconds since boot, unless renewed; `None`: until it is told.
        until: Option<u64>,
    },
    /// It gave up waiting.
    Busy,
    /// A renewal has moved what it believes.
    BelievesUntil {
        /// In nanoseconds since boot.
        until: u64,
    },
    /// A renewal is overdue.
    AtRisk,
    /// It knows that it holds no more.
    Lost,
    /// It took the lock again.
    Entered {
        /// How often it has it now.
        depth: u32,
    },
    /// It left, and still holds.
    Left {
        /// How often it still has it.
        depth: u32,
    },
    /// What a look said.
    Looked {
        /// Whether it is held.
        held: bool,
    },
    /// It read the stock.
    Read {
        /// What it saw.
        left: i64,
    },
    /// It has thought enough.
    Worked,
    /// Its work was stopped because the lock was lost.
    Stopped,
    /// It sold one.
    Sold {
        /// What it wrote.
        left: i64,
    },
    /// It saw that there was nothing to sell.
    SoldOut,
    /// The stock refused its token.
    Refused {
        /// The highest token that the stock had seen.
        seen: u64,
    },
    /// It did not write, because it knew that the lock was lost.
    Abstained,
    /// It is about to let go.
    Releases,
    /// It let go.
    Released,
    /// It did not hold what it released.
    NotHeld,
    /// The store could not do it.
    Failed {
        /// Why.
        message: String,
    },
    /// Its process has ended. Said for it.
    Ended,
}
