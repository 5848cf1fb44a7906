//! One server of a quorum: what the quorum store needs of a connection.
//!
//! A request takes a connection that was judged, or none: a server that restarted is another one, and over a
//! connection to the old one no request reaches the new one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::sync::{oneshot, watch};

use super::checks::ServerInfo;
use super::connection::Connection;
use super::fault::Fault;
use super::keys::{self, FENCE, Keys};
use super::link::Pipe;
use super::listing::scan;
use super::scripts::Script;
use super::shared::{Shared, State, Target};
use super::subscriptions::{Subscriptions, Topic};
use super::supervisor::{reason, supervise};
use super::topology::{Address, Topology};
use super::url::{Dialect, Settings, refuse};
use crate::clock::Moment;
use crate::store::quorum::protocol::Admission;
use crate::store::{Answer, Interest, Subscription};
use crate::url::StoreUrl;
use crate::{Error, Name};

/// Judges a server on every new connection to it.
pub(in crate::store) trait Vet: Send + Sync {
    /// Whether it can be part of the quorum at all.
    fn look(&self, info: &ServerInfo) -> Result<(), Error>;

    /// Agrees with it on what all clients have to agree on. Its clock showed `now` microseconds a moment ago.
    fn admit<'a>(
        &'a self,
        connection: &'a mut ::redis::aio::MultiplexedConnection,
        info: &'a ServerInfo,
        now: u64,
    ) -> Answer<'a, Admission>;
}

/// Where one server of a quorum is, and how to speak to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::store) struct NodeSettings {
    settings: Settings,
    address: Address,
}

impl NodeSettings {
    /// Reads the URL of one server.
    pub fn parse(url: &StoreUrl) -> Result<NodeSettings, Error> {
        let scheme = url.scheme();
        if !matches!(scheme, "redis" | "rediss" | "redis+unix") {
            return refuse(format!(
                "a node of a quorum is one server: redis:, rediss: or redis+unix:, and not {scheme:.40}:"
            ));
        }
        let settings = Settings::parse(url)?;
        if settings.replicas > 0 {
            return refuse(
                "replicas=N is for a server with replicas; the nodes of a quorum are masters that have none",
            );
        }
        match settings.topology.clone() {
            Topology::Single(address) => Ok(NodeSettings { settings, address }),
            other => refuse(format!("{other} is not one server")),
        }
    }

    /// Where it is, in words.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Which locks it has: a server has others in each database.
    pub fn place(&self) -> String {
        format!("{}/{}", self.address, self.settings.database)
    }

    pub fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    pub fn is_plain(&self) -> bool {
        self.settings.dialect == Dialect::Plain
    }

    /// Whether the two lead to the same locks.
    pub fn speaks_like(&self, other: &NodeSettings) -> bool {
        let (one, two) = (&self.settings, &other.settings);
        one.dialect == two.dialect && one.prefix == two.prefix
    }

    pub fn token_retention(&self) -> Option<Duration> {
        self.settings.token_retention
    }

    pub fn connect_timeout(&self) -> Duration {
        self.settings.connect_timeout
    }

    pub fn keys(&self, name: &Name) -> Result<Keys, Error> {
        Keys::of(&self.settings, name)
    }

    /// Warns of what makes the connection unsafe.
    pub fn warn(&self) {
        self.settings.warn();
    }
}

/// A supervised connection to one server of a quorum.
pub(in crate::store) struct NodeLink(Connection);

/// A connection that was judged. A request takes exactly this one.
#[derive(Clone)]
pub(in crate::store) struct Ticket {
    pub number: u64,
    connection: Pipe,
    pub admission: Admission,
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
                    supervised.state.send_replace(State::Down(reason(&error)));
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
        match &*self.0.shared().state.borrow() {
            State::Up(up) => match up.admission {
                Some(admission) => Ok(Ticket {
                    number: up.number,
                    connection: up.connection.clone(),
                    admission,
                }),
                None => Err("it was not judged".into()),
            },
            State::Connecting => Err(match self.0.shared().given_up() {
                reason if reason.is_empty() => "connecting to it".into(),
                reason => reason,
            }),
            State::Down(reason) => Err(reason.clone()),
        }
    }

    pub fn watch(&self) -> LinkWatch {
        LinkWatch(self.0.shared().state.subscribe())
    }

    /// Runs a script over this connection: `write` adds keys and arguments, the number of keys first.
    pub async fn run(
        &self,
        ticket: Ticket,
        script: &Script,
        write: impl Fn(&mut Cmd),
    ) -> Result<Value, Fault> {
        let Ticket {
            number, connection, ..
        } = ticket;
        let shared = self.0.shared();
        let script = &script.usual;
        for (verb, body) in [("EVALSHA", script.sha.as_str()), ("EVAL", script.text)] {
            let mut cmd = ::redis::cmd(verb);
            cmd.arg(body);
            write(&mut cmd);
            let answer = connection.send(&cmd).await;
            match shared.judge(number, answer) {
                Err(fault) if fault.is_unknown_script() && verb == "EVALSHA" => {}
                answer => return answer,
            }
        }
        unreachable!("the second answer is returned")
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
            self.0.subscriptions().topic(interest.clone(), topic, 0)
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

    /// Names that start like this and have a key: those with a fence.
    pub async fn names(&self, prefix: &str) -> Result<BTreeSet<Name>, Error> {
        let settings = self.0.settings();
        let (own, plain) = (&settings.prefix, settings.dialect == Dialect::Plain);
        let start = format!("{own}{prefix}");
        let mut names = BTreeSet::new();
        let mut cursor = "0".to_owned();
        loop {
            let fences = if plain { keys::OWN } else { FENCE };
            let (fences, next) = scan(&self.0, &cursor, fences).await?;
            let mains: Vec<String> = match plain {
                true => {
                    let names = fences
                        .iter()
                        .filter_map(|fence| keys::name_with_token(own, fence));
                    names.map(|name| format!("{own}{name}")).collect()
                }
                false => {
                    let mains = fences.iter().flat_map(|fence| keys::fenced(fence));
                    mains.map(str::to_owned).collect()
                }
            };
            let mains: Vec<&str> = mains.iter().map(String::as_str).collect();
            let mains: Vec<&str> = mains
                .into_iter()
                .filter(|m| m.starts_with(&start))
                .collect();
            let exist = self.0.exist(&mains).await.map_err(Fault::of_look)?;
            for (main, _) in mains.iter().zip(exist).filter(|(_, exists)| *exists) {
                names.extend(Name::new(&main[own.len()..]).ok());
            }
            if next == "0" {
                return Ok(names);
            }
            cursor = next;
        }
    }
}
