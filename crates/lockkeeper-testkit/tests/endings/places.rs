//! Where the programs lock, and what is held there, as the servers themselves say.

use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::postgres::PostgresServer;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

pub trait Place {
    /// The URL of the store.
    fn store(&self) -> String;
    /// On how many servers each of these names is held.
    fn held_on(&self, names: &[String]) -> Vec<usize>;
    /// How many servers there are.
    fn servers(&self) -> usize {
        1
    }
}

/// A server alone, to which something can happen.
pub trait Alone: Place {
    fn begin() -> Self;
    /// It is killed.
    fn end(&mut self);
    /// It says nothing any more.
    fn silence(&self);
}

fn among(names: &[String], held: &[impl AsRef<str>]) -> Vec<usize> {
    let is_held = |name: &String| held.iter().any(|held| held.as_ref() == name);
    names.iter().map(|name| is_held(name).into()).collect()
}

impl Place for RedisServer {
    fn store(&self) -> String {
        self.url()
    }
    fn held_on(&self, names: &[String]) -> Vec<usize> {
        let exists = |name: &String| self.command(&["EXISTS", name]).starts_with(":1");
        names.iter().map(|name| exists(name).into()).collect()
    }
}

impl Alone for RedisServer {
    fn begin() -> RedisServer {
        RedisServer::start()
    }
    fn end(&mut self) {
        self.kill();
    }
    fn silence(&self) {
        self.pause();
    }
}

impl Place for Independent {
    fn store(&self) -> String {
        self.url_at_once("30s")
    }
    fn held_on(&self, names: &[String]) -> Vec<usize> {
        names.iter().map(|name| self.count_key(name)).collect()
    }
    fn servers(&self) -> usize {
        Independent::servers(self).len()
    }
}

impl Place for PostgresServer {
    fn store(&self) -> String {
        self.url()
    }
    fn held_on(&self, names: &[String]) -> Vec<usize> {
        let held =
            "SELECT name FROM lockkeeper.lock WHERE claim IS NOT NULL OR waited OR shared > 0";
        among(names, &self.sql(held))
    }
}

impl Alone for PostgresServer {
    fn begin() -> PostgresServer {
        PostgresServer::start()
    }
    fn end(&mut self) {
        self.stop_at_once();
    }
    fn silence(&self) {
        self.pause();
    }
}

impl Place for MariaDbServer {
    fn store(&self) -> String {
        self.url()
    }
    fn held_on(&self, names: &[String]) -> Vec<usize> {
        let held =
            "SELECT name FROM lockkeeper_lock WHERE claim IS NOT NULL OR waited OR shared > 0";
        let held = self.sql(held);
        among(names, &held.lines().collect::<Vec<_>>())
    }
}

impl Alone for MariaDbServer {
    fn begin() -> MariaDbServer {
        MariaDbServer::start()
    }
    fn end(&mut self) {
        self.kill();
    }
    fn silence(&self) {
        self.pause();
    }
}

impl Place for ZooKeeperServer {
    /// With a session that outlives the test.
    fn store(&self) -> String {
        self.url("endings")
    }
    fn held_on(&self, names: &[String]) -> Vec<usize> {
        // The nodes of all sessions, by their paths.
        let nodes = self.word("dump");
        assert!(nodes.contains("Sessions with Ephemerals"), "{nodes}");
        let has = |name: &String| nodes.contains(&format!("/endings/{name}/"));
        names.iter().map(|name| has(name).into()).collect()
    }
}

impl Alone for ZooKeeperServer {
    fn begin() -> ZooKeeperServer {
        ZooKeeperServer::start()
    }
    fn end(&mut self) {
        self.kill();
    }
    fn silence(&self) {
        self.pause();
    }
}
