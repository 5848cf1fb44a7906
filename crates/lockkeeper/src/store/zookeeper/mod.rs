//! Locks among the machines of a network, on an ensemble of ZooKeeper servers. On the wire they are Curator's locks.
//!
//! A claim is an ephemeral, sequential node below the path of its name, and the lowest number holds. A claim's lease ends
//! by this process's own hand while it lives, and with its session when it does not. Only a write that was committed
//! says anything about the session: pings, reads and `sync` are answered by servers that have lost the others, too.
//!
//! `client` speaks to the servers; `names` has the paths, `data` what nodes say, `tokens` the fencing tokens, `line` who stands
//! where; `claims` are those of this session. `acquire`, `permits`, `release`, `renew`, `breaking`, `look` and `latch` are the
//! verbs, `standing` says whose turn it is, `watching` does what nobody asks for.

mod acquire;
mod breaking;
mod claims;
mod client;
mod core;
mod data;
mod fault;
mod latch;
mod line;
mod look;
mod names;
mod permits;
#[cfg(feature = "internals")]
pub mod raw;
mod release;
mod renew;
mod standing;
mod tokens;
mod url;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::client::{Client, Options};
use self::core::Core;
use self::data::{Data, Fence};
use self::url::{KIND, Settings};
use super::common::AbortOnDrop;
use super::*;
use crate::url::StoreUrl;

/// After this time a hold is watched, so that its keeper is told when it is broken.
const GUARD_AFTER: Duration = Duration::from_millis(100);
/// How often what failed in the background is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Keeps locks on an ensemble of ZooKeeper servers, in one session.
#[derive(Debug)]
pub struct ZooKeeperStore {
    core: Arc<Core>,
    runtime: Handle,
    _tasks: [AbortOnDrop; 2],
}

/// The id of a claim in the names of its nodes: its keeper's bits, with its number added to the low half.
fn node_id(claim: ClaimId) -> u128 {
    let bits = claim.keeper.to_bits();
    let low = (bits as u64).wrapping_add(claim.number);
    (bits >> 64 << 64) | u128::from(low)
}

/// What the nodes of a claim say.
fn data_of(core: &Core, claim: &Claim, fence: Fence, tokens: u32) -> Data {
    Data {
        claim: claim.id,
        process: core.process.clone(),
        mode: claim.mode,
        lease: claim.lease,
        fence,
        tokens,
        label: claim.label.clone(),
        place: None,
    }
}

impl ZooKeeperStore {
    /// Opens a session with the servers that a URL names. What it spawns runs on the caller's runtime.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], [`Error::Unavailable`] and [`Error::Refused`], as every opener.
    pub async fn connect(url: &StoreUrl) -> Result<ZooKeeperStore, Error> {
        let settings = Settings::read(url)?;
        let options = Options {
            session_timeout: settings.session_timeout,
            answer_timeout: settings.timeout,
        };
        let (client, events) = Client::open(settings.way.clone(), options).await?;
        let longest = client.standing().timeout * 2 / 3;
        let capabilities = Capabilities {
            longest_lease: longest.min(crate::MAX_LEASE),
            ..CAPABILITIES
        };
        let core = Arc::new(Core::new(client, settings, capabilities));
        let listening = tokio::spawn(watching::listen(Arc::downgrade(&core), events));
        let timing = tokio::spawn(watching::keep_time(Arc::downgrade(&core)));
        let store = ZooKeeperStore {
            core,
            runtime: Handle::current(),
            _tasks: [AbortOnDrop::of(&listening), AbortOnDrop::of(&timing)],
        };
        store.check().await?;
        Ok(store)
    }

    /// Whether this user may work below the chroot, so that a wrong one is told now.
    async fn check(&self) -> Result<(), Error> {
        match self.core.base_step().await {
            Ok(_) => Ok(()),
            Err(fault::Fault::Store(error)) => Err(error),
            Err(fault::Fault::TooLate) => Err(KIND.unavailable("it did not answer in time")),
        }
    }

    /// How much it wants to be told of: a path counts once for each claim.
    #[cfg(feature = "internals")]
    pub fn watched_paths(&self) -> usize {
        self.core.claims.watched() + self.core.watched.paths()
    }

    /// Runs a verb to its end on the store's own runtime, whatever becomes of the caller.
    fn run<'a, T: Send + 'static, F>(
        &'a self,
        verb: impl FnOnce() -> F + Send + 'a,
    ) -> Answer<'a, T>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Box::pin(async move {
            let verb = self.runtime.spawn(verb());
            verb.await
                .unwrap_or_else(|_| Err(Error::outcome_unknown(KIND.store, "the store was closed")))
        })
    }
}

impl Store for ZooKeeperStore {
    fn capabilities(&self) -> Capabilities {
        self.core.capabilities
    }
    fn place(&self) -> String {
        self.core.settings.place()
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        self.run(move || {
            let seat = self.core.claims.reserve(claim.id);
            acquire::attempt(self.core.clone(), claim.clone(), seat)
        })
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        self.run(move || release::withdraw(self.core.clone(), name.clone(), claim))
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        self.run(move || renew::renew(self.core.clone(), renewals.to_vec()))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        self.run(move || {
            let next = release.requeue.as_ref();
            let next = next.map(|next| self.core.claims.reserve(next.id));
            release::release(self.core.clone(), release.clone(), next)
        })
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        self.run(move || watching::subscribe(self.core.clone(), interest))
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        self.run(move || look::inspect(self.core.clone(), name.clone()))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        self.run(move || look::list(self.core.clone(), prefix.to_owned()))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        self.run(move || breaking::break_lock(self.core.clone(), request.clone()))
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        self.run(move || latch::latch(self.core.clone(), request.clone()))
    }
}

/// What it can do with the servers' usual settings: they end sessions after at most 40 s.
pub const CAPABILITIES: Capabilities = Capabilities {
    store: "zookeeper",
    reach: Reach::Network,
    fair: true,
    read_write: true,
    permits: true,
    latches: true,
    queue: true,
    fencing: Fencing::Native,
    wakeups: Wakeups::Direct,
    survives_restart: true,
    frees_dead_at_once: false,
    time: TimeAuthority::LeaderMonotonic,
    lease_end: LeaseEnd::WithSession,
    longest_lease: Duration::from_millis(26_666),
    ends_in_time: false,
};

/// Reads bytes as every kind of answer that a server gives, for the fuzzer.
#[cfg(feature = "internals")]
pub fn fuzz_answer(bytes: &[u8]) {
    client::wire::read_as_anything(bytes);
    let _ = data::Data::read(bytes);
}
