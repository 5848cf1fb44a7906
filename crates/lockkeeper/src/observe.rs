//! Events of a keeper's locks, as they happen.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::Mode;
use crate::{Error, LossCause, Name, Token};

/// The `tracing` target of warnings about how a store is set up: a server that evicts keys, a password in plain text, an
/// even number of nodes. Each is worth showing to the person who set it up, and the command does.
pub const SETUP_TARGET: &str = "lockkeeper::setup";

/// Something that happened to a lock of this keeper, or to its store. The same events go to `tracing`.
///
/// `docs/observing.md` in the repository has a table of them, their levels in `tracing`, and how to count them. These belong
/// together:
///
/// - Each [`Waiting`](Event::Waiting) is followed by exactly one [`Waited`](Event::Waited), which says how the wait ended.
/// - Each [`Acquired`](Event::Acquired) is followed by one [`Released`](Event::Released), when its last guard is gone and the
///   store has answered. If the lock was lost, [`Lost`](Event::Lost) comes once, and before that.
/// - Each [`StoreAway`](Event::StoreAway) is followed by one [`StoreBack`](Event::StoreBack), once the store works again.
///
/// ```
/// use lockkeeper::{Event, WaitEnd};
///
/// fn line(event: &Event<'_>) -> String {
///     match event {
///         Event::Acquired { name, waited, .. } => format!("{name} after {waited:?}"),
///         Event::Waited { name, end: WaitEnd::TimedOut, waited, .. } => format!("{name}: not free within {waited:?}"),
///         Event::Lost { name, token, cause, .. } => format!("{name} LOST: {cause}; refuse token {token}"),
///         other => format!("{}: {:?}", other.kind(), other.name()),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An acquire waits: the lock is not free, or the store is away. One [`Waited`](Event::Waited) follows.
    #[non_exhaustive]
    Waiting {
        /// The lock.
        name: &'a Name,
        /// How it is wanted.
        mode: Mode,
    },
    /// The wait of an acquire has ended.
    #[non_exhaustive]
    Waited {
        /// The lock.
        name: &'a Name,
        /// How it was wanted.
        mode: Mode,
        /// How long it waited.
        waited: Duration,
        /// How the wait ended.
        end: WaitEnd<'a>,
    },
    /// A try found the lock held by another, and did not wait.
    #[non_exhaustive]
    Busy {
        /// The lock.
        name: &'a Name,
        /// How it was wanted.
        mode: Mode,
    },
    /// A lock was acquired (not re-entered).
    #[non_exhaustive]
    Acquired {
        /// The lock.
        name: &'a Name,
        /// Its token.
        token: Token,
        /// How it is held.
        mode: Mode,
        /// How long the acquire took.
        waited: Duration,
    },
    /// The last guard of a lock is gone. Unless the lock was lost or [`ReleaseFailed`](Event::ReleaseFailed) came before,
    /// the lock is free, or the next in the queue has it.
    #[non_exhaustive]
    Released {
        /// The lock.
        name: &'a Name,
        /// Its token.
        token: Token,
        /// How it was held.
        mode: Mode,
        /// How long it was held.
        held: Duration,
    },
    /// The store did not confirm a release. It is tried again in the background until the lease is over, which ends the
    /// hold at the latest. Told once for a hold.
    #[non_exhaustive]
    ReleaseFailed {
        /// The lock.
        name: &'a Name,
        /// Its token.
        token: Token,
        /// How it was held.
        mode: Mode,
        /// Why.
        error: &'a Error,
    },
    /// A renewal is overdue; the lock is lost at `deadline` unless one succeeds. A fixed lease is never at risk: its end is
    /// meant.
    #[non_exhaustive]
    AtRisk {
        /// The lock.
        name: &'a Name,
        /// Its token.
        token: Token,
        /// How it is held.
        mode: Mode,
        /// When it counts as lost.
        deadline: Moment,
    },
    /// The lock was lost, for good. Told once for a hold, and before [`Released`](Event::Released).
    #[non_exhaustive]
    Lost {
        /// The lock.
        name: &'a Name,
        /// The token of the task that had it last.
        token: Token,
        /// How it was held.
        mode: Mode,
        /// Why. Where the store says that it has the hold no more, it is asked for the reason of a break, for a second at most:
        /// [`lost`](crate::Guard::lost) may come before this event.
        cause: LossCause,
    },
    /// A renewal failed; it is tried again until the deadline. Told once for a hold, until a renewal succeeds.
    #[non_exhaustive]
    RenewalFailed {
        /// The lock.
        name: &'a Name,
        /// Its token.
        token: Token,
        /// How it is held.
        mode: Mode,
        /// Why.
        error: &'a Error,
        /// When it counts as lost.
        deadline: Moment,
    },
    /// The store does not respond, or cannot work just now. Acquires wait for it, and holds last as long as their leases. At
    /// most once a second.
    #[non_exhaustive]
    StoreAway {
        /// The kind of store.
        store: &'static str,
        /// Why, and on a quorum which nodes fail.
        error: &'a Error,
    },
    /// The store works again.
    #[non_exhaustive]
    StoreBack {
        /// The kind of store.
        store: &'static str,
        /// How long it was away.
        away: Duration,
    },
}

impl<'a> Event<'a> {
    /// The lock that the event is about; `None` if it is about the store.
    pub fn name(&self) -> Option<&'a Name> {
        match self {
            Event::Waiting { name, .. }
            | Event::Waited { name, .. }
            | Event::Busy { name, .. }
            | Event::Acquired { name, .. }
            | Event::Released { name, .. }
            | Event::ReleaseFailed { name, .. }
            | Event::AtRisk { name, .. }
            | Event::Lost { name, .. }
            | Event::RenewalFailed { name, .. } => Some(name),
            Event::StoreAway { .. } | Event::StoreBack { .. } => None,
        }
    }

    /// What happened, in one word: the label of a counter. The end of a wait is a word of its own.
    ///
    /// `waiting`, then `granted`, `timed_out`, `cancelled` or `failed`; `busy`, `acquired`, `released`, `release_failed`,
    /// `at_risk`, `lost`, `renewal_failed`, `store_away`, `store_back`.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Waiting { .. } => "waiting",
            Event::Waited { end, .. } => end.kind(),
            Event::Busy { .. } => "busy",
            Event::Acquired { .. } => "acquired",
            Event::Released { .. } => "released",
            Event::ReleaseFailed { .. } => "release_failed",
            Event::AtRisk { .. } => "at_risk",
            Event::Lost { .. } => "lost",
            Event::RenewalFailed { .. } => "renewal_failed",
            Event::StoreAway { .. } => "store_away",
            Event::StoreBack { .. } => "store_back",
        }
    }
}

/// How a wait for a lock ended.
///
/// ```
/// fn is_alarming(end: &lockkeeper::WaitEnd<'_>) -> bool {
///     matches!(end, lockkeeper::WaitEnd::TimedOut | lockkeeper::WaitEnd::Failed(_))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WaitEnd<'a> {
    /// The lock was acquired.
    Granted,
    /// The lock was not free in time.
    TimedOut,
    /// The acquire was dropped, as by a `select!` or a time-out of the caller's.
    Cancelled,
    /// The acquire failed with this error: the store was away for too long, or the keeper was closed.
    Failed(&'a Error),
}

impl WaitEnd<'_> {
    fn kind(self) -> &'static str {
        match self {
            WaitEnd::Granted => "granted",
            WaitEnd::TimedOut => "timed_out",
            WaitEnd::Cancelled => "cancelled",
            WaitEnd::Failed(_) => "failed",
        }
    }
}

/// Receives the events of a keeper: for metrics, logs or alarms.
///
/// Called on the thread where the event happens, which may be the one that renews every lock of the keeper:
/// return quickly and do not block. It may drop guards and call what does not wait. A panic in here is caught.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// /// How often each thing happened to each lock.
/// #[derive(Default)]
/// struct Counts(Mutex<HashMap<(String, &'static str), u64>>);
///
/// impl lockkeeper::Observer for Counts {
///     fn event(&self, event: &lockkeeper::Event<'_>) {
///         let name = event.name().map(|name| name.to_string()).unwrap_or_default();
///         *self.0.lock().unwrap().entry((name, event.kind())).or_default() += 1;
///     }
/// }
///
/// let counts = Arc::new(Counts::default());
/// let keeper = lockkeeper::Lockkeeper::builder().url("memory:").observer(counts.clone()).connect().await?;
/// let guard = keeper.lock("stock")?.acquire().await?;
/// assert!(keeper.lock("stock")?.acquire_within(Duration::from_millis(10)).await?.is_none());
/// assert_eq!(counts.0.lock().unwrap()[&("stock".to_owned(), "timed_out")], 1);
/// guard.release().await?;
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}
