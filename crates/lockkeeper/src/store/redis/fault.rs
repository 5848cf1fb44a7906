//! What can go wrong with a request, and what that means to a user.

use ::redis::{ErrorKind, RedisError};

use crate::Error;

/// How the store calls itself in errors.
pub(super) const STORE: &str = "redis";

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// It was never sent.
    NotSent(String),
    /// It was sent, or may have been, and no answer came.
    Lost(String),
    /// The server answered with an error. It did nothing.
    Server(RedisError),
}

impl Fault {
    /// The fault of a request that changes something.
    pub fn of_change(self) -> Error {
        match self {
            Fault::Lost(reason) => Error::OutcomeUnknown {
                store: STORE,
                reason,
            },
            other => other.of_look(),
        }
    }

    /// The fault of a request that changes nothing.
    pub fn of_look(self) -> Error {
        match self {
            Fault::NotSent(reason) | Fault::Lost(reason) => unavailable(reason),
            Fault::Server(error) => explain(&error),
        }
    }
}

/// Whether the connection is of no more use after this answer: the server is no longer one to write to.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

/// A server's error in words. Its text never has a secret: the server does not repeat passwords.
pub(super) fn explain(error: &RedisError) -> Error {
    let said = words(error);
    match error.code() {
        Some("READONLY" | "MASTERDOWN") => unavailable(format!(
            "the server is a replica now and takes no locks ({said}); it is looked for again"
        )),
        Some("LOADING") => unavailable("the server is still loading its data".into()),
        Some("BUSY") => unavailable("a script of another client keeps the server busy".into()),
        Some("OOM") => unavailable(
            "the server is out of memory, so nothing was changed; raise `maxmemory` or remove keys"
                .into(),
        ),
        Some("MISCONF") => unavailable(format!(
            "the server cannot write to its disk and refuses changes ({said}); look at its log"
        )),
        Some("NOREPLICAS") => unavailable(format!(
            "the server has too few replicas to accept changes ({said})"
        )),
        Some("TRYAGAIN") => unavailable(
            "the cluster is moving the lock's slot to another node; its locks can be used when that is done".into(),
        ),
        Some("CLUSTERDOWN") => unavailable(format!(
            "the cluster is down: some slots have no master that most others can reach ({said})"
        )),
        Some("WRONGPASS" | "NOAUTH") => refused(
            "the server refuses the user or password; check them, and the user's ACL".into(),
        ),
        Some("NOPERM") => refused(format!(
            "the server's ACL does not allow this ({said}); docs/redis.md lists what a lock user needs"
        )),
        Some("WRONGTYPE") => refused(format!(
            "a key of the lock is used for something else ({said}); choose another name or a prefix"
        )),
        Some("MOVED" | "ASK") => unavailable(format!(
            "the nodes of the cluster do not agree who serves the lock's slot ({said}); for a cluster write \
             redis+cluster://"
        )),
        Some("CROSSSLOT") => refused(
            "the server is part of a cluster; write redis+cluster:// instead of redis://".into(),
        ),
        _ if error.kind() == ErrorKind::AuthenticationFailed => refused(
            "the server refuses the user or password; check them, and the user's ACL".into(),
        ),
        _ if error.is_io_error() || error.is_connection_dropped() => unavailable(said),
        _ => refused(said),
    }
}

/// The error's own text, on one line and bounded.
pub(super) fn words(error: &RedisError) -> String {
    let text: String = error.to_string().chars().take(300).collect();
    text.replace(['\n', '\r'], " ")
}

pub(super) fn unavailable(reason: String) -> Error {
    Error::Unavailable {
        store: STORE,
        reason,
    }
}

pub(super) fn refused(reason: String) -> Error {
    Error::Refused {
        store: STORE,
        reason,
    }
}
