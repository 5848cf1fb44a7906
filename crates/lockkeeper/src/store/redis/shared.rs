//! What a connection, its supervisor and its reader share: the link in use, and how requests go over it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::{Cmd, RedisError, RedisResult, Value};
use rustix::process::{Pid, getpid};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};

use super::answer::describe;
use super::batch::Batch;
use super::fault::{Away, Fault, is_demoted, words};
use super::node::Vet;
use super::replicas::Syncer;
use super::scripts::Script;
use super::sentinel::Sentinels;
use super::slots::Map;
use super::subscriptions::Subscriptions;
use super::transport::{Socket, Topic};
use super::url::Settings;
use crate::store::Process;
use crate::store::admission::Admission;
use crate::store::common::{Address, ServerClock};

/// What the supervisor is told.
#[derive(Debug)]
pub(super) enum Event {
    /// The topics to subscribe to have changed.
    Topics,
    /// The server has ended a subscription of the connection of this number.
    Ended(u64, Topic),
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
    pub socket: Socket,
    pub syncer: Option<Syncer>,
    /// Of a server of a quorum: from when it votes.
    pub admission: Option<Admission>,
}

/// Where to connect to.
pub(super) enum Target {
    Server(Address),
    MasterOf(Arc<Sentinels>),
    /// A server of a quorum, to be judged each time.
    Node(Address, Arc<dyn Vet>),
}

/// A connection's part in a cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub map: Arc<Map>,
    /// Whether the servers have sharded channels.
    pub sharded: bool,
}

pub(super) struct Shared {
    process: Pid,
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
            process: getpid(),
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
            given_up: Mutex::default(),
        });
        (shared, inbox)
    }

    /// Whether this process is a fork of the one that connects.
    pub fn is_fork(&self) -> bool {
        self.process != getpid()
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
        let Up { number, socket, .. } = self.current().await?;
        let answer = if asking {
            let mut both = ::redis::pipe();
            both.cmd("ASKING").add_command(cmd.clone());
            let answers = socket.send_all(&both, 1).await;
            answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
        } else {
            socket.send(cmd).await
        };
        self.judge(number, answer)
    }

    /// What an answer on a connection means to who asked, and to the connection.
    pub fn judge(&self, number: u64, answer: RedisResult<Value>) -> Result<Value, Fault> {
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
        if let Target::Node(_, vet) = &self.target {
            vet.demoted();
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

    /// The server has ended a subscription of its own accord: in a cluster, the slot has moved to another node.
    pub fn topic_ended(&self, number: u64, topic: Topic) {
        self.doubt();
        self.subscriptions.hint_all(std::slice::from_ref(&topic));
        let _ = self.events.send(Event::Ended(number, topic));
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
