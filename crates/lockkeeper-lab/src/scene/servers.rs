//! What locks live on when it is more than one server, each with a lane of its own.

use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::Lockkeeper;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperOptions};

use super::timeline::{Doing, MarkKind};
use super::{Scene, started};
use crate::words;

/// A master, and a replica that takes its place when it dies. Clients come by way of a proxy, which knows who is the
/// master; so does the replica, whose way can be cut.
#[derive(Debug)]
pub struct Pair {
    master: RedisServer,
    replica: RedisServer,
    front: Proxy,
    link: Proxy,
    lanes: [usize; 2],
}

/// Three servers that know nothing of each other.
#[derive(Debug)]
pub struct Nodes {
    nodes: Independent,
    lanes: [usize; 3],
    /// What follows the hosts in the URL.
    options: String,
    /// A way to a node that is closed.
    closed: Proxy,
}

/// Three ZooKeeper servers that have elected a leader. One of the others can be cut off from the rest.
#[derive(Debug)]
pub struct ZooKeepers {
    servers: Ensemble,
    leader: usize,
    follower: usize,
    /// The follower's.
    lane: usize,
}

/// What follows the hosts in the URL of one of the ZooKeeper servers. The time-out of a session is [`ZooKeepers::SESSION`].
const ZOOKEEPER_PATH: &str = "/lab?session_timeout=4s";

impl Scene {
    /// A master with a replica, on which the locks are from now on.
    pub async fn pair(&mut self) -> Result<Pair> {
        let (master, replica, link) = started(|| {
            let at_once = "repl-diskless-sync-delay 0".to_owned();
            let master = RedisServer::start_with(RedisOptions {
                lines: vec![at_once],
                ..RedisOptions::default()
            });
            let link = Proxy::to(master.port());
            let follows = format!("replicaof 127.0.0.1 {}", link.port());
            let replica = RedisServer::start_with(RedisOptions {
                lines: vec![follows],
                ..RedisOptions::default()
            });
            (master, replica, link)
        })
        .await?;
        let front = Proxy::to(master.port());
        self.locks_at(format!("redis://127.0.0.1:{}/0", front.port()));
        Ok(Pair {
            lanes: ["master", "replica"].map(|name| self.board.lane(name, true)),
            master,
            replica,
            front,
            link,
        })
    }

    /// Three servers, a majority of which makes a lock from now on. Only ours asks how long they have been up, so it
    /// starts once that is longer than any lease.
    pub async fn nodes(&mut self, max_lease: Duration) -> Result<Nodes> {
        let mut nodes = started(|| Independent::start(3)).await?;
        if self.lock.kind == "ours" {
            let grow_old = move || {
                nodes.wait_out_quarantine(max_lease);
                nodes
            };
            let old = tokio::task::spawn_blocking(grow_old).await;
            nodes = old.context(words::NODES_TOO_YOUNG)?;
        }
        let closed = Proxy::to(nodes.servers()[0].port());
        closed.refuse();
        let nodes = Nodes {
            options: format!("?max_lease={}ms", max_lease.as_millis()),
            lanes: ["node 1", "node 2", "node 3"].map(|name| self.board.lane(name, true)),
            closed,
            nodes,
        };
        if self.lock.kind == "ours" {
            // They are in use: a first client had to reach all of them, to record the longest lease.
            let first = Lockkeeper::connect(&nodes.url(None)).await;
            drop(first.context(words::NODES_UNUSABLE)?);
        }
        self.locks_at(nodes.url(None));
        Ok(nodes)
    }

    /// Three ZooKeeper servers.
    pub async fn zookeepers(&self) -> Result<ZooKeepers> {
        let (servers, leader) = started(|| {
            // A server that has lost the others waits for them for a minute, and does not tell its clients.
            let patient = ZooKeeperOptions {
                sync_limit: 600,
                lines: vec!["initLimit=100".into()],
                ..ZooKeeperOptions::default()
            };
            let servers = Ensemble::start_apart([patient.clone(), patient.clone(), patient]);
            let leader = servers.leader();
            (servers, leader)
        })
        .await?;
        let [_, lane] = ["leader", "follower"].map(|name| self.board.lane(name, true));
        Ok(ZooKeepers {
            follower: (leader + 1) % 3,
            leader,
            lane,
            servers,
        })
    }
}

impl ZooKeepers {
    /// After this long without a word from a session the leader ends it.
    pub const SESSION: Duration = Duration::from_secs(4);

    fn url(&self, server: usize) -> String {
        let port = self.servers.all()[server].port();
        format!("zk://127.0.0.1:{port}{ZOOKEEPER_PATH}")
    }

    /// The URL of the leader alone.
    pub fn leader(&self) -> String {
        self.url(self.leader)
    }

    /// The URL of the server that can be cut off, alone.
    pub fn follower(&self) -> String {
        self.url(self.follower)
    }

    /// Cuts the follower off from the other servers. Its clients still reach it.
    pub fn cut_off(&self, scene: &Scene) {
        self.servers.cut_off(self.follower);
        scene.board.begin(self.lane, Doing::Down);
    }

    /// Connects the follower with the others again.
    pub fn heal(&self, scene: &Scene) {
        self.servers.heal(self.follower);
        scene.board.end(self.lane, Doing::Down);
    }
}

impl Pair {
    /// Waits until the replica has what the master has.
    pub async fn in_step(&self) -> Result<()> {
        for _ in 0..2_000 {
            let info = self.replica.command(&["INFO", "replication"]);
            if info.contains("master_link_status:up") {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!(words::NO_MASTER)
    }

    /// From now on the replica hears nothing: replication lags.
    pub fn lags(&self) {
        self.link.black_hole();
    }

    /// The master dies, and the replica takes its place, with what it has heard.
    pub fn fails_over(&mut self, scene: &Scene) {
        let [master, replica] = self.lanes;
        self.master.kill();
        scene.board.mark(master, MarkKind::Killed);
        scene.board.begin(master, Doing::Down);
        self.replica.command(&["REPLICAOF", "NO", "ONE"]);
        self.front.point_to(self.replica.port());
        self.front.cut();
        scene.board.mark(replica, MarkKind::Promoted);
    }
}

impl Nodes {
    /// The URL of the quorum, for somebody who cannot reach one of the nodes.
    pub fn url(&self, unreachable: Option<usize>) -> String {
        let ports = self.nodes.servers().iter().map(RedisServer::port);
        let ports = ports.enumerate().map(|(at, port)| match unreachable {
            Some(node) if node == at => self.closed.port(),
            _ => port,
        });
        Independent::url_of(ports) + &self.options
    }

    /// Kills one.
    pub fn kill(&mut self, scene: &Scene, at: usize) {
        self.nodes.server(at).kill();
        scene.board.mark(self.lanes[at], MarkKind::Killed);
        scene.board.begin(self.lanes[at], Doing::Down);
    }

    /// Kills one and starts it again, with nothing in it.
    pub async fn restart_empty(mut self, scene: &Scene, at: usize) -> Result<Nodes> {
        self.kill(scene, at);
        let nodes = tokio::task::spawn_blocking(move || {
            self.nodes.server(at).restart_empty();
            self
        });
        let nodes = nodes.await.context(words::NODE_NOT_BACK)?;
        scene.board.end(nodes.lanes[at], Doing::Down);
        scene.board.mark(nodes.lanes[at], MarkKind::Restarted);
        Ok(nodes)
    }

    /// Stops one: it answers nobody.
    pub fn pause(&self, scene: &Scene, at: usize) {
        self.nodes.servers()[at].pause();
        scene.board.begin(self.lanes[at], Doing::Down);
    }

    /// Lets it go on.
    pub fn resume(&self, scene: &Scene, at: usize) {
        self.nodes.servers()[at].resume();
        scene.board.end(self.lanes[at], Doing::Down);
    }
}
