//! One multiplexed connection to one server, looked after by a task of ours.
//!
//! The client library keeps a half-open socket and does not mind a server that became a replica. So a
//! supervisor connects again when requests get no answer, when the server says READONLY and when it closes the
//! connection. A new connection is subscribed to everything first; then everyone who waits is told to look
//! again, since hints may have been missed.
//!
//! Requests have no timers of their own, which would cost more than all the rest of them. The supervisor sends
//! a PING every quarter of the response time-out. A server answers in order: when a PING is not answered within
//! three quarters, neither was what was sent before it, and the connection is given up with all that is on it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, RedisResult, Value,
};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};

use super::answer::describe;
use super::batch::Batch;
use super::checks::ServerInfo;
use super::fault::{Fault, explain, is_demoted, refused, unavailable, words};
use super::scripts::Script;
use super::server_clock::ServerClock;
use super::subscriptions::{Subscriptions, Topic};
use super::supervisor::supervise;
use super::url::{Address, Settings, Topology};
use crate::clock::Moment;
use crate::store::{ClaimId, Process};
use crate::{Error, Name};

/// How many requests may wait to be written.
const WRITE_QUEUE: usize = 4096;

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
    Up(u64, MultiplexedConnection),
    Down(String),
}

/// Requests to the server, and hints from it.
pub(super) struct Connection {
    shared: Arc<Shared>,
    supervisor: JoinHandle<()>,
}

pub(super) struct Shared {
    pub settings: Settings,
    /// The server.
    pub address: Address,
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
    /// Why the supervisor gave up the last connection.
    given_up: Mutex<String>,
}

/// A connection that is set up but not yet in use.
pub(super) struct Fresh {
    pub number: u64,
    pub connection: MultiplexedConnection,
    driver: Driver,
}

/// The task that reads and writes; ends with its owner.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Connection {
    /// Connects, and looks at the server. The first failure is reported; later ones are tried again.
    pub async fn open(settings: Settings, channel: String) -> Result<Connection, Error> {
        let Topology::Single(address) = settings.topology.clone() else {
            return Err(refused(format!(
                "{} is not supported yet",
                settings.topology
            )));
        };
        if settings.tls {
            return Err(refused("TLS is not supported yet".into()));
        }
        let (events, inbox) = mpsc::unbounded_channel();
        let who = describe(&channel, &Process::current());
        let shared = Arc::new(Shared {
            batch: Batch::new(who, settings.token_retention),
            settings,
            address,
            channel,
            runtime: Handle::current(),
            state: watch::Sender::new(State::Connecting),
            subscriptions: Subscriptions::new(events.clone()),
            events,
            synced: watch::Sender::new(0),
            clock: ServerClock::default(),
            given_up: Mutex::default(),
        });
        let fresh = shared.connect(1).await?;
        let supervisor = tokio::spawn(supervise(shared.clone(), fresh, inbox));
        let mut state = shared.state.subscribe();
        let limit = shared.settings.response_timeout;
        let up = state.wait_for(|state| !matches!(state, State::Connecting));
        let connection = Connection {
            shared: shared.clone(),
            supervisor,
        };
        match tokio::time::timeout(limit, up).await {
            Ok(Ok(_)) => Ok(connection),
            _ => Err(unavailable(format!(
                "{} does not answer",
                connection.address()
            ))),
        }
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

    pub fn address(&self) -> &Address {
        &self.shared.address
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

    /// Runs a script: `write` adds keys and arguments, the number of keys first.
    pub async fn run(&self, script: &Script, write: impl Fn(&mut Cmd)) -> Result<Value, Fault> {
        self.shared.run(script, write).await
    }

    /// Sends one command and waits for its answer, for as long as the settings say.
    pub async fn send(&self, cmd: &Cmd) -> Result<Value, Fault> {
        self.shared.send(cmd).await
    }

    /// Which of these keys exist: asked for all at once, but one by one, as they may be on several slots.
    pub async fn exist(&self, keys: &[&str]) -> Result<Vec<bool>, Fault> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let (number, mut connection) = self.shared.current().await?;
        let mut pipeline = ::redis::pipe();
        for key in keys {
            pipeline.cmd("EXISTS").arg(key);
        }
        let answers = connection.send_packed_commands(&pipeline, 0, keys.len());
        match self.shared.judge(number, answers.await.map(Value::Array))? {
            Value::Array(answers) => Ok(answers.iter().map(|a| *a == Value::Int(1)).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// Waits until the server has confirmed this version of the topics.
    pub async fn synced(&self, version: u64) -> Result<(), Error> {
        let mut synced = self.shared.synced.subscribe();
        let reached = async { synced.wait_for(|synced| *synced >= version).await.is_ok() };
        let limit = self.shared.settings.response_timeout;
        match self.shared.within(limit, reached).await {
            Some(true) => Ok(()),
            _ => Err(unavailable(format!(
                "{} did not confirm a subscription",
                self.shared.address
            ))),
        }
    }
}

impl Shared {
    /// Runs a script: `write` adds keys and arguments, the number of keys first.
    pub async fn run(&self, script: &Script, write: impl Fn(&mut Cmd)) -> Result<Value, Fault> {
        let request = |verb: &'static str, body: &str| {
            let mut cmd = ::redis::cmd(verb);
            cmd.arg(body);
            write(&mut cmd);
            cmd
        };
        match self.send(&request("EVALSHA", &script.sha)).await {
            Err(fault) if fault.is_unknown_script() => {
                self.send(&request("EVAL", script.text)).await
            }
            answer => answer,
        }
    }

    /// Sends one command and waits for its answer, for as long as the settings say.
    pub async fn send(&self, cmd: &Cmd) -> Result<Value, Fault> {
        let (number, mut connection) = self.current().await?;
        let answer = connection.send_packed_command(cmd).await;
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

    pub async fn current(&self) -> Result<(u64, MultiplexedConnection), Fault> {
        if let State::Up(number, connection) = &*self.state.borrow() {
            return Ok((*number, connection.clone()));
        }
        let mut state = self.state.subscribe();
        let limit = self.settings.response_timeout;
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        let address = &self.address;
        match self.within(limit, settled).await {
            Some(Ok(state)) => match &*state {
                State::Up(number, connection) => Ok((*number, connection.clone())),
                State::Down(reason) => Err(Fault::NotSent(reason.clone())),
                State::Connecting => Err(Fault::NotSent(format!("connecting to {address}"))),
            },
            _ => Err(Fault::NotSent(format!("still connecting to {address}"))),
        }
    }

    /// Under the keeper's own timer, so that it works under any executor.
    async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
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
            let current = matches!(state, State::Up(up, _) if *up == number);
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
            false => format!("the connection to {} ended: {given_up}", self.address),
        }
    }

    pub fn say_given_up(&self, reason: &str) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone_into(&mut given_up);
    }

    /// A connection that is authenticated, judged and subscribed to our own channel.
    pub async fn connect(self: &Arc<Shared>, number: u64) -> Result<Fresh, Error> {
        let address = &self.address;
        let limit = self.settings.connect_timeout;
        match tokio::time::timeout(limit, self.set_up(number)).await {
            Ok(fresh) => fresh,
            Err(_) => Err(unavailable(format!(
                "{address} did not answer within {limit:?}"
            ))),
        }
    }

    async fn set_up(self: &Arc<Shared>, number: u64) -> Result<Fresh, Error> {
        let address = &self.address;
        let unreachable =
            |error: std::io::Error| unavailable(format!("{address} cannot be reached: {error}"));
        let Fresh {
            number,
            mut connection,
            driver,
        } = match address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(unreachable)?;
                // Without it every small request waits for the acknowledgement of the one before.
                stream.set_nodelay(true).map_err(unreachable)?;
                let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
                self.speak(number, stream).await?
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                self.speak(number, stream).await?
            }
        };
        let info = ::redis::cmd("INFO")
            .query_async::<String>(&mut connection)
            .await;
        let info = match info {
            Ok(text) => ServerInfo::read(&text),
            Err(error) if error.code() == Some("NOPERM") => ServerInfo::default(),
            Err(error) => return Err(explain(&error)),
        };
        info.judge(address)?;
        let sent = Moment::now();
        let time: (u64, u64) = ::redis::cmd("TIME")
            .query_async(&mut connection)
            .await
            .map_err(|error| explain(&error))?;
        self.clock
            .saw(time.0 * 1_000_000 + time.1, sent, Moment::now());
        connection
            .subscribe(&self.channel)
            .await
            .map_err(|error| explain(&error))?;
        Ok(Fresh {
            number,
            connection,
            driver,
        })
    }

    async fn speak<S>(self: &Arc<Shared>, number: u64, stream: S) -> Result<Fresh, Error>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let Settings {
            user,
            password,
            database,
            ..
        } = &self.settings;
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("lockkeeper", env!("CARGO_PKG_VERSION"))
            .set_db(i64::from(*database));
        if let Some(user) = user {
            info = info.set_username(user);
        }
        if let Some(password) = password {
            info = info.set_password(password);
        }
        // The task that reads must not keep alive what would end it.
        let shared = Arc::downgrade(self);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE)
            .set_push_sender(move |push: PushInfo| {
                if let Some(shared) = shared.upgrade() {
                    shared.pushed(number, &push);
                }
                Ok::<(), ::redis::aio::SendError>(())
            });
        let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = opened.map_err(|error| self.explain_refusal(&error))?;
        let driver = Driver(tokio::spawn(driver).abort_handle());
        Ok(Fresh {
            number,
            connection,
            driver,
        })
    }

    /// Why a server does not let us in.
    fn explain_refusal(&self, error: &RedisError) -> Error {
        if error.kind() == ::redis::ErrorKind::RESP3NotSupported {
            return super::fault::refused(
                "the server does not speak RESP3; locks need Redis 6.2 or newer".into(),
            );
        }
        let said = words(error);
        if said.contains("DB index") {
            return super::fault::refused(format!(
                "the server has no database {}",
                self.settings.database
            ));
        }
        match self.settings.password {
            None if error.code() == Some("NOAUTH") || said.contains("NOAUTH") => {
                super::fault::refused(
                    "the server asks for a password; put it into the URL or name a password_file"
                        .into(),
                )
            }
            _ => explain(error),
        }
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

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.shared.settings)
            .finish()
    }
}
