//! One multiplexed connection to one server, looked after by a task of ours. With Sentinels, the server is whichever
//! is the master.
//!
//! A socket alone stays half-open, and does not mind a server that became a replica. So a
//! supervisor connects again when requests get no answer, when the server says READONLY and when it closes the
//! connection. A new connection is subscribed to everything first; then everyone who waits is told to look
//! again, since hints may have been missed.
//!
//! Requests have no timers of their own, which would cost more than all the rest of them. The supervisor sends
//! a PING every quarter of the response time-out. A server answers in order: when a PING is not answered within
//! three quarters, neither was what was sent before it, and the connection is given up with all that is on it.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::batch::Batch;
use super::fault::{Fault, refused, unavailable};
use super::scripts::Script;
use super::sentinel::{self, Sentinels};
use super::shared::{Member, Shared, State, Target};
use super::subscriptions::Subscriptions;
use super::supervisor::supervise;
use super::topology::Topology;
use super::url::Settings;
use crate::Error;
use crate::store::common::{Address, ServerClock};

/// Requests to the server, and hints from it.
pub(super) struct Connection {
    shared: Arc<Shared>,
    /// The supervisor, and who listens to a Sentinel.
    tasks: Vec<JoinHandle<()>>,
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

    /// A connection that a task looks after already.
    pub fn supervised(shared: Arc<Shared>, supervisor: JoinHandle<()>) -> Connection {
        Connection {
            shared,
            tasks: vec![supervisor],
        }
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
        let up = self.shared.current().await?;
        let mut pipeline = ::redis::pipe();
        for key in keys {
            pipeline.cmd("EXISTS").arg(key);
        }
        let answers = up.socket.send_all(&pipeline, 0);
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

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.shared.settings)
            .finish()
    }
}
