//! One server of a quorum: what the quorum store needs of a connection.
//!
//! A request takes a connection that was judged, or none: a server that restarted is another one, and over a
//! connection to the old one no request reaches the new one.

mod call;
mod settings;

use std::sync::Arc;

use ::redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

pub(in crate::store) use self::call::Call;
pub(in crate::store) use self::settings::NodeSettings;
use super::checks::ServerInfo;
use super::connection::Connection;
use super::fault::Fault;
use super::shared::{Shared, State, Target, Up};
use super::subscriptions::Subscriptions;
use super::supervisor::supervise;
pub(in crate::store) use super::transport::Socket;
use super::transport::Topic;
pub(in crate::store) use super::url::KIND;
use crate::Error;
use crate::clock::Moment;
use crate::store::admission::Admission;
use crate::store::{Answer, Interest, Subscription};

/// Judges a server on every new connection to it.
pub(in crate::store) trait Vet: Send + Sync {
    /// Whether it can be part of the quorum at all.
    fn look(&self, info: &ServerInfo) -> Result<(), Error>;

    /// A request found it to be a replica.
    fn demoted(&self);

    /// Agrees with it on what all clients have to agree on. Its clock showed `now` microseconds a moment ago.
    fn admit<'a>(
        &'a self,
        connection: &'a mut Socket,
        info: &'a ServerInfo,
        now: u64,
    ) -> Answer<'a, Admission>;
}

/// A supervised connection to one server of a quorum.
pub(in crate::store) struct NodeLink(pub(super) Connection);

/// A connection that was judged. A request takes exactly this one.
#[derive(Clone)]
pub(in crate::store) struct Ticket {
    pub number: u64,
    pub admission: Admission,
    shared: Arc<Shared>,
    socket: Socket,
}

impl Ticket {
    /// Whether the server runs scripts, in the order of what was sent before.
    pub async fn answers(&self) -> bool {
        let mut nothing = ::redis::cmd("EVAL");
        nothing.arg("return 1").arg(0);
        let answer = self.socket.send(&nothing).await;
        matches!(self.judge(answer), Ok(_) | Err(Fault::Server(_)))
    }

    fn judge(&self, answer: RedisResult<Value>) -> Result<Value, Fault> {
        self.shared.judge(self.number, answer)
    }
}

/// Tells when a link may have come up.
pub(in crate::store) struct LinkWatch(watch::Receiver<State>);

impl LinkWatch {
    /// Waits for a change. `false`: there will be none any more.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

impl NodeLink {
    /// Connects in the background, and goes on doing so. What becomes of the first try is told.
    pub fn start(
        node: &NodeSettings,
        channel: String,
        vet: Arc<dyn Vet>,
    ) -> (NodeLink, oneshot::Receiver<Result<(), Error>>) {
        let target = Target::Node(node.address.clone(), vet);
        let (settings, address) = (node.settings.clone(), node.address.clone());
        let subscriptions = Subscriptions::new();
        let (shared, inbox) = Shared::new(settings, target, address, channel, subscriptions, None);
        let (tell, told) = oneshot::channel();
        let supervised = shared.clone();
        let task = tokio::spawn(async move {
            let (fresh, outcome) = match supervised.connect(1).await {
                Ok(fresh) => (Some(fresh), Ok(())),
                Err(error) => {
                    supervised.is_down(&error);
                    (None, Err(error))
                }
            };
            let _ = tell.send(outcome);
            supervise(supervised, fresh, inbox).await;
        });
        (NodeLink(Connection::supervised(shared, task)), told)
    }

    /// Waits until it is up, if it is about to be.
    pub async fn settled(&self) {
        let mut state = self.0.shared().state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        let limit = self.0.settings().response_timeout;
        let _ = tokio::time::timeout(limit, settled).await;
    }

    /// The connection in use, or why there is none.
    pub fn ticket(&self) -> Result<Ticket, String> {
        let (socket, number, admission) = self.admitted(|up| up.socket.clone())?;
        Ok(Ticket {
            number,
            admission,
            shared: self.0.shared().clone(),
            socket,
        })
    }

    /// The number of the connection that is in use, and from when the server votes.
    pub fn admission(&self) -> Option<(u64, Admission)> {
        let up = self.admitted(|_| ()).ok();
        up.map(|((), number, admission)| (number, admission))
    }

    /// The connection that is in use: something of it, its number, and from when the server votes.
    fn admitted<T>(&self, of: impl FnOnce(&Up) -> T) -> Result<(T, u64, Admission), String> {
        let shared = self.0.shared();
        match &*shared.state.borrow() {
            State::Up(up) => match up.admission {
                Some(admission) => Ok((of(up), up.number, admission)),
                None => Err("it was not judged".into()),
            },
            State::Connecting => Err(match shared.given_up() {
                reason if reason.is_empty() => "connecting to it".into(),
                reason => reason,
            }),
            State::Down(away) => Err(away.reason.clone()),
        }
    }

    /// The server is no node: the connection is given up, and the next one is judged anew.
    pub fn give_up(&self, ticket: &Ticket, reason: String) {
        self.0.shared().broken(ticket.number, reason);
    }

    /// The keeper's.
    pub fn runtime(&self) -> &Handle {
        self.0.runtime()
    }

    pub fn watch(&self) -> LinkWatch {
        LinkWatch(self.0.shared().state.subscribe())
    }

    /// Runs a script over this connection.
    pub async fn run(&self, ticket: Ticket, call: &Call) -> Result<Value, Fault> {
        let answer = ticket.socket.send(&call.cmd).await;
        match ticket.judge(answer) {
            Err(fault) if fault.is_unknown_script() => {
                let answer = ticket.socket.send(&call.in_full()).await;
                ticket.judge(answer)
            }
            answer => answer,
        }
    }

    /// As [`run`](NodeLink::run), and waits for nothing: `tell` is called with the answer, by the task that reads it.
    pub fn tell(
        &self,
        ticket: Ticket,
        call: Arc<Call>,
        tell: impl FnOnce(Result<Value, Fault>) + Send + 'static,
    ) {
        let (socket, request) = (ticket.socket.clone(), call.clone());
        socket.send_then(&request.cmd, move |answer| match ticket.judge(answer) {
            Err(fault) if fault.is_unknown_script() => {
                let socket = ticket.socket.clone();
                socket.send_then(&call.in_full(), move |answer| tell(ticket.judge(answer)));
            }
            answer => tell(answer),
        });
    }

    /// The server's time at a moment of ours, in microseconds; `None` when that is not known, or for a moment that never
    /// comes.
    pub fn server_time(&self, at: Moment) -> Option<u64> {
        Some(self.0.clock().at(at)).filter(|micros| *micros > 0)
    }

    /// The server's clock showed `micros` at some time from `sent` until now.
    pub fn saw_time(&self, micros: u64, sent: Moment) {
        self.0.clock().saw(micros, sent, Moment::now());
    }

    /// Hints at every message on these channels, and answers the version of the topics that has them.
    pub fn listen(&self, interest: &Interest, channels: &[String]) -> (Vec<Subscription>, u64) {
        let topics = channels.iter().map(|channel| {
            let topic = Topic::Channel(channel.clone());
            let subscriptions = self.0.subscriptions();
            subscriptions.topic(interest.clone(), topic, 0)
        });
        let (all, versions): (Vec<_>, Vec<_>) = topics.unzip();
        (all, versions.into_iter().max().unwrap_or(0))
    }

    /// Waits until the server has confirmed this version of the topics.
    pub async fn heard(&self, version: u64) {
        let _ = self.0.synced(version).await;
    }

    /// Hints from the channel of this process.
    pub fn hints(&self, interest: Interest) -> Subscription {
        self.0.subscriptions().hints().subscribe(interest)
    }
}
