//! Keeps a connection alive, and subscribed to what is wanted: see [`connection`](super::connection).

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{RedisError, Value};
use tokio::sync::mpsc;

use super::fault::{Away, words};
use super::lane::Beside;
use super::pipe::Pipe;
use super::setup::Fresh;
use super::shared::{Event, Shared, State, Target, Up};
use super::subscriptions::Topic;
use crate::clock::Clock;
use crate::store::common::{self, Silence, Supervised};
use crate::{Error, SETUP_TARGET};

impl Shared {
    /// Whether a topic is to be subscribed to over this connection.
    fn wants(&self, topic: &Topic, slot: u16) -> bool {
        let sharded = matches!(topic, Topic::Shard(_));
        self.member.as_ref().is_none_or(|member| {
            member.ears == sharded && member.map.is_owner(slot, &self.address())
        })
    }

    /// Subscribes to what is wanted and from what is not wanted any more. `false`: not to all of it.
    async fn sync(
        &self,
        connection: &mut MultiplexedConnection,
        actual: &mut HashSet<Topic>,
    ) -> Result<bool, String> {
        let (mut wanted, version) = self
            .subscriptions
            .wanted(|topic, slot| self.wants(topic, slot));
        let new: Vec<Topic> = wanted.difference(actual).cloned().collect();
        let old: Vec<Topic> = actual.difference(&wanted).cloned().collect();
        let change = async {
            let refused = self.subscribe(connection, &new).await?;
            self.unsubscribe(connection, &old).await?;
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

    /// Answers the topics that the server does not serve, or not now.
    async fn subscribe(
        &self,
        connection: &mut MultiplexedConnection,
        new: &[Topic],
    ) -> Result<Vec<Topic>, RedisError> {
        let Split {
            channels,
            patterns,
            shards,
        } = split(new);
        self.joins(new);
        if !channels.is_empty() {
            connection.subscribe(channels).await?;
        }
        if !patterns.is_empty() {
            connection.psubscribe(patterns).await?;
        }
        let answers = each(connection, "SSUBSCRIBE", &shards).await?;
        let mut refused = Vec::new();
        for (channel, answer) in shards.into_iter().zip(answers) {
            let Err(error) = answer.extract_error() else {
                continue;
            };
            if error.code() == Some("NOPERM") {
                tracing::warn!(target: SETUP_TARGET, error = %words(&error), "the ACL forbids a channel; waiters poll instead");
            } else {
                tracing::debug!(server = %self.address(), error = %words(&error), "no sharded channel");
                refused.push(Topic::Shard(channel));
            }
        }
        if !refused.is_empty() {
            self.doubt();
        }
        Ok(refused)
    }

    async fn unsubscribe(
        &self,
        connection: &mut MultiplexedConnection,
        old: &[Topic],
    ) -> Result<(), RedisError> {
        let Split {
            channels,
            patterns,
            shards,
        } = split(old);
        self.leaves(old);
        if !channels.is_empty() {
            connection.unsubscribe(channels).await?;
        }
        if !patterns.is_empty() {
            connection.punsubscribe(patterns).await?;
        }
        // One whose slot has gone is refused: it has gone with the slot.
        each(connection, "SUNSUBSCRIBE", &shards).await?;
        self.leaves(&[]);
        Ok(())
    }

    /// Uses a connection until it breaks. Answers why it did.
    async fn serve(&self, fresh: &Fresh, inbox: &mut mpsc::UnboundedReceiver<Event>) -> String {
        let (number, pipe) = (fresh.number, fresh.link.pipe());
        // A lane, which has another, is subscribed to nothing.
        let mut connection = fresh.link.connection.clone();
        let mut actual = HashSet::new();
        let mut complete = match self.sync(&mut connection, &mut actual).await {
            Ok(complete) => complete,
            Err(reason) => return reason,
        };
        self.say_given_up("");
        self.state.send_replace(State::Up(Up {
            number,
            connection: pipe.clone(),
            syncer: fresh.syncer.as_ref().map(|(syncer, _)| syncer.clone()),
            beside: fresh.beside,
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
                event = inbox.recv() => match event {
                    Some(event) => match topics_changed(event, inbox, number) {
                        Ok(true) => match self.sync(&mut connection, &mut actual).await {
                            Ok(all) => complete = all,
                            Err(reason) => return reason,
                        },
                        Ok(false) => {}
                        Err(reason) => return reason,
                    },
                    None => return "it is no longer needed".into(),
                },
                () = self.left_behind(fresh.beside) => {
                    return "the main connection is another one now".into();
                }
                _ = ping.tick() => {
                    if !complete {
                        match self.sync(&mut connection, &mut actual).await {
                            Ok(all) => complete = all,
                            Err(reason) => return reason,
                        }
                    }
                    pings += 1;
                    if let Err(reason) = self.ping(&pipe, silence, pings).await {
                        return reason;
                    }
                }
            }
        }
    }

    /// Whether the server answers in time, and with what this PING asks for. Answers come in the order of the requests: one
    /// too many, or one too few, and it gets another's.
    async fn ping(&self, pipe: &Pipe, silence: Silence, nonce: u64) -> Result<(), String> {
        let nonce = format!("{}:{nonce}", self.channel);
        let mut ping = ::redis::cmd("PING");
        ping.arg(&nonce);
        // A runtime that is busy with something else is no silent server.
        let excuse = async {
            match self.lane() {
                Some(lane) => self.is_driven(lane, pipe, silence.probe_every()).await,
                None => Ok(()),
            }
        };
        match silence.probe(pipe.send(&ping), excuse).await? {
            Ok(answer) => echoes(answer, &nonce),
            Err(error) => Err(words(&error)),
        }
    }

    /// Waits until the runtime of a lane does something. Fails when somebody has waited for an answer for a quarter of the
    /// time-out meanwhile: they may be what the runtime's threads are blocked by, and then nobody would ever read it.
    async fn is_driven(&self, lane: &Beside, pipe: &Pipe, quarter: Duration) -> Result<(), String> {
        let mut driven = pin!(lane.is_driven());
        loop {
            // One of them is our own.
            let awaited = pipe.awaited() > 1;
            match tokio::time::timeout(quarter, &mut driven).await {
                Ok(driven) => return driven.map_err(|_| "its runtime has ended".to_owned()),
                Err(_) if awaited && pipe.awaited() > 1 => {
                    let limit = self.settings.response_timeout;
                    return Err(format!("its runtime read no answer within {limit:?}"));
                }
                Err(_) => {}
            }
        }
    }

    /// Waits until a lane belongs to a main connection that is no more.
    async fn left_behind(&self, beside: u64) {
        match self.lane() {
            Some(lane) => lane.is_left_behind(beside).await,
            None => std::future::pending().await,
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
        if self.lane().is_some() {
            return tracing::debug!(%server, %reason, "a lane is lost; connecting again");
        }
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
/// with the reason if the connection of this number is of no more use.
fn topics_changed(
    event: Event,
    inbox: &mut mpsc::UnboundedReceiver<Event>,
    number: u64,
) -> Result<bool, String> {
    let mut changed = false;
    let mut next = Some(event);
    while let Some(event) = next {
        match event {
            Event::Topics => changed = true,
            Event::Broken(which, reason) if which == number => return Err(reason),
            Event::Broken(..) => {}
        }
        next = inbox.try_recv().ok();
    }
    Ok(changed)
}

#[derive(Default)]
struct Split {
    channels: Vec<String>,
    patterns: Vec<String>,
    shards: Vec<String>,
}

fn split(topics: &[Topic]) -> Split {
    let mut split = Split::default();
    for topic in topics {
        match topic {
            Topic::Channel(channel) => split.channels.push(channel.clone()),
            Topic::Pattern(pattern) => split.patterns.push(pattern.clone()),
            Topic::Shard(channel) => split.shards.push(channel.clone()),
        }
    }
    split
}

/// Sends a command for each channel: they may be in different slots. The library has no call for these.
async fn each(
    connection: &mut MultiplexedConnection,
    verb: &str,
    channels: &[String],
) -> Result<Vec<Value>, RedisError> {
    if channels.is_empty() {
        return Ok(Vec::new());
    }
    let mut all = ::redis::pipe();
    for channel in channels {
        all.cmd(verb).arg(channel);
    }
    connection
        .send_packed_commands(&all, 0, channels.len())
        .await
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
        // The runtime of a lane has ended, or cannot have one.
        if *error == Error::Closed {
            let none = State::Down("there is no lane".into());
            self.shared.state.send_replace(none);
            return;
        }
        tracing::debug!(%error, "not connected");
        self.shared.is_down(error);
        self.shared.doubt();
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
        assert_eq!(topics_changed(old(), &mut inbox, 2), Ok(true));
        assert!(inbox.is_empty());
        assert_eq!(topics_changed(old(), &mut inbox, 2), Ok(false));
        // What else came is of no use to the next connection, which looks at the topics first of all.
        let broken = Event::Broken(2, "it broke".into());
        events.send(Event::Topics).expect("it is there");
        events.send(broken).expect("it is there");
        let reason = topics_changed(Event::Topics, &mut inbox, 2);
        assert_eq!(reason, Err("it broke".into()));
    }
}
