//! How whoever waits hears that it is worth another look.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use uuid::Uuid;

use super::subscriptions::Topic;
use super::url::Dialect;
use super::{NO_LATCHES, RedisStore, look};
use crate::store::{Broken, ClaimId, Interest, LockInfo, Subscription};
use crate::{Error, Name, Token};

/// How often whoever watches a name looks at it. Nobody publishes that a lock was taken.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a waiter of the plain dialect tries: on average, as its peers do.
const POLL_EVERY: Duration = Duration::from_millis(25);

impl RedisStore {
    pub(super) async fn subscribe_to(&self, interest: Interest) -> Result<Subscription, Error> {
        let subscriptions = self.servers.subscriptions();
        match (self.dialect(), interest) {
            (Dialect::Redisson, Interest::Claim(name, claim)) => {
                let keys = self.servers.keys(&name)?;
                if !self.servers.sharded() {
                    return Ok(subscriptions.claim(name, claim, None).0);
                }
                let wake = Topic::Shard(keys.wake_channel(&self.us.channel));
                let (subscription, version) =
                    subscriptions.claim(name, claim, Some((wake, keys.slot())));
                self.servers.synced(&keys, version).await?;
                // The claim has not tried yet: a hint so far was only that the channel is open.
                subscription.forget();
                Ok(subscription)
            }
            (Dialect::Redisson, Interest::Latch(name)) => {
                let keys = self.servers.keys(&name)?;
                let topic = match self.servers.sharded() {
                    true => Topic::Shard(keys.latch_channel()),
                    false => Topic::Channel(keys.latch_channel()),
                };
                let (subscription, version) =
                    subscriptions.topic(Interest::Latch(name), topic, keys.slot());
                self.servers.synced(&keys, version).await?;
                Ok(subscription)
            }
            // Told on the channel of the process.
            (_, interest @ Interest::Keeper(_)) => Ok(subscriptions.hints().subscribe(interest)),
            (Dialect::Plain, Interest::Claim(..)) => Ok(self.poll()),
            (Dialect::Plain, Interest::Latch(_)) => Err(NO_LATCHES),
            (_, Interest::Name(name)) => self.watch(name).await,
        }
    }

    /// A subscription that hints now and then.
    fn poll(&self) -> Subscription {
        let hints = Arc::new(Notify::new());
        let hint = hints.clone();
        let task = self.servers.runtime().spawn(async move {
            loop {
                // Spread out, so that those who wait do not all try at once.
                let spread = Uuid::new_v4().as_u128() % POLL_EVERY.as_micros();
                tokio::time::sleep(POLL_EVERY / 2 + Duration::from_micros(spread as u64)).await;
                hint.notify_one();
            }
        });
        Subscription::new(hints, Ends(task.abort_handle()))
    }

    /// A subscription that hints when something else is to be seen about a name.
    async fn watch(&self, name: Name) -> Result<Subscription, Error> {
        let mut seen = sight(self.look(&name).await?);
        let hints = Arc::new(Notify::new());
        let (hint, us) = (hints.clone(), self.us.clone());
        let servers = Arc::downgrade(&self.servers);
        let task = self.servers.runtime().spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(servers) = servers.upgrade() else {
                    return;
                };
                if let Ok(info) = look(&servers, &us.who, &name).await {
                    let now = sight(info);
                    if now != seen {
                        seen = now;
                        hint.notify_one();
                    }
                }
            }
        });
        Ok(Subscription::new(hints, Ends(task.abort_handle())))
    }
}

/// Ends a task when it is dropped.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What changes about a name when somebody takes it, waits for it, lets go of it or breaks it.
type Sight = (Vec<ClaimId>, usize, Option<Token>, Option<Broken>);

fn sight(info: Option<LockInfo>) -> Option<Sight> {
    let info = info?;
    let holders = info.holders.iter().map(|holder| holder.claim).collect();
    Some((holders, info.waiters, info.last_token, info.broken))
}
