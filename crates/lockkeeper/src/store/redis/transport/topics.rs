//! What a connection is subscribed to. Whatever a server pushes beside that, nobody has asked for.

use std::collections::HashSet;

use ::redis::{PushKind, Value};

/// Something to subscribe to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::store) enum Topic {
    /// A channel.
    Channel(String),
    /// A channel, as a pattern: those do not count as subscribers of Redisson's.
    Pattern(String),
    /// A sharded channel of a cluster: heard of only at the node that serves its slot.
    Shard(String),
}

impl Topic {
    /// A pattern that matches this channel only.
    pub fn quietly(channel: &str) -> Topic {
        let mut pattern = String::with_capacity(channel.len());
        for c in channel.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        Topic::Pattern(pattern)
    }

    pub fn name(&self) -> &str {
        match self {
            Topic::Channel(name) | Topic::Pattern(name) | Topic::Shard(name) => name,
        }
    }

    /// The command that subscribes to it, or unsubscribes from it.
    pub(super) fn command(&self, change: Change) -> &'static str {
        match (change, self) {
            (Change::Join, Topic::Channel(_)) => "SUBSCRIBE",
            (Change::Join, Topic::Pattern(_)) => "PSUBSCRIBE",
            (Change::Join, Topic::Shard(_)) => "SSUBSCRIBE",
            (Change::Leave, Topic::Channel(_)) => "UNSUBSCRIBE",
            (Change::Leave, Topic::Pattern(_)) => "PUNSUBSCRIBE",
            (Change::Leave, Topic::Shard(_)) => "SUNSUBSCRIBE",
        }
    }
}

/// What a command does to subscriptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Join,
    Leave,
}

/// What a server has pushed, as it was asked to.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::store) enum Push {
    /// Something was published on a topic.
    Message { topic: Topic, text: String },
    /// The server ended the subscription: the slot of a sharded channel has moved to another node.
    Ended(Topic),
}

/// Why a connection ends at a push that it has not asked for.
pub(in crate::store) const UNASKED: &str = "the server sent a message that nobody asked for";

/// The subscriptions of a connection, and those that are about to begin or end.
#[derive(Default)]
pub(super) struct Topics {
    on: HashSet<Topic>,
    joining: HashSet<Topic>,
    leaving: HashSet<Topic>,
}

impl Topics {
    /// The server may confirm this from now on.
    pub fn expect(&mut self, change: Change, topics: &[Topic]) {
        self.changing(change).extend(topics.iter().cloned());
    }

    /// The server has confirmed what it will. Returns whether that was all of it.
    pub fn settle(&mut self, change: Change, topics: &[Topic]) -> bool {
        let changing = self.changing(change);
        let left = topics.iter().filter(|topic| changing.remove(topic));
        left.count() == 0
    }

    /// Whether the server has confirmed all of this.
    pub fn are_confirmed(&mut self, change: Change, topics: &[Topic]) -> bool {
        let changing = self.changing(change);
        !topics.iter().any(|topic| changing.contains(topic))
    }

    fn changing(&mut self, change: Change) -> &mut HashSet<Topic> {
        match change {
            Change::Join => &mut self.joining,
            Change::Leave => &mut self.leaving,
        }
    }

    /// What a push tells, or nothing if it only confirms. Fails if nobody asked for it.
    pub fn take(&mut self, kind: &PushKind, data: &[Value]) -> Result<Option<Push>, &'static str> {
        let text = |at: usize| match data.get(at) {
            Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(Value::SimpleString(text)) => text.clone(),
            _ => String::new(),
        };
        let message = |topic: Topic, at| Push::Message {
            topic,
            text: text(at),
        };
        match kind {
            PushKind::Message => self.heard(message(Topic::Channel(text(0)), 1)),
            PushKind::PMessage => self.heard(message(Topic::Pattern(text(0)), 2)),
            PushKind::SMessage => self.heard(message(Topic::Shard(text(0)), 1)),
            PushKind::Subscribe => self.joined(Topic::Channel(text(0))),
            PushKind::PSubscribe => self.joined(Topic::Pattern(text(0))),
            PushKind::SSubscribe => self.joined(Topic::Shard(text(0))),
            PushKind::Unsubscribe => self.left(Topic::Channel(text(0))),
            PushKind::PUnsubscribe => self.left(Topic::Pattern(text(0))),
            PushKind::SUnsubscribe => self.left(Topic::Shard(text(0))),
            _ => Err(UNASKED),
        }
    }

    fn heard(&self, push: Push) -> Result<Option<Push>, &'static str> {
        match &push {
            Push::Message { topic, .. } if self.on.contains(topic) => Ok(Some(push)),
            _ => Err(UNASKED),
        }
    }

    fn joined(&mut self, topic: Topic) -> Result<Option<Push>, &'static str> {
        if !self.joining.remove(&topic) {
            return Err(UNASKED);
        }
        self.on.insert(topic);
        Ok(None)
    }

    /// A server confirms also what it did not have.
    fn left(&mut self, topic: Topic) -> Result<Option<Push>, &'static str> {
        let was_on = self.on.remove(&topic);
        if self.leaving.remove(&topic) {
            return Ok(None);
        }
        if was_on && matches!(topic, Topic::Shard(_)) {
            return Ok(Some(Push::Ended(topic)));
        }
        Err(UNASKED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [fn(String) -> Topic; 3] = [Topic::Channel, Topic::Pattern, Topic::Shard];
    const JOINS: [PushKind; 3] = [
        PushKind::Subscribe,
        PushKind::PSubscribe,
        PushKind::SSubscribe,
    ];
    const MESSAGES: [PushKind; 3] = [PushKind::Message, PushKind::PMessage, PushKind::SMessage];
    const LEAVES: [PushKind; 3] = [
        PushKind::Unsubscribe,
        PushKind::PUnsubscribe,
        PushKind::SUnsubscribe,
    ];

    fn push(
        topics: &mut Topics,
        kind: &PushKind,
        topic: &str,
    ) -> Result<Option<Push>, &'static str> {
        let data = [topic, "1", "2"].map(|text| Value::BulkString(text.into()));
        topics.take(kind, &data)
    }

    #[test]
    fn a_quiet_topic_matches_its_channel_only() {
        let quiet = Topic::quietly("a[b]*?\\{c}");
        assert_eq!(quiet, Topic::Pattern("a\\[b\\]\\*\\?\\\\{c}".into()));
    }

    #[test]
    fn only_what_was_asked_for_is_expected() {
        let mut topics = Topics::default();
        let others = [PushKind::Invalidate, PushKind::Other("x".into())];
        for kind in JOINS.iter().chain(&MESSAGES).chain(&LEAVES).chain(&others) {
            assert_eq!(push(&mut topics, kind, "a"), Err(UNASKED), "{kind:?}");
        }
        for at in 0..3 {
            let topic = [KINDS[at]("a".into())];
            topics.expect(Change::Join, &topic);
            assert!(!topics.are_confirmed(Change::Join, &topic));
            assert!(push(&mut topics, &JOINS[at], "b").is_err());
            assert!(push(&mut topics, &JOINS[(at + 1) % 3], "a").is_err());
            assert_eq!(push(&mut topics, &JOINS[at], "a"), Ok(None));
            assert!(topics.are_confirmed(Change::Join, &topic));
            assert!(topics.settle(Change::Join, &topic));
            assert!(push(&mut topics, &JOINS[at], "a").is_err(), "once");
            let heard = push(&mut topics, &MESSAGES[at], "a").expect("it was asked for");
            let text = if at == 1 { "2" } else { "1" };
            let expected = Push::Message {
                topic: topic[0].clone(),
                text: text.into(),
            };
            assert_eq!(heard, Some(expected));
            assert!(push(&mut topics, &MESSAGES[at], "b").is_err());
            topics.expect(Change::Leave, &topic);
            assert!(
                push(&mut topics, &MESSAGES[at], "a").is_ok(),
                "until it ends"
            );
            assert_eq!(push(&mut topics, &LEAVES[at], "a"), Ok(None));
            assert!(push(&mut topics, &LEAVES[at], "a").is_err(), "once");
            assert!(push(&mut topics, &MESSAGES[at], "a").is_err());
        }
    }

    #[test]
    fn what_was_refused_is_expected_no_more() {
        let mut topics = Topics::default();
        let both = ["a", "b"].map(|name| Topic::Channel(name.into()));
        topics.expect(Change::Join, &both);
        assert_eq!(push(&mut topics, &PushKind::Subscribe, "a"), Ok(None));
        assert!(!topics.settle(Change::Join, &both));
        assert!(push(&mut topics, &PushKind::Subscribe, "b").is_err());
    }

    #[test]
    fn only_a_sharded_channel_may_end_by_itself() {
        let mut topics = Topics::default();
        for at in 0..3 {
            let topic = KINDS[at]("a".into());
            topics.expect(Change::Join, std::slice::from_ref(&topic));
            assert_eq!(push(&mut topics, &JOINS[at], "a"), Ok(None));
            let ended = push(&mut topics, &LEAVES[at], "a");
            let moved = matches!(topic, Topic::Shard(_));
            let expected = if moved {
                Ok(Some(Push::Ended(topic)))
            } else {
                Err(UNASKED)
            };
            assert_eq!(ended, expected);
            assert!(push(&mut topics, &MESSAGES[at], "a").is_err());
        }
    }
}
