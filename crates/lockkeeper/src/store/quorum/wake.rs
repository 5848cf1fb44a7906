//! How a waiter hears that it is worth another try: from a majority of the nodes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use super::Inner;
use super::gather::Gather;
use super::holds::NodeSet;
use crate::clock::Moment;
use crate::store::common::{AbortOnDrop, polling};
use crate::store::{Interest, Subscription};
use crate::{Error, Name};

/// When some nodes have hinted and a majority does not follow, because it is down or has nothing to say. Each time in a
/// row twice as long: a hold may miss a node, and a try takes that one's vote and gives it back, which is a hint to
/// the others, who would do the same.
const FEW_HINTS: Duration = Duration::from_millis(20);
const MANY_TIMES_FEW: Duration = Duration::from_millis(640);
/// After so long it is no row any more.
const QUIET: Duration = Duration::from_secs(2);

/// Hints from each node.
type Hints = Vec<Vec<Subscription>>;

impl Inner {
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        interest: Interest,
    ) -> Result<Subscription, Error> {
        match &interest {
            Interest::Claim(name, _) => {
                let channels = self.dialect.channels(name)?;
                let mut heard = Gather::new();
                let mut hints = Hints::new();
                for (number, node) in self.nodes.iter().enumerate() {
                    let (subscriptions, version) = node.link.listen(&interest, &channels);
                    hints.push(subscriptions);
                    if node.ticket().is_ok() {
                        let node = node.clone();
                        heard.add(number, async move { node.link.heard(version).await });
                    }
                }
                // A majority that frees the name shares a node with it.
                let mut patience = pin!(self.patience(self.node_timeout));
                for _ in 0..self.terms.majority {
                    if heard.next(patience.as_mut()).await.is_none() {
                        break;
                    }
                }
                Ok(self.hint_by_majority(hints, self.dialect.plain))
            }
            Interest::Keeper(_) => {
                let nodes = self.nodes.iter();
                let hints = nodes.map(|node| vec![node.link.hints(interest.clone())]);
                Ok(self.hint_by_majority(hints.collect(), false))
            }
            Interest::Name(name) => self.watch(name.clone()).await,
            Interest::Latch(_) => Err(super::NO_LATCHES),
        }
    }

    /// Hints when a majority of the nodes have, and at every further node. Fewer hint a little later. `polls`: now and
    /// then without a hint, too.
    fn hint_by_majority(&self, hints: Hints, polls: bool) -> Subscription {
        let told = Arc::new(Notify::new());
        let (tell, majority) = (told.clone(), self.terms.majority);
        let task = self.runtime.spawn(async move {
            let mut from = NodeSet::default();
            let (mut few, mut last) = (FEW_HINTS, Moment::BOOT);
            loop {
                let wait = match (from == NodeSet::default(), polls) {
                    (false, _) => Some(few),
                    (true, true) => Some(polling::pause()),
                    (true, false) => None,
                };
                let node = match wait {
                    Some(wait) => tokio::time::timeout(wait, next(&hints)).await.ok(),
                    None => Some(next(&hints).await),
                };
                match node {
                    Some(node) => {
                        // The same node again: something else has happened, and the others may have no part in it.
                        if from.has(node) {
                            from = NodeSet::default();
                        }
                        from.add(node);
                        let many = from.len() >= majority;
                        if many {
                            tell.notify_one();
                        }
                        if many || Moment::now().since(last) > QUIET {
                            few = FEW_HINTS;
                        }
                    }
                    None => {
                        if from.len() < majority {
                            tell.notify_one();
                            // A waiter that polls does so more often than that.
                            if !polls {
                                few = (2 * few).min(MANY_TIMES_FEW);
                                last = Moment::now();
                            }
                        }
                        from = NodeSet::default();
                    }
                }
            }
        });
        Subscription::new(told, AbortOnDrop::of(&task))
    }

    async fn watch(self: &Arc<Self>, name: Name) -> Result<Subscription, Error> {
        let inner = Arc::downgrade(self);
        let look = move || {
            let (inner, name) = (inner.upgrade()?, name.clone());
            Some(async move { inner.inspect(&name).await })
        };
        polling::watch(&self.runtime, look).await
    }
}

/// Waits for a hint, and answers whose it is.
async fn next(hints: &Hints) -> usize {
    let mut waits = Vec::new();
    for (number, of_node) in hints.iter().enumerate() {
        for subscription in of_node {
            waits.push((number, Box::pin(subscription.hint())));
        }
    }
    poll_fn(|context| {
        for (number, wait) in &mut waits {
            if wait.as_mut().poll(context).is_ready() {
                return Poll::Ready(*number);
            }
        }
        Poll::Pending
    })
    .await
}
