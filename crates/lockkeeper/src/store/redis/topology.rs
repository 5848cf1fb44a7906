//! Which servers a `redis:` URL names.

use std::fmt;

use super::options::number;
use crate::Error;
use crate::store::common::{Address, ServerUrl, decode, refuse};

pub(super) const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// More would be a mistake: a few of a deployment's addresses are enough to find the others.
const MOST_ADDRESSES: usize = 64;
const SOCKET: &str = "redis+unix:///run/redis/redis.sock";

/// Which servers there are, and how to find the one to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Topology {
    Single(Address),
    /// The master of a service, wherever these Sentinels say it is.
    Sentinel(Vec<Address>, String),
    /// Masters that share the slots; these addresses are where to ask for the rest.
    Cluster(Vec<Address>),
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[Address]| {
            let texts: Vec<String> = addresses.iter().map(Address::to_string).collect();
            texts.join(",")
        };
        match self {
            Topology::Single(address) => address.fmt(f),
            Topology::Sentinel(sentinels, service) => {
                write!(f, "{service} of {}", list(sentinels))
            }
            Topology::Cluster(seeds) => write!(f, "the cluster of {}", list(seeds)),
        }
    }
}

impl Topology {
    /// Reads what a URL says of servers, and of a database on them.
    pub fn parse(server: &ServerUrl<'_>) -> Result<(Topology, Option<u32>), Error> {
        let (scheme, path) = (server.scheme(), server.path());
        let kind = scheme
            .trim_start_matches("rediss")
            .trim_start_matches("redis");
        Ok(match kind {
            "+unix" if scheme.starts_with("rediss") => {
                return refuse(format!("a socket needs no TLS; write {SOCKET}"));
            }
            "+unix" => (Topology::Single(server.socket(SOCKET)?), None),
            "+sentinel" => {
                let (service, path) = service(path)?;
                let sentinels = addresses(server, SENTINEL_PORT)?;
                (Topology::Sentinel(sentinels, service), database(path)?)
            }
            "+cluster" => {
                if database(path)?.is_some_and(|database| database != 0) {
                    return refuse("a cluster has only database 0");
                }
                (Topology::Cluster(addresses(server, DEFAULT_PORT)?), Some(0))
            }
            _ => {
                let address = server.address(
                    DEFAULT_PORT,
                    "it has several hosts; write redis+sentinel://HOSTS/SERVICE or redis+cluster://HOSTS",
                )?;
                (Topology::Single(address), database(path)?)
            }
        })
    }

    /// Whether what is sent stays on this machine, as far as the URL tells.
    pub fn is_local(&self) -> bool {
        match self {
            Topology::Single(address) => address.is_local(),
            Topology::Sentinel(addresses, _) | Topology::Cluster(addresses) => {
                addresses.iter().all(Address::is_local)
            }
        }
    }
}

fn addresses(server: &ServerUrl<'_>, port: u16) -> Result<Vec<Address>, Error> {
    match server.addresses(port)? {
        many if many.len() > MOST_ADDRESSES => refuse(format!(
            "it has more than {MOST_ADDRESSES} hosts; a few are enough to find the others"
        )),
        addresses => Ok(addresses),
    }
}

/// The service that Sentinels watch over, and what follows it.
fn service(path: &str) -> Result<(String, &str), Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (service, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    match decode(service)? {
        service if service.is_empty() => refuse(
            "it names no service; write what the Sentinels call it: redis+sentinel://HOSTS/mymaster",
        ),
        service if service.chars().any(char::is_control) => {
            refuse("the service's name has a control character")
        }
        service => Ok((service, rest)),
    }
}

/// The database that a path names.
pub(super) fn database(path: &str) -> Result<Option<u32>, Error> {
    match path {
        "" | "/" => Ok(None),
        path => number(&path[1..]).map(Some),
    }
}
