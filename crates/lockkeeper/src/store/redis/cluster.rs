//! The masters of a cluster: which of them serves a name, and a connection to each that is needed.
//!
//! Each master has a supervised [`Connection`] of ours, made when it is first needed. A surveyor asks who serves what: whenever a connection is lost or a
//! node sends us elsewhere, and now and then. What it finds moves the subscriptions, and tells everyone who waits
//! to look again.
//!
//! A script is sent to one node at a time, and to another only after the first said that it did nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::connection::Connection;
use super::fault::unavailable;
use super::shared::Member;
use super::slots::{Map, Slots};
use super::subscriptions::Subscriptions;
use super::survey;
use super::url::Settings;
use super::way::{Elsewhere, Way};
use crate::Error;
use crate::clock::Moment;
use crate::store::common::{AbortOnDrop, Address};

/// How often to look although nothing seems wrong.
const SURVEY_EVERY: Duration = Duration::from_secs(15);
/// How long to pause between two looks.
const SURVEY_PAUSE: Duration = Duration::from_millis(50);
/// How often a request follows nodes that send it elsewhere before it pauses each time.
const QUICK_REDIRECTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The nodes, and who looks after them.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    _surveyor: AbortOnDrop,
}

struct Shared {
    settings: Settings,
    seeds: Vec<Address>,
    /// Where this process is told that a lock was broken.
    channel: String,
    runtime: Handle,
    sharded: bool,
    subscriptions: Subscriptions,
    map: Arc<Map>,
    nodes: Mutex<HashMap<Address, Arc<Connection>>>,
}

impl Cluster {
    /// Finds the masters. The first failure is reported; later ones are tried again.
    pub async fn open(
        settings: Settings,
        seeds: Vec<Address>,
        channel: String,
    ) -> Result<Cluster, Error> {
        let (survey, sharded) = survey::first(&settings, &seeds).await?;
        let shared = Arc::new(Shared {
            settings,
            seeds,
            channel,
            runtime: Handle::current(),
            sharded,
            subscriptions: Subscriptions::new(),
            map: Arc::new(Map::new(survey)),
            nodes: Mutex::default(),
        });
        let surveyor = tokio::spawn(shared.clone().keep_surveying());
        Ok(Cluster {
            shared,
            _surveyor: AbortOnDrop::of(&surveyor),
        })
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub fn subscriptions(&self) -> &Subscriptions {
        &self.shared.subscriptions
    }

    pub fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// Whether names have sharded channels.
    pub fn sharded(&self) -> bool {
        self.shared.sharded
    }

    /// A connection to every master.
    pub fn masters(&self) -> Vec<Arc<Connection>> {
        let masters = self.shared.map.masters();
        let masters = masters.iter();
        masters.map(|at| self.shared.node(at)).collect()
    }

    /// The way of a request to the node that serves a slot, wherever that is.
    pub fn route(&self, slot: u16) -> Route<'_> {
        Route {
            cluster: self,
            slot,
            end: Moment::now() + self.shared.settings.response_timeout,
            redirects: 0,
            pause: FIRST_PAUSE,
            ask: None,
        }
    }

    /// Waits until the node that serves a slot has confirmed this version of the topics.
    pub async fn synced(&self, slot: u16, version: u64) -> Result<(), Error> {
        let shared = &self.shared;
        let end = Moment::now() + shared.settings.response_timeout;
        loop {
            let at = shared.map.owner(slot).ok_or_else(|| no_master(slot))?;
            let node = shared.node(&at);
            if node.synced_within(version, LONGEST_PAUSE).await {
                return Ok(());
            }
            if Moment::now() >= end {
                return Err(unavailable(format!("{at} did not confirm a subscription")));
            }
        }
    }

    /// Under the keeper's own timer, so that it works under any executor.
    pub async fn sleep(&self, pause: Duration) {
        let sleep = {
            let _context = self.shared.runtime.enter();
            tokio::time::sleep(pause)
        };
        sleep.await;
    }
}

/// Follows a request from node to node.
#[derive(Debug)]
pub(super) struct Route<'a> {
    cluster: &'a Cluster,
    slot: u16,
    /// Until when it is tried.
    end: Moment,
    redirects: u32,
    pause: Duration,
    /// The server to ask next, once.
    ask: Option<Address>,
}

impl<'a> Route<'a> {
    pub async fn way(&mut self) -> Result<Way<'a>, Error> {
        let shared = &self.cluster.shared;
        let asked = self.ask.take();
        let asking = asked.is_some();
        let at = asked.or_else(|| shared.map.owner(self.slot));
        let node = shared.node(&at.ok_or_else(|| no_master(self.slot))?);
        node.ready().await.inspect_err(|_| shared.map.doubt())?;
        Ok(Way::to_node(node, asking))
    }

    /// What a try on this way came to; `None` if it has to be tried on the next.
    pub async fn settle<T>(
        &mut self,
        way: &Way<'_>,
        answer: Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        let map = &self.cluster.shared.map;
        let wait = match way.elsewhere() {
            None => {
                if matches!(answer, Err(Error::Unavailable { .. })) {
                    map.doubt();
                }
                return Some(answer);
            }
            Some(Elsewhere::Moved(to)) => {
                tracing::debug!(slot = self.slot, %to, "the slot has moved");
                map.moved(self.slot, to);
                map.doubt();
                self.redirects > QUICK_REDIRECTS
            }
            Some(Elsewhere::Ask(to)) => {
                self.ask = Some(to);
                self.redirects > QUICK_REDIRECTS
            }
            Some(Elsewhere::TryAgain) => true,
        };
        self.redirects += 1;
        if wait {
            if Moment::now() + self.pause > self.end {
                return Some(answer);
            }
            self.cluster.sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        None
    }
}

impl Shared {
    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Arc<Connection>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a node.
    fn node(&self, at: &Address) -> Arc<Connection> {
        let mut nodes = self.nodes();
        let node = nodes.entry(at.clone()).or_insert_with(|| {
            let member = Member {
                map: self.map.clone(),
                sharded: self.sharded,
            };
            Arc::new(Connection::to_member(
                self.settings.clone(),
                at.clone(),
                self.channel.clone(),
                self.subscriptions.clone(),
                member,
                &self.runtime,
            ))
        });
        node.clone()
    }

    async fn keep_surveying(self: Arc<Self>) {
        loop {
            let _ = tokio::time::timeout(SURVEY_EVERY, self.map.doubted.notified()).await;
            if let Some(survey) = self.survey().await {
                self.apply(survey);
            }
            tokio::time::sleep(SURVEY_PAUSE).await;
        }
    }

    /// Asks who serves what: first the nodes that we are connected to, then all others that we know of.
    async fn survey(&self) -> Option<Slots> {
        let nodes: Vec<Arc<Connection>> = {
            let nodes = self.nodes();
            let up = nodes.values().filter(|node| node.is_up());
            up.cloned().collect()
        };
        let mut others = self.map.masters();
        others.extend(self.seeds.iter().cloned());
        others.retain(|other| nodes.iter().all(|node| node.address() != *other));
        survey::again(&self.settings, &nodes, &others).await
    }

    fn apply(&self, survey: Slots) {
        let news = self.map.replace(survey);
        let masters = self.map.masters();
        self.nodes().retain(|at, _| masters.contains(at));
        if news {
            tracing::debug!(?masters, "slots have moved");
            for slot in self.subscriptions.slots() {
                if let Some(at) = self.map.owner(slot) {
                    self.node(&at);
                }
            }
            self.subscriptions.moved();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cluster").field(&self.settings).finish()
    }
}

fn no_master(slot: u16) -> Error {
    unavailable(format!("no node of the cluster serves slot {slot}"))
}
