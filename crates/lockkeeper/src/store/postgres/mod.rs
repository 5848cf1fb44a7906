//! Locks in a PostgreSQL database.
//!
//! # What it rests on
//! * Tables of its own, in a schema of its own. No stored routine, and no session lock: a session may end while its process lives.
//! * Every request is one message and one short transaction at READ COMMITTED. Time is the server's `clock_timestamp()`.
//! * A waiter is granted by the transaction that frees the lock, and told by `NOTIFY` on a channel of its keeper.
//! * Grants and renewals wait for the disk; releases and places in the queue do not (`synchronous_commit` by transaction).
//! * A server that may have forgotten grants (a crash, a promoted standby, a restored copy) grants nothing until the longest lease is over.
//!
//! # What it does not protect against
//! * A server's clock that is set forward by more than a lease ends leases early. Tokens grow all the same.
//! * Two servers that both take themselves for the primary.
//!
//! `docs/sql.md` has the options, the rights that are needed, and what the settings of a server mean.
//!
//! # Layout
//! `config` is the URL. A `connection` is made by `setup`; `statements` are what it is asked, `requests` turns steps into a message and
//! its answer into replies, `wake` is what is said by `NOTIFY`, `fault` what errors mean.

mod config;
mod connection;
mod fault;
#[cfg(feature = "internals")]
pub mod raw;
mod requests;
mod setup;
mod statements;
mod wake;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_postgres::SimpleQueryMessage;

use self::config::{Config, KIND, USUAL_LEASE};
use self::connection::{Kept, Link};
use self::requests::{How, Request};
use self::statements::{INSTALLING, identifier, tables};
use super::common::{AbortOnDrop, ServerClock, StoreKind, Supervised, polling, supervise};
use super::sql::SqlStore;
use super::sql::engine::{Engine, Fault, Op, Reply, length};
use super::sql::wake::Mailbox;
use super::*;
use crate::clock::{Clock, Moment};
use crate::url::StoreUrl;

/// How often a session is asked whether it still knows the tables right. Shorter than the shortest sit-out.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long a channel is listened to after its last waiter.
const LINGER: Duration = Duration::from_secs(10);
/// From when on a break of a hold is listened for.
const LONG_HOLD: Duration = Duration::from_secs(1);

/// Keeps locks in a PostgreSQL database.
///
/// ```no_run
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::Lockkeeper;
///
/// let keeper = Lockkeeper::connect("postgres://app@db.example/app").await?;
/// let guard = keeper.lock("report")?.acquire().await?;
/// # drop(guard);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct PostgresStore {
    store: SqlStore<Postgres>,
}

impl PostgresStore {
    /// Connects to the server that a URL names, and makes the tables if there are none.
    ///
    /// It is called inside a tokio runtime with timers and I/O. The connection lives there.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`]; [`Error::Refused`] for a server that cannot be used, such as a replica, or without the rights;
    /// [`Error::Unavailable`] when it does not answer.
    pub async fn connect(url: &StoreUrl) -> Result<PostgresStore, Error> {
        let engine = Postgres::connect(Config::parse(url)?).await?;
        let store = SqlStore::new(engine);
        Ok(PostgresStore { store })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for PostgresStore {
    crate::forward!(store: capabilities facts try_acquire withdraw renew release subscribe inspect list break_lock latch);
}

/// The statements that make the tables in a schema, as far as they are not there, and give `user` the rights that are needed to use them.
///
/// ```
/// let text = lockkeeper::store::postgres::schema("lockkeeper", "app");
/// assert!(text.contains("CREATE SCHEMA"));
/// ```
pub fn schema(schema: &str, user: &str) -> String {
    let (named, user) = (identifier(schema), identifier(user));
    let (new, setting) = (statements::is_new(schema), "lockkeeper.new");
    let tables = tables(
        schema,
        length(USUAL_LEASE),
        &format!("current_setting('{setting}')::boolean"),
    );
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;\n{INSTALLING};\nSELECT set_config('{setting}', ({new})::text, true);\nCREATE SCHEMA IF NOT EXISTS {named};\n{}\n\
         GRANT USAGE ON SCHEMA {named} TO {user};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {named} TO {user};\nCOMMIT;\n",
        tables.trim_end()
    )
}

/// One server, as the store uses it.
pub(super) struct Postgres {
    me: Weak<Postgres>,
    config: Config,
    mailbox: Mailbox,
    clock: ServerClock,
    runtime: Handle,
    capabilities: Capabilities,
    state: Mutex<State>,
    /// Which channels to listen to, and for how many.
    channels: Mutex<HashMap<String, usize>>,
    /// Held while a channel is begun or ended with: the server hears of it in the same order.
    listening: tokio::sync::Mutex<()>,
    /// From when on the server may grant, by its clock.
    ready_at: AtomicU64,
    /// Whether the server took no notification the last time.
    is_silent: AtomicBool,
    supervisor: Mutex<Option<AbortOnDrop>>,
}

/// How the connection is.
enum State {
    Up(Arc<Link>),
    Down(Error),
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    async fn connect(mut config: Config) -> Result<Arc<Postgres>, Error> {
        let mailbox = Mailbox::default();
        let link = Arc::new(Link::connect(&config, &mailbox, None).await?);
        // What it may grant from now on, also in tables that are made anew.
        config.max_lease = Some(link.facts.max_lease);
        let engine = Arc::new_cyclic(|me| Postgres {
            me: me.clone(),
            capabilities: Capabilities {
                longest_lease: link.facts.max_lease,
                wakeups: match link.facts.pooled {
                    true => Wakeups::Polling,
                    false => Wakeups::Direct,
                },
                ..CAPABILITIES
            },
            config,
            mailbox,
            clock: ServerClock::default(),
            runtime: Handle::current(),
            state: Mutex::new(State::Down(KIND.unavailable("not connected yet"))),
            channels: Mutex::default(),
            listening: tokio::sync::Mutex::default(),
            ready_at: AtomicU64::new(0),
            is_silent: AtomicBool::new(false),
            supervisor: Mutex::default(),
        });
        engine.is_up(&link);
        let supervisor = Supervisor {
            engine: Arc::downgrade(&engine),
            kept: Kept::default(),
            keeps_until: Instant::now(),
        };
        let task = async move { supervise(supervisor, Some(link), &Clock::real()).await };
        let task = engine.runtime.spawn(task);
        *engine
            .supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(AbortOnDrop::of(&task));
        Ok(engine)
    }

    fn is_up(&self, link: &Arc<Link>) {
        let now = Moment::now();
        self.clock.saw(link.facts.now, now, now);
        self.ready_at.store(link.facts.ready_at, SeqCst);
        *self.state() = State::Up(link.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self) -> Result<Arc<Link>, Error> {
        match &*self.state() {
            State::Up(link) if link.is_given_up() => {
                Err(KIND.unavailable("the connection is being made again"))
            }
            State::Up(link) => Ok(link.clone()),
            State::Down(error) => Err(error.clone()),
        }
    }

    async fn transact(&self, ops: &[Op], mut how: How) -> Result<Vec<Reply>, Fault> {
        let link = self.link().map_err(Fault::Failed)?;
        let durable = how.durable;
        let mut request = Request::new(&link.dialect, ops, how, &link.limits);
        let mut sent = Moment::now();
        let limit = self.config.response_timeout;
        let mut answer = link.ask(&request.text, limit).await;
        if let Some(Err(error)) = &answer
            && fault::is_without_notifications(error)
        {
            if !self.is_silent.swap(true, SeqCst) {
                let server = self.config.place();
                tracing::warn!(%server, %error, "the server takes no notifications: waiters find out by themselves that they hold");
            }
            if !link.dialect.prepared {
                let _ = link.ask("ROLLBACK", limit).await;
            }
            how.silent = true;
            request = Request::new(&link.dialect, ops, how, &link.limits);
            sent = Moment::now();
            answer = link.ask(&request.text, limit).await;
        } else if request.notifies {
            self.is_silent.store(false, SeqCst);
        }
        let Some(answer) = answer else {
            link.give_up();
            let reason = format!("the server did not answer within {limit:?}");
            return Err(Fault::Unknown(reason));
        };
        let messages = match answer {
            Ok(messages) => messages,
            Err(error) => {
                let (fault, over) = fault::of_transaction(&error, ops, &self.config.schema);
                if over && fault::misses_table(&error) {
                    link.lose_tables();
                } else if over {
                    link.give_up();
                } else if !link.dialect.prepared {
                    let _ = link.ask("ROLLBACK", limit).await;
                }
                return Err(fault);
            }
        };
        if link.has_warned() && durable {
            let reason = "the server no longer waits for its replica, which may not have this";
            return Err(Fault::Unknown(reason.into()));
        }
        let Ok(response) = request.read(ops, messages) else {
            link.give_up();
            return Err(Fault::Unknown("the answer fits no request".into()));
        };
        if let Some(now) = response.now {
            self.clock.saw(now, sent, Moment::now());
        }
        match response.ready_at {
            Some(Some(ready_at)) => {
                self.ready_at.store(ready_at, SeqCst);
                let latest = response.now.unwrap_or(0) + link.facts.sits_out + setup::SLACK;
                if ready_at > latest {
                    // The clock was set back. What is later than it can be is put right when a connection begins.
                    link.give_up();
                }
            }
            // It is not known: what is found out when a connection begins.
            Some(None) => link.lose_tables(),
            None => {}
        }
        self.tell(&link, ops, &response.replies, durable);
        Ok(response.replies)
    }

    /// Says what a commit that waits must not say itself.
    fn tell(&self, link: &Arc<Link>, ops: &[Op], replies: &[Reply], durable: bool) {
        let mut messages = Vec::new();
        for (op, reply) in ops.iter().zip(replies) {
            match (op, reply) {
                (Op::Save(save), Reply::Done) if durable => {
                    let woken = save.wake.iter();
                    messages.extend(woken.map(|wake| wake::message(&save.name, wake)));
                }
                (Op::SaveLatch { name, .. }, Reply::Done) => {
                    let text = wake::latch(&self.config.schema, name);
                    messages.push((wake::LATCHES.to_owned(), text));
                }
                _ => {}
            }
        }
        if messages.is_empty() {
            return;
        }
        let text = statements::notifications(&messages);
        let (link, limit) = (link.clone(), self.config.response_timeout);
        self.runtime.spawn(async move {
            let _ = link.ask(&text, limit).await;
        });
    }

    /// Has a channel listened to from now on. Returns what ends that.
    async fn listen(&self, channel: String) -> Listening {
        let _turn = self.listening.lock().await;
        let is_new = {
            let mut channels = self.channels();
            let listeners = channels.entry(channel.clone()).or_default();
            *listeners += 1;
            *listeners == 1
        };
        let listening = Listening {
            engine: self.me.clone(),
            channel,
        };
        // Where there is no connection, the next one listens before it is used, and everybody looks again.
        if is_new && let Ok(link) = self.link() {
            self.listen_on(&link, &listening.channel).await;
        }
        listening
    }

    async fn listen_on(&self, link: &Link, channel: &str) {
        let text = format!("LISTEN {}", identifier(channel));
        match link.ask(&text, self.config.response_timeout).await {
            Some(Ok(_)) => {}
            _ => link.give_up(),
        }
    }
}

/// Listens for breaks while a keeper has held something for a while: such holds are what people break. All others renew or end
/// soon. Every session that listens is woken by every notification of the database, so idle keepers do not.
async fn watch_for_breaks(engine: Weak<Postgres>, keeper: KeeperId) {
    let mut listening = None;
    loop {
        tokio::time::sleep(LONG_HOLD).await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let holds = engine.mailbox.has_held_for(keeper, LONG_HOLD);
        if holds && listening.is_none() {
            listening = Some(engine.listen(wake::channel(keeper)).await);
            // One may have been broken before.
            engine.mailbox.board().keeper(keeper);
        } else if !holds {
            listening = None;
        }
    }
}

/// A channel that somebody listens to.
struct Listening {
    engine: Weak<Postgres>,
    channel: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let channel = std::mem::take(&mut self.channel);
        let runtime = engine.runtime.clone();
        let weak = Arc::downgrade(&engine);
        // Others may wait again soon.
        runtime.spawn(async move {
            tokio::time::sleep(LINGER).await;
            let Some(engine) = weak.upgrade() else { return };
            let _turn = engine.listening.lock().await;
            let unused = {
                let mut channels = engine.channels();
                let listeners = channels.entry(channel.clone()).or_default();
                *listeners = listeners.saturating_sub(1);
                *listeners == 0 && channels.remove(&channel).is_some()
            };
            if unused && let Ok(link) = engine.link() {
                let text = format!("UNLISTEN {}", identifier(&channel));
                let _ = link.ask(&text, engine.config.response_timeout).await;
            }
        });
    }
}

impl Engine for Postgres {
    fn run<'a>(&'a self, ops: &'a [Op], durable: bool) -> BoxFuture<'a, Result<Vec<Reply>, Fault>> {
        let how = How {
            durable,
            ..How::default()
        };
        Box::pin(self.transact(ops, how))
    }

    fn run_now<'a>(&'a self, op: &'a Op) -> BoxFuture<'a, Result<Vec<Reply>, Fault>> {
        let how = How {
            durable: op.is_durable() == Some(true),
            hurried: true,
            silent: false,
        };
        Box::pin(self.transact(std::slice::from_ref(op), how))
    }

    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(async move {
            let board = self.mailbox.board();
            if self.capabilities.wakeups == Wakeups::Polling {
                return Ok(match interest {
                    Interest::Keeper(_) => board.subscribe(interest),
                    _ => polling::poll(&self.runtime),
                });
            }
            let channel = match &interest {
                Interest::Claim(_, claim) => wake::channel(claim.keeper),
                Interest::Latch(_) | Interest::Name(_) => wake::LATCHES.to_owned(),
                Interest::Keeper(keeper) => {
                    let task = watch_for_breaks(self.me.clone(), *keeper);
                    let task = AbortOnDrop::of(&self.runtime.spawn(task));
                    return Ok(board.subscribe(interest).and(task));
                }
            };
            let subscription = board.subscribe(interest);
            // The caller may run where there are no timers.
            let engine = self.me.upgrade().ok_or(Error::Closed)?;
            let listening = self
                .runtime
                .spawn(async move { engine.listen(channel).await });
            Ok(subscription.and(listening.await.map_err(|_| Error::Closed)?))
        })
    }

    fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    fn clock(&self) -> &ServerClock {
        &self.clock
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn place(&self) -> String {
        self.config.place()
    }

    fn health(&self) -> Health {
        let now = self.clock.at(Moment::now());
        let ready_at = self.ready_at.load(SeqCst);
        Health {
            ready_in: Duration::from_micros(ready_at.saturating_sub(now)).min(crate::MAX_LEASE),
            ..Health::default()
        }
    }

    fn kind(&self) -> &'static StoreKind {
        &KIND
    }
}

/// Keeps the connection alive for as long as the store is.
struct Supervisor {
    engine: Weak<Postgres>,
    kept: Kept,
    /// Until then somebody may hold what the tables said that are gone.
    keeps_until: Instant,
}

impl Supervisor {
    fn limit(&self) -> Option<Duration> {
        let engine = self.engine.upgrade()?;
        Some(engine.config.response_timeout)
    }
}

impl Supervised for Supervisor {
    type Connection = Arc<Link>;

    async fn connect(&self, _: u64) -> Result<Arc<Link>, Error> {
        let (config, mailbox) = {
            let engine = self.engine.upgrade().ok_or(Error::Closed)?;
            (engine.config.clone(), engine.mailbox.clone())
        };
        let connected = Link::connect(&config, &mailbox, Some(&self.kept)).await;
        if connected.is_ok() || Instant::now() >= self.keeps_until {
            self.kept.set(None);
        }
        connected.map(Arc::new)
    }

    async fn serve(&mut self, link: &Arc<Link>) -> String {
        if let Some(engine) = self.engine.upgrade() {
            // First: what is listened for from now on is listened for here.
            engine.is_up(link);
            let turn = engine.listening.lock().await;
            let channels: Vec<String> = engine.channels().keys().cloned().collect();
            for channel in channels {
                engine.listen_on(link, &channel).await;
            }
            drop(turn);
            engine.mailbox.board().everyone();
        }
        let Some(limit) = self.limit() else {
            return "its store is gone".into();
        };
        let look = link.dialect.fill(&format!(
            "SELECT 1 FROM {{alive}} WHERE {{own}} AND EXISTS (SELECT FROM {{s}}.meta WHERE max_lease >= {})",
            length(link.facts.max_lease)
        ));
        loop {
            tokio::select! {
                reason = link.end() => return reason,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let knows = match link.ask(&look, limit).await {
                Some(Ok(messages)) => messages
                    .iter()
                    .any(|one| matches!(one, SimpleQueryMessage::Row(_))),
                Some(Err(error)) => !fault::misses_table(&error),
                None => true,
            };
            if !knows {
                link.lose_tables();
            }
        }
    }

    fn ended(&mut self, link: Arc<Link>, reason: &str) {
        self.keeps_until = Instant::now() + Duration::from_micros(link.facts.sits_out);
        if link.has_lost_tables() && link.dialect.prepared {
            self.kept.set(Some(link));
        } else {
            drop(link);
        }
        if let Some(engine) = self.engine.upgrade() {
            tracing::debug!(server = %engine.config.place(), reason, "the connection has ended");
            let reason = format!("the connection has ended ({reason}) and is being made again");
            *engine.state() = State::Down(KIND.unavailable(reason));
            engine.mailbox.board().everyone();
        }
    }

    fn failed(&mut self, error: &Error) {
        if let Some(engine) = self.engine.upgrade() {
            *engine.state() = State::Down(error.clone());
        }
    }
}

/// What it can do.
pub const CAPABILITIES: Capabilities = Capabilities {
    store: KIND.store,
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
    longest_lease: USUAL_LEASE,
    ends_in_time: false,
};
