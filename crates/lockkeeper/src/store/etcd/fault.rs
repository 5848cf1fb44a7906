//! What went wrong, as an error of the store's.

use tonic::Code;

use super::client::Failure;
use super::config::KIND;
use crate::Error;

/// Why a verb has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It came too late and did nothing.
    TooLate,
    /// Nothing was done: the lease that was to keep a key is gone.
    NoLease,
    Store(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Store(error)
    }
}

impl Fault {
    /// Whether something may have been done, or be done yet.
    pub fn is_doubt(&self) -> bool {
        matches!(self, Fault::Store(Error::OutcomeUnknown { .. }))
    }

    /// The same, after something else was done.
    pub fn after_a_part(self) -> Fault {
        Fault::Store(match self {
            Fault::Store(error) => error.in_doubt(),
            _ => Error::outcome_unknown(KIND.store, "its time ended half way"),
        })
    }
}

/// Nothing has changed, as nothing was asked to.
pub fn of_read(failure: Failure) -> Fault {
    match failure {
        Failure::InDoubt(reason) => Fault::Store(KIND.unavailable(reason)),
        failure => of_write(failure),
    }
}

/// The same of a request that was made as a write and only reads.
pub fn as_read(fault: Fault) -> Fault {
    match fault {
        Fault::Store(Error::OutcomeUnknown { reason, .. }) => {
            Fault::Store(KIND.unavailable(reason))
        }
        fault => fault,
    }
}

/// Something may have changed.
pub fn of_write(failure: Failure) -> Fault {
    match failure {
        Failure::TooLate => Fault::TooLate,
        Failure::NotSent(reason) => Fault::Store(KIND.unavailable(reason)),
        Failure::InDoubt(reason) => Fault::Store(Error::outcome_unknown(KIND.store, reason)),
        Failure::Status(code, said) => of_status(code, &said),
    }
}

/// A member refused, and nothing has changed.
fn of_status(code: Code, said: &str) -> Fault {
    Fault::Store(match code {
        Code::NotFound if said.contains("lease not found") => return Fault::NoLease,
        Code::PermissionDenied => KIND.refused(format!(
            "the user may not work below this prefix ({said}); grant its role readwrite on it, or name a user that may"
        )),
        Code::Unauthenticated => KIND.refused(format!(
            "the members ask for a user ({said}); name one as in etcd://USER:PASSWORD@HOST"
        )),
        Code::InvalidArgument if said.contains("user name is empty") => {
            KIND.refused("the members ask for a user; name one as in etcd://USER:PASSWORD@HOST")
        }
        Code::ResourceExhausted if said.contains("space") => KIND.unavailable(format!(
            "the members have no space left ({said}); compact and defragment them, and disarm the alarm"
        )),
        Code::ResourceExhausted => KIND.unavailable(format!("the members have too much to do ({said})")),
        _ => KIND.unavailable(format!("the members refused: {said}")),
    })
}

/// Something else happened than can.
pub fn odd(what: &str) -> Fault {
    Fault::Store(KIND.unavailable(format!("the members answered oddly: {what}")))
}
