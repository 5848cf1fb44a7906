//! Servers of which one takes writes, and which change roles.

use crate::Error;
use crate::store::common::{Address, StoreKind};

/// Why a server cannot be used.
#[derive(Debug)]
pub(in crate::store) enum Unusable {
    /// It takes no writes, as it is now. Another one is the primary, or it is in a moment.
    Standby(String),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for Unusable {
    fn from(error: Error) -> Unusable {
        Unusable::Failed(error)
    }
}

/// Why there is no connection to any of the servers: each with its reason. `again`: the store is open already.
///
/// * A server that refuses us does so for ever. If all others answer that they are standbys when the store is opened, it is the primary, or
///   none is: the user has to know. A server that does not answer may be the primary, and is waited for.
/// * Where all are standbys a switch-over may be under way, and everybody waits for its end. So they do on a store that is open, also if one
///   refuses us: that may be the standby. A single one, when the store is opened, is the wrong server.
pub(in crate::store) fn none_of(
    kind: &StoreKind,
    tried: Vec<(&Address, Unusable)>,
    again: bool,
) -> Error {
    let is_away = |why: &Unusable| matches!(why, Unusable::Failed(error) if !refuses(error));
    let refuses_us = |why: &Unusable| matches!(why, Unusable::Failed(error) if refuses(error));
    let some_refuse = tried.iter().any(|(_, why)| refuses_us(why));
    let some_are_away = tried.iter().any(|(_, why)| is_away(why));
    let all_do = tried.iter().all(|(_, why)| refuses_us(why));
    let is_wrong = some_refuse || tried.len() == 1;
    let all_refuse = all_do || !again && !some_are_away && is_wrong;
    let several = tried.len() > 1;
    let (mut reasons, mut system) = (Vec::with_capacity(tried.len()), None);
    for (address, why) in tried {
        let reason = match why {
            Unusable::Failed(error) if !several => return error,
            Unusable::Standby(reason) if !several => reason,
            Unusable::Standby(reason) => format!("{address}: {reason}"),
            Unusable::Failed(error) => {
                system = error.system().cloned().or(system);
                match error {
                    Error::Refused { reason, .. }
                    | Error::Unavailable { reason, .. }
                    | Error::OutcomeUnknown { reason, .. } => format!("{address}: {reason}"),
                    error => format!("{address}: {error}"),
                }
            }
        };
        reasons.push(reason);
    }
    let reasons = reasons.join("; ");
    let error = match all_refuse {
        true => kind.refused(reasons),
        false => kind.unavailable(reasons),
    };
    error.with_system(system)
}

fn refuses(error: &Error) -> bool {
    matches!(error, Error::Refused { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: StoreKind = StoreKind::new("test", "test://host");

    fn standby() -> Unusable {
        Unusable::Standby("a standby".into())
    }
    fn refuses_us() -> Unusable {
        KIND.refused("a wrong password").into()
    }
    fn away() -> Unusable {
        KIND.unavailable("it does not answer").into()
    }

    #[test]
    fn a_server_that_refuses_us_is_told_unless_another_may_be_the_primary() {
        let address = Address::Tcp("host".into(), 1);
        let cases: [(Vec<Unusable>, bool, bool); 10] = [
            (vec![standby()], false, true),
            (vec![standby()], true, false),
            (vec![refuses_us()], true, true),
            (vec![standby(), standby()], false, false),
            (vec![refuses_us(), standby()], true, false),
            (vec![refuses_us(), standby()], false, true),
            (vec![standby(), refuses_us()], false, true),
            (vec![refuses_us(), refuses_us()], true, true),
            (vec![refuses_us(), away()], false, false),
            (vec![refuses_us(), standby(), away()], true, false),
        ];
        for (tried, again, expected) in cases {
            let case = format!("{tried:?}, again: {again}");
            let several = tried.len() > 1;
            let tried = tried.into_iter().map(|why| (&address, why)).collect();
            let error = none_of(&KIND, tried, again);
            assert_eq!(refuses(&error), expected, "{case}: {error}");
            assert_eq!(error.to_string().contains("host:1"), several, "{case}");
        }
    }
}
