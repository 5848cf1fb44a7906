//! What went wrong, as an error of the store's.

use super::client::Failure;
use super::client::wire::Code;
use super::url::KIND;
use crate::Error;

/// Why a verb has no answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It came too late and did nothing.
    TooLate,
    Store(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Store(error)
    }
}

/// Nothing has changed, as nothing was asked to.
pub fn of_read(failure: Failure) -> Fault {
    match failure {
        Failure::TooLate => Fault::TooLate,
        Failure::NotSent(reason) | Failure::InDoubt(reason) => {
            Fault::Store(KIND.unavailable(reason))
        }
    }
}

/// Something may have changed.
pub fn of_write(failure: Failure) -> Fault {
    match failure {
        Failure::TooLate => Fault::TooLate,
        Failure::NotSent(reason) => Fault::Store(KIND.unavailable(reason)),
        Failure::InDoubt(reason) => Fault::Store(Error::outcome_unknown(KIND.store, reason)),
    }
}

/// A server refused, and nothing has changed.
pub fn of_code(code: Code, path: &str) -> Fault {
    Fault::Store(match code {
        Code::NO_AUTH => KIND.refused(format!(
            "the servers do not let this user work at {path:?}; name a user that may, as in zk://USER:PASSWORD@HOST, or \
             change the rights of that node"
        )),
        Code::INVALID_ACL => KIND.refused(
            "the servers do not know the user; name it as in zk://USER:PASSWORD@HOST, or write acl=open",
        ),
        Code::QUOTA_EXCEEDED => KIND.refused(format!("the quota of {path:?} is used up; raise it")),
        Code::THROTTLED => KIND.unavailable("the servers have too much to do"),
        Code(number) => KIND.unavailable(format!("the servers refused with error {number} at {path:?}")),
    })
}

/// Something else happened than can.
pub fn odd(what: &str) -> Fault {
    Fault::Store(KIND.unavailable(format!("the servers answered oddly: {what}")))
}

/// Something else happened than can, and something may have changed.
pub fn unclear(what: &str) -> Fault {
    Fault::Store(Error::outcome_unknown(
        KIND.store,
        format!("the servers answered oddly: {what}"),
    ))
}
