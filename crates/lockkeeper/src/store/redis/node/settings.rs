//! What the URL of one server of a quorum says.

use std::time::Duration;

use crate::store::common::{Address, Options, ServerUrl, refuse};
use crate::store::redis::keys::Keys;
use crate::store::redis::topology::{DEFAULT_PORT, Topology, database};
use crate::store::redis::url::{Dialect, Settings};
use crate::url::StoreUrl;
use crate::{Error, Name};

/// Where one server of a quorum is, and how to speak to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::store) struct NodeSettings {
    pub(super) settings: Settings,
    pub(super) address: Address,
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
        match settings.topology.clone() {
            Topology::Single(address) => NodeSettings::at(address, settings),
            other => refuse(format!("{other} is not one server")),
        }
    }

    /// Reads a URL that names all servers. What it says else, and these options, are for each of them.
    pub fn of_each(
        server: &ServerUrl<'_>,
        tls: bool,
        options: &mut Options,
    ) -> Result<Vec<NodeSettings>, Error> {
        let addresses = server.addresses(DEFAULT_PORT)?;
        let first = Topology::Single(addresses[0].clone());
        let settings = Settings::of(server, first, tls, database(server.path())?, options)?;
        let nodes = addresses.into_iter().map(|address| {
            let topology = Topology::Single(address.clone());
            let settings = settings.clone();
            NodeSettings::at(
                address,
                Settings {
                    topology,
                    ..settings
                },
            )
        });
        nodes.collect()
    }

    fn at(address: Address, settings: Settings) -> Result<NodeSettings, Error> {
        if settings.replicas > 0 {
            return refuse(
                "replicas=N is for a server with replicas; the nodes of a quorum are masters that have none",
            );
        }
        Ok(NodeSettings { settings, address })
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
        self.settings.token_retention()
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
