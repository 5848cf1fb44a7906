//! What can go wrong with a request, and what that means to a user.

use ::redis::{ErrorKind, RedisError};

use crate::Error;
use crate::error::SystemError;

/// How the store calls itself in errors.
pub(super) const STORE: &str = "redis";

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(in crate::store) enum Fault {
    /// It was never sent.
    NotSent(Away),
    /// It was sent, or may have been, and no answer came.
    Lost(String),
    /// The server answered with an error. It did nothing, unless [`Fault::came_midway`].
    Server(RedisError),
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(in crate::store) struct Away {
    pub reason: String,
    /// What the system said, if it did.
    pub system: Option<SystemError>,
}

impl From<String> for Away {
    fn from(reason: String) -> Away {
        let system = None;
        Away { reason, system }
    }
}

impl From<&str> for Away {
    fn from(reason: &str) -> Away {
        Away::from(reason.to_owned())
    }
}

impl Away {
    fn told(self) -> Error {
        unavailable(self.reason).with_system(self.system)
    }
}

impl Fault {
    /// The fault of a request that changes something.
    pub fn of_change(self) -> Error {
        match self {
            Fault::Lost(reason) => Error::outcome_unknown(STORE, reason),
            other => other.of_look(),
        }
    }

    /// The server does not have the script, which has to be sent in full.
    pub fn is_unknown_script(&self) -> bool {
        matches!(self, Fault::Server(error) if error.code() == Some("NOSCRIPT"))
    }

    /// A script may have come to this after it had changed something. A server that takes no changes, or is out of
    /// memory, says so at the first one.
    pub fn came_midway(&self) -> bool {
        matches!(self, Fault::Server(error) if matches!(code(error), Some("ERR" | "NOPERM" | "WRONGTYPE")))
    }

    /// The fault of a request that changes nothing.
    pub fn of_look(self) -> Error {
        match self {
            Fault::NotSent(away) => away.told(),
            Fault::Lost(reason) => unavailable(reason),
            Fault::Server(error) => explain(&error),
        }
    }
}

/// How an error begins about a key that has the name of a lock and is none.
pub(super) const NO_LOCK: &str = "the key of that name is no lock but something else";

/// What a script may be refused at a change.
const WITHIN: [&str; 4] = ["READONLY", "OOM", "MISCONF", "NOREPLICAS"];

/// The code of an error. Before Redis 7 what a script was refused comes as text, `ERR … @user_script: 12: -READONLY …`, and
/// where the script passes it on also later, `ERR READONLY …`; what the ACL forbids it has no code of its own there, nor
/// in 7.0.
pub(super) fn code(error: &RedisError) -> Option<&str> {
    let code = error.code();
    let said = error.detail().unwrap_or_default();
    if code != Some("ERR") || !said.contains("script") {
        return code;
    }
    let within = |code: &&&str| {
        let passed_on = said
            .strip_prefix(**code)
            .is_some_and(|rest| rest.starts_with(' '));
        passed_on || said.contains(&format!(": -{code} "))
    };
    match WITHIN.iter().find(within) {
        Some(within) => Some(within),
        None if said.contains("The user executing the script can't") => Some("NOPERM"),
        None => code,
    }
}

/// Whether the connection is of no more use after this answer: the server is no longer one to write to. A WAIT that was
/// under way is UNBLOCKED then.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    matches!(code(error), Some("READONLY" | "MASTERDOWN" | "UNBLOCKED"))
}

/// A server's error in words. Its text never has a secret: the server does not repeat passwords.
pub(in crate::store) fn explain(error: &RedisError) -> Error {
    let said = words(error);
    match code(error) {
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
        Some("TRYAGAIN" | "ASK") => unavailable(
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
        Some("NOTALOCK") => refused(format!("{NO_LOCK} ({said}), and nothing was changed; choose another name or a prefix")),
        Some("FENCE") => refused(format!(
            "the lock's tokens cannot grow any more, as scripts count exactly only up to 2^53 ({said}); set the server's clock \
             right, and the key to the last token that was really given out"
        )),
        Some("MOVED") => unavailable(format!(
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
pub(in crate::store) fn words(error: &RedisError) -> String {
    let text: String = error.to_string().chars().take(300).collect();
    text.replace(['\n', '\r'], " ")
}

pub(super) fn unavailable(reason: String) -> Error {
    Error::unavailable(STORE, reason)
}

pub(super) fn refused(reason: String) -> Error {
    Error::refused(STORE, reason)
}

#[cfg(test)]
mod tests {
    use ::redis::{Value, parse_redis_value};

    use super::*;

    fn error(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes());
        let value = value.and_then(Value::extract_error);
        value.expect_err("it is an error")
    }

    #[test]
    fn what_a_script_was_refused_is_known_on_every_version() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        let old = format!(
            "ERR Error running script (call to f_{sha}): @user_script:9: @user_script: 9: "
        );
        for (line, expected) in [
            (
                "READONLY You can't write against a read only replica.".to_owned(),
                "READONLY",
            ),
            (
                format!("{old}-READONLY You can't write against a read only replica. "),
                "READONLY",
            ),
            (
                format!("{old}-OOM command not allowed when used memory > 'maxmemory'. "),
                "OOM",
            ),
            (
                format!("{old}-NOREPLICAS Not enough good replicas to write. "),
                "NOREPLICAS",
            ),
            // As renewals and batches pass it on.
            (
                format!(
                    "ERR READONLY You can't write against a read only replica. script: {sha}, on x"
                ),
                "READONLY",
            ),
            (
                "ERR @user_script: 9: -READONLY You can't write against a read only replica.  "
                    .to_owned(),
                "READONLY",
            ),
            (
                format!(
                    "ERR The user executing the script can't run this command or subcommand script: {sha}, on x"
                ),
                "NOPERM",
            ),
            (
                format!("{old}The user executing the script can't run this command or subcommand"),
                "NOPERM",
            ),
            (format!("{old}attempt to compare nil with number"), "ERR"),
        ] {
            assert_eq!(code(&error(&line)), Some(expected), "{line}");
        }
        assert!(is_demoted(&error(&format!(
            "{old}-READONLY You can't write."
        ))));
    }
}
