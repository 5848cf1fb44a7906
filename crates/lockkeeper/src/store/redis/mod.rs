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
//! `url` says where (`topology`) and how (`options`). A `connection` sends requests: it is `setup` over a `link`, with
//! `tls` or without, which `checks` judges and a `supervisor` keeps alive; `shared` is what they have in common, `pushes`
//! what comes without being asked for. `sentinel` finds the server, `replicas` waits for its replicas, `batch` lets many
//! verbs share a script, `subscriptions` knows who waits for what. A `lane` is a second connection, for tasks that wait.
//! `redisson` and `plain` turn verbs into `scripts` and their answers back. `servers` says which server that is for a
//! name: in a `cluster` the one that has its slot (`slots`), if that does not send us another `way`.

mod answer;
mod batch;
mod checks;
mod cluster;
mod connection;
mod fault;
mod join;
mod keys;
mod lane;
mod link;
mod options;
mod plain;
mod pushes;
mod redisson;
mod replicas;
mod scripts;
mod sentinel;
mod server_clock;
mod servers;
mod setup;
mod shared;
mod slots;
mod subscriptions;
mod supervisor;
mod tls;
mod topology;
mod url;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tokio::task::AbortHandle;
use uuid::Uuid;

use self::connection::Connection;
use self::fault::{Fault, STORE};
use self::lane::Does;
use self::plain::Plain;
use self::redisson::Redisson;
use self::servers::{Servers, visit};
use self::subscriptions::Topic;
use self::url::{Dialect, Settings};
use self::way::Way;
use super::*;
use crate::url::StoreUrl;

/// How many holds one script renews: longer ones would keep others waiting.
const RENEW_SLICE: usize = 64;
/// Below this lease, slots are waited for as long as with it before a renewal goes on without them.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(600);
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
/// Dropping it ends its connections. What it still holds stays held until the leases end.
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
    /// Call it on the runtime that is to drive the connections. Tasks of another runtime that use it often get a
    /// connection that theirs drives; that one needs its I/O and timers enabled.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] says what is wrong with the URL. [`Error::Unavailable`] when the server cannot be
    /// reached or is a replica; [`Error::Refused`] when it is too old or refuses the user.
    pub async fn connect(url: &StoreUrl) -> Result<RedisStore, Error> {
        let settings = Settings::parse(url)?;
        if settings.shows_a_password() {
            tracing::warn!(
                server = %settings.topology,
                "the password crosses the network in plain text; use TLS: rediss: instead of redis:"
            );
        }
        if settings.trust.insecure {
            tracing::warn!(
                server = %settings.topology,
                "insecure=yes: the server's certificate is not looked at, so anyone on the way can be the server"
            );
        }
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

    async fn subscribe_to(&self, interest: Interest) -> Result<Subscription, Error> {
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
                std::pin::pin!(subscription.hints.notified()).enable();
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

    async fn look(&self, name: &Name) -> Result<Option<LockInfo>, Error> {
        look(&self.servers, &self.us.who, name).await
    }

    /// Finds names by keys of ours in a keyspace that may have much else.
    async fn look_all(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let mut names = BTreeSet::new();
        for server in self.servers.masters() {
            let mut cursor = "0".to_owned();
            loop {
                let (keys, next) = scan(&server, &cursor, keys::OWN).await?;
                for key in &keys {
                    self.add_name(key, prefix, &mut names);
                }
                if next == "0" {
                    break;
                }
                cursor = next;
            }
            if self.dialect() == Dialect::Redisson {
                self.add_fenced(&server, prefix, &mut names).await?;
            }
        }
        let mut infos = Vec::new();
        for name in &names {
            infos.extend(self.look(name).await?);
        }
        infos.retain(|info| !info.holders.is_empty() || info.waiters > 0);
        Ok(infos)
    }

    /// A lock that is held, and that nobody else wants, has no key of ours: its fence leads to it.
    async fn add_fenced(
        &self,
        server: &Connection,
        prefix: &str,
        names: &mut BTreeSet<Name>,
    ) -> Result<(), Error> {
        let own = &self.servers.settings().prefix;
        let start = format!("{own}{prefix}");
        let mut cursor = "0".to_owned();
        loop {
            let (fences, next) = scan(server, &cursor, keys::FENCE).await?;
            let mains = fences.iter().flat_map(|fence| keys::fenced(fence));
            let mains: Vec<&str> = mains.filter(|main| main.starts_with(&start)).collect();
            let exist = match server.exist(&mains).await {
                // A slot that is on its way elsewhere: a closer look at each finds it.
                Err(Fault::Server(_)) => vec![true; mains.len()],
                exist => exist.map_err(Fault::of_look)?,
            };
            for (main, _) in mains.iter().zip(exist).filter(|(_, exists)| *exists) {
                names.extend(Name::new(&main[own.len()..]).ok());
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn add_name(&self, key: &str, prefix: &str, names: &mut BTreeSet<Name>) {
        let own = &self.servers.settings().prefix;
        let name = match self.dialect() {
            Dialect::Redisson => keys::name_in_use(own, key),
            Dialect::Plain => keys::name_with_token(own, key),
        };
        let name = name.filter(|name| name.starts_with(prefix));
        names.extend(name.and_then(|name| Name::new(name).ok()));
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

    /// In a cluster a script touches one slot. A slot whose node does not answer must not cost the others their
    /// renewal.
    async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let cluster = match &*self.servers {
            Servers::One(lanes) => {
                return self.renew_holds(&Way::to(&lanes.main), renewals).await;
            }
            Servers::Many(cluster) => cluster,
        };
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (number, renewal) in renewals.iter().enumerate() {
            let slot = self.servers.keys(&renewal.name)?.slot();
            by_slot.entry(slot).or_default().push(number);
        }
        let parts = by_slot.iter().map(|(slot, numbers)| async move {
            let part: Vec<Renewal> = numbers.iter().map(|at| renewals[*at].clone()).collect();
            visit!(cluster.route(*slot), |way| self.renew_holds(way, &part))
        });
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        let patience = cluster.sleep(shortest.unwrap_or_default().max(SHORTEST_PATIENCE) / 6);
        let answers = join::all_within(parts.collect(), patience).await;
        let mut renewed = vec![Renewed::Unknown; renewals.len()];
        let mut failure = None;
        for (numbers, answer) in by_slot.values().zip(answers) {
            match answer {
                Some(Ok(part)) => {
                    for (at, answer) in numbers.iter().zip(part) {
                        renewed[*at] = answer;
                    }
                }
                Some(Err(error)) => failure = Some(error),
                None => {}
            }
        }
        match failure {
            Some(error) if renewed.iter().all(|answer| *answer == Renewed::Unknown) => Err(error),
            _ => Ok(renewed),
        }
    }
}

const NO_LATCHES: Error = Error::Unsupported {
    store: STORE,
    what: "latches",
};

/// What a URL says, without its secrets: for the fuzz target of its parser.
#[doc(hidden)]
pub fn read_url(url: &StoreUrl) -> Result<String, Error> {
    Settings::parse(url).map(|settings| format!("{settings:?}"))
}

/// One page of a server's keys that start like this.
async fn scan(
    server: &Connection,
    cursor: &str,
    start: &str,
) -> Result<(Vec<String>, String), Error> {
    let mut scan = ::redis::cmd("SCAN");
    scan.arg(cursor)
        .arg("MATCH")
        .arg(format!("{start}*"))
        .arg("COUNT")
        .arg(1000);
    let page = server.send(&scan, false).await.map_err(Fault::of_look)?;
    let page = answer::Reply::new(page)?;
    let keys: Result<_, Error> = page.list(1)?.iter().map(answer::text).collect();
    Ok((keys?, page.text(0)?))
}

/// Ends a task when it is dropped.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn look(servers: &Servers, who: &str, name: &Name) -> Result<Option<LockInfo>, Error> {
    let route = servers.route(name)?;
    match servers.settings().dialect {
        Dialect::Redisson => visit!(route, |connection| Redisson { connection, who }
            .inspect(name)),
        Dialect::Plain => visit!(route, |connection| Plain { connection, who }.inspect(name)),
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
    /// The connection is given up with all that is on it when the server is silent.
    fn ends_in_time(&self) -> bool {
        true
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(async move {
            let does = Does::Claims(claim.id);
            let route = self.servers.quickest(&claim.name, does)?;
            visit!(route, |way| self.acquire(way, claim))
        })
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(async move {
            let route = self.servers.behind(name, claim)?;
            visit!(route, |way| self.withdraw_claim(way, name, claim))
        })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(self.renew_all(renewals))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(async move {
            let does = Does::Releases(release.requeue.as_ref().map(|next| next.id));
            let route = self.servers.quickest(&release.name, does)?;
            visit!(route, |way| self.release_hold(way, release))
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
