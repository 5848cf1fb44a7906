//! Who in this process waits for what, and which channels of the server that takes.
//!
//! A claim that waits in our queue needs no channel of its own: whoever makes it the holder writes to the
//! channel of its process. Redisson's channels are listened to only while one of its clients is in the way.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::connection::Event;
use crate::Name;
use crate::store::hints::HintBoard;
use crate::store::{ClaimId, Interest, Subscription};

/// Something to subscribe to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Topic {
    /// A channel.
    Channel(String),
    /// A channel, as a pattern: those do not count as subscribers of Redisson's.
    Pattern(String),
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
}

/// The running subscriptions. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Subscriptions(Arc<Inner>);

struct Inner {
    hints: HintBoard,
    /// Tells the supervisor that the topics changed.
    events: mpsc::UnboundedSender<Event>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts changes of `topics`.
    version: u64,
    topics: HashMap<Topic, Vec<Interest>>,
    /// The claims that wait, with the topics of each.
    claims: HashMap<ClaimId, Vec<Topic>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscriptions")
    }
}

impl Subscriptions {
    pub fn new(events: mpsc::UnboundedSender<Event>) -> Subscriptions {
        Subscriptions(Arc::new(Inner {
            hints: HintBoard::default(),
            events,
            state: Mutex::default(),
        }))
    }

    pub fn hints(&self) -> &HintBoard {
        &self.0.hints
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim waits, from now until the subscription is dropped.
    pub fn claim(&self, name: Name, claim: ClaimId) -> Subscription {
        self.state().claims.insert(claim, Vec::new());
        let interest = Interest::Claim(name, claim);
        let subscription = self.0.hints.subscribe(interest.clone());
        let ends = ClaimEnds {
            all: self.clone(),
            claim,
            interest,
        };
        and(subscription, ends)
    }

    /// A client of Redisson's is in a waiting claim's way: listen for what it says when it leaves.
    pub fn listen(&self, name: &Name, claim: ClaimId, topics: impl FnOnce() -> Vec<Topic>) {
        let mut state = self.state();
        // Without a subscription nobody would end the listening.
        if state
            .claims
            .get(&claim)
            .is_none_or(|known| !known.is_empty())
        {
            return;
        }
        let topics = topics();
        let interest = Interest::Claim(name.clone(), claim);
        for topic in &topics {
            state.add(topic.clone(), interest.clone());
        }
        state.claims.insert(claim, topics);
        drop(state);
        let _ = self.0.events.send(Event::Topics);
    }

    /// Hints whoever subscribes to `interest` when something comes on `topic`. Answers which version of the
    /// topics has it.
    pub fn topic(&self, interest: Interest, topic: Topic) -> (Subscription, u64) {
        let subscription = self.0.hints.subscribe(interest.clone());
        let version = {
            let mut state = self.state();
            state.add(topic.clone(), interest.clone());
            state.version
        };
        let _ = self.0.events.send(Event::Topics);
        let ends = TopicEnds {
            all: self.clone(),
            topic,
            interest,
        };
        (and(subscription, ends), version)
    }

    /// Every topic, and their version.
    pub fn wanted(&self) -> (HashSet<Topic>, u64) {
        let state = self.state();
        (state.topics.keys().cloned().collect(), state.version)
    }

    /// Hints whoever wants to hear of these topics: something may have been missed before.
    pub fn hint_all(&self, topics: &[Topic]) {
        let state = self.state();
        let interests = topics.iter().filter_map(|topic| state.topics.get(topic));
        let interests: Vec<Interest> = interests.flatten().cloned().collect();
        drop(state);
        for interest in &interests {
            self.0.hints.notify(interest);
        }
    }

    /// Something came on a topic. Of the claims that wait for one name the first is hinted: whoever tries
    /// makes the store look who is next.
    pub fn came(&self, topic: &Topic) {
        let state = self.state();
        let Some(interests) = state.topics.get(topic) else {
            return;
        };
        let claim = |interest: &&Interest| matches!(interest, Interest::Claim(..));
        let mut told: Vec<Interest> = interests.iter().filter(|i| !claim(i)).cloned().collect();
        told.extend(interests.iter().find(claim).cloned());
        drop(state);
        for interest in &told {
            self.0.hints.notify(interest);
        }
    }

    fn remove(&self, topics: &[Topic], interest: &Interest) {
        if topics.is_empty() {
            return;
        }
        let mut state = self.state();
        for topic in topics {
            state.remove(topic, interest);
        }
        drop(state);
        let _ = self.0.events.send(Event::Topics);
    }
}

impl State {
    fn add(&mut self, topic: Topic, interest: Interest) {
        self.topics.entry(topic).or_default().push(interest);
        self.version += 1;
    }

    fn remove(&mut self, topic: &Topic, interest: &Interest) {
        if let Some(interests) = self.topics.get_mut(topic) {
            if let Some(at) = interests.iter().position(|known| known == interest) {
                interests.remove(at);
            }
            if interests.is_empty() {
                self.topics.remove(topic);
            }
        }
        self.version += 1;
    }
}

/// The same subscription, that ends more when it is dropped.
fn and(subscription: Subscription, ends: impl std::any::Any + Send + Sync) -> Subscription {
    let Subscription { hints, _ends } = subscription;
    Subscription::new(hints, (_ends, ends))
}

struct ClaimEnds {
    all: Subscriptions,
    claim: ClaimId,
    interest: Interest,
}

impl Drop for ClaimEnds {
    fn drop(&mut self) {
        let topics = self.all.state().claims.remove(&self.claim);
        self.all.remove(&topics.unwrap_or_default(), &self.interest);
    }
}

struct TopicEnds {
    all: Subscriptions,
    topic: Topic,
    interest: Interest,
}

impl Drop for TopicEnds {
    fn drop(&mut self) {
        self.all
            .remove(std::slice::from_ref(&self.topic), &self.interest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_topic_matches_its_channel_only() {
        let Topic::Pattern(pattern) = Topic::quietly("a[b]*?\\{c}") else {
            unreachable!("it is a pattern");
        };
        assert_eq!(pattern, "a\\[b\\]\\*\\?\\\\{c}");
    }
}
