//! The errors: one variant for each meaning.

use std::sync::Arc;
use std::{fmt, io};

use crate::Name;
use crate::store::{Broken, Process};

/// Why an operation failed. "Held by someone else" is never an error: it is `Ok(None)`.
///
/// Each variant is one meaning and its text says what to do next. Decide by variant, never by text.
/// [`source`](std::error::Error::source) is the [`io::Error`] of the system below it, where there is one.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::{Error, Lockkeeper};
///
/// match Lockkeeper::connect("redis+typo://localhost").await {
///     Err(Error::InvalidUrl { reason, .. }) => println!("{reason}"),       // names the stores there are
///     Err(error) if error.is_transient() => println!("try again: {error}"),
///     other => println!("{other:?}"),
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// A store makes them with the constructors:
///
/// ```
/// use std::error::Error as _;
/// use std::io;
/// use lockkeeper::Error;
///
/// let system = io::Error::from(io::ErrorKind::ConnectionRefused);
/// let error = Error::unavailable("shelf", format!("shelf:7000 cannot be reached: {system}")).caused_by(system);
/// let below = error.source().and_then(|source| source.downcast_ref::<io::Error>());
/// assert_eq!(below.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The store did not answer or could not work just now. Nothing was taken; trying again may succeed.
    #[non_exhaustive]
    Unavailable {
        /// The kind of store.
        store: &'static str,
        /// What happened and what to do.
        reason: String,
        /// The system's error, if there is one.
        system: Option<SystemError>,
    },
    /// The request may or may not have taken effect. An acquire in this state is undone in the background;
    /// a release goes on being tried there, and the lease ends it at the latest.
    #[non_exhaustive]
    OutcomeUnknown {
        /// The kind of store.
        store: &'static str,
        /// What happened.
        reason: String,
        /// The system's error, if there is one.
        system: Option<SystemError>,
    },
    /// The store is there but cannot be used as it is: a foreign or damaged file, missing permission.
    #[non_exhaustive]
    Refused {
        /// The kind of store.
        store: &'static str,
        /// What is wrong and what to do.
        reason: String,
        /// The system's error, if there is one.
        system: Option<SystemError>,
    },
    /// The store cannot do what was asked of it.
    #[non_exhaustive]
    Unsupported {
        /// The kind of store.
        store: &'static str,
        /// The missing ability.
        what: &'static str,
    },
    /// The name cannot be used.
    #[non_exhaustive]
    InvalidName {
        /// What is wrong and what to do.
        reason: String,
    },
    /// The store URL cannot be used. Secrets in it are not repeated here.
    #[non_exhaustive]
    InvalidUrl {
        /// What is wrong and what to do.
        reason: String,
    },
    /// An argument is out of its range.
    #[non_exhaustive]
    InvalidArgument {
        /// Which argument.
        what: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The caller would wait for itself for ever.
    #[non_exhaustive]
    WouldDeadlock {
        /// The lock.
        name: Name,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A safety limit was reached.
    #[non_exhaustive]
    LimitExceeded {
        /// Of what there are too many.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// The lock was lost: others may have had it since.
    #[non_exhaustive]
    Lost {
        /// The lock.
        name: Name,
        /// How it was lost.
        cause: LossCause,
        /// A process that holds the lock now, if the store was asked. [`release`](crate::Guard::release) and
        /// [`downgrade`](crate::WriteGuard::downgrade) always ask, the other verbs only to learn the cause.
        now_held_by: Option<Box<Process>>,
    },
    /// The keeper was closed.
    Closed,
    /// This process was forked from the one that connected the keeper. Only that one holds, waits and releases.
    Forked,
}

/// How a lock was lost.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::{Error, Lockkeeper, LossCause};
///
/// let keeper = Lockkeeper::connect("memory:cause-example").await?;
/// let guard = keeper.lock("report")?.acquire().await?;
/// keeper.break_lock("report", "it hangs").await?;
///
/// let Err(Error::Lost { cause: LossCause::Broken(broken), .. }) = guard.release().await else {
///     unreachable!("a lost lock is never released in silence");
/// };
/// assert_eq!(broken.reason, "it hangs");
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// An administrator broke it, for this reason and at this time.
    Broken(Broken),
    /// No renewal succeeded before its lease was about to end: the store was not available, or this process was stopped.
    NotRenewed,
    /// Its lease was a [fixed](crate::Lock::fixed_lease) one, and is over.
    LeaseOver,
    /// The store does not have the hold any more: its lease ended there, or its data were lost or removed. A break is reported as
    /// this if the store was not asked for the reason, or did not tell it within a second.
    NotHeld,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossCause::Broken(broken) => write!(f, "it was broken ({})", broken.reason),
            LossCause::NotRenewed => f.write_str("it was not renewed in time"),
            LossCause::LeaseOver => f.write_str("its fixed lease is over"),
            LossCause::NotHeld => f.write_str("the store no longer had it"),
        }
    }
}

/// An [`io::Error`] of the system, below an [`Error`]. Two are equal when they have the same kind and the same text.
///
/// ```
/// use std::io;
/// use lockkeeper::SystemError;
///
/// let full = SystemError::from(io::Error::from(io::ErrorKind::StorageFull));
/// assert_eq!(full.as_io().kind(), io::ErrorKind::StorageFull);
/// ```
#[derive(Debug, Clone)]
pub struct SystemError(Arc<io::Error>);

impl SystemError {
    /// The system's own error.
    pub fn as_io(&self) -> &io::Error {
        &self.0
    }
}

impl From<io::Error> for SystemError {
    fn from(error: io::Error) -> SystemError {
        SystemError(Arc::new(error))
    }
}

impl PartialEq for SystemError {
    fn eq(&self, other: &SystemError) -> bool {
        self.0.kind() == other.0.kind() && self.0.to_string() == other.0.to_string()
    }
}

impl Eq for SystemError {}

impl Error {
    /// [`Error::Unavailable`] of a kind of store.
    pub fn unavailable(store: &'static str, reason: impl Into<String>) -> Error {
        Error::Unavailable {
            store,
            reason: reason.into(),
            system: None,
        }
    }

    /// [`Error::OutcomeUnknown`] of a kind of store.
    pub fn outcome_unknown(store: &'static str, reason: impl Into<String>) -> Error {
        Error::OutcomeUnknown {
            store,
            reason: reason.into(),
            system: None,
        }
    }

    /// [`Error::Refused`] by a kind of store.
    pub fn refused(store: &'static str, reason: impl Into<String>) -> Error {
        Error::Refused {
            store,
            reason: reason.into(),
            system: None,
        }
    }

    /// [`Error::Unsupported`] by a kind of store.
    pub fn unsupported(store: &'static str, what: &'static str) -> Error {
        Error::Unsupported { store, what }
    }

    /// [`Error::InvalidName`] for this reason.
    pub fn invalid_name(reason: impl Into<String>) -> Error {
        Error::InvalidName {
            reason: reason.into(),
        }
    }

    /// [`Error::InvalidUrl`] for this reason, which must not have a secret of the URL in it.
    pub fn invalid_url(reason: impl Into<String>) -> Error {
        Error::InvalidUrl {
            reason: reason.into(),
        }
    }

    /// [`Error::InvalidArgument`] for this reason.
    pub fn invalid_argument(what: &'static str, reason: impl Into<String>) -> Error {
        Error::InvalidArgument {
            what,
            reason: reason.into(),
        }
    }

    /// The same error with the system's error as its [`source`](std::error::Error::source). An error that is not the
    /// store's stays as it is.
    #[must_use]
    pub fn caused_by(self, error: io::Error) -> Error {
        self.with_system(Some(error.into()))
    }

    /// The same error, with this error of the system.
    pub(crate) fn with_system(mut self, error: Option<SystemError>) -> Error {
        if let Error::Unavailable { system, .. }
        | Error::OutcomeUnknown { system, .. }
        | Error::Refused { system, .. } = &mut self
        {
            *system = error;
        }
        self
    }

    /// The system's error, if there is one.
    #[cfg_attr(
        not(any(feature = "redis", feature = "postgres", feature = "mysql")),
        allow(dead_code)
    )]
    pub(crate) fn system(&self) -> Option<&SystemError> {
        match self {
            Error::Unavailable { system, .. }
            | Error::OutcomeUnknown { system, .. }
            | Error::Refused { system, .. } => system.as_ref(),
            _ => None,
        }
    }

    /// The same failure of a request that may have taken effect.
    #[cfg_attr(not(any(feature = "sqlite", feature = "redis")), allow(dead_code))]
    pub(crate) fn in_doubt(self) -> Error {
        match self {
            Error::Unavailable {
                store,
                reason,
                system,
            }
            | Error::Refused {
                store,
                reason,
                system,
            } => Error::OutcomeUnknown {
                store,
                reason,
                system,
            },
            other => other,
        }
    }

    /// The same failure of a request that is safe to repeat.
    pub(crate) fn not_in_doubt(self) -> Error {
        match self {
            Error::OutcomeUnknown {
                store,
                reason,
                system,
            } => Error::Unavailable {
                store,
                reason,
                system,
            },
            other => other,
        }
    }

    /// Whether the same call may succeed later, without a change to the program or the store.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Error::Unavailable { .. } | Error::OutcomeUnknown { .. }
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unavailable { store, reason, .. } => {
                write!(f, "the {store} store is unavailable: {reason}")
            }
            Error::OutcomeUnknown { store, reason, .. } => {
                write!(f, "the {store} store may or may not have done this: {reason}")
            }
            Error::Refused { store, reason, .. } => {
                write!(f, "the {store} store cannot be used: {reason}")
            }
            Error::Unsupported { store, what } => write!(
                f,
                "the {store} store does not support {what}; `lockkeeper stores` lists what each can do"
            ),
            Error::InvalidName { reason } => write!(f, "invalid lock name: {reason}"),
            Error::InvalidUrl { reason } => write!(f, "invalid store URL: {reason}"),
            Error::InvalidArgument { what, reason } => write!(f, "invalid {what}: {reason}"),
            Error::WouldDeadlock { name, reason } => {
                write!(f, "acquiring {name:?} would deadlock: {reason}")
            }
            Error::LimitExceeded { what, limit } => {
                write!(f, "too many {what}: the limit is {limit}")
            }
            Error::Lost {
                name,
                cause,
                now_held_by,
            } => {
                write!(f, "the lock {name:?} was lost: {cause}; what it protected ")?;
                match now_held_by {
                    Some(process) => write!(f, "is now with {process}"),
                    None => f.write_str("may be in other hands"),
                }
            }
            Error::Closed => f.write_str("this keeper was closed; connect a new one"),
            Error::Forked => f.write_str(
                "this process was forked from the one that connected this keeper; connect a new one here (with a sqlite: \
                 store: exec, or connect only after the fork)",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unavailable { system, .. }
            | Error::OutcomeUnknown { system, .. }
            | Error::Refused { system, .. } => {
                let system = system.as_ref()?.as_io();
                Some(system)
            }
            _ => None,
        }
    }
}

/// Quotes input in a message, and cuts it if it is long.
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
