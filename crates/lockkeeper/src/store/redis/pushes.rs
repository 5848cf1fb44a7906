//! What a server sends without being asked for: hints, and that something has ended.

use super::keys::WAKE;
use super::shared::Shared;
use super::transport::{Heard, Push, Topic};
use crate::clock::Moment;
use crate::store::{ClaimId, DirectGrant, GRANT_LEASE, Grant};
use crate::{Name, Token};

impl Shared {
    /// Something came without being asked for.
    pub fn heard(&self, number: u64, heard: Heard) {
        match heard {
            Heard::Ended(reason) => self.broken(number, reason),
            Heard::Push(Push::Ended(topic)) => self.topic_ended(number, topic),
            Heard::Push(Push::Message { topic, text }) => {
                let ours = match &topic {
                    Topic::Channel(channel) => *channel == self.channel,
                    Topic::Pattern(_) => false,
                    Topic::Shard(channel) => channel.starts_with(WAKE),
                };
                if ours {
                    self.hinted(&text);
                } else {
                    self.subscriptions.came(&topic);
                }
            }
        }
    }

    /// A claim of ours may now succeed: `<claim> <name>`. Or it holds: `<claim>/<grant> <name>`. Or its hold was broken:
    /// `! <claim>`.
    fn hinted(&self, message: &str) {
        let hints = self.subscriptions.hints();
        match message.split_once(' ') {
            Some(("!", claim)) => {
                if let Ok(claim) = claim.parse::<ClaimId>() {
                    hints.keeper(claim.keeper);
                }
            }
            Some((claim, name)) => {
                let (claim, grant) = match claim.split_once('/') {
                    Some((claim, grant)) => (claim, direct_grant(grant)),
                    None => (claim, None),
                };
                let name = name.strip_prefix(self.settings.prefix.as_str());
                let name = name.and_then(|name| Name::new(name).ok());
                if let (Ok(claim), Some(name)) = (claim.parse(), name) {
                    match grant {
                        Some(grant) => hints.granted(&name, claim, grant),
                        None => hints.claim(&name, claim),
                    }
                }
            }
            None => {}
        }
    }
}

/// The highest number that scripts count exactly.
const HIGHEST: u64 = 1 << 53;

/// Reads `<last token>/<tokens>/<when it asked>`, as the scripts write it. Anything else is no grant: the claim asks.
///
/// A lock that goes from one process to another takes one request this way, the release that grants it. Without it there are two,
/// and the second is a round trip during which nobody works under the lock.
pub(super) fn direct_grant(text: &str) -> Option<DirectGrant> {
    let mut parts = text.split('/').map(|part| {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u64>().ok().filter(|_| digits)
    });
    let (last, tokens, asked) = (parts.next()??, parts.next()??, parts.next()??);
    let first = last.checked_sub(tokens.checked_sub(1)?)?;
    let sent = Moment::from_nanos(asked);
    if parts.next().is_some() || first == 0 || last > HIGHEST || sent > Moment::now() {
        return None;
    }
    Some(DirectGrant {
        grant: Grant {
            token: Token::new(first),
            tokens: u32::try_from(tokens).ok()?,
        },
        sent,
        lease: GRANT_LEASE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_reads_back_and_nothing_else_is_one() {
        let grant = direct_grant("1700000000000009/10/77").expect("a grant");
        assert_eq!(grant.grant.token, Token::new(1_700_000_000_000_000));
        assert_eq!(grant.grant.tokens, 10);
        assert_eq!(grant.sent, Moment::from_nanos(77));
        let later = format!("9/1/{}", u64::MAX);
        for wrong in [
            "",
            "9",
            "9/1",
            "9/1/",
            "9/1/77/",
            "9/1/77/1",
            "/1/77",
            "9//77",
            "+9/1/77",
            "9/-1/77",
            "9/1/7.7",
            "9/1/ 77",
            "9/1/77 ",
            "9/0/77",
            "9/10/77",
            "0/1/77",
            "9999999999999/5000000000/77",
            "99999999999999999999/1/77",
            "9007199254740993/1/77",
            "nil/1/77",
            &later,
        ] {
            assert_eq!(direct_grant(wrong), None, "{wrong:?}");
        }
    }
}
