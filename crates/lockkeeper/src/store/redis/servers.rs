//! Where requests go: to one server, or to the nodes of a cluster.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::cluster::{self, Cluster};
use super::connection::Connection;
use super::keys::Keys;
use super::subscriptions::Subscriptions;
use super::topology::Topology;
use super::url::Settings;
use super::way::Way;
use crate::{Error, Name};

#[derive(Debug)]
pub(super) enum Servers {
    One(Arc<Connection>),
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
                let connection = Connection::open(settings, channel).await?;
                Ok(Servers::One(Arc::new(connection)))
            }
        }
    }

    pub fn settings(&self) -> &Settings {
        match self {
            Servers::One(connection) => connection.settings(),
            Servers::Many(cluster) => cluster.settings(),
        }
    }

    pub fn runtime(&self) -> &Handle {
        match self {
            Servers::One(connection) => connection.runtime(),
            Servers::Many(cluster) => cluster.runtime(),
        }
    }

    pub fn subscriptions(&self) -> &Subscriptions {
        match self {
            Servers::One(connection) => connection.subscriptions(),
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
        Ok(match self {
            Servers::One(connection) => Route::Straight(connection),
            Servers::Many(cluster) => Route::Searching(cluster.route(self.keys(name)?.slot())),
        })
    }

    /// Waits until the server that has these keys has confirmed this version of the topics.
    pub async fn synced(&self, keys: &Keys, version: u64) -> Result<(), Error> {
        match self {
            Servers::One(connection) => connection.synced(version).await,
            Servers::Many(cluster) => cluster.synced(keys.slot(), version).await,
        }
    }

    /// Every server that has names.
    pub fn masters(&self) -> Vec<Arc<Connection>> {
        match self {
            Servers::One(connection) => vec![connection.clone()],
            Servers::Many(cluster) => cluster.masters(),
        }
    }
}

/// The server in use just now, or the cluster.
impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Servers::One(connection) => connection.address().fmt(f),
            Servers::Many(cluster) => cluster.settings().topology.fmt(f),
        }
    }
}

/// The way of a request.
pub(super) enum Route<'a> {
    Straight(&'a Connection),
    Searching(cluster::Route<'a>),
}

impl<'a> Route<'a> {
    pub async fn way(&mut self) -> Result<Way<'a>, Error> {
        match self {
            Route::Straight(connection) => Ok(Way::to(connection)),
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
            Route::Straight(_) => Some(answer),
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
