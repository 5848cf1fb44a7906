//! What a server sends without being asked for: hints, and that something has ended.
//!
//! The client library takes some pushes for the answer to the oldest request: those that confirm that a subscription began
//! or ended. If one comes that nobody waits for, every later answer goes to the wrong request. So each connection keeps an
//! account of what it has asked to hear. Any other push ends it, and no answer that follows is believed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, MutexGuard, PoisonError};

use ::redis::{PushInfo, PushKind, Value};

use super::fault::unavailable;
use super::keys::WAKE;
use super::shared::Shared;
use super::subscriptions::Topic;
use crate::clock::Moment;
use crate::store::{ClaimId, DirectGrant, GRANT_LEASE, Grant};
use crate::{Error, Name, Token};

/// What a connection is subscribed to, and what it has asked for in this regard and not been told yet.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Of which connection.
    number: u64,
    on: Topics,
    joining: Topics,
    leaving: Topics,
}

/// By kind: channels, patterns, sharded channels.
type Topics = [HashSet<String>; 3];

fn kind_of(topic: &Topic) -> (usize, &str) {
    match topic {
        Topic::Channel(channel) => (0, channel),
        Topic::Pattern(pattern) => (1, pattern),
        Topic::Shard(channel) => (2, channel),
    }
}

fn fill(topics: &mut Topics, with: &[Topic]) {
    topics.iter_mut().for_each(HashSet::clear);
    for topic in with {
        let (kind, topic) = kind_of(topic);
        topics[kind].insert(topic.to_owned());
    }
}

impl Account {
    /// Whether this push belongs to what was asked for.
    fn expects(&mut self, push: &PushInfo) -> bool {
        let Some(topic) = text(push, 0) else {
            return false;
        };
        match push.kind {
            PushKind::Message => self.on[0].contains(topic),
            PushKind::PMessage => self.on[1].contains(topic),
            PushKind::SMessage => self.on[2].contains(topic),
            PushKind::Subscribe => self.joined(0, topic),
            PushKind::PSubscribe => self.joined(1, topic),
            PushKind::SSubscribe => self.joined(2, topic),
            PushKind::Unsubscribe => self.left(0, topic),
            PushKind::PUnsubscribe => self.left(1, topic),
            PushKind::SUnsubscribe => self.left(2, topic),
            _ => false,
        }
    }

    fn joined(&mut self, kind: usize, topic: &str) -> bool {
        let Some(topic) = self.joining[kind].take(topic) else {
            return false;
        };
        self.on[kind].insert(topic);
        true
    }

    /// A server confirms also what it did not have.
    fn left(&mut self, kind: usize, topic: &str) -> bool {
        self.on[kind].remove(topic);
        self.leaving[kind].remove(topic)
    }
}

fn text(push: &PushInfo, at: usize) -> Option<&str> {
    match push.data.get(at) {
        Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).ok(),
        Some(Value::SimpleString(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// Watches a connection that is used for a moment, or for little.
#[derive(Debug, Default)]
pub(super) struct Watched(AtomicBool);

impl Watched {
    /// The connection, and what it passes its pushes to; `mine` are those that it has asked for.
    pub fn new(
        mine: impl Fn(&PushInfo) -> bool + Send + Sync + 'static,
    ) -> (Arc<Watched>, impl Fn(PushInfo) + Send + Sync + 'static) {
        let watched = Arc::new(Watched::default());
        let seen = watched.clone();
        let pushed = move |push: PushInfo| {
            if push.kind != PushKind::Disconnection && !mine(&push) {
                seen.0.store(true, SeqCst);
            }
        };
        (watched, pushed)
    }

    /// Whether what was answered so far can be believed.
    pub fn check(&self) -> Result<(), Error> {
        match self.0.load(SeqCst) {
            true => Err(unavailable(UNASKED.into())),
            false => Ok(()),
        }
    }
}

/// Why a connection ends at a push that it has not asked for.
pub(super) const UNASKED: &str = "the server sent a message that nobody asked for";

impl Shared {
    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection begins, which hears nothing yet.
    pub fn hears_nothing(&self, number: u64) {
        *self.account() = Account {
            number,
            ..Account::default()
        };
    }

    /// From now on, until the next call, the server may confirm these subscriptions.
    pub fn joins(&self, topics: &[Topic]) {
        fill(&mut self.account().joining, topics);
    }

    /// From now on, until the next call, the server may confirm the end of these subscriptions.
    pub fn leaves(&self, topics: &[Topic]) {
        fill(&mut self.account().leaving, topics);
    }

    /// Whether a push belongs to what the connection has asked for. If not, it ends.
    fn is_expected(&self, number: u64, push: &PushInfo) -> bool {
        let mut account = self.account();
        if account.number != number {
            // One that has ended.
            return false;
        }
        let subscribed = text(push, 0).is_some_and(|channel| account.on[2].contains(channel));
        if account.expects(push) {
            return true;
        }
        drop(account);
        let reason = match push.kind {
            PushKind::SUnsubscribe if subscribed => "a slot has moved to another node",
            _ => UNASKED,
        };
        self.doubt();
        self.condemn(number, reason.into());
        false
    }

    /// Something came without being asked for.
    pub fn pushed(&self, number: u64, push: &PushInfo) {
        if push.kind == PushKind::Disconnection {
            return self.broken(number, "the server closed it".into());
        }
        if !self.is_expected(number, push) {
            return;
        }
        let text = |at: usize| text(push, at);
        match &push.kind {
            PushKind::Message => match (text(0), text(1)) {
                (Some(channel), Some(message)) if channel == self.channel => self.hinted(message),
                (Some(channel), _) => self.subscriptions.came(&Topic::Channel(channel.to_owned())),
                _ => {}
            },
            PushKind::PMessage => {
                if let Some(pattern) = text(0) {
                    self.subscriptions.came(&Topic::Pattern(pattern.to_owned()));
                }
            }
            PushKind::SMessage => match (text(0), text(1)) {
                (Some(channel), Some(message)) if channel.starts_with(WAKE) => self.hinted(message),
                (Some(channel), _) => self.subscriptions.came(&Topic::Shard(channel.to_owned())),
                _ => {}
            },
            _ => {}
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
    fn only_what_was_asked_for_is_expected() {
        let push = |kind: &PushKind, topic: &str| PushInfo {
            kind: kind.clone(),
            data: vec![Value::BulkString(topic.into()), Value::Int(1)],
        };
        let topics = |topic: &str| {
            let kinds: [fn(String) -> Topic; 3] = [Topic::Channel, Topic::Pattern, Topic::Shard];
            kinds.map(|kind| kind(topic.to_owned()))
        };
        let joins = [
            PushKind::Subscribe,
            PushKind::PSubscribe,
            PushKind::SSubscribe,
        ];
        let messages = [PushKind::Message, PushKind::PMessage, PushKind::SMessage];
        let leaves = [
            PushKind::Unsubscribe,
            PushKind::PUnsubscribe,
            PushKind::SUnsubscribe,
        ];
        let mut account = Account::default();
        for kind in joins.iter().chain(&messages).chain(&leaves) {
            assert!(!account.expects(&push(kind, "a")), "{kind:?}");
        }
        for at in 0..3 {
            fill(&mut account.joining, &topics("a")[at..=at]);
            assert!(!account.expects(&push(&joins[at], "b")));
            assert!(!account.expects(&push(&joins[(at + 1) % 3], "a")));
            assert!(account.expects(&push(&joins[at], "a")));
            assert!(!account.expects(&push(&joins[at], "a")), "once");
            assert!(account.expects(&push(&messages[at], "a")));
            assert!(!account.expects(&push(&messages[at], "b")));
            fill(&mut account.leaving, &topics("a")[at..=at]);
            assert!(account.expects(&push(&messages[at], "a")), "until it ends");
            assert!(account.expects(&push(&leaves[at], "a")));
            assert!(!account.expects(&push(&leaves[at], "a")), "once");
            assert!(!account.expects(&push(&messages[at], "a")));
        }
        for kind in [PushKind::Invalidate, PushKind::Other("x".into())] {
            assert!(!account.expects(&push(&kind, "a")));
        }
    }

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
