//! What can go wrong, by meaning.

use std::time::Duration;

use crate::Name;
use crate::duration::typed;

/// Why an operation failed. "Held by someone else" is never an error: it is `Ok(None)`.
///
/// Each variant is one meaning and its text says what to do next. Decide by variant, never by text.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::{Error, Lockkeeper};
///
/// match Lockkeeper::connect("redis+typo://localhost").await {
///     Err(Error::InvalidUrl { reason }) => println!("{reason}"),       // names the stores there are
///     Err(error) if error.is_transient() => println!("try again: {error}"),
///     other => println!("{other:?}"),
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store did not answer or could not work just now. Nothing was taken; trying again may succeed.
    #[error("the {store} store is unavailable: {reason}")]
    Unavailable {
        /// The kind of store.
        store: &'static str,
        /// What happened and what to do.
        reason: String,
    },
    /// The request may or may not have taken effect. An acquire in this state is undone in the background;
    /// a release goes on being tried there, and the lease ends it at the latest.
    #[error("the {store} store may or may not have done this: {reason}")]
    OutcomeUnknown {
        /// The kind of store.
        store: &'static str,
        /// What happened.
        reason: String,
    },
    /// The store is there but cannot be used as it is: a foreign or damaged file, missing permission.
    #[error("the {store} store cannot be used: {reason}")]
    Refused {
        /// The kind of store.
        store: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The store cannot do what was asked of it.
    #[error(
        "the {store} store does not support {what}; `lockkeeper stores` lists what each can do"
    )]
    Unsupported {
        /// The kind of store.
        store: &'static str,
        /// The missing ability.
        what: &'static str,
    },
    /// The name cannot be used.
    #[error("invalid lock name: {reason}")]
    InvalidName {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The store URL cannot be used. Secrets in it are not repeated here.
    #[error("invalid store URL: {reason}")]
    InvalidUrl {
        /// What is wrong and what to do.
        reason: String,
    },
    /// An argument is out of its range.
    #[error("invalid {what}: {reason}")]
    InvalidArgument {
        /// Which argument.
        what: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Going on would wait for oneself for ever.
    #[error("acquiring {name:?} would deadlock: {reason}")]
    WouldDeadlock {
        /// The lock.
        name: Name,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A safety limit was reached.
    #[error("too many {what}: the limit is {limit}")]
    LimitExceeded {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// The lock was lost: its lease could not be renewed in time, or it was broken.
    #[error("the lock {name:?} was lost; what it protected may now be in other hands")]
    Lost {
        /// The lock.
        name: Name,
    },
    /// The keeper was closed.
    #[error("this keeper was closed; connect a new one")]
    Closed,
    /// This process was forked from the one that connected the keeper. Only that one holds, waits and releases.
    #[error(
        "this process was forked from the one that connected this keeper; connect a new one here (with a sqlite: store: \
         exec, or connect only after the fork)"
    )]
    Forked,
}

impl Error {
    /// Whether the same call may succeed later without anyone changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Error::Unavailable { .. } | Error::OutcomeUnknown { .. }
        )
    }
}

/// The shortest lease: half of it is the safety margin, see `docs/guarantees.md`.
pub const MIN_LEASE: Duration = Duration::from_millis(100);
/// The longest lease.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks that a lease is within range.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        what: "lease",
        reason: format!(
            "{} is outside {} to {}",
            typed(lease),
            typed(MIN_LEASE),
            typed(MAX_LEASE)
        ),
    })
}

/// What was given, quoted, as much of it as belongs in a message.
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_input_is_cut_in_messages() {
        assert_eq!(excerpt("short"), "\"short\"");
        let long = excerpt(&"订".repeat(1_000_000));
        assert_eq!(long.chars().count(), 43);
    }
}
