//! What can go wrong with a request, and what that means to a user.

use super::config::KIND;
use super::login::Denied;
use super::reply::ServerError;
use crate::Error;

/// How the store calls itself in errors.
pub(super) const STORE: &str = "mysql";

/// There is no such table.
pub(super) const NO_TABLE: u16 = 1146;

/// Why a request has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It was never sent.
    NotSent(Error),
    /// It was sent, or may have been, and no answer came.
    Lost(String),
    /// The server answered with an error. What was not committed is undone.
    Server(ServerError),
}

impl Fault {
    /// The fault of a request that changes something.
    pub fn of_change(self) -> Error {
        match self {
            Fault::Lost(reason) => Error::outcome_unknown(STORE, reason),
            other => other.of_look(),
        }
    }

    /// The fault of a request that changes nothing.
    pub fn of_look(self) -> Error {
        match self {
            Fault::NotSent(error) => error,
            Fault::Lost(reason) => KIND.unavailable(reason),
            Fault::Server(error) => explain(&error),
        }
    }

    /// Nothing was done, and the same request may succeed at once: a deadlock, a row that another keeps.
    pub fn may_pass(&self) -> bool {
        matches!(self, Fault::Server(error) if matches!(error.code, 1020 | 1205 | 1213 | 3572))
    }
}

/// Whether the connection is of no more use after this: the server is no longer one to write to, or ends.
pub(super) fn ends_connection(error: &ServerError) -> bool {
    matches!(
        error.code,
        // Read only, or shutting down; killed; a time-out of ours or its; a node of a cluster that is not ready.
        1053 | 1290 | 1792 | 1836 | 1927 | 4031 | 1047 | 3100
    )
}

/// Whether a statement that commits by itself may have been done all the same: the error came with its commit, not before.
pub(super) fn is_of_commit(error: &ServerError) -> bool {
    // The commit, its undoing, a file such as the binary log, or anything; a disk that is full may be that of the log.
    matches!(error.code, 1180 | 1181 | 1026 | 1598 | 1105 | 3 | 28 | 1021)
}

/// A server's error in words. The server repeats no password.
pub(super) fn explain(error: &ServerError) -> Error {
    let (code, said) = (error.code, &error.message);
    match code {
        1290 | 1836 | 1792 => KIND.unavailable(format!(
            "the server is read only now and takes no locks ({said}); it is looked for again"
        )),
        1040 | 1203 | 1226 => KIND.unavailable(format!(
            "the server has too many connections ({said}); a keeper needs one, and a second while it waits: raise max_connections"
        )),
        1020 | 1205 | 1213 | 1969 | 3024 | 3572 | 1317 => KIND.unavailable(format!(
            "another transaction was in the way, and nothing was done ({said})"
        )),
        1053 | 1927 | 4031 | 1047 | 3100 => KIND.unavailable(format!("the server ends the connection ({said})")),
        1114 | 1021 | 3 | 28 => KIND.unavailable(format!(
            "the server's disk is full, so nothing was changed ({said})"
        )),
        1045 | 1698 | 1130 => KIND.refused(format!(
            "the server refuses the user or password ({said}); check them, and from which host the user may connect"
        )),
        1044 | 1142 | 1143 | 1227 | 1370 => KIND.refused(format!(
            "the user may not do this ({said}); run what `lockkeeper schema mysql` prints as an administrator"
        )),
        1049 => KIND.refused(format!("{said}; run CREATE DATABASE for it first")),
        1146 | 1054 | 1305 => KIND.refused(format!(
            "the tables are not there or are not ours ({said}); run what `lockkeeper schema mysql` prints as an administrator"
        )),
        _ => KIND.refused(format!("the server says {code}: {said}")),
    }
}

/// Why a login failed, in words.
pub(super) fn denied(server: &dyn std::fmt::Display, why: Denied) -> Error {
    match why {
        Denied::Lost(error) => KIND.unavailable(format!("{server} ended the login: {error}")),
        Denied::Server(error) => explain(&error),
        Denied::NeedsTls => KIND.refused(format!(
            "{server} has to see the password (caching_sha2_password), and the way to it is not private; {}",
            KIND.use_tls
        )),
        Denied::Plugin(plugin) => KIND.refused(format!(
            "{server} asks for a login by {plugin:?}, which is not known here; let the user log in by mysql_native_password or \
             caching_sha2_password"
        )),
        Denied::TooOld(version) => too_old(server, &version),
    }
}

/// Refuses a server that is not one of those whose statements we know.
pub(super) fn too_old(server: &dyn std::fmt::Display, version: &str) -> Error {
    KIND.refused(format!(
        "{server} is too old or no MySQL server ({version:?}); there has to be MySQL 8.0, MariaDB 10.6 or later"
    ))
}
