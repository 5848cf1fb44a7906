//! Independent servers, the ways of several clients to them, and processes that take locks on them.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use lockkeeper_testkit::checker::{Demands, Stats};
use lockkeeper_testkit::history::{Event, Fault};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

pub use crate::crew::*;

pub struct World {
    pub nodes: Independent,
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
        let nodes = Independent::of(options.into_iter().map(RedisServer::start_with));
        let query = format!("?max_lease={}ms{query}", max_lease.as_millis());
        nodes.wait_out_quarantine(max_lease);
        World {
            crew: Crew::at(&(nodes.plain_url() + &query)),
            nodes,
            query,
        }
    }

    /// A way of its own to every node, for some client.
    pub fn way(&self) -> Way {
        Way {
            proxies: self
                .nodes
                .servers()
                .iter()
                .map(|n| Proxy::to(n.port()))
                .collect(),
            query: self.query.clone(),
        }
    }

    /// Stops a process of the load, which may hold.
    pub fn stop_load(&mut self, number: usize) {
        self.taker(number).stop().expect("is stopped");
        let process = format!("load{}", number + 1);
        self.driver.fault(Fault::Stopped { process });
    }

    /// Whether the lock is held on every node, and by the same claim.
    pub fn all_agree(&self) -> bool {
        let claim = |node: &RedisServer| match self.query.contains("dialect=plain") {
            true => {
                let value = node.strings(&["GET", "a"]).pop()?;
                Some(value.split(' ').next()?.to_owned())
            }
            // The holder is a field; what is known of it, another.
            false => {
                let mut fields = node.strings(&["HKEYS", "a"]).into_iter();
                fields.find_map(|field| Some(field.strip_prefix("lockkeeper:")?.to_owned()))
            }
        };
        let mut claims = self.nodes.servers().iter().map(claim);
        let first = claims.next().flatten();
        first.is_some() && claims.all(|claim| claim == first)
    }

    /// Ends the load, looks what is left on the nodes, and collects every history.
    pub fn finish(&mut self) -> Vec<Event> {
        let nodes = self.nodes.servers();
        self.crew.finish(|| {
            let left = nodes.iter().enumerate().flat_map(|(number, node)| {
                let name = move |what| format!("{what} on node {number}");
                left_on(node).into_iter().map(name)
            });
            left.collect()
        })
    }

    /// Ends the load. Every rule was kept, and what is demanded was seen.
    #[track_caller]
    pub fn passes(&mut self, demands: &Demands) -> Stats {
        let events = self.finish();
        judged(&events, demands).expect_valid()
    }
}

/// A client's own way to every node, each of which can be cut.
pub struct Way {
    pub proxies: Vec<Proxy>,
    query: String,
}

impl Way {
    pub fn url(&self) -> String {
        Independent::url_of(self.proxies.iter().map(Proxy::port)) + &self.query
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

    /// How many times something was held or dropped.
    pub fn stopped(&self) -> usize {
        self.proxies.iter().map(Proxy::stopped).sum()
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }
}

/// Runs a scene in both dialects at the same time.
pub fn in_both_dialects(scene: impl Fn(&'static str) + Sync) {
    at_once(["", "&dialect=plain"], scene);
}
