//! Independent servers, the ways of several clients to them, and processes that take locks on them.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use lockkeeper_testkit::history::Event;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

pub use crate::crew::*;

pub struct World {
    pub nodes: Vec<RedisServer>,
    crew: Crew,
    /// What ends each URL.
    query: String,
}

impl Deref for World {
    type Target = Crew;

    fn deref(&self) -> &Crew {
        &self.crew
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Crew {
        &mut self.crew
    }
}

impl World {
    /// So many nodes that are old enough to vote, for leases of up to `max_lease`.
    pub fn new(count: usize, max_lease: Duration, query: &str) -> World {
        let options = (0..count).map(|_| RedisOptions::default());
        World::with(options.collect(), max_lease, query)
    }

    /// The same, with nodes of these kinds.
    pub fn with(options: Vec<RedisOptions>, max_lease: Duration, query: &str) -> World {
        let nodes: Vec<RedisServer> = options.into_iter().map(RedisServer::start_with).collect();
        let query = format!("?max_lease={}ms{query}", max_lease.as_millis());
        let ports = nodes.iter().map(RedisServer::port);
        let world = World {
            crew: Crew::at(&url(ports, &query)),
            nodes,
            query,
        };
        for node in &world.nodes {
            world.until("the node may vote", || is_old_enough(node, max_lease));
        }
        world
    }

    /// A way of its own to every node, for some client.
    pub fn way(&self) -> Way {
        Way {
            proxies: self.nodes.iter().map(|n| Proxy::to(n.port())).collect(),
            query: self.query.clone(),
        }
    }

    /// Ends the load, looks what is left on the nodes, and collects every history.
    pub fn finish(&mut self) -> Vec<Event> {
        let nodes = &self.nodes;
        self.crew.finish(|| {
            let left = nodes.iter().enumerate().flat_map(|(number, node)| {
                let name = move |what| format!("{what} on node {number}");
                left_on(node).into_iter().map(name)
            });
            left.collect()
        })
    }
}

/// Whether a node has been up for so long that whatever it may have forgotten is over.
pub fn is_old_enough(node: &RedisServer, max_lease: Duration) -> bool {
    let up = node.info("uptime_in_seconds");
    let up = up.and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_secs(up) >= max_lease.mul_f64(1.01) + Duration::from_secs(1)
}

fn url(ports: impl Iterator<Item = u16>, query: &str) -> String {
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redlock://{}{query}", hosts.join(","))
}

/// A client's own way to every node, each of which can be cut.
pub struct Way {
    pub proxies: Vec<Proxy>,
    query: String,
}

impl Way {
    pub fn url(&self) -> String {
        url(self.proxies.iter().map(Proxy::port), &self.query)
    }

    /// Only these nodes can be reached.
    pub fn only(&self, nodes: &[usize]) {
        for (number, proxy) in self.proxies.iter().enumerate() {
            match nodes.contains(&number) {
                true => proxy.heal(),
                false => proxy.refuse(),
            }
        }
    }

    pub fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }
}
