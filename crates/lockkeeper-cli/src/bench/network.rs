//! A server under test that is no Redis: what the least work costs there, and how many requests it was sent.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::url::StoreUrl;
use tokio::runtime::Handle;

use super::lap::Window;
use super::side::Side;
use super::sql::{self, Kind};
use super::tally::{Tally, Times};
use super::zookeeper;

/// The server, spoken to without Lockkeeper.
pub enum Network {
    Sql(sql::Server),
    ZooKeeper(zookeeper::Server),
}

/// What ours should reach on a kind of server, beside its references.
pub struct Aims {
    /// Of the raw pairs, one after the other.
    pub serial: f64,
    /// Of the raw pairs, many at once.
    pub parallel: f64,
    /// Hand-offs in microseconds, where the time itself counts.
    pub hand_off_micros: Option<f64>,
    /// Hand-offs in round trips, where those count.
    pub hand_off_round_trips: Option<f64>,
}

impl Network {
    /// The server of a store of this kind; `None` for others.
    pub fn find(
        store: &str,
        url: &StoreUrl,
        unique: &str,
        runtime: Handle,
    ) -> Result<Option<Self>> {
        Ok(match store {
            "postgres" | "mysql" => Some(Network::Sql(sql::Server::find(url, unique, runtime)?)),
            "zookeeper" => Some(Network::ZooKeeper(zookeeper::Server::find(
                url, unique, runtime,
            )?)),
            _ => None,
        })
    }

    /// What ours should reach here.
    pub fn aims(&self) -> Aims {
        let sql = |serial, parallel, micros| Aims {
            serial,
            parallel,
            hand_off_micros: Some(micros),
            hand_off_round_trips: None,
        };
        match self {
            Network::Sql(server) => match server.kind() {
                Kind::Postgres => sql(0.8, 1.3, 800.0),
                Kind::MariaDb => sql(0.55, 0.7, 1_500.0),
                Kind::MySql => sql(0.75, 0.95, 2_500.0),
            },
            Network::ZooKeeper(_) => Aims {
                serial: 0.85,
                parallel: 0.8,
                hand_off_micros: None,
                hand_off_round_trips: Some(4.0),
            },
        }
    }

    /// How long the smallest request takes, each sent a `pause` after the last was answered.
    pub fn ping(&self, length: Duration, pause: Duration) -> Result<Times> {
        match self {
            Network::Sql(server) => server.ping(length, pause),
            Network::ZooKeeper(server) => server.ping(length, pause),
        }
    }

    /// What [`Network::ping`] sends.
    pub fn ping_is(&self) -> &'static str {
        match self {
            Network::Sql(_) => "SELECT 1, as rarely as the lock changes hands",
            Network::ZooKeeper(_) => "a committed write, as rarely as the lock changes hands",
        }
    }

    /// How many requests the server was sent, by all clients: transactions, statements or writes.
    pub fn requests(&self) -> Result<u64> {
        match self {
            Network::Sql(server) => server.requests(),
            Network::ZooKeeper(server) => server.requests(),
        }
    }
}

/// A side whose requests its server counts.
pub struct Counted<'b> {
    pub side: Box<dyn Side + 'b>,
    pub server: &'b Network,
}

impl Side for Counted<'_> {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let before = self.server.requests()?;
        // Not the pause that a count may take.
        let window = window.anew();
        let mut tally = self.side.window(window)?;
        tally.commands = Some(self.server.requests()?.saturating_sub(before));
        Ok(tally)
    }
}
