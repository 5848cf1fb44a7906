//! Keeps a connection alive, and subscribed to what is wanted: see [`connection`](super::connection).

use std::collections::HashSet;
use std::sync::Arc;

use ::redis::{RedisError, Value};
use tokio::sync::mpsc;

use super::fault::{Away, words};
use super::setup::Fresh;
use super::shared::{Event, Shared, State, Target, Up};
use super::transport::{Socket, Topic};
use crate::clock::Clock;
use crate::store::common::{self, Silence, Supervised};
use crate::{Error, SETUP_TARGET};

impl Shared {
    /// Whether what is about a slot is to be heard over this connection.
    fn wants(&self, slot: u16) -> bool {
        let member = self.member.as_ref();
        member.is_none_or(|member| member.map.is_owner(slot, &self.address()))
    }

    /// Subscribes to what is wanted and from what is not wanted any more. `false`: not to all of it.
    async fn sync(&self, socket: &Socket, actual: &mut HashSet<Topic>) -> Result<bool, String> {
        let (mut wanted, version) = self.subscriptions.wanted(|slot| self.wants(slot));
        let new: Vec<Topic> = wanted.difference(actual).cloned().collect();
        let old: Vec<Topic> = actual.difference(&wanted).cloned().collect();
        let change = async {
            let refused = self.subscribe(socket, &new).await?;
            self.unsubscribe(socket, &old).await?;
            Ok::<Vec<Topic>, RedisError>(refused)
        };
        let refused = match tokio::time::timeout(self.settings.response_timeout, change).await {
            Ok(Ok(refused)) => refused,
            Ok(Err(error)) if error.code() == Some("NOPERM") => {
                tracing::warn!(target: SETUP_TARGET, error = %words(&error), "the ACL forbids a channel; waiters poll instead");
                Vec::new()
            }
            Ok(Err(error)) => return Err(words(&error)),
            Err(_) => return Err("it did not confirm a subscription in time".into()),
        };
        for topic in &refused {
            wanted.remove(topic);
        }
        *actual = wanted;
        // What was said before the subscription is lost: look again.
        self.subscriptions.hint_all(&new);
        if refused.is_empty() {
            self.synced.send_replace(version);
        }
        Ok(refused.is_empty())
    }

    /// Returns the topics that the server does not serve, or not now.
    async fn subscribe(&self, socket: &Socket, new: &[Topic]) -> Result<Vec<Topic>, RedisError> {
        let Split {
            channels,
            patterns,
            shards,
        } = split(new);
        socket.subscribe(&channels).await?;
        socket.subscribe(&patterns).await?;
        // One by one: they may be in different slots.
        let subscribing: Vec<_> = shards
            .into_iter()
            .map(|shard| (socket.subscribe(std::slice::from_ref(&shard)), shard))
            .collect();
        let mut refused = Vec::new();
        for (subscribed, shard) in subscribing {
            match subscribed.await {
                Ok(()) => {}
                Err(error) if error.code() == Some("NOPERM") => {
                    tracing::warn!(target: SETUP_TARGET, error = %words(&error), "the ACL forbids a channel; waiters poll instead");
                }
                Err(error) if error.code().is_none() => return Err(error),
                Err(error) => {
                    tracing::debug!(server = %self.address(), error = %words(&error), "no sharded channel");
                    refused.push(shard);
                }
            }
        }
        if !refused.is_empty() {
            self.doubt();
        }
        Ok(refused)
    }

    async fn unsubscribe(&self, socket: &Socket, old: &[Topic]) -> Result<(), RedisError> {
        let Split {
            channels,
            patterns,
            shards,
        } = split(old);
        socket.unsubscribe(&channels).await?;
        socket.unsubscribe(&patterns).await?;
        let unsubscribing: Vec<_> = shards
            .iter()
            .map(|shard| socket.unsubscribe(std::slice::from_ref(shard)))
            .collect();
        for unsubscribed in unsubscribing {
            match unsubscribed.await {
                // One whose slot has gone is refused: it has gone with the slot.
                Err(error) if error.code().is_none() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Uses a connection until it breaks. Returns why it did.
    async fn serve(&self, fresh: &Fresh, inbox: &mut mpsc::UnboundedReceiver<Event>) -> String {
        let (number, socket) = (fresh.number, &fresh.link.socket);
        let mut actual = HashSet::new();
        let mut complete = match self.sync(socket, &mut actual).await {
            Ok(complete) => complete,
            Err(reason) => return reason,
        };
        self.say_given_up("");
        self.state.send_replace(State::Up(Up {
            number,
            socket: socket.clone(),
            syncer: fresh.syncer.as_ref().map(|(syncer, _)| syncer.clone()),
            admission: fresh.admission,
        }));
        if number > 1 {
            self.subscriptions.hints().everyone();
        }
        let silence = Silence::after(self.settings.response_timeout);
        let mut pings = 0;
        let mut ping = tokio::time::interval(silence.probe_every());
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = inbox.recv() => {
                    let Some(event) = event else {
                        return "it is no longer needed".into();
                    };
                    match topics_changed(event, inbox, number, &mut actual) {
                        Ok(true) => match self.sync(socket, &mut actual).await {
                            Ok(all) => complete = all,
                            Err(reason) => return reason,
                        },
                        Ok(false) => {}
                        Err(reason) => return reason,
                    }
                }
                _ = ping.tick() => {
                    if !complete {
                        match self.sync(socket, &mut actual).await {
                            Ok(all) => complete = all,
                            Err(reason) => return reason,
                        }
                    }
                    pings += 1;
                    if let Err(reason) = self.ping(socket, silence, pings).await {
                        return reason;
                    }
                }
            }
        }
    }

    /// Whether the server answers in time, and with what this PING asks for. Replies come in the order of the requests: one
    /// too many, or one too few, and it gets another's.
    async fn ping(&self, socket: &Socket, silence: Silence, nonce: u64) -> Result<(), String> {
        let nonce = format!("{}:{nonce}", self.channel);
        let mut ping = ::redis::cmd("PING");
        ping.arg(&nonce);
        match silence.probe(socket.send(&ping)).await? {
            Ok(answer) => echoes(answer, &nonce),
            Err(error) => Err(words(&error)),
        }
    }

    /// There is no connection. What is wrong with a server of a quorum is warned about once: the others go on without it.
    pub fn is_down(&self, error: &Error) {
        let reason = reason(error);
        let known = matches!(&*self.state.borrow(), State::Down(before) if before.reason == reason);
        if let (Target::Node(node, _), false, false) = (&self.target, known, error.is_transient()) {
            tracing::warn!(
                target: SETUP_TARGET,
                %node,
                %reason,
                "a node of the quorum cannot be used and counts as down until it can"
            );
        }
        let system = error.system().cloned();
        self.state
            .send_replace(State::Down(Away { reason, system }));
    }

    /// The connection is lost, and hints may have been.
    fn tell_lost(&self, reason: &str) {
        let server = self.address();
        tracing::warn!(%server, %reason, "the connection is lost; connecting again");
        self.doubt();
        // Wakes every claim that sleeps: its hint may not come any more.
        self.subscriptions.hints().everyone();
    }
}

/// Whether this answers a PING with that nonce. A server that a script keeps busy, that loads its data or that cannot save
/// it says so instead; a later PING tells whether it is still in step. Any other error ends the connection: a replica's is one.
fn echoes(answer: Value, nonce: &str) -> Result<(), String> {
    match answer.extract_error() {
        Ok(Value::BulkString(echo)) if echo == nonce.as_bytes() => Ok(()),
        Ok(_) => Err("the server answered a PING with something else".into()),
        Err(error) if matches!(error.code(), Some("BUSY" | "LOADING" | "MISCONF")) => Ok(()),
        Err(error) => Err(format!("the server answered a PING with {}", words(&error))),
    }
}

/// Whether the topics have changed, after this event and whatever came meanwhile: one look at them does for all. Fails
/// with the reason if the connection of this number is of no more use. `actual`: what that is subscribed to.
fn topics_changed(
    event: Event,
    inbox: &mut mpsc::UnboundedReceiver<Event>,
    number: u64,
    actual: &mut HashSet<Topic>,
) -> Result<bool, String> {
    let mut changed = false;
    let mut next = Some(event);
    while let Some(event) = next {
        match event {
            Event::Topics => changed = true,
            Event::Ended(which, topic) if which == number => changed |= actual.remove(&topic),
            Event::Ended(..) => {}
            Event::Broken(which, reason) if which == number => return Err(reason),
            Event::Broken(..) => {}
        }
        next = inbox.try_recv().ok();
    }
    Ok(changed)
}

/// Topics by their kind, as a command has one kind.
#[derive(Default)]
struct Split {
    channels: Vec<Topic>,
    patterns: Vec<Topic>,
    shards: Vec<Topic>,
}

fn split(topics: &[Topic]) -> Split {
    let mut split = Split::default();
    for topic in topics {
        let kind = match topic {
            Topic::Channel(_) => &mut split.channels,
            Topic::Pattern(_) => &mut split.patterns,
            Topic::Shard(_) => &mut split.shards,
        };
        kind.push(topic.clone());
    }
    split
}

/// Runs for as long as the connection is wanted: uses one until it breaks, then makes the next.
pub(super) async fn supervise(
    shared: Arc<Shared>,
    first: Option<Fresh>,
    inbox: mpsc::UnboundedReceiver<Event>,
) {
    let supervisor = Supervisor { shared, inbox };
    common::supervise(supervisor, first, &Clock::real()).await;
}

struct Supervisor {
    shared: Arc<Shared>,
    inbox: mpsc::UnboundedReceiver<Event>,
}

impl Supervised for Supervisor {
    type Connection = Fresh;

    async fn connect(&self, number: u64) -> Result<Fresh, Error> {
        self.shared.connect(number).await
    }

    async fn serve(&mut self, fresh: &Fresh) -> String {
        self.shared.serve(fresh, &mut self.inbox).await
    }

    fn ended(&mut self, fresh: Fresh, reason: &str) {
        self.shared.say_given_up(reason);
        // Whatever waits for an answer on it learns that none will come.
        drop(fresh);
        self.shared.state.send_replace(State::Connecting);
        self.shared.tell_lost(reason);
    }

    fn failed(&mut self, error: &Error) {
        tracing::debug!(%error, "not connected");
        self.shared.is_down(error);
        self.shared.doubt();
        // Waits go on meanwhile and change what to subscribe to. The next connection begins with all of it.
        while self.inbox.try_recv().is_ok() {}
    }

    /// A server that does not answer is not the master any more.
    async fn redirected(&self) {
        self.shared.elsewhere.notified().await;
    }
}

/// The reason alone: which store it is goes without saying here.
fn reason(error: &Error) -> String {
    match error {
        Error::Unavailable { reason, .. } | Error::Refused { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_at_the_topics_does_for_many_changes() {
        let (events, mut inbox) = mpsc::unbounded_channel();
        let old = || Event::Broken(1, "an old one".into());
        for _ in 0..100 {
            events.send(Event::Topics).expect("it is there");
            events.send(old()).expect("it is there");
        }
        let mut actual = HashSet::new();
        assert_eq!(topics_changed(old(), &mut inbox, 2, &mut actual), Ok(true));
        assert!(inbox.is_empty());
        assert_eq!(topics_changed(old(), &mut inbox, 2, &mut actual), Ok(false));
        // What else came is of no use to the next connection, which looks at the topics first of all.
        let broken = Event::Broken(2, "it broke".into());
        events.send(Event::Topics).expect("it is there");
        events.send(broken).expect("it is there");
        let reason = topics_changed(Event::Topics, &mut inbox, 2, &mut actual);
        assert_eq!(reason, Err("it broke".into()));
    }
}
