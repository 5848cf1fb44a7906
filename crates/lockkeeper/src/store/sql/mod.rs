//! What the SQL stores share: the rules of [`record`] around tables that an [`Engine`](engine::Engine) reads and writes.
//!
//! No transaction stays open across a round trip, and no rule runs in the server. The common cases are one statement each
//! (`Take`, `Free`, `Append`, `Prolong`). For the rest a name is *loaded*, the rules are applied, and what they changed is
//! *saved* if nobody else was faster (compare-and-set); else it is loaded again.
//!
//! `engine` is what an engine does, `hosts` says what it means if none of the servers can be used, `keep_alive` ends connections of machines
//! that are gone, `batch` gathers what is asked meanwhile into one transaction, `verbs` are the verbs of the contract, `plan` turns changes into a save, `tidy` forgets names that nobody uses, `wake` knows which claims wait.

mod batch;
pub(super) mod engine;
pub(super) mod hosts;
mod join;
pub(super) mod keep_alive;
mod plan;
mod tidy;
mod verbs;
pub(super) mod wake;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::batch::Asked;
use self::engine::{Engine, Op, Reply};
#[cfg(feature = "postgres")]
pub(super) use self::plan::version as new_version;
use self::tidy::Walk;
use super::common::{AbortOnDrop, polling};
use super::*;
use crate::clock::Moment;

/// How many names are known to be crowded at most.
const MOST_CROWDED: usize = 4096;

/// A store on an SQL server.
#[derive(Debug)]
pub(super) struct SqlStore<E: Engine> {
    shared: Arc<Shared<E>>,
    _batches: AbortOnDrop,
}

#[derive(Debug)]
struct Shared<E> {
    me: Weak<Shared<E>>,
    engine: Arc<E>,
    asked: mpsc::UnboundedSender<Asked>,
    runtime: Handle,
    process: Process,
    /// When each keeper is to say again who it is.
    enlisted: Mutex<HashMap<KeeperId, Moment>>,
    /// Names for which others waited when they were last asked for. A short cut would miss.
    crowded: Mutex<HashSet<Name>>,
    walk: Walk,
}

impl<E: Engine> SqlStore<E> {
    /// A store over a connected engine. What it spawns runs on the runtime in which it is called.
    pub fn new(engine: Arc<E>) -> SqlStore<E> {
        let runtime = Handle::current();
        let (asked, todo) = mpsc::unbounded_channel();
        let batches = runtime.spawn(batch::drive(engine.clone(), todo));
        SqlStore {
            shared: Arc::new_cyclic(|me| Shared {
                me: me.clone(),
                engine,
                asked,
                runtime,
                process: Process::current(),
                enlisted: Mutex::default(),
                crowded: Mutex::default(),
                walk: Walk::default(),
            }),
            _batches: AbortOnDrop::of(&batches),
        }
    }
}

impl<E: Engine> Shared<E> {
    /// Has one step done, in a transaction with others.
    async fn ask(&self, op: Op) -> Result<Reply, Error> {
        let (asked, answer) = Asked::new(op);
        self.asked.send(asked).map_err(|_| Error::Closed)?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// The server answered something else than it was asked for. It cannot: the engine makes the reply.
    fn confused(&self) -> Error {
        self.engine.kind().unavailable("the answer fits no request")
    }

    fn is_crowded(&self, name: &Name) {
        let mut crowded = self.crowded();
        if crowded.len() >= MOST_CROWDED {
            crowded.clear();
        }
        crowded.insert(name.clone());
    }

    fn crowded(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.crowded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enlisted(&self) -> MutexGuard<'_, HashMap<KeeperId, Moment>> {
        self.enlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Engine> Store for SqlStore<E> {
    fn capabilities(&self) -> Capabilities {
        self.shared.engine.capabilities()
    }
    fn place(&self) -> String {
        self.shared.engine.place()
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(self.shared.acquire(claim))
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(self.shared.withdraw(name, claim))
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(self.shared.renew(renewals))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(self.shared.let_go(release))
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(async move {
            let Interest::Name(name) = interest else {
                return self.shared.engine.subscribe(interest).await;
            };
            let shared = Arc::downgrade(&self.shared);
            let inspect = move || {
                let (shared, name) = (shared.upgrade()?, name.clone());
                Some(async move { shared.look(&name).await })
            };
            polling::watch(&self.shared.runtime, inspect).await
        })
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(self.shared.look(name))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(self.shared.look_all(prefix))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(self.shared.break_holds(request))
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(self.shared.count(request))
    }
    fn health(&self) -> Health {
        self.shared.engine.health()
    }
}
