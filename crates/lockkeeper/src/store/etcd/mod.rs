//! Locks among the machines of a network, on a cluster of etcd. On the wire they are what `etcdctl lock` takes.
//!
//! A claim is a key below its name, and the lowest revision that created one holds. Its key ends with a lease of etcd's. A
//! claim's own lease ends by this process's hand while it lives, and with etcd's when it does not. A keep-alive that is answered
//! says little: a leader that was deposed and does not know it answers, too. What counts is one that was answered together with
//! a transaction, in the same term.
//!
//! `client` speaks to the members; `keys` has the names of keys, `data` what they say, `tokens` the fencing tokens, `line` who
//! stands where; `session` has the leases of etcd's, `claims` those of this store. `acquire`, `release`, `renew`, `breaking`,
//! `look` and `latch` are the verbs, `watching` does what nobody asks for.

mod acquire;
mod breaking;
mod claims;
mod client;
mod config;
mod core;
mod data;
mod fault;
mod keys;
mod latch;
mod line;
mod look;
mod release;
mod renew;
mod session;
mod tokens;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::client::Client;
use self::config::{KIND, Settings};
use self::core::Core;
use super::common::AbortOnDrop;
use super::*;
use crate::url::StoreUrl;

/// After this time a hold is watched, so that its keeper is told when it is broken.
const GUARD_AFTER: Duration = Duration::from_millis(100);
/// How often what failed in the background is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Keeps locks on a cluster of etcd.
#[derive(Debug)]
pub struct EtcdStore {
    core: Arc<Core>,
    runtime: Handle,
    _tasks: [AbortOnDrop; 2],
}

impl EtcdStore {
    /// Connects to one of the members that a URL names. What it spawns runs on the caller's runtime.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], [`Error::Unavailable`] and [`Error::Refused`], as every opener.
    pub async fn connect(url: &StoreUrl) -> Result<EtcdStore, Error> {
        let settings = Settings::read(url)?;
        let (client, events) = Client::open(settings.way.clone()).await?;
        let core = Arc::new(Core::new(client, settings, CAPABILITIES));
        let listening = tokio::spawn(watching::listen(Arc::downgrade(&core), events));
        let timing = tokio::spawn(watching::keep_time(Arc::downgrade(&core)));
        let store = EtcdStore {
            core,
            runtime: Handle::current(),
            _tasks: [AbortOnDrop::of(&listening), AbortOnDrop::of(&timing)],
        };
        // Whether this user may work below the prefix, so that a wrong one is told now.
        self::core::answer(store.core.step().await.map(drop), ())?;
        Ok(store)
    }

    /// How many ranges of keys the members are asked to tell of.
    #[cfg(feature = "internals")]
    pub fn watched_ranges(&self) -> usize {
        self.core.client.watches.len()
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

impl Drop for EtcdStore {
    /// Gives back what is left, all at once. If that does not come through, it ends with its time.
    fn drop(&mut self) {
        let core = self.core.clone();
        self.runtime.spawn(async move {
            for session in core.sessions.all() {
                session::Sessions::revoke(&core.client, session.id).await;
            }
        });
    }
}

impl Store for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        self.core.capabilities
    }
    fn place(&self) -> String {
        self.core.settings.place()
    }
    fn check_name(&self, name: &Name) -> Result<(), Error> {
        self.core.keys().check(name)
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

/// What it can do.
pub const CAPABILITIES: Capabilities = Capabilities {
    store: "etcd",
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
    longest_lease: crate::MAX_LEASE,
    ends_in_time: false,
};
