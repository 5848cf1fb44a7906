//! A real Redis Cluster: masters that share the slots, and a replica of each.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::certificates::Identity;
use super::ports::free_port;
use super::redis::{RedisOptions, RedisServer};
use super::wire::Listener;

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;
/// How long the nodes may take to agree on something.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// How a cluster is to be started.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// After how long without an answer a node counts as failed. A machine that stands still for longer makes
    /// replicas take over.
    pub node_timeout: Duration,
    /// The password that clients and nodes need.
    pub password: Option<String>,
    /// Speak TLS, also among the nodes, as this server of this authority.
    pub tls: Option<(Identity, PathBuf)>,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            // For tests in which nothing is to fail.
            node_timeout: Duration::from_secs(20),
            password: None,
            tls: None,
        }
    }
}

/// A running cluster: three masters with a replica each. Its servers end with it, or with the process.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Mutex<Vec<Node>>,
    pub(super) password: Option<String>,
    scheme: &'static str,
}

#[derive(Debug)]
pub(super) struct Node {
    server: RedisServer,
    pub(super) id: String,
}

impl Node {
    pub(super) fn cluster(&self, parts: &[&str]) {
        let all: Vec<&str> = [&["CLUSTER"], parts].concat();
        let answer = self.server.command(&all);
        assert!(answer.starts_with("+OK"), "{all:?}: {answer}");
    }

    fn says(&self, section: &str, line: &str) -> bool {
        self.server.pid().is_some() && {
            let info = match section {
                "cluster" => self.server.command(&["CLUSTER", "INFO"]),
                section => self.server.command(&["INFO", section]),
            };
            info.lines().any(|found| found == line)
        }
    }

    fn is_master(&self) -> bool {
        self.says("replication", "role:master")
    }

    /// The ranges of slots that it serves, as it sees it.
    fn slots(&self) -> Vec<(u16, u16)> {
        let nodes = self.server.strings(&["CLUSTER", "NODES"]).join("\n");
        let me = nodes.lines().find(|line| line.contains("myself"));
        let parts = me.unwrap_or_default().split(' ').skip(8);
        let parts = parts.filter(|part| !part.starts_with('['));
        parts
            .map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                (first.parse().expect(part), last.parse().expect(part))
            })
            .collect()
    }

    fn serves(&self, slot: u16) -> bool {
        let mut slots = self.slots().into_iter();
        self.is_master() && slots.any(|(first, last)| (first..=last).contains(&slot))
    }
}

/// Waits for something that the nodes have to agree on.
fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + SETTLES_WITHIN;
    while !check() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl RedisCluster {
    /// A cluster in which nothing is to fail.
    pub fn start() -> RedisCluster {
        RedisCluster::start_with(ClusterOptions::default())
    }

    /// A cluster with these options.
    ///
    /// # Panics
    /// When `redis-server` is not installed, or the nodes do not find together.
    pub fn start_with(options: ClusterOptions) -> RedisCluster {
        let mut nodes = Vec::new();
        for _ in 0..2 * MASTERS {
            let server = start_node(&options);
            let id = server.strings(&["CLUSTER", "MYID"]).concat();
            nodes.push(Node { server, id });
        }
        let share = SLOTS / MASTERS as u16;
        for (number, node) in (0u16..).zip(&nodes) {
            // Two nodes with one epoch would have to argue it out first.
            node.cluster(&["SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if usize::from(number) < MASTERS {
                let last = match usize::from(number) + 1 {
                    MASTERS => SLOTS - 1,
                    _ => (number + 1) * share - 1,
                };
                let range = [(number * share).to_string(), last.to_string()];
                node.cluster(&["ADDSLOTSRANGE", &range[0], &range[1]]);
            }
        }
        for node in &nodes {
            for other in &nodes {
                if other.id != node.id {
                    let port = other.server.port().to_string();
                    let bus = bus_port(&other.server);
                    node.cluster(&["MEET", "127.0.0.1", &port, &bus]);
                }
            }
        }
        let all = format!("cluster_known_nodes:{}", nodes.len());
        until("all know each other", || {
            nodes.iter().all(|node| node.says("cluster", &all))
        });
        for (master, replica) in nodes.iter().zip(&nodes[MASTERS..]) {
            until("a replica joins", || {
                let answer = replica
                    .server
                    .command(&["CLUSTER", "REPLICATE", &master.id]);
                answer.starts_with("+OK")
            });
        }
        let cluster = RedisCluster {
            nodes: Mutex::new(nodes),
            scheme: match options.tls {
                Some(_) => "rediss+cluster",
                None => "redis+cluster",
            },
            password: options.password,
        };
        cluster.wait_until_ok();
        cluster
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URL of the cluster, which names two of its nodes: a master and a replica.
    pub fn url(&self) -> String {
        let nodes = self.nodes();
        let user = match &self.password {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        let (one, other) = (nodes[1].server.port(), nodes[MASTERS].server.port());
        let scheme = self.scheme;
        format!("{scheme}://{user}127.0.0.1:{one},127.0.0.1:{other}")
    }

    /// The ports of the nodes that are masters.
    pub fn masters(&self) -> Vec<u16> {
        let nodes = self.nodes();
        let masters = nodes.iter().filter(|node| node.is_master());
        masters.map(|node| node.server.port()).collect()
    }

    /// The ports of the nodes that run.
    pub fn ports(&self) -> Vec<u16> {
        let nodes = self.nodes();
        let running = nodes.iter().filter(|node| node.server.pid().is_some());
        running.map(|node| node.server.port()).collect()
    }

    /// Waits until every node that runs is content, and every replica that runs follows its master.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_until_ok(&self) {
        until("the cluster is ok", || {
            let nodes = self.nodes();
            let mut running = nodes.iter().filter(|node| node.server.pid().is_some());
            running.all(|node| {
                node.says("cluster", "cluster_state:ok")
                    && (node.is_master() || node.says("replication", "master_link_status:up"))
            })
        });
    }

    /// Waits until the replica of the master that serves a key has all that was written there so far.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_until_copied(&self, key: &str) {
        let port = self.master_of(key);
        let written = self.with(port, |node| node.server.info("master_repl_offset"));
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let written = number(&written.expect("a master"));
        until("the replica has everything", || {
            let replica = self.with(port, |node| node.server.info("slave0"));
            let replica = replica.unwrap_or_default();
            let has = replica
                .split(',')
                .find_map(|part| part.strip_prefix("offset="));
            has.is_some_and(|has| number(has) >= written)
        });
    }

    /// The slot of a key, as a node says it.
    pub fn slot_of(&self, key: &str) -> u16 {
        let answer = self.nodes()[0].server.strings(&["CLUSTER", "KEYSLOT", key]);
        answer.concat().parse().expect("a number")
    }

    /// The port of the master that serves a key.
    ///
    /// # Panics
    /// When there is none.
    pub fn master_of(&self, key: &str) -> u16 {
        let slot = self.slot_of(key);
        let nodes = self.nodes();
        let master = nodes.iter().find(|node| node.serves(slot));
        master.expect("a master").server.port()
    }

    /// Sends one command to a node, and answers what it says, as it is on the wire.
    pub fn command(&self, port: u16, parts: &[&str]) -> String {
        self.with(port, |node| node.server.command(parts))
    }

    /// Sends one command to a node, and answers the strings in what comes back.
    pub fn strings(&self, port: u16, parts: &[&str]) -> Vec<String> {
        self.with(port, |node| node.server.strings(parts))
    }

    /// Subscribes to a sharded channel at the master that serves it, as a client of another library does.
    pub fn listen_sharded(&self, channel: &str) -> Listener {
        let port = self.master_of(channel);
        self.with(port, |node| node.server.listen_by("SSUBSCRIBE", channel))
    }

    /// Sends one command to every node that runs.
    ///
    /// # Panics
    /// When one does not answer OK.
    pub fn everywhere(&self, parts: &[&str]) {
        for port in self.ports() {
            let answer = self.command(port, parts);
            assert!(answer.starts_with("+OK"), "{parts:?}: {answer}");
        }
    }

    /// How often nodes have answered with an error of this kind.
    pub fn errors(&self, kind: &str) -> u64 {
        let mut all = 0;
        for port in self.ports() {
            let stats = self.command(port, &["INFO", "errorstats"]);
            let prefix = format!("errorstat_{kind}:count=");
            let found = stats.lines().find_map(|line| line.strip_prefix(&prefix));
            all += found.map_or(0, |count| count.parse::<u64>().expect("a number"));
        }
        all
    }

    /// Asks every server that runs.
    pub fn each<T>(&self, ask: impl Fn(&RedisServer) -> T) -> Vec<T> {
        let nodes = self.nodes();
        let running = nodes.iter().filter(|node| node.server.pid().is_some());
        running.map(|node| ask(&node.server)).collect()
    }

    /// Stops a node from running, without ending it.
    pub fn pause(&self, port: u16) {
        self.with(port, |node| node.server.pause());
    }

    /// Lets it run again.
    pub fn resume(&self, port: u16) {
        self.with(port, |node| node.server.resume());
    }

    pub(super) fn with<T>(&self, port: u16, act: impl FnOnce(&mut Node) -> T) -> T {
        let mut nodes = self.nodes();
        let node = nodes.iter_mut().find(|node| node.server.port() == port);
        act(node.expect("a node of this port"))
    }

    /// Kills the master that serves a key, and answers its port.
    pub fn kill_master_of(&self, key: &str) -> u16 {
        let port = self.master_of(key);
        self.with(port, |node| node.server.kill());
        port
    }

    /// Starts a killed node again, as a replica of the node that took over.
    pub fn revive(&self, port: u16) {
        self.with(port, |node| node.server.restart());
    }

    /// Waits until another node than this serves a key, and answers its port.
    pub fn successor_of(&self, key: &str, old: u16) -> u16 {
        let slot = self.slot_of_live(key, old);
        let mut found = None;
        until("a replica takes over", || {
            let nodes = self.nodes();
            let mut others = nodes.iter().filter(|node| node.server.port() != old);
            found = others
                .find(|node| node.serves(slot))
                .map(|node| node.server.port());
            found.is_some()
        });
        found.expect("it was found")
    }

    fn slot_of_live(&self, key: &str, old: u16) -> u16 {
        let nodes = self.nodes();
        let mut live = nodes.iter().filter(|node| node.server.pid().is_some());
        let node = live
            .find(|node| node.server.port() != old)
            .expect("one runs");
        let slot = node.server.strings(&["CLUSTER", "KEYSLOT", key]);
        slot.concat().parse().expect("a number")
    }

    /// Makes the replica of the master that serves a key take over, in agreement with it.
    pub fn fail_over(&self, key: &str) -> u16 {
        let (old, replica) = self.pair_of(key);
        let answer = self.command(replica, &["CLUSTER", "FAILOVER"]);
        assert!(answer.starts_with("+OK"), "{answer}");
        self.successor_of(key, old)
    }

    /// The ports of the master that serves a key and of its replica. On a busy machine a replica may take over by itself, so
    /// they are looked for until they belong together.
    ///
    /// # Panics
    /// When that never is so.
    pub fn pair_of(&self, key: &str) -> (u16, u16) {
        let mut pair = None;
        until("the master has a replica", || {
            let master = self.master_of(key);
            pair = self.replica_of(master).map(|replica| (master, replica));
            pair.is_some()
        });
        pair.expect("found above")
    }

    fn replica_of(&self, master: u16) -> Option<u16> {
        let id = self.with(master, |node| node.id.clone());
        let nodes = self.nodes();
        let listed = nodes[0].server.strings(&["CLUSTER", "NODES"]).join("\n");
        let mut lines = listed.lines();
        let line = lines
            .find(|line| line.contains("slave") && line.split(' ').nth(3) == Some(id.as_str()))?;
        let replica = line.split(' ').next()?;
        let node = nodes.iter().find(|node| node.id == replica)?;
        Some(node.server.port())
    }
}

fn start_node(options: &ClusterOptions) -> RedisServer {
    let mut lines = vec![
        "cluster-enabled yes".to_owned(),
        format!("cluster-port {}", free_port()),
        format!("cluster-node-timeout {}", options.node_timeout.as_millis()),
        "cluster-replica-validity-factor 0".into(),
        "cluster-allow-replica-migration no".into(),
        "repl-diskless-sync-delay 0".into(),
        "repl-ping-replica-period 1".into(),
    ];
    if let Some(password) = &options.password {
        lines.push(format!("masterauth {password}"));
    }
    let mut tls = None;
    if let Some((identity, authority)) = &options.tls {
        tls = Some(identity.clone());
        lines.push("tls-cluster yes".into());
        lines.push("tls-replication yes".into());
        lines.push(format!("tls-ca-cert-file {}", authority.display()));
    }
    RedisServer::start_with(RedisOptions {
        tls,
        password: options.password.clone(),
        lines,
        ..RedisOptions::default()
    })
}

fn bus_port(server: &RedisServer) -> String {
    let config = server.strings(&["CONFIG", "GET", "cluster-port"]);
    config.last().expect("a port").clone()
}
