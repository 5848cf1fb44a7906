//! Which servers a `redis:` URL names.

use std::fmt;
use std::path::PathBuf;

use super::options::number;
use super::url::{decode, refuse};
use crate::Error;

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// More would be a mistake: a few of a deployment's addresses are enough to find the others.
const MOST_ADDRESSES: usize = 64;

/// Where the server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// Whether what is sent there stays on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(host, _) => {
                let ip: Result<std::net::IpAddr, _> = host.parse();
                host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

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
    pub fn parse(scheme: &str, host: &str, path: &str) -> Result<(Topology, Option<u32>), Error> {
        let kind = scheme
            .trim_start_matches("rediss")
            .trim_start_matches("redis");
        Ok(match kind {
            "+unix" if scheme.starts_with("rediss") => {
                return refuse("a socket needs no TLS; write redis+unix:///run/redis/redis.sock");
            }
            "+unix" => (Topology::Single(socket(host, path)?), None),
            "+sentinel" => {
                let (service, path) = service(path)?;
                let sentinels = addresses(host, SENTINEL_PORT)?;
                (Topology::Sentinel(sentinels, service), database(path)?)
            }
            "+cluster" => {
                if database(path)?.is_some_and(|database| database != 0) {
                    return refuse("a cluster has only database 0");
                }
                (Topology::Cluster(addresses(host, DEFAULT_PORT)?), Some(0))
            }
            _ => {
                if host.contains(',') {
                    return refuse(
                        "it has several hosts; write redis+sentinel://HOSTS/SERVICE or redis+cluster://HOSTS",
                    );
                }
                (
                    Topology::Single(address(host, DEFAULT_PORT)?),
                    database(path)?,
                )
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

/// Several addresses, with commas between them.
fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, Error> {
    let addresses: Result<Vec<Address>, Error> =
        hosts.split(',').map(|host| address(host, port)).collect();
    match addresses? {
        many if many.len() > MOST_ADDRESSES => refuse(format!(
            "it has more than {MOST_ADDRESSES} hosts; a few are enough to find the others"
        )),
        addresses => Ok(addresses),
    }
}

fn address(host: &str, default_port: u16) -> Result<Address, Error> {
    Ok(Address::Tcp(
        tcp_host(host)?.to_owned(),
        tcp_port(host, default_port)?,
    ))
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

fn tcp_host(host: &str) -> Result<&str, Error> {
    let name = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((v6, _)) => v6,
            None => return refuse("an IPv6 address ends with a bracket: redis://[::1]:6379"),
        },
        None => host.split(':').next().unwrap_or_default(),
    };
    match name.is_empty() {
        true => refuse("it names no host; write redis://localhost:6379/0"),
        false => Ok(name),
    }
}

fn tcp_port(host: &str, default: u16) -> Result<u16, Error> {
    let after = match host.rsplit_once(']') {
        Some((_, after)) => after,
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    match after.strip_prefix(':') {
        None if after.is_empty() => Ok(default),
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => refuse(
                "the port is not a number from 1 to 65535; put an IPv6 address into brackets, and write / ? # \
                 in a password as %2F %3F %23",
            ),
        },
        None => refuse("after an IPv6 address comes a colon and the port"),
    }
}

fn socket(host: &str, path: &str) -> Result<Address, Error> {
    if !host.is_empty() {
        return refuse(
            "a socket has no host; write three slashes: redis+unix:///run/redis/redis.sock",
        );
    }
    match path {
        "" | "/" => refuse("it names no socket; write redis+unix:///run/redis/redis.sock"),
        path => Ok(Address::Unix(decode(path)?.into())),
    }
}

fn database(path: &str) -> Result<Option<u32>, Error> {
    match path {
        "" | "/" => Ok(None),
        path => number(&path[1..]).map(Some),
    }
}
