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
//! Not there yet: TLS, Sentinel, Cluster, waiting for replicas.
//!
//! # Layout
//! `url` says where and how, `connection` sends requests, `supervisor` keeps it alive, `checks` judges the server,
//! `subscriptions` knows who waits for what, `batch` lets many verbs share a script. `redisson` and `plain` turn verbs into `scripts` and their answers back.

mod answer;
mod batch;
mod checks;
mod connection;
mod fault;
mod keys;
mod plain;
mod redisson;
mod scripts;
mod server_clock;
mod subscriptions;
mod supervisor;
mod url;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tokio::task::AbortHandle;
use uuid::Uuid;

use self::connection::Connection;
use self::fault::{Fault, STORE};
use self::keys::Keys;
use self::plain::Plain;
use self::redisson::Redisson;
use self::subscriptions::Topic;
use self::url::{Dialect, Settings};
use super::*;
use crate::url::StoreUrl;

/// How many holds one script renews: longer ones would keep others waiting.
const RENEW_SLICE: usize = 64;
/// How many permits one claim may take: each is an entry of its own, as Redisson has it.
const MAX_PERMITS: u32 = 1_000;
/// How long it is remembered that a lock was broken.
const BREAK_MEMORY: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How often whoever watches a name looks at it. Nobody publishes that a lock was taken.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a waiter of the plain dialect tries: on average, as its peers do.
const POLL_EVERY: Duration = Duration::from_millis(25);

/// Keeps locks on a Redis server.
///
/// Dropping it ends its connection. What it still holds stays held until the leases end.
pub struct RedisStore {
    connection: Arc<Connection>,
}

impl RedisStore {
    /// Connects to the server that a `redis:` or `redis+unix:` URL names.
    ///
    /// Call it on the runtime that is to drive the connection.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] says what is wrong with the URL. [`Error::Unavailable`] when the server cannot be
    /// reached or is a replica; [`Error::Refused`] when it is too old or refuses the user.
    pub async fn connect(url: &StoreUrl) -> Result<RedisStore, Error> {
        let settings = Settings::parse(url)?;
        if settings.password.is_some() && !settings.tls && !settings.topology.is_local() {
            tracing::warn!(
                server = %settings.topology,
                "the password crosses the network in plain text; this version has no TLS yet"
            );
        }
        let channel = format!("lockkeeper_wake:{}", Uuid::new_v4());
        Ok(RedisStore {
            connection: Arc::new(Connection::open(settings, channel).await?),
        })
    }

    fn dialect(&self) -> Dialect {
        self.connection.settings().dialect
    }

    fn redisson(&self) -> Redisson<'_> {
        Redisson {
            connection: &self.connection,
            who: self.connection.batch().who(),
        }
    }

    fn plain(&self) -> Plain<'_> {
        Plain {
            connection: &self.connection,
            who: self.connection.batch().who(),
        }
    }

    fn keys(&self, name: &Name) -> Result<Keys, Error> {
        Keys::new(&self.connection.settings().prefix, name)
    }

    async fn subscribe_to(&self, interest: Interest) -> Result<Subscription, Error> {
        let subscriptions = self.connection.subscriptions();
        match (self.dialect(), interest) {
            (Dialect::Redisson, Interest::Claim(name, claim)) => {
                Ok(subscriptions.claim(name, claim))
            }
            (Dialect::Redisson, Interest::Latch(name)) => {
                let topic = Topic::Channel(self.keys(&name)?.latch_channel());
                let (subscription, version) = subscriptions.topic(Interest::Latch(name), topic);
                self.connection.synced(version).await?;
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
        let task = self.connection.runtime().spawn(async move {
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
        let hint = hints.clone();
        let connection = Arc::downgrade(&self.connection);
        let task = self.connection.runtime().spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(connection) = connection.upgrade() else {
                    return;
                };
                if let Ok(info) = look(&connection, &name).await {
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

    async fn look(&self, name: &Name) -> Result<Option<LockInfo>, Error> {
        look(&self.connection, name).await
    }

    /// Finds names by keys of ours in a keyspace that may have much else.
    async fn look_all(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let mut names = BTreeSet::new();
        let mut cursor = "0".to_owned();
        loop {
            let (keys, next) = self.scan(&cursor, keys::OWN).await?;
            for key in &keys {
                self.add_name(key, prefix, &mut names);
            }
            if next == "0" {
                break;
            }
            cursor = next;
        }
        if self.dialect() == Dialect::Redisson {
            self.add_fenced(prefix, &mut names).await?;
        }
        let mut infos = Vec::new();
        for name in &names {
            infos.extend(self.look(name).await?);
        }
        infos.retain(|info| !info.holders.is_empty() || info.waiters > 0);
        Ok(infos)
    }

    /// One page of the keys that start like this.
    async fn scan(&self, cursor: &str, start: &str) -> Result<(Vec<String>, String), Error> {
        let mut scan = ::redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg(format!("{start}*"))
            .arg("COUNT")
            .arg(1000);
        let page = self.connection.send(&scan).await.map_err(Fault::of_look)?;
        let page = answer::Reply::new(page)?;
        let keys: Result<_, Error> = page.list(1)?.iter().map(answer::text).collect();
        Ok((keys?, page.text(0)?))
    }

    /// A lock that is held, and that nobody else wants, has no key of ours: its fence leads to it.
    async fn add_fenced(&self, prefix: &str, names: &mut BTreeSet<Name>) -> Result<(), Error> {
        let start = format!("{}{prefix}", self.connection.settings().prefix);
        let mut cursor = "0".to_owned();
        loop {
            let (fences, next) = self.scan(&cursor, keys::FENCE).await?;
            let mains = fences.iter().flat_map(|fence| keys::fenced(fence));
            let mains: Vec<&str> = mains.filter(|main| main.starts_with(&start)).collect();
            let exist = self.connection.exist(&mains).await;
            for (main, exists) in mains.iter().zip(exist.map_err(Fault::of_look)?) {
                if exists {
                    let name = &main[self.connection.settings().prefix.len()..];
                    names.extend(Name::new(name).ok());
                }
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn add_name(&self, key: &str, prefix: &str, names: &mut BTreeSet<Name>) {
        let own = &self.connection.settings().prefix;
        let name = match self.dialect() {
            Dialect::Redisson => keys::name_in_use(own, key),
            Dialect::Plain => keys::name_with_token(own, key),
        };
        let name = name.filter(|name| name.starts_with(prefix));
        names.extend(name.and_then(|name| Name::new(name).ok()));
    }

    async fn count(&self, request: &LatchRequest) -> Result<LatchState, Error> {
        match self.dialect() {
            Dialect::Redisson => self.redisson().latch(request).await,
            Dialect::Plain => Err(NO_LATCHES),
        }
    }
}

const NO_LATCHES: Error = Error::Unsupported {
    store: STORE,
    what: "latches",
};

/// Ends a task when it is dropped.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn look(connection: &Connection, name: &Name) -> Result<Option<LockInfo>, Error> {
    let who = connection.batch().who();
    match connection.settings().dialect {
        Dialect::Redisson => Redisson { connection, who }.inspect(name).await,
        Dialect::Plain => Plain { connection, who }.inspect(name).await,
    }
}

/// What changes about a name when somebody takes it, waits for it, lets go of it or breaks it.
type Sight = (Vec<ClaimId>, usize, Option<Token>, Option<Broken>);

fn sight(info: Option<LockInfo>) -> Option<Sight> {
    let info = info?;
    let holders = info.holders.iter().map(|holder| holder.claim).collect();
    Some((holders, info.waiters, info.last_token, info.broken))
}

/// A duration in whole milliseconds, never shorter than it was.
fn millis(duration: Duration) -> u64 {
    duration.as_micros().div_ceil(1_000) as u64
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("server", &format_args!("{}", self.connection.address()))
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
    /// The connection is given up with all that is on it when the server is silent.
    fn ends_in_time(&self) -> bool {
        true
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(async move {
            match self.dialect() {
                Dialect::Redisson => self.redisson().acquire(claim).await,
                Dialect::Plain => self.plain().acquire(claim).await,
            }
        })
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(async move {
            match self.dialect() {
                Dialect::Redisson => self.redisson().withdraw(name, claim).await,
                Dialect::Plain => self.plain().release(name, claim).await.map(|_| ()),
            }
        })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(async move {
            match self.dialect() {
                Dialect::Redisson => self.redisson().renew(renewals).await,
                Dialect::Plain => self.plain().renew(renewals).await,
            }
        })
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(async move {
            match self.dialect() {
                Dialect::Redisson => self.redisson().release(release).await,
                Dialect::Plain => self.plain().release(&release.name, release.claim).await,
            }
        })
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(self.subscribe_to(interest))
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(self.look(name))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(self.look_all(prefix))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, Vec<Holder>> {
        Box::pin(async move {
            match self.dialect() {
                Dialect::Redisson => self.redisson().break_lock(request).await,
                Dialect::Plain => self.plain().break_lock(request).await,
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
};

const PLAIN_CAPABILITIES: Capabilities = Capabilities {
    fair: false,
    read_write: false,
    permits: false,
    latches: false,
    queue: false,
    wakeups: Wakeups::Polling,
    ..CAPABILITIES
};
