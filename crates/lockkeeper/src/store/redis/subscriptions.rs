//! Which claims of this process wait for what, and which channels of the server that takes.
//!
//! A claim that waits in our queue needs no channel of its own: the release that makes it the holder writes to the
//! channel of its process. In a cluster with sharded channels those who wait for one name share one.
//! Redisson's channels are listened to only while one of its clients is in the way.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::shared::Event;
use super::transport::Topic;
use crate::Name;
use crate::store::common::HintBoard;
use crate::store::{ClaimId, Interest, Subscription};

/// How many are told by one that leaves: readers come in the sooner.
const PASSED_ON_TO: usize = 2;

/// The running subscriptions. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Subscriptions(Arc<Inner>);

struct Inner {
    hints: HintBoard,
    /// Tells the supervisors that the topics changed.
    supervisors: Mutex<Vec<mpsc::UnboundedSender<Event>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts changes of `topics`.
    version: u64,
    topics: HashMap<Topic, Wanted>,
    claims: HashMap<ClaimId, Waiting>,
}

/// A topic that somebody wants to hear of.
#[derive(Default)]
struct Wanted {
    /// In a cluster, the slot of the name it is about.
    slot: u16,
    by: Vec<Interest>,
}

/// A claim that waits.
#[derive(Default)]
struct Waiting {
    topics: Vec<Topic>,
    /// Whether it listens to Redisson's channels as well.
    listens: bool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscriptions")
    }
}

impl Subscriptions {
    pub fn new() -> Subscriptions {
        Subscriptions(Arc::new(Inner {
            hints: HintBoard::default(),
            supervisors: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// From now on this supervisor learns when the topics change.
    pub fn attach(&self, supervisor: mpsc::UnboundedSender<Event>) {
        self.supervisors().push(supervisor);
    }

    fn supervisors(&self) -> MutexGuard<'_, Vec<mpsc::UnboundedSender<Event>>> {
        let supervisors = self.0.supervisors.lock();
        supervisors.unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.supervisors()
            .retain(|supervisor| supervisor.send(Event::Topics).is_ok());
    }

    pub fn hints(&self) -> &HintBoard {
        &self.0.hints
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim waits, from now until the subscription is dropped; `wake` is where it hears hints, if it needs a
    /// channel for that, and its slot. Answers which version of the topics has it.
    pub fn claim(
        &self,
        name: Name,
        claim: ClaimId,
        wake: Option<(Topic, u16)>,
    ) -> (Subscription, u64) {
        let interest = Interest::Claim(name, claim);
        let subscription = self.0.hints.subscribe(interest.clone());
        let mut state = self.state();
        let mut waiting = Waiting::default();
        if let Some((topic, slot)) = wake {
            state.add(topic.clone(), slot, interest.clone());
            waiting.topics.push(topic);
        }
        let news = !waiting.topics.is_empty();
        state.claims.insert(claim, waiting);
        let version = state.version;
        drop(state);
        if news {
            self.changed();
        }
        let ends = ClaimEnds {
            all: self.clone(),
            claim,
            interest,
        };
        (subscription.and(ends), version)
    }

    /// Whether a claim waits.
    pub fn has(&self, claim: ClaimId) -> bool {
        self.state().claims.contains_key(&claim)
    }

    /// A client of Redisson's is in a waiting claim's way: listen for what it says when it leaves.
    pub fn listen(
        &self,
        name: &Name,
        claim: ClaimId,
        slot: u16,
        topics: impl FnOnce() -> Vec<Topic>,
    ) {
        let mut state = self.state();
        // Without a subscription nobody would end the listening.
        let Some(waiting) = state.claims.get_mut(&claim) else {
            return;
        };
        if std::mem::replace(&mut waiting.listens, true) {
            return;
        }
        let topics = topics();
        waiting.topics.extend(topics.iter().cloned());
        let interest = Interest::Claim(name.clone(), claim);
        for topic in topics {
            state.add(topic, slot, interest.clone());
        }
        drop(state);
        self.changed();
    }

    /// Hints the subscribers of `interest` when something comes on `topic`. Answers which version of the
    /// topics has it.
    pub fn topic(&self, interest: Interest, topic: Topic, slot: u16) -> (Subscription, u64) {
        let subscription = self.0.hints.subscribe(interest.clone());
        let version = {
            let mut state = self.state();
            state.add(topic.clone(), slot, interest.clone());
            state.version
        };
        self.changed();
        let ends = TopicEnds {
            all: self.clone(),
            topic,
            interest,
        };
        (subscription.and(ends), version)
    }

    /// The topics that `here` picks by their slots, and the version of all.
    pub fn wanted(&self, here: impl Fn(u16) -> bool) -> (HashSet<Topic>, u64) {
        let state = self.state();
        let wanted = state.topics.iter();
        let wanted = wanted.filter(|(_, wanted)| here(wanted.slot));
        let wanted = wanted.map(|(topic, _)| topic.clone()).collect();
        (wanted, state.version)
    }

    /// The slots of all topics.
    pub fn slots(&self) -> HashSet<u16> {
        let state = self.state();
        state.topics.values().map(|wanted| wanted.slot).collect()
    }

    /// Slots are served by other nodes than before.
    pub fn moved(&self) {
        self.state().version += 1;
        self.changed();
        self.0.hints.everyone();
    }

    /// Hints the subscribers of these topics: something may have been missed before.
    pub fn hint_all(&self, topics: &[Topic]) {
        let state = self.state();
        let interests = topics.iter().filter_map(|topic| state.topics.get(topic));
        let interests: Vec<Interest> = interests.flat_map(|wanted| wanted.by.clone()).collect();
        drop(state);
        for interest in &interests {
            self.0.hints.notify(interest);
        }
    }

    /// Something came on a topic. Of the claims that wait for one name the first is hinted: a try
    /// makes the store look who is next.
    pub fn came(&self, topic: &Topic) {
        let state = self.state();
        let Some(Wanted { by: interests, .. }) = state.topics.get(topic) else {
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

    /// A claim that waited in no queue, as on a quorum, leaves: it holds, or has given up. The next may hold beside it, or
    /// instead. One tells the next, as to tell all at once would have all ask in vain but one.
    fn pass_on(&self, topic: &Topic) {
        let state = self.state();
        let waiting = state.topics.get(topic).into_iter();
        let next = waiting.flat_map(|wanted| wanted.by.iter().take(PASSED_ON_TO));
        let next: Vec<Interest> = next.cloned().collect();
        drop(state);
        for interest in &next {
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
        self.changed();
    }
}

impl State {
    fn add(&mut self, topic: Topic, slot: u16, interest: Interest) {
        let wanted = self.topics.entry(topic).or_default();
        wanted.slot = slot;
        wanted.by.push(interest);
        self.version += 1;
    }

    fn remove(&mut self, topic: &Topic, interest: &Interest) {
        if let Some(Wanted { by, .. }) = self.topics.get_mut(topic) {
            if let Some(at) = by.iter().position(|known| known == interest) {
                by.remove(at);
            }
            if by.is_empty() {
                self.topics.remove(topic);
            }
        }
        self.version += 1;
    }
}

struct ClaimEnds {
    all: Subscriptions,
    claim: ClaimId,
    interest: Interest,
}

impl Drop for ClaimEnds {
    fn drop(&mut self) {
        let waiting = self.all.state().claims.remove(&self.claim);
        let topics = waiting.unwrap_or_default().topics;
        self.all.remove(&topics, &self.interest);
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
        if let Interest::Claim(..) = self.interest {
            self.all.pass_on(&self.topic);
        }
    }
}
