//! How a waiter hears that it is worth another look.

use std::sync::Arc;

use super::transport::Topic;
use super::url::Dialect;
use super::{NO_LATCHES, RedisStore, look};
use crate::store::common::polling;
use crate::store::{Interest, Subscription};
use crate::{Error, Name};

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
            (Dialect::Plain, Interest::Claim(..)) => Ok(polling::poll(self.servers.runtime())),
            (Dialect::Plain, Interest::Latch(_)) => Err(NO_LATCHES),
            (_, Interest::Name(name)) => self.watch(name).await,
        }
    }

    async fn watch(&self, name: Name) -> Result<Subscription, Error> {
        let (servers, us) = (Arc::downgrade(&self.servers), self.us.clone());
        let again = move || {
            let servers = servers.upgrade()?;
            let (us, name) = (us.clone(), name.clone());
            Some(async move { look(&servers, &us.who, &name, 0).await })
        };
        polling::watch(self.servers.runtime(), again).await
    }
}
