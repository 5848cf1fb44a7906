//! Servers of which one takes writes, and which change roles.

use crate::Error;
use crate::store::common::{Address, StoreKind};

/// A server that takes no writes, as it is now.
///
/// `may_change`: the store is open already, or there are other servers. Then a switch-over may be under way, and everybody waits for its
/// end. Otherwise it is the wrong server.
pub(in crate::store) fn takes_no_writes(
    kind: &StoreKind,
    may_change: bool,
    reason: impl Into<String>,
) -> Error {
    match may_change {
        true => kind.unavailable(reason),
        false => kind.refused(reason),
    }
}

/// Why there is no connection to any of several servers: each with its reason. They refuse us only if all do.
pub(in crate::store) fn none_of(kind: &StoreKind, tried: Vec<(&Address, Error)>) -> Error {
    if let [(_, error)] = tried.as_slice() {
        return error.clone();
    }
    let system = tried.iter().rev().find_map(|(_, error)| error.system());
    let system = system.cloned();
    let refuses = |error: &Error| matches!(error, Error::Refused { .. });
    let all_refuse = !tried.is_empty() && tried.iter().all(|(_, error)| refuses(error));
    let reasons = tried.into_iter().map(|(address, error)| match error {
        Error::Refused { reason, .. }
        | Error::Unavailable { reason, .. }
        | Error::OutcomeUnknown { reason, .. } => format!("{address}: {reason}"),
        error => format!("{address}: {error}"),
    });
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    let error = match all_refuse {
        true => kind.refused(reasons),
        false => kind.unavailable(reasons),
    };
    error.with_system(system)
}
