//! Where requests go: to one server, or to the nodes of a cluster.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::cluster::{self, Cluster};
use super::connection::Connection;
use super::keys::Keys;
use super::lane::{Does, Lanes, Passage};
use super::subscriptions::Subscriptions;
use super::topology::Topology;
use super::url::Settings;
use super::way::Way;
use crate::store::ClaimId;
use crate::{Error, Name};

#[derive(Debug)]
pub(super) enum Servers {
    One(Box<Lanes>),
    Many(Cluster),
}

impl Servers {
    pub async fn open(settings: Settings, channel: String) -> Result<Servers, Error> {
        match settings.topology.clone() {
            Topology::Cluster(seeds) => {
                let cluster = Cluster::open(settings, seeds, channel).await?;
                Ok(Servers::Many(cluster))
            }
            _ => {
                let main = Connection::open(settings, channel).await?;
                Ok(Servers::One(Box::new(Lanes::new(main, Arc::default()))))
            }
        }
    }

    pub fn settings(&self) -> &Settings {
        match self {
            Servers::One(lanes) => lanes.main.settings(),
            Servers::Many(cluster) => cluster.settings(),
        }
    }

    pub fn runtime(&self) -> &Handle {
        match self {
            Servers::One(lanes) => lanes.main.runtime(),
            Servers::Many(cluster) => cluster.runtime(),
        }
    }

    pub fn subscriptions(&self) -> &Subscriptions {
        match self {
            Servers::One(lanes) => lanes.main.subscriptions(),
            Servers::Many(cluster) => cluster.subscriptions(),
        }
    }

    /// Whether names have sharded channels.
    pub fn sharded(&self) -> bool {
        match self {
            Servers::One(_) => false,
            Servers::Many(cluster) => cluster.sharded(),
        }
    }

    pub fn keys(&self, name: &Name) -> Result<Keys, Error> {
        Keys::of(self.settings(), name)
    }

    /// The way of a request to the server that has a name.
    pub fn route(&self, name: &Name) -> Result<Route<'_>, Error> {
        self.route_by(name, Lanes::main)
    }

    /// The way of a request that a task may wait for.
    pub fn quickest(&self, name: &Name, does: Does) -> Result<Route<'_>, Error> {
        self.route_by(name, |lanes| lanes.quickest(name, does))
    }

    /// The way of a claim's withdrawal.
    pub fn behind(&self, name: &Name, claim: ClaimId) -> Result<Route<'_>, Error> {
        self.route_by(name, |lanes| lanes.behind(claim))
    }

    fn route_by<'a>(
        &'a self,
        name: &Name,
        lane: impl FnOnce(&'a Lanes) -> Passage<'a>,
    ) -> Result<Route<'a>, Error> {
        Ok(match self {
            Servers::One(lanes) => Route::Straight(lane(lanes)),
            Servers::Many(cluster) => Route::Searching(cluster.route(self.keys(name)?.slot())),
        })
    }

    /// Waits until the server that has these keys has confirmed this version of the topics.
    pub async fn synced(&self, keys: &Keys, version: u64) -> Result<(), Error> {
        match self {
            Servers::One(lanes) => lanes.main.synced(version).await,
            Servers::Many(cluster) => cluster.synced(keys.slot(), version).await,
        }
    }

    /// Every server that has names.
    pub fn masters(&self) -> Vec<Arc<Connection>> {
        match self {
            Servers::One(lanes) => vec![lanes.main.clone()],
            Servers::Many(cluster) => cluster.masters(),
        }
    }
}

/// The server in use just now, or the cluster.
impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Servers::One(lanes) => lanes.main.address().fmt(f),
            Servers::Many(cluster) => cluster.settings().topology.fmt(f),
        }
    }
}

/// The way of a request.
pub(super) enum Route<'a> {
    Straight(Passage<'a>),
    Searching(cluster::Route<'a>),
}

impl<'a> Route<'a> {
    pub async fn way(&mut self) -> Result<Way<'a>, Error> {
        match self {
            Route::Straight(passage) => Ok(passage.way()),
            Route::Searching(route) => route.way().await,
        }
    }

    /// What a try on this way came to; `None` if it has to be tried on the next.
    pub async fn settle<T>(
        &mut self,
        way: &Way<'_>,
        answer: Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        match self {
            Route::Straight(passage) => {
                passage.answered();
                Some(answer)
            }
            Route::Searching(route) => route.settle(way, answer).await,
        }
    }
}

/// Runs a verb at the server that a route leads to, wherever that is. A macro, since the future of an async
/// closure cannot be said to be `Send`.
macro_rules! visit {
    ($route:expr, |$way:ident| $verb:expr) => {{
        let mut route = $route;
        loop {
            let $way = &route.way().await?;
            let answer = $verb.await;
            if let Some(answer) = route.settle($way, answer).await {
                break answer;
            }
        }
    }};
}
pub(super) use visit;
