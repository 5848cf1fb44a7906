//! One multiplexed connection to one server, looked after by a task of ours. With Sentinels, the server is whichever
//! is the master.
//!
//! The client library keeps a half-open socket and does not mind a server that became a replica. So a
//! supervisor connects again when requests get no answer, when the server says READONLY and when it closes the
//! connection. A new connection is subscribed to everything first; then everyone who waits is told to look
//! again, since hints may have been missed.
//!
//! Requests have no timers of their own, which would cost more than all the rest of them. The supervisor sends
//! a PING every quarter of the response time-out. A server answers in order: when a PING is not answered within
//! three quarters, neither was what was sent before it, and the connection is given up with all that is on it.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use super::answer::describe;
use super::batch::Batch;
use super::checks::ServerInfo;
use super::fault::{Fault, explain, is_demoted, refused, unavailable, words};
use super::keys::WAKE;
use super::link::Link;
use super::replicas::{Syncer, SyncerEnds};
use super::scripts::Script;
use super::sentinel::{self, Sentinels};
use super::server_clock::ServerClock;
use super::slots::Map;
use super::subscriptions::{Subscriptions, Topic};
use super::supervisor::supervise;
use super::url::{Address, Settings, Topology};
use crate::clock::Moment;
use crate::store::{ClaimId, Process};
use crate::{Error, Name};

/// What the supervisor is told.
#[derive(Debug)]
pub(super) enum Event {
    /// The topics to subscribe to have changed.
    Topics,
    /// The connection of this number is of no more use.
    Broken(u64, String),
}

#[derive(Clone)]
pub(super) enum State {
    /// The supervisor is connecting for the first time since it lost the connection.
    Connecting,
    Up(Up),
    Down(String),
}

/// A connection in use.
#[derive(Clone)]
pub(super) struct Up {
    pub number: u64,
    pub connection: MultiplexedConnection,
    pub syncer: Option<Syncer>,
}

/// Where to connect to.
enum Target {
    Server(Address),
    MasterOf(Arc<Sentinels>),
}

/// A connection's part in a cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub map: Arc<Map>,
    /// Whether the servers have sharded channels.
    pub sharded: bool,
    /// Whether it is there for sharded channels, or else for everything but them.
    ///
    /// A server ends subscriptions by itself when a slot moves, and the client library takes that for the answer
    /// to whatever was sent first. So there must be nothing else on that connection.
    pub ears: bool,
}

/// Requests to the server, and hints from it.
pub(super) struct Connection {
    shared: Arc<Shared>,
    /// The supervisor, and who listens to a Sentinel.
    tasks: Vec<JoinHandle<()>>,
}

pub(super) struct Shared {
    pub settings: Settings,
    target: Target,
    /// The server that is in use, or tried.
    address: Mutex<Address>,
    /// The server to try is another one now.
    pub elsewhere: Notify,
    /// Where hints for this process arrive.
    channel: String,
    pub runtime: Handle,
    /// Verbs that wait to go out together.
    pub batch: Batch,
    pub state: watch::Sender<State>,
    events: mpsc::UnboundedSender<Event>,
    pub subscriptions: Subscriptions,
    /// The newest version of the topics that the server has confirmed.
    pub synced: watch::Sender<u64>,
    clock: ServerClock,
    /// Which part of a cluster the server is, if it is one.
    pub member: Option<Member>,
    /// The sharded channels that are being unsubscribed from.
    pub leaving: Mutex<HashSet<String>>,
    /// Why the supervisor gave up the last connection.
    given_up: Mutex<String>,
}

/// A connection that is set up but not yet in use.
pub(super) struct Fresh {
    pub number: u64,
    pub link: Link,
    pub syncer: Option<(Syncer, SyncerEnds)>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Connection {
    /// Connects, and looks at the server. The first failure is reported; later ones are tried again.
    pub async fn open(settings: Settings, channel: String) -> Result<Connection, Error> {
        let (target, address) = match settings.topology.clone() {
            Topology::Single(address) => (Target::Server(address.clone()), address),
            Topology::Sentinel(addresses, service) => {
                let first = addresses[0].clone();
                let sentinels = Sentinels::new(addresses, service);
                (Target::MasterOf(Arc::new(sentinels)), first)
            }
            // Its nodes have a connection each.
            cluster @ Topology::Cluster(_) => {
                return Err(refused(format!("{cluster} is not one server")));
            }
        };
        let subscriptions = Subscriptions::new();
        let (shared, inbox) = Shared::new(settings, target, address, channel, subscriptions, None);
        let fresh = shared.connect(1).await?;
        let mut tasks = vec![tokio::spawn(supervise(shared.clone(), Some(fresh), inbox))];
        if let Target::MasterOf(sentinels) = &shared.target {
            let watch = sentinel::watch(shared.clone(), sentinels.clone());
            tasks.push(tokio::spawn(watch));
        }
        let mut state = shared.state.subscribe();
        let limit = shared.settings.response_timeout;
        let up = state.wait_for(|state| !matches!(state, State::Connecting));
        let connection = Connection {
            shared: shared.clone(),
            tasks,
        };
        match tokio::time::timeout(limit, up).await {
            Ok(Ok(_)) => Ok(connection),
            _ => Err(unavailable(format!(
                "{} does not answer",
                connection.address()
            ))),
        }
    }

    /// A connection to a node of a cluster. It is made in the background; requests wait for it.
    pub fn to_member(
        settings: Settings,
        address: Address,
        channel: String,
        subscriptions: Subscriptions,
        member: Member,
        runtime: &Handle,
    ) -> Connection {
        let _context = runtime.enter();
        let target = Target::Server(address.clone());
        let (shared, inbox) = Shared::new(
            settings,
            target,
            address,
            channel,
            subscriptions,
            Some(member),
        );
        let tasks = vec![runtime.spawn(supervise(shared.clone(), None, inbox))];
        Connection { shared, tasks }
    }

    /// Waits for the first connection: without it nothing is known of the server's clock, and requests could not
    /// say when they are too late.
    pub async fn ready(&self) -> Result<(), Error> {
        if !self.clock().is_known() {
            self.shared.current().await.map_err(Fault::of_look)?;
        }
        Ok(())
    }

    /// Whether a request would be sent at once.
    pub fn is_up(&self) -> bool {
        matches!(&*self.shared.state.borrow(), State::Up(..))
    }

    /// Whether names have sharded channels.
    pub fn sharded(&self) -> bool {
        self.shared.sharded()
    }

    pub fn subscriptions(&self) -> &Subscriptions {
        &self.shared.subscriptions
    }

    pub fn batch(&self) -> &Batch {
        &self.shared.batch
    }

    pub fn clock(&self) -> &ServerClock {
        &self.shared.clock
    }

    /// The server that is in use just now.
    pub fn address(&self) -> Address {
        self.shared.address()
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs a script: `write` adds keys and arguments, the number of keys first. `asking` makes a node of a
    /// cluster take it although its slot is still on its way there.
    pub async fn run(
        &self,
        script: &Script,
        asking: bool,
        write: impl Fn(&mut Cmd),
    ) -> Result<Value, Fault> {
        self.shared.run(script, asking, write).await
    }

    /// Sends one command and waits for its answer, for as long as the settings say.
    pub async fn send(&self, cmd: &Cmd, asking: bool) -> Result<Value, Fault> {
        self.shared.send(cmd, asking).await
    }

    /// Which of these keys exist: asked for all at once, but one by one, as they may be on several slots.
    pub async fn exist(&self, keys: &[&str]) -> Result<Vec<bool>, Fault> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut up = self.shared.current().await?;
        let mut pipeline = ::redis::pipe();
        for key in keys {
            pipeline.cmd("EXISTS").arg(key);
        }
        let answers = up.connection.send_packed_commands(&pipeline, 0, keys.len());
        match self
            .shared
            .judge(up.number, answers.await.map(Value::Array))?
        {
            Value::Array(answers) => Ok(answers.iter().map(|a| *a == Value::Int(1)).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// Waits until the server has confirmed this version of the topics.
    pub async fn synced(&self, version: u64) -> Result<(), Error> {
        let limit = self.shared.settings.response_timeout;
        match self.synced_within(version, limit).await {
            true => Ok(()),
            false => Err(unavailable(format!(
                "{} did not confirm a subscription",
                self.shared.address()
            ))),
        }
    }

    /// Whether the server confirms this version of the topics in time.
    pub async fn synced_within(&self, version: u64, limit: Duration) -> bool {
        let mut synced = self.shared.synced.subscribe();
        let reached = async { synced.wait_for(|synced| *synced >= version).await.is_ok() };
        self.shared.within(limit, reached).await == Some(true)
    }

    /// The number of the connection in use.
    pub async fn number(&self) -> Result<u64, Error> {
        let up = self.shared.current().await.map_err(Fault::of_look)?;
        Ok(up.number)
    }

    /// Waits until replicas have what was answered on the connection of this number.
    pub async fn confirm(&self, number: u64, marker: String) -> Result<(), String> {
        let up = self.shared.current().await;
        let up = up.map_err(|fault| fault.of_look().to_string())?;
        match up.syncer {
            Some(syncer) if up.number == number => syncer.confirm(marker).await,
            _ => Err("the connection was lost before replicas confirmed".into()),
        }
    }
}

impl Shared {
    fn new(
        settings: Settings,
        target: Target,
        address: Address,
        channel: String,
        subscriptions: Subscriptions,
        member: Option<Member>,
    ) -> (Arc<Shared>, mpsc::UnboundedReceiver<Event>) {
        let (events, inbox) = mpsc::unbounded_channel();
        subscriptions.attach(events.clone());
        let who = describe(&channel, &Process::current());
        let shared = Arc::new(Shared {
            batch: Batch::new(who, settings.token_retention),
            settings,
            target,
            address: Mutex::new(address),
            elsewhere: Notify::new(),
            channel,
            runtime: Handle::current(),
            state: watch::Sender::new(State::Connecting),
            subscriptions,
            events,
            synced: watch::Sender::new(0),
            clock: ServerClock::default(),
            member,
            leaving: Mutex::default(),
            given_up: Mutex::default(),
        });
        (shared, inbox)
    }

    /// In a cluster, has somebody look who serves what.
    pub fn doubt(&self) {
        if let Some(member) = &self.member {
            member.map.doubt();
        }
    }

    fn sharded(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.sharded)
    }

    /// As [`Connection::run`].
    pub async fn run(
        &self,
        script: &Script,
        asking: bool,
        write: impl Fn(&mut Cmd),
    ) -> Result<Value, Fault> {
        let request = |verb: &'static str, body: &str| {
            let mut cmd = ::redis::cmd(verb);
            cmd.arg(body);
            write(&mut cmd);
            cmd
        };
        let script = script.text(self.sharded());
        match self.send(&request("EVALSHA", &script.sha), asking).await {
            Err(fault) if fault.is_unknown_script() => {
                self.send(&request("EVAL", script.text), asking).await
            }
            answer => answer,
        }
    }

    /// Sends one command and waits for its answer, for as long as the settings say.
    pub async fn send(&self, cmd: &Cmd, asking: bool) -> Result<Value, Fault> {
        let Up {
            number,
            mut connection,
            ..
        } = self.current().await?;
        let answer = match asking {
            false => connection.send_packed_command(cmd).await,
            true => {
                let mut both = ::redis::pipe();
                both.cmd("ASKING").add_command(cmd.clone());
                let answers = connection.send_packed_commands(&both, 1, 1).await;
                answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
            }
        };
        self.judge(number, answer)
    }

    /// What an answer on a connection means to who asked, and to the connection.
    pub fn judge(&self, number: u64, answer: RedisResult<Value>) -> Result<Value, Fault> {
        match answer.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) if error.code().is_some() => {
                if is_demoted(&error) {
                    self.broken(number, words(&error));
                }
                Err(Fault::Server(error))
            }
            Err(error) => {
                self.broken(number, words(&error));
                Err(Fault::Lost(self.why_broken(&error)))
            }
        }
    }

    pub async fn current(&self) -> Result<Up, Fault> {
        if let State::Up(up) = &*self.state.borrow() {
            return Ok(up.clone());
        }
        let mut state = self.state.subscribe();
        let limit = self.settings.response_timeout;
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        match self.within(limit, settled).await {
            Some(Ok(state)) => match &*state {
                State::Up(up) => Ok(up.clone()),
                State::Down(reason) => Err(Fault::NotSent(reason.clone())),
                State::Connecting => Err(Fault::NotSent(format!("connecting to {}", self))),
            },
            _ => Err(Fault::NotSent(format!("still connecting to {}", self))),
        }
    }

    /// Under the keeper's own timer, so that it works under any executor.
    pub async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let sleep = {
            let _context = self.runtime.enter();
            tokio::time::sleep(limit)
        };
        tokio::select! {
            biased;
            output = future => Some(output),
            () = sleep => None,
        }
    }

    fn broken(&self, number: u64, reason: String) {
        // At once: whatever is sent from now on waits for the next connection.
        self.state.send_if_modified(|state| {
            let current = matches!(state, State::Up(up) if up.number == number);
            if current {
                *state = State::Connecting;
            }
            current
        });
        let _ = self.events.send(Event::Broken(number, reason));
    }

    /// Why a request lost its connection: in the supervisor's words if it ended it, else the library's.
    fn why_broken(&self, error: &RedisError) -> String {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        match given_up.is_empty() {
            true => format!("the connection ended ({})", words(error)),
            false => format!("the connection to {} ended: {given_up}", self.address()),
        }
    }

    pub fn say_given_up(&self, reason: &str) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone_into(&mut given_up);
    }

    pub fn address(&self) -> Address {
        let address = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        address.clone()
    }

    pub fn set_address(&self, to: Address) {
        let mut address = self.address.lock().unwrap_or_else(PoisonError::into_inner);
        *address = to;
    }

    /// The master is this one. If another is in use or tried, that ends.
    pub fn follow(&self, master: &Address) {
        if self.address() == *master {
            return;
        }
        let up = match &*self.state.borrow() {
            State::Up(up) => Some(up.number),
            _ => None,
        };
        match up {
            Some(number) => self.broken(number, format!("{master} is the master now")),
            None => self.elsewhere.notify_one(),
        }
    }

    /// A connection that is authenticated, judged and subscribed to our own channel.
    pub async fn connect(self: &Arc<Shared>, number: u64) -> Result<Fresh, Error> {
        match &self.target {
            Target::Server(address) => self.connect_to(number, address).await,
            Target::MasterOf(sentinels) => sentinel::connect(self, sentinels, number).await,
        }
    }

    pub async fn connect_to(
        self: &Arc<Shared>,
        number: u64,
        address: &Address,
    ) -> Result<Fresh, Error> {
        let limit = self.settings.connect_timeout;
        match tokio::time::timeout(limit, self.set_up(number, address)).await {
            Ok(fresh) => fresh,
            Err(_) => Err(unavailable(format!(
                "{address} did not answer within {limit:?}"
            ))),
        }
    }

    async fn set_up(self: &Arc<Shared>, number: u64, address: &Address) -> Result<Fresh, Error> {
        // The task that reads must not keep alive what would end it.
        let shared = Arc::downgrade(self);
        let pushed = move |push: PushInfo| {
            if let Some(shared) = shared.upgrade() {
                shared.pushed(number, &push);
            }
        };
        let settings = &self.settings;
        let mut link = Link::open(address, settings, settings.login(number == 1), pushed).await?;
        let connection = &mut link.connection;
        let info = look_at(connection).await?;
        info.judge(address, self.member.is_some())?;
        let sent = Moment::now();
        let time: (u64, u64) = ::redis::cmd("TIME")
            .query_async(connection)
            .await
            .map_err(|error| explain(&error))?;
        self.clock
            .saw(time.0 * 1_000_000 + time.1, sent, Moment::now());
        if self.member.as_ref().is_some_and(|member| member.ears) {
            return Ok(Fresh {
                number,
                link,
                syncer: None,
            });
        }
        info.judge_replicas(settings.replicas, number == 1)?;
        connection
            .subscribe(&self.channel)
            .await
            .map_err(|error| explain(&error))?;
        let syncer = match settings.replicas {
            0 => None,
            _ => Some(self.syncer(number, address, &info).await?),
        };
        Ok(Fresh {
            number,
            link,
            syncer,
        })
    }

    /// A second connection to the same server, which waits for replicas.
    async fn syncer(
        self: &Arc<Shared>,
        number: u64,
        address: &Address,
        info: &ServerInfo,
    ) -> Result<(Syncer, SyncerEnds), Error> {
        let (reader, waiter) = (Arc::downgrade(self), Arc::downgrade(self));
        let pushed = move |push: PushInfo| {
            if let (PushKind::Disconnection, Some(shared)) = (&push.kind, reader.upgrade()) {
                shared.broken(number, "the server closed it".into());
            }
        };
        let settings = &self.settings;
        if info.run_id.is_none() {
            return Err(refused(
                "replicas=N needs INFO, to tell servers apart, and the server's ACL does not allow it; add +info to the \
                 user"
                    .into(),
            ));
        }
        let mut link = Link::open(address, settings, settings.login(false), pushed).await?;
        if look_at(&mut link.connection).await?.run_id != info.run_id {
            return Err(unavailable(format!(
                "{address} has just become another server"
            )));
        }
        let broken = move |reason| {
            if let Some(shared) = waiter.upgrade() {
                shared.broken(number, reason);
            }
        };
        Syncer::start(link, settings, broken).await
    }

    /// Something came without being asked for.
    fn pushed(&self, number: u64, push: &PushInfo) {
        let text = |at: usize| match push.data.get(at) {
            Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).ok(),
            Some(Value::SimpleString(text)) => Some(text.as_str()),
            _ => None,
        };
        match &push.kind {
            PushKind::Disconnection => self.broken(number, "the server closed it".into()),
            PushKind::Message => match (text(0), text(1)) {
                (Some(channel), Some(message)) if channel == self.channel => self.hinted(message),
                (Some(channel), _) => self.subscriptions.came(&Topic::Channel(channel.to_owned())),
                _ => {}
            },
            PushKind::PMessage => {
                if let Some(pattern) = text(0) {
                    self.subscriptions.came(&Topic::Pattern(pattern.to_owned()));
                }
            }
            PushKind::SMessage => match (text(0), text(1)) {
                (Some(channel), Some(message)) if channel.starts_with(WAKE) => self.hinted(message),
                (Some(channel), _) => self.subscriptions.came(&Topic::Shard(channel.to_owned())),
                _ => {}
            },
            PushKind::SUnsubscribe => {
                let leaving = self.leaving.lock();
                let mut leaving = leaving.unwrap_or_else(PoisonError::into_inner);
                if !text(0).is_some_and(|channel| leaving.remove(channel)) {
                    self.doubt();
                    self.broken(number, "a slot has moved to another node".into());
                }
            }
            _ => {}
        }
    }

    /// A claim of ours may now succeed: `<claim> <name>`. Or its hold was broken: `! <claim>`.
    fn hinted(&self, message: &str) {
        let hints = self.subscriptions.hints();
        match message.split_once(' ') {
            Some(("!", claim)) => {
                if let Ok(claim) = claim.parse::<ClaimId>() {
                    hints.keeper(claim.keeper);
                }
            }
            Some((claim, name)) => {
                let name = name.strip_prefix(self.settings.prefix.as_str());
                let name = name.and_then(|name| Name::new(name).ok());
                if let (Ok(claim), Some(name)) = (claim.parse(), name) {
                    hints.claim(&name, claim);
                }
            }
            None => {}
        }
    }
}

async fn look_at(connection: &mut MultiplexedConnection) -> Result<ServerInfo, Error> {
    match ::redis::cmd("INFO").query_async::<String>(connection).await {
        Ok(text) => Ok(ServerInfo::read(&text)),
        Err(error) if error.code() == Some("NOPERM") => Ok(ServerInfo::default()),
        Err(error) => Err(explain(&error)),
    }
}

/// The servers, as errors name them.
impl std::fmt::Display for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.member {
            Some(_) => self.address().fmt(f),
            None => self.settings.topology.fmt(f),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.shared.settings)
            .finish()
    }
}
