//! Locks among the machines of a network, on a Redis server.
//!
//! On the wire a lock is a Redisson lock: services that use Redisson and programs that use Lockkeeper exclude
//! and wake each other on one name. The second dialect, `dialect=plain`, is the `SET name value NX PX` recipe
//! of many other libraries. `docs/redis.md` has the layout, and how far each side sees the other.
//!
//! # What it rests on
//! * Every verb is one script, and a server runs one script at a time.
//! * Time is the server's: leases end by its clock, and tokens are at least its microseconds.
//! * A claim id is never used twice, so that a repeated or late request can only ever touch its own hold.
//!
//! # What it does not protect against
//! * A server that restarts without its data, or a fail-over to a replica that had not heard of the lock yet:
//!   both forget who holds. Tokens go on growing, as long as clocks agree better than that took.
//! * A server's clock that is set forward by more than a lease ends leases early.
//! * A server that removes keys when its memory is full. It is warned of when connecting.
//!
//! # Layout
//! `url` says where (`topology`) and how (`options`). A `connection` sends requests: it is `setup` over a `transport`, which `checks` judges and a `supervisor`
//! keeps alive; `shared` is what they have in common, `pushes` is what comes without being asked for. `sentinel` finds the server, `replicas` waits
//! for its replicas, `batch` lets many verbs share a script, `subscriptions` knows who waits for what. `redisson` and `plain` turn verbs into
//! `scripts` and their answers back;
//! `renewals`, `interests` and `listing` are the verbs that take more than one, `breaking` the one that must not be late.
//! `servers` says which server that is for a name: in a `cluster` the one that has its slot (`survey`, `slots`), if
//! that does not send us another `way`.

pub(super) mod answer;
mod batch;
pub(super) mod breaking;
pub(super) mod checks;
mod cluster;
mod connection;
pub(super) mod fault;
mod interests;
mod join;
pub(super) mod keys;
mod listing;
pub(super) mod node;
mod options;
mod plain;
mod pushes;
mod redisson;
mod renewals;
mod replicas;
pub(super) mod scripts;
mod sentinel;
mod servers;
mod setup;
mod shared;
mod slots;
mod subscriptions;
mod supervisor;
mod survey;
mod token_keys;
mod topology;
mod transport;
mod url;
mod way;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use self::fault::STORE;
use self::plain::Plain;
use self::redisson::Redisson;
use self::servers::{Servers, visit};
use self::url::{Dialect, Settings};
use self::way::Way;
use super::*;
use crate::url::StoreUrl;

/// How many permits one claim may take: each is an entry of its own, as Redisson has it.
const MAX_PERMITS: u32 = 1_000;
/// How long it is remembered that a lock was broken.
pub(super) const BREAK_MEMORY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Keeps locks on a Redis server.
///
/// Dropping it ends its connections. What it still holds stays held until the leases end.
///
/// ```
/// use lockkeeper::store::{Store, redis::RedisStore};
/// use lockkeeper::url::StoreUrl;
///
/// # async fn example() -> Result<(), lockkeeper::Error> {
/// let store = RedisStore::connect(&StoreUrl::parse("redis://localhost:6379")?).await?;
/// println!("{}", store.place());
/// # Ok(()) }
/// ```
pub struct RedisStore {
    servers: Arc<Servers>,
    us: Us,
}

/// How this process is known to the servers.
#[derive(Clone)]
struct Us {
    /// Where it hears hints.
    channel: String,
    /// The channel and the process, as they are written into holds.
    who: String,
}

impl RedisStore {
    /// Connects to the server that a `redis:`, `rediss:`, `redis+unix:` or `redis+sentinel:` URL names, or to the
    /// cluster that a `redis+cluster:` URL names nodes of.
    ///
    /// Call it on the runtime that is to drive the connections, with its I/O and timers enabled. Tasks of any runtime may use
    /// the store then.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] says what is wrong with the URL. [`Error::Unavailable`] when the server cannot be
    /// reached or is a replica; [`Error::Refused`] when it is too old or refuses the user.
    pub async fn connect(url: &StoreUrl) -> Result<RedisStore, Error> {
        let settings = Settings::parse(url)?;
        settings.warn();
        let channel = format!("{}{}", keys::WAKE, Uuid::new_v4());
        let who = answer::describe(&channel, &Process::current());
        let servers = Servers::open(settings, channel.clone()).await?;
        Ok(RedisStore {
            servers: Arc::new(servers),
            us: Us { channel, who },
        })
    }

    fn dialect(&self) -> Dialect {
        self.servers.settings().dialect
    }

    fn redisson<'a>(&'a self, connection: &'a Way<'a>) -> Redisson<'a> {
        let who = &self.us.who;
        Redisson { connection, who }
    }

    fn plain<'a>(&'a self, connection: &'a Way<'a>) -> Plain<'a> {
        let who = &self.us.who;
        Plain { connection, who }
    }

    /// Describes a name, with so many of those who wait.
    async fn look(&self, name: &Name, listed: usize) -> Result<Option<LockInfo>, Error> {
        look(&self.servers, &self.us.who, name, listed).await
    }

    async fn count(&self, request: &LatchRequest) -> Result<LatchState, Error> {
        if self.dialect() == Dialect::Plain {
            return Err(NO_LATCHES);
        }
        let route = self.servers.route(&request.name)?;
        visit!(route, |way| self.redisson(way).latch(request))
    }

    async fn acquire_once(&self, way: &Way<'_>, claim: &Claim) -> Result<Attempt, Error> {
        match self.dialect() {
            Dialect::Redisson => self.redisson(way).acquire(claim).await,
            Dialect::Plain => self.plain(way).acquire(claim).await,
        }
    }

    async fn withdraw_claim(
        &self,
        way: &Way<'_>,
        name: &Name,
        claim: ClaimId,
    ) -> Result<(), Error> {
        match self.dialect() {
            Dialect::Redisson => self.redisson(way).withdraw(name, claim).await,
            Dialect::Plain => self.plain(way).release(name, claim).await.map(|_| ()),
        }
    }

    async fn renew_once(&self, way: &Way<'_>, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        match self.dialect() {
            Dialect::Redisson => self.redisson(way).renew(renewals).await,
            Dialect::Plain => self.plain(way).renew(renewals).await,
        }
    }

    async fn release_once(&self, way: &Way<'_>, release: &Release) -> Result<Released, Error> {
        match self.dialect() {
            Dialect::Redisson => self.redisson(way).release(release).await,
            Dialect::Plain => {
                let Release { name, claim, .. } = release;
                self.plain(way).release(name, *claim).await
            }
        }
    }
}

const NO_LATCHES: Error = Error::Unsupported {
    store: STORE,
    what: "latches",
};

/// What a URL says, without its secrets: for the fuzz target of its parser.
#[cfg(feature = "internals")]
pub fn read_url(url: &StoreUrl) -> Result<String, Error> {
    Settings::parse(url).map(|settings| format!("{settings:?}"))
}

/// The grant in a message to a waiting claim: for the fuzz target of its parser.
#[cfg(feature = "internals")]
pub fn read_grant(text: &str) -> Option<DirectGrant> {
    pushes::direct_grant(text)
}

/// The first answer of a server and how long it is, `None` if not all of it has come: for the fuzz target of its parser.
#[cfg(feature = "internals")]
pub fn read_answer(bytes: &[u8]) -> Result<Option<(String, usize)>, String> {
    match transport::resp::first(bytes) {
        Ok(first) => Ok(first.map(|(value, length)| (format!("{value:?}"), length))),
        Err(error) => Err(error.to_string()),
    }
}

async fn look(
    servers: &Servers,
    who: &str,
    name: &Name,
    listed: usize,
) -> Result<Option<LockInfo>, Error> {
    let route = servers.route(name)?;
    match servers.settings().dialect {
        Dialect::Redisson => visit!(route, |connection| Redisson { connection, who }
            .inspect(name, listed)),
        Dialect::Plain => visit!(route, |connection| Plain { connection, who }.inspect(name)),
    }
}

/// A duration in whole milliseconds, never shorter than it was.
pub(super) fn millis(duration: Duration) -> u64 {
    duration.as_micros().div_ceil(1_000) as u64
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("server", &format_args!("{}", self.servers))
            .field("dialect", &self.dialect())
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        match self.dialect() {
            Dialect::Redisson => CAPABILITIES,
            Dialect::Plain => PLAIN_CAPABILITIES,
        }
    }
    fn place(&self) -> String {
        let settings = self.servers.settings();
        let (servers, database) = (&settings.topology, settings.database);
        format!("{servers}/{database} {}", settings.prefix)
    }
    fn check_name(&self, name: &Name) -> Result<(), Error> {
        self.servers.keys(name).map(drop)
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(async move {
            let route = self.servers.route(&claim.name)?;
            visit!(route, |way| self.acquire(way, claim))
        })
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(async move {
            let route = self.servers.route(name)?;
            visit!(route, |way| self.withdraw_claim(way, name, claim))
        })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(self.renew_all(renewals))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(async move {
            let route = self.servers.route(&release.name)?;
            visit!(route, |way| self.release_hold(way, release))
        })
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(self.subscribe_to(interest))
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(self.look(name, MAX_LISTED))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(self.look_all(prefix))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(async move {
            let route = self.servers.route(&request.name)?;
            match self.dialect() {
                Dialect::Redisson => visit!(route, |way| self.redisson(way).break_lock(request)),
                Dialect::Plain => visit!(route, |way| self.plain(way).break_lock(request)),
            }
        })
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(self.count(request))
    }
}

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    store: STORE,
    reach: Reach::Network,
    fair: true,
    read_write: true,
    permits: true,
    latches: true,
    queue: true,
    fencing: Fencing::DataOrClock,
    wakeups: Wakeups::Direct,
    survives_restart: true,
    frees_dead_at_once: false,
    time: TimeAuthority::ServerWall,
    lease_end: LeaseEnd::ByItself,
    longest_lease: crate::MAX_LEASE,
    // The connection is given up with all that is on it when the server is silent.
    ends_in_time: true,
};

pub(super) const PLAIN_CAPABILITIES: Capabilities = Capabilities {
    fair: false,
    read_write: false,
    permits: false,
    latches: false,
    queue: false,
    wakeups: Wakeups::Polling,
    ..CAPABILITIES
};
