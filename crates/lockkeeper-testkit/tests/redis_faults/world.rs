//! One server, a lossy way to it, and processes that take locks on it.

use std::ops::{Deref, DerefMut};

use lockkeeper_testkit::checker::{Demands, Stats};
use lockkeeper_testkit::history::Event;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

pub use crate::crew::*;

pub struct World {
    pub server: RedisServer,
    pub proxy: Proxy,
    crew: Crew,
    /// What ends each URL.
    query: &'static str,
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

pub const REDISSON: &str = "?response_timeout=600ms";
pub const PLAIN: &str = "?dialect=plain&response_timeout=600ms";

impl World {
    pub fn new(query: &'static str) -> World {
        World::with(query, RedisOptions::default())
    }

    pub fn with(query: &'static str, options: RedisOptions) -> World {
        let server = RedisServer::start_with(options);
        let proxy = Proxy::to(server.port());
        World {
            crew: Crew::at(&format!("redis://127.0.0.1:{}/0{query}", server.port())),
            server,
            proxy,
            query,
        }
    }

    /// The same, for a lock of another kind.
    pub fn of(lock: &str) -> World {
        let mut world = World::new("");
        world.lock = lock.to_owned();
        world
    }

    /// The URL through the proxy.
    pub fn proxied(&self) -> String {
        format!("redis://127.0.0.1:{}/0{}", self.proxy.port(), self.query)
    }

    /// Ends the load, looks what is left on the server, and collects every history.
    pub fn finish(&mut self) -> Vec<Event> {
        let server = &self.server;
        self.crew.finish(|| left_on(server))
    }

    /// Ends the load. Every rule was kept, and what is demanded was seen.
    #[track_caller]
    pub fn passes(&mut self, demands: &Demands) -> Stats {
        let events = self.finish();
        judged(&events, demands).expect_valid()
    }
}

/// Runs a scene in both dialects at the same time.
pub fn in_both_dialects(scene: impl Fn(&'static str) + Sync) {
    at_once([REDISSON, PLAIN], scene);
}
