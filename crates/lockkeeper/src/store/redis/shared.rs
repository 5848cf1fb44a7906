//! What a connection, its supervisor and its reader share: the link in use, and how requests go over it.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::{Cmd, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};

use super::answer::describe;
use super::batch::Batch;
use super::fault::{Away, Fault, is_demoted, words};
use super::lane::Beside;
use super::node::Vet;
use super::pipe::Pipe;
use super::pushes::{Account, UNASKED};
use super::replicas::Syncer;
use super::scripts::Script;
use super::sentinel::Sentinels;
use super::slots::Map;
use super::subscriptions::Subscriptions;
use super::url::Settings;
use crate::store::Process;
use crate::store::admission::Admission;
use crate::store::common::{Address, ServerClock};

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
    Down(Away),
}

/// A connection in use.
#[derive(Clone)]
pub(super) struct Up {
    pub number: u64,
    pub connection: Pipe,
    pub syncer: Option<Syncer>,
    /// Of a lane: the number of the main connection that it was opened beside.
    pub beside: u64,
    /// Of a server of a quorum: from when it votes.
    pub admission: Option<Admission>,
}

/// Where to connect to.
pub(super) enum Target {
    Server(Address),
    MasterOf(Arc<Sentinels>),
    /// A server of a quorum, to be judged each time.
    Node(Address, Arc<dyn Vet>),
    /// Where another connection leads to.
    Beside(Beside),
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

pub(super) struct Shared {
    pub settings: Settings,
    pub target: Target,
    /// The server that is in use, or tried.
    address: Mutex<Address>,
    /// The server to try is another one now.
    pub elsewhere: Notify,
    /// Where hints for this process arrive.
    pub channel: String,
    pub runtime: Handle,
    /// Verbs that wait to go out together.
    pub batch: Batch,
    pub state: watch::Sender<State>,
    events: mpsc::UnboundedSender<Event>,
    pub subscriptions: Subscriptions,
    /// The newest version of the topics that the server has confirmed.
    pub synced: watch::Sender<u64>,
    pub clock: ServerClock,
    /// Which part of a cluster the server is, if it is one.
    pub member: Option<Member>,
    /// What the connection in use has asked to hear.
    pub account: Mutex<Account>,
    /// The number of the last connection that ended because its answers can no longer be told apart.
    condemned: AtomicU64,
    /// Which server it is, since it was started.
    pub run_id: Mutex<Option<String>>,
    /// Why the supervisor gave up the last connection.
    given_up: Mutex<String>,
}

impl Shared {
    pub fn new(
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
            batch: Batch::new(who, settings.token_retention()),
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
            account: Mutex::default(),
            condemned: AtomicU64::new(0),
            run_id: Mutex::default(),
            given_up: Mutex::default(),
        });
        (shared, inbox)
    }

    /// What makes it a lane, if it is one.
    pub fn lane(&self) -> Option<&Beside> {
        match &self.target {
            Target::Beside(beside) => Some(beside),
            _ => None,
        }
    }

    /// The runtime that reads and writes.
    pub fn driver(&self) -> &Handle {
        self.lane().map_or(&self.runtime, |lane| &lane.runtime)
    }

    pub fn run_id(&self) -> Option<String> {
        let run_id = self.run_id.lock();
        run_id.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// In a cluster, has somebody look who serves what.
    pub fn doubt(&self) {
        if let Some(member) = &self.member {
            member.map.doubt();
        }
    }

    pub fn sharded(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.sharded)
    }

    /// As [`Connection::run`](super::connection::Connection::run).
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
        match self.send(&request("EVALSHA", script.sha()), asking).await {
            Err(fault) if fault.is_unknown_script() => {
                self.send(&request("EVAL", script.text), asking).await
            }
            answer => answer,
        }
    }

    /// Sends one command and waits for its answer, for as long as the settings say.
    pub async fn send(&self, cmd: &Cmd, asking: bool) -> Result<Value, Fault> {
        let Up {
            number, connection, ..
        } = self.current().await?;
        let answer = match asking {
            false => connection.send(cmd).await,
            true => {
                let mut both = ::redis::pipe();
                both.cmd("ASKING").add_command(cmd.clone());
                let answers = connection.send_all(&both, 1).await;
                answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
            }
        };
        self.judge(number, answer)
    }

    /// What an answer on a connection means to who asked, and to the connection.
    pub fn judge(&self, number: u64, answer: RedisResult<Value>) -> Result<Value, Fault> {
        // The reader sees the reason before it passes a later answer on.
        if self.is_condemned(number) {
            return Err(Fault::Lost(format!(
                "the connection to {} ended: {UNASKED}",
                self.address()
            )));
        }
        match answer.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) if error.code().is_some() => {
                if is_demoted(&error) {
                    self.demoted();
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

    /// A server of a quorum that was a replica may have forgotten locks.
    fn demoted(&self) {
        match &self.target {
            Target::Node(_, vet) => vet.demoted(),
            Target::Beside(beside) => beside.main.demoted(),
            Target::Server(_) | Target::MasterOf(_) => {}
        }
    }

    pub async fn current(&self) -> Result<Up, Fault> {
        if let State::Up(up) = &*self.state.borrow() {
            return Ok(up.clone());
        }
        if self.lane().is_some() {
            return Err(Fault::NotSent("there is no lane now".into()));
        }
        let mut state = self.state.subscribe();
        let limit = self.settings.response_timeout;
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        match self.within(limit, settled).await {
            Some(Ok(state)) => match &*state {
                State::Up(up) => Ok(up.clone()),
                State::Down(away) => Err(Fault::NotSent(away.clone())),
                State::Connecting => Err(Fault::NotSent(format!("connecting to {}", self).into())),
            },
            _ => Err(Fault::NotSent(
                format!("still connecting to {}", self).into(),
            )),
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

    /// As [`broken`](Shared::broken); and no answer on that connection is believed any more.
    pub fn condemn(&self, number: u64, reason: String) {
        self.condemned.fetch_max(number, SeqCst);
        self.broken(number, reason);
    }

    pub fn is_condemned(&self, number: u64) -> bool {
        self.condemned.load(SeqCst) == number
    }

    pub fn broken(&self, number: u64, reason: String) {
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
            true => format!(
                "the connection to {} ended ({})",
                self.address(),
                words(error)
            ),
            false => format!("the connection to {} ended: {given_up}", self.address()),
        }
    }

    /// Why the last connection ended; empty if it has not.
    pub fn given_up(&self) -> String {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.clone()
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
