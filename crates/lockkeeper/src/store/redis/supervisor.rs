//! Keeps a connection alive, and subscribed to what is wanted: see [`connection`](super::connection).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ::redis::RedisError;
use ::redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;

use super::connection::{Event, Fresh, Shared, State, Up};
use super::fault::words;
use super::subscriptions::Topic;
use crate::Error;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Subscribes to what is wanted and from what is not wanted any more.
    async fn sync(
        &self,
        connection: &mut MultiplexedConnection,
        actual: &mut HashSet<Topic>,
    ) -> Result<(), String> {
        let (wanted, version) = self.subscriptions.wanted();
        let split = |topics: &[Topic]| {
            let (mut channels, mut patterns) = (Vec::new(), Vec::new());
            for topic in topics {
                match topic {
                    Topic::Channel(channel) => channels.push(channel.clone()),
                    Topic::Pattern(pattern) => patterns.push(pattern.clone()),
                }
            }
            (channels, patterns)
        };
        let new: Vec<Topic> = wanted.difference(actual).cloned().collect();
        let old: Vec<Topic> = actual.difference(&wanted).cloned().collect();
        let change = async {
            let (channels, patterns) = split(&new);
            if !channels.is_empty() {
                connection.subscribe(channels).await?;
            }
            if !patterns.is_empty() {
                connection.psubscribe(patterns).await?;
            }
            let (channels, patterns) = split(&old);
            if !channels.is_empty() {
                connection.unsubscribe(channels).await?;
            }
            if !patterns.is_empty() {
                connection.punsubscribe(patterns).await?;
            }
            Ok::<(), RedisError>(())
        };
        match tokio::time::timeout(self.settings.response_timeout, change).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.code() == Some("NOPERM") => {
                tracing::warn!(error = %words(&error), "the ACL forbids a channel; waiters poll instead");
            }
            Ok(Err(error)) => return Err(words(&error)),
            Err(_) => return Err("it did not confirm a subscription in time".into()),
        }
        *actual = wanted;
        // What was said before the subscription is lost: look again.
        self.subscriptions.hint_all(&new);
        self.synced.send_replace(version);
        Ok(())
    }

    /// Uses a connection until it breaks. Answers why it did.
    async fn serve(&self, fresh: &Fresh, inbox: &mut mpsc::UnboundedReceiver<Event>) -> String {
        let (number, mut connection) = (fresh.number, fresh.link.connection.clone());
        let mut actual = HashSet::new();
        if let Err(reason) = self.sync(&mut connection, &mut actual).await {
            return reason;
        }
        self.say_given_up("");
        self.state.send_replace(State::Up(Up {
            number,
            connection: connection.clone(),
            syncer: fresh.syncer.as_ref().map(|(syncer, _)| syncer.clone()),
        }));
        self.subscriptions.hints().everyone();
        let quarter = self.settings.response_timeout / 4;
        let mut ping = tokio::time::interval(quarter);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = inbox.recv() => match event {
                    Some(Event::Topics) => {
                        if let Err(reason) = self.sync(&mut connection, &mut actual).await {
                            return reason;
                        }
                    }
                    Some(Event::Broken(which, reason)) if which == number => return reason,
                    Some(Event::Broken(..)) => {}
                    None => return "it is no longer needed".into(),
                },
                _ = ping.tick() => {
                    let ping = ::redis::cmd("PING");
                    let answer = connection.send_packed_command(&ping);
                    match tokio::time::timeout(3 * quarter, answer).await {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => return words(&error),
                        Err(_) => {
                            let limit = self.settings.response_timeout;
                            return format!("the server did not answer within {limit:?}");
                        }
                    }
                }
            }
        }
    }
}

/// Runs for as long as the connection is wanted: uses one until it breaks, then makes the next.
pub(super) async fn supervise(
    shared: Arc<Shared>,
    first: Fresh,
    mut inbox: mpsc::UnboundedReceiver<Event>,
) {
    let mut number = first.number;
    let mut fresh = Some(first);
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(fresh) = fresh.take() {
            pause = FIRST_PAUSE;
            let reason = shared.serve(&fresh, &mut inbox).await;
            shared.say_given_up(&reason);
            // Whatever waits for an answer on it learns that none will come.
            drop(fresh);
            let server = shared.address();
            tracing::warn!(%server, %reason, "the connection is lost; connecting again");
            shared.state.send_replace(State::Connecting);
            // Whoever sleeps for a hint that may not come any more.
            shared.subscriptions.hints().everyone();
        }
        number += 1;
        let connected = tokio::select! {
            connected = shared.connect(number) => connected,
            // Whoever does not answer is not the server any more.
            () = shared.elsewhere.notified() => continue,
        };
        match connected {
            Ok(again) => fresh = Some(again),
            Err(error) => {
                tracing::debug!(%error, "not connected");
                let reason = match error {
                    Error::Unavailable { reason, .. } | Error::Refused { reason, .. } => reason,
                    other => other.to_string(),
                };
                shared.state.send_replace(State::Down(reason));
                let _ = tokio::time::timeout(pause, shared.elsewhere.notified()).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
