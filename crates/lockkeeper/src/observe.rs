//! What a keeper tells about its locks, as it happens.

use std::time::Duration;

use crate::clock::Moment;
use crate::{Error, Name, Token};

/// The `tracing` target of warnings about how a store is set up: a server that evicts keys, a password in plain text, an
/// even number of nodes. Each is worth showing to whoever set it up, and the command does.
pub const SETUP_TARGET: &str = "lockkeeper::setup";

/// Something that happened to a lock of this keeper. The same events go to `tracing`.
///
/// ```
/// fn line(event: &lockkeeper::Event<'_>) -> String {
///     match event {
///         lockkeeper::Event::Acquired { name, waited, .. } => format!("{name} after {waited:?}"),
///         lockkeeper::Event::Lost { name } => format!("{name} LOST"),
///         other => format!("{other:?}"),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A lock was acquired (not re-entered).
    Acquired {
        /// The lock.
        name: &'a Name,
        /// Its token.
        token: Token,
        /// How long the caller waited.
        waited: Duration,
    },
    /// A lock was released by its last guard.
    Released {
        /// The lock.
        name: &'a Name,
        /// Its token.
        token: Token,
        /// How long it was held.
        held: Duration,
    },
    /// A renewal is overdue; the lock is lost at `deadline` unless one succeeds.
    AtRisk {
        /// The lock.
        name: &'a Name,
        /// When it counts as lost.
        deadline: Moment,
    },
    /// The lock was lost, for good.
    Lost {
        /// The lock.
        name: &'a Name,
    },
    /// Whoever waits for the lock waits for the store, which cannot grant it now. It is tried again.
    Waiting {
        /// The lock.
        name: &'a Name,
        /// Why, and on a quorum which nodes are the matter.
        error: &'a Error,
    },
    /// A renewal failed; it is tried again until the deadline.
    RenewalFailed {
        /// The lock.
        name: &'a Name,
        /// Why.
        error: &'a Error,
        /// When it counts as lost.
        deadline: Moment,
    },
}

/// Receives the events of a keeper: for metrics, logs or alarms.
///
/// Called on the thread where the event happens, which may be the one that renews every lock of the keeper:
/// return quickly and do not block. A panic in here is caught.
///
/// ```
/// # #[derive(Debug, Default)]
/// struct LostLocks(std::sync::atomic::AtomicU64);
///
/// impl lockkeeper::Observer for LostLocks {
///     fn event(&self, event: &lockkeeper::Event<'_>) {
///         if let lockkeeper::Event::Lost { .. } = event {
///             self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}
