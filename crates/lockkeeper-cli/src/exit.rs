//! How the program ends: exit codes, and failures that carry one.

use std::io;

use lockkeeper::Error;

use crate::lang::{Lang, Text};
use crate::{notes, output};

/// The arguments make no sense; clap exits with it, too.
pub const USAGE: u8 = 2;
/// The store cannot be reached or used (EX_UNAVAILABLE).
pub const UNAVAILABLE: u8 = 69;
/// Something of ours failed that has nothing to do with the lock (EX_OSERR).
pub const INTERNAL: u8 = 71;
/// The lock was not acquired in time (EX_TEMPFAIL).
pub const BUSY: u8 = 75;
/// The lock was lost while the command ran.
pub const LOST: u8 = 76;
/// Another holds the lock than the one whose hold was to be broken (EX_NOPERM).
pub const NOT_THE_HOLDER: u8 = 77;
/// The command was found but could not be run.
pub const CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// The code of a program that a signal ended, as shells give it.
pub fn signaled(signal: nix::sys::signal::Signal) -> u8 {
    (128 + signal as i32) as u8
}

/// Why a verb could not do what was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// One line; `None` when there is nobody left to tell.
    pub message: Option<Text>,
}

impl Failure {
    /// A failure with this exit code and message.
    pub fn new(code: u8, message: impl Into<Text>) -> Failure {
        Failure {
            code,
            message: Some(message.into()),
        }
    }
}

/// Tells why it went wrong, on standard error, and returns the exit code. JSON is in English.
pub fn tell(failure: Failure, json: bool, lang: Lang) -> u8 {
    if let Some(message) = failure.message {
        let message = if json {
            let code = failure.code;
            let error = serde_json::json!({ "error": message.en, "exit_code": code });
            output::json(&error).unwrap_or_default()
        } else {
            format!("lockkeeper: {}", message.get(lang))
        };
        notes::write_line(&message);
    }
    failure.code
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Unavailable { .. }
            | Error::OutcomeUnknown { .. }
            | Error::Refused { .. }
            | Error::LimitExceeded { .. } => UNAVAILABLE,
            Error::Lost { .. } => LOST,
            Error::Unsupported { .. }
            | Error::InvalidName { .. }
            | Error::InvalidUrl { .. }
            | Error::InvalidArgument { .. }
            | Error::WouldDeadlock { .. } => USAGE,
            _ => INTERNAL,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        // The program that read our output, such as `head`, has seen enough.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure {
                code: 0,
                message: None,
            };
        }
        Failure::new(INTERNAL, error.to_string())
    }
}
