//! What is told to whom, by `NOTIFY`: a channel for each keeper that listens, and one for latches.

use std::time::Duration;

use crate::store::sql::engine::Wake;
use crate::store::sql::wake::Mailbox;
use crate::store::{ClaimId, Grant, KeeperId};
use crate::{Name, Token};

/// The channel of all latches of a database.
pub(super) const LATCHES: &str = "lk_latch";

/// The channel of a keeper.
pub(super) fn channel(keeper: KeeperId) -> String {
    format!("lk_{:032x}", keeper.to_bits())
}

/// On which channel to say what.
pub(super) fn message(name: &Name, wake: &Wake) -> (String, String) {
    match wake {
        Wake::Granted {
            claim,
            grant,
            lease,
        } => {
            let (token, tokens, lease) = (grant.token, grant.tokens, lease.as_micros());
            let text = format!("g {} {token} {tokens} {lease} {name}", claim.number);
            (channel(claim.keeper), text)
        }
        Wake::Broken(keeper) => (channel(*keeper), "b".into()),
    }
}

/// What is said of a latch.
pub(super) fn latch(schema: &str, name: &Name) -> String {
    format!("{}/{schema}/{name}", schema.len())
}

/// Brings a notification to whom it is for. Anybody may send one: what is not understood is a hint at most.
pub(super) fn heard(mailbox: &Mailbox, schema: &str, channel: &str, payload: &str) {
    if channel == LATCHES {
        let prefix = format!("{}/{schema}/", schema.len());
        let name = payload.strip_prefix(&prefix);
        if let Some(name) = name.and_then(|name| Name::new(name).ok()) {
            mailbox.board().latch(&name);
        }
        return;
    }
    let keeper = channel.strip_prefix("lk_");
    let keeper = keeper.and_then(|digits| u128::from_str_radix(digits, 16).ok());
    let Some(keeper) = keeper.map(KeeperId::from_bits) else {
        return;
    };
    match granted(keeper, payload) {
        // A hint, not the grant itself: the lease counts from the load of the keeper that granted, and the claim's last
        // request may be younger than that. So the claim asks, and counts from its own request.
        Some((name, claim, ..)) => mailbox.hint(&name, claim),
        None => mailbox.board().keeper(keeper),
    }
}

fn granted(keeper: KeeperId, payload: &str) -> Option<(Name, ClaimId, Grant, Duration)> {
    let mut parts = payload.splitn(6, ' ');
    if parts.next()? != "g" {
        return None;
    }
    let number = parts.next()?.parse().ok()?;
    let token = Token::new(parts.next()?.parse().ok()?);
    let tokens = parts.next()?.parse().ok()?;
    let lease = Duration::from_micros(parts.next()?.parse().ok()?);
    let name = Name::new(parts.next()?).ok()?;
    let claim = ClaimId { keeper, number };
    Some((name, claim, Grant { token, tokens }, lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_reads_back() {
        let keeper = KeeperId::new();
        let claim = ClaimId { keeper, number: 7 };
        let grant = Grant {
            token: Token::new(1_800_000_000_000_000),
            tokens: 3,
        };
        let lease = Duration::from_secs(1);
        let name = Name::new("a b  c'").expect("a name");
        let wake = Wake::Granted {
            claim,
            grant,
            lease,
        };
        let (channel, text) = message(&name, &wake);
        assert_eq!(granted(keeper, &text), Some((name, claim, grant, lease)));
        assert!(channel.len() < 64);
        for junk in ["", "g", "g x", "b", "g 1 2 3 4", "g 1 2 3 4 "] {
            assert_eq!(granted(keeper, junk), None, "{junk}");
        }
    }
}
