//! Locks on a majority of independent Redis servers: Redlock, with what its critics asked for.
//!
//! A claim asks every node for its vote and holds when a majority has given it, for the lease less the time that took
//! and what clocks may differ by. `docs/quorum.md` has the rules and what they are good for; `protocol` has them as
//! code, and the model that is checked exhaustively runs that same code.
//!
//! # What it rests on
//! * Two majorities share a node, and a node keeps one exclusive hold at a time.
//! * A node that restarted may have forgotten holds: it sits out until it is older than any lease (`max_lease`).
//! * A node votes only for tokens above the last it saw, so tokens of successive holders grow.
//! * Nothing that is late does harm: requests name their round, and tokens of a round that was taken back are used up.
//!
//! # What it does not protect against
//! * A node that restarts *and* whose clock is set; other Redlock clients, which do not wait after a restart.
//! * Clocks that are set forward on so many nodes that no majority is left that keeps a hold.
//! * A holder that is paused past its lease. Its token tells the resource, as ever.
//!
//! # Layout
//! `open` connects to the nodes.
//! `url` says where the nodes are; `gate` judges each on every connection, `node` asks it and remembers what it is owed.
//! `known` has what was last heard of each, and `agree` brings them the record of the longest lease.
//! `acquire`, `release` and `renew` drive the state machines of `protocol`: a `question` counts answers where they are
//! read, `gather` hands them over as they come; `holds` remembers rounds. `dialect` writes the requests, in `scripts`.
//! `look` puts together what nodes know, `wake` what they tell; `breaking` is an administrator's release.

mod acquire;
mod agree;
mod breaking;
mod dialect;
mod gate;
mod gather;
mod holds;
mod known;
mod look;
mod node;
mod open;
#[cfg(feature = "internals")]
pub mod protocol;
#[cfg(not(feature = "internals"))]
#[allow(dead_code, unused_imports, reason = "the model runs the rest")]
mod protocol;
mod question;
mod release;
mod renew;
mod scripts;
#[cfg(feature = "internals")]
pub mod trial;
mod url;
mod wake;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

pub use self::url::Quorum;

use self::dialect::Dialect;
use self::gather::Gather;
use self::holds::Holds;
use self::known::Known;
use self::node::Node;
use self::protocol::Terms;
use self::question::Lates;
use super::common::AbortOnDrop;
use super::*;
use crate::under_way::UnderWay;
use crate::url::StoreUrl;

/// How the store calls itself in errors.
const STORE: &str = "redlock";

/// Keeps locks on a majority of independent Redis servers.
///
/// Dropping it ends its connections. What it still holds stays held until the leases end.
///
/// ```
/// use lockkeeper::store::{Store, quorum::QuorumStore};
/// use lockkeeper::url::StoreUrl;
///
/// # async fn example() -> Result<(), lockkeeper::Error> {
/// let store = QuorumStore::connect(&StoreUrl::parse("redlock://a:6379,b:6379,c:6379")?).await?;
/// println!("{}", store.place());
/// # Ok(()) }
/// ```
pub struct QuorumStore(Arc<Inner>);

struct Inner {
    nodes: Vec<Arc<Node>>,
    place: String,
    terms: Terms,
    node_timeout: Duration,
    dialect: Arc<Dialect>,
    holds: Holds,
    rounds: AtomicU64,
    lates: Arc<Lates>,
    /// The holds that are being let go of on nodes that keep up.
    partings: watch::Sender<UnderWay>,
    _watch: AbortOnDrop,
    known: Arc<Known>,
    agreeing: OnceLock<AbortOnDrop>,
    runtime: Handle,
}

impl QuorumStore {
    /// Connects to the nodes that a `redlock:` URL names.
    ///
    /// Call it on the runtime that is to drive the connections.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] says what is wrong with the URL; then as [`open`](QuorumStore::open).
    pub async fn connect(url: &StoreUrl) -> Result<QuorumStore, Error> {
        QuorumStore::open(&Quorum::parse(url)?).await
    }
}

impl Inner {
    /// Under the keeper's own timer, so that it works under any executor.
    fn sleep(&self, time: Duration) -> tokio::time::Sleep {
        let _context = self.runtime.enter();
        tokio::time::sleep(time)
    }

    /// How long to wait for answers. In two steps: if it was this process that stood still, the answers are there and only
    /// have to be read.
    async fn patience(&self, time: Duration) {
        self.sleep(time).await;
        self.sleep(self.node_timeout / 8).await;
    }

    /// A node that has not answered by now is behind.
    fn overdue<T>(&self, requests: &Gather<T>, silent: &mut [Option<String>]) {
        for number in requests.pending() {
            self.nodes[number].overdue();
            silent[number] = Some(self.no_answer());
        }
    }

    fn no_answer(&self) -> String {
        format!("it did not answer within {:?}", self.node_timeout)
    }

    fn next_round(&self) -> u64 {
        self.rounds.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn check_mode(&self, mode: Mode) -> Result<(), Error> {
        let what = match mode {
            Mode::Exclusive => return Ok(()),
            Mode::Read | Mode::Write if !self.dialect.plain => return Ok(()),
            Mode::Read | Mode::Write => "other than exclusive locks in the plain dialect",
            Mode::Fair => NO_FAIR,
            Mode::Permit { .. } => NO_PERMITS,
        };
        Err(Error::Unsupported { store: STORE, what })
    }

    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        match lease <= self.terms.max_lease {
            true => Ok(()),
            false => Err(Error::InvalidArgument {
                what: "lease",
                reason: format!(
                    "{lease:?} is longer than max_lease={:?}, for which nodes that restart sit out; ask for less, or \
                     raise max_lease for all clients of these nodes",
                    self.terms.max_lease
                ),
            }),
        }
    }

    /// What is the matter with each node that is not simply up.
    fn with_nodes(&self, reason: &str, silent: &[Option<String>]) -> String {
        let mut text = reason.to_owned();
        for (number, node) in self.nodes.iter().enumerate() {
            let status = node.status();
            match (status.state, silent.get(number).cloned().flatten()) {
                (NodeState::Up, None) => {}
                (NodeState::Up, Some(why)) => text += &format!("; {}: {why}", status.node),
                (state, _) => text += &format!("; {} {state}", status.node),
            }
        }
        text
    }

    fn unavailable(&self, reason: &str, silent: &[Option<String>]) -> Error {
        Error::unavailable(STORE, self.with_nodes(reason, silent))
    }

    /// When so many nodes may vote that there can be a majority; zero if they may now, or nobody knows when.
    fn ready_in(&self, nodes: &[NodeStatus]) -> Duration {
        let mut waits: Vec<Duration> = Vec::new();
        for node in nodes {
            match node.state {
                NodeState::Up => waits.push(Duration::ZERO),
                NodeState::SittingOut { ready_in } => waits.push(ready_in),
                _ => {}
            }
        }
        waits.sort();
        let last = waits.get(self.terms.majority - 1);
        last.copied().unwrap_or(Duration::ZERO)
    }
}

/// A queue on each node could choose another next holder on each.
const NO_FAIR: &str =
    "fair locks, as nodes that know nothing of each other cannot agree on an order";
/// Each holder's majority may be another one, so that nodes do not agree on how many permits are taken.
const NO_PERMITS: &str =
    "semaphores, as holders on different majorities could be more than there are permits";
const NO_LATCHES: Error = Error::Unsupported {
    store: STORE,
    what: "latches, as nodes that missed a step would count differently",
};

/// What a URL says, without its secrets: for the fuzz target of its parser.
#[cfg(feature = "internals")]
pub fn read_url(url: &StoreUrl) -> Result<String, Error> {
    Quorum::parse(url).map(|quorum| format!("{quorum:?}"))
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<&str> = self.0.nodes.iter().map(|n| n.address.as_str()).collect();
        f.debug_struct("QuorumStore")
            .field("nodes", &addresses)
            .field("max_lease", &self.0.terms.max_lease)
            .finish_non_exhaustive()
    }
}

impl Store for QuorumStore {
    fn capabilities(&self) -> Capabilities {
        let can = match self.0.dialect.plain {
            false => CAPABILITIES,
            true => PLAIN_CAPABILITIES,
        };
        Capabilities {
            longest_lease: self.0.terms.max_lease,
            ..can
        }
    }
    fn place(&self) -> String {
        self.0.place.clone()
    }
    fn check_name(&self, name: &Name) -> Result<(), Error> {
        self.0.dialect.keys(name).map(drop)
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(self.0.acquire(claim))
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        // Those that do not answer are told when they are back.
        Box::pin(async move { self.0.release(name, claim).await.map(|_| ()) })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(self.0.renew(renewals))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        // A claim to queue finds no queue: it tries for itself.
        Box::pin(self.0.release(&release.name, release.claim))
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(self.0.subscribe(interest))
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(self.0.inspect(name))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(self.0.list(prefix))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(self.0.break_lock(request))
    }
    fn latch<'a>(&'a self, _: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(async { Err(NO_LATCHES) })
    }
    fn settled(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.have_parted())
    }
    fn health(&self) -> Health {
        let nodes: Vec<NodeStatus> = self.0.nodes.iter().map(|node| node.status()).collect();
        Health {
            ready_in: self.0.ready_in(&nodes),
            nodes,
        }
    }
    fn votes(&self, claim: ClaimId) -> Option<Vec<NodeVote>> {
        let entry = self.0.holds.get(claim)?;
        let nodes = self.0.nodes.iter().enumerate();
        let vote = |(number, node): (usize, &Arc<Node>)| NodeVote {
            node: node.address.clone(),
            holds: entry.holds.has(number),
        };
        Some(nodes.map(vote).collect())
    }
}

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    store: STORE,
    reach: Reach::Network,
    fair: false,
    read_write: true,
    permits: false,
    latches: false,
    queue: false,
    fencing: Fencing::DataOrClock,
    wakeups: Wakeups::Broadcast,
    survives_restart: true,
    frees_dead_at_once: false,
    time: TimeAuthority::ServerWall,
    lease_end: LeaseEnd::ByItself,
    longest_lease: self::url::MAX_LEASE_DEFAULT,
    // No node is waited for longer than one may take.
    ends_in_time: true,
};

pub(super) const PLAIN_CAPABILITIES: Capabilities = Capabilities {
    read_write: false,
    ..CAPABILITIES
};
