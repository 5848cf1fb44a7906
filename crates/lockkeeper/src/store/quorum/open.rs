//! Connecting to the nodes: to a majority at least. What is wrong with one of the others is warned about.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use uuid::Uuid;

use super::agree::keep_agreeing;
use super::dialect::Dialect;
use super::gate::Gate;
use super::gather::Gather;
use super::holds::Holds;
use super::known::Known;
use super::node::{Node, Silence};
use super::protocol::{Quarantine, Terms};
use super::question::Lates;
use super::{Inner, Quorum, QuorumStore};
use crate::store::Process;
use crate::store::common::AbortOnDrop;
use crate::store::redis::answer::describe;
use crate::store::redis::keys::WAKE;
use crate::store::redis::node::NodeLink;
use crate::{Error, SETUP_TARGET};

/// How long nodes have to connect after a majority has: what is wrong with one is to be told at once.
const GRACE: Duration = Duration::from_millis(500);

impl QuorumStore {
    /// Connects to these nodes.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when a majority cannot be reached. [`Error::Refused`] when too few can be nodes: they are
    /// replicas, too old, refuse the user, or their clients have agreed on another `max_lease`; and when two addresses
    /// lead to one server. A minority that cannot be nodes is warned about and counts as down.
    pub async fn open(quorum: &Quorum) -> Result<QuorumStore, Error> {
        let count = quorum.nodes.len();
        if count.is_multiple_of(2) {
            tracing::warn!(
                target: SETUP_TARGET,
                nodes = count,
                "an even number of nodes survives no more failures than one node less, and is busier"
            );
        }
        quorum.nodes.iter().for_each(|node| node.warn());
        let mut terms = Terms::new(count, quorum.max_lease);
        if !quorum.quarantine {
            tracing::warn!(
                target: SETUP_TARGET,
                "quarantine=off: a node that restarts votes at once, and may let a second holder in"
            );
            (terms.sit_out, terms.outlives) = (Duration::ZERO, Duration::ZERO);
        }
        let channel = format!("{WAKE}{}", Uuid::new_v4());
        let who = describe(&channel, &Process::current());
        let dialect = Arc::new(Dialect::new(&quorum.nodes[0], who, &terms));
        let addresses: Arc<[String]> = quorum.nodes.iter().map(|node| node.address()).collect();
        let known = Arc::new(Known::of(count));
        let mut opening = Gather::new();
        let mut nodes = Vec::with_capacity(count);
        for (number, settings) in quorum.nodes.iter().enumerate() {
            let gate = Arc::new(Gate {
                number,
                addresses: addresses.clone(),
                terms,
                known: known.clone(),
                quarantine: Mutex::new(Quarantine::default()),
            });
            let (link, first) = NodeLink::start(settings, channel.clone(), gate);
            let address = addresses[number].clone();
            let node = Node::start(link, address, dialect.clone(), quorum.node_timeout);
            let opened = node.clone();
            opening.add(number, async move {
                let outcome = first.await.unwrap_or(Err(Error::Closed));
                if outcome.is_ok() {
                    opened.link.settled().await;
                }
                outcome
            });
            nodes.push(node);
        }
        let mut places: Vec<String> = quorum.nodes.iter().map(|node| node.place()).collect();
        places.sort_unstable();
        let lates = Arc::new(Lates::default());
        let inner = Inner {
            nodes,
            place: format!("{} {}", places.join(","), quorum.nodes[0].prefix()),
            terms,
            node_timeout: quorum.node_timeout,
            dialect,
            holds: Holds::default(),
            rounds: AtomicU64::new(0),
            _watch: lates.watch(quorum.node_timeout / 8),
            lates,
            known,
            agreeing: OnceLock::new(),
            partings: tokio::sync::watch::Sender::default(),
            runtime: Handle::current(),
        };
        let inner = Arc::new(inner);
        let longest = quorum.nodes.iter().map(|node| node.connect_timeout());
        let longest = longest.max().unwrap_or_default() + GRACE;
        inner.opened(opening, longest).await?;
        let agreeing = tokio::spawn(keep_agreeing(Arc::downgrade(&inner)));
        inner.agreeing.get_or_init(|| AbortOnDrop::of(&agreeing));
        Ok(QuorumStore(inner))
    }
}

impl Inner {
    /// Waits until a majority is up, and a little longer for the others; then agrees with them on the longest lease.
    async fn opened(
        self: &Arc<Self>,
        mut opening: Gather<Result<(), Error>>,
        longest: Duration,
    ) -> Result<(), Error> {
        let (mut up, mut refused) = (0, 0);
        let mut silent: Vec<Option<String>> = vec![None; self.nodes.len()];
        let mut patience = Box::pin(self.sleep(longest));
        while let Some((number, outcome)) = opening.next(patience.as_mut()).await {
            match outcome {
                Ok(()) => up += 1,
                Err(error) => {
                    if let Some(twins) = self.known.twins() {
                        return Err(twins);
                    }
                    match error.is_transient() {
                        true => {
                            tracing::warn!(node = self.nodes[number].address, %error, "a node is not there");
                        }
                        // The link has warned of it.
                        false => refused += 1,
                    }
                    silent[number] = Some(Silence::from(error).reason());
                }
            }
            if up == self.terms.majority || refused == self.terms.minority() + 1 {
                patience = Box::pin(self.sleep(GRACE));
            }
        }
        if up >= self.terms.majority {
            self.agree().await;
            return self.outvoted().map_or(Ok(()), Err);
        }
        Err(match refused > self.terms.minority() {
            true => Error::refused(
                super::STORE,
                self.with_nodes("too few nodes can be used", &silent),
            ),
            false => self.unavailable("too few nodes can be reached", &silent),
        })
    }
}
