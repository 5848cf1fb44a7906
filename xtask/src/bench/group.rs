//! The servers that locks are measured on. Each has peers, targets and a page of its own.

use std::path::Path;

use serde::{Serialize, Serializer};

use crate::peers::Need;

use super::cast::{ON_REDIS, ON_ZOOKEEPER, Peer};
use super::redis::Redis;
use super::scenario::{NODES, SCENARIOS, Scenario};
use super::server::Server;
use super::targets::{self, Scenarios, Target};
use super::zookeeper::ZooKeeper;

#[derive(Debug)]
pub struct Group {
    /// As the command line names it.
    pub name: &'static str,
    /// As people do.
    pub on: &'static str,
    /// What its page, its data and its plot are called.
    pub file: &'static str,
    pub title: &'static str,
    pub needs: &'static [Need],
    pub peers: &'static [Peer],
    /// How many independent servers there are. Scenarios that need more are left out.
    pub nodes: usize,
    pub start: fn(&Path) -> Result<Box<dyn Server>, String>,
    pub judge: fn(&Scenarios) -> Vec<Target>,
    /// What the page says of the run, of leases, and of what *commands* counts.
    pub run: &'static str,
    pub leases: &'static str,
    pub commands: &'static str,
}

pub const GROUPS: &[Group] = &[
    Group {
        name: "redis",
        on: "Redis",
        file: "peers",
        title: "Beside other libraries",
        needs: &[Need::Redis],
        peers: ON_REDIS,
        nodes: NODES,
        start: |folder| Ok(Box::new(Redis::start(folder)?)),
        judge: targets::on_redis,
        run: "One run on one server; the scenarios of a quorum on five, all on this machine.",
        leases: "Leases are 30 s, renewed by Lockkeeper and Redisson only, and every client speaks TCP.",
        commands: "the commands that clients send for one lock, without the calls inside scripts. Redis counts both together \
                   (`commandstats`, and `total_commands_processed` too). `MONITOR` shows which ones clients send, before the \
                   windows that count. A command that both use (Redisson's DEL) is divided as `MONITOR` shows it.\n\
                   - Over a quorum, *commands* are those that one of the servers gets. Every client has connected before two \
                   servers are stopped.",
    },
    Group {
        name: "zookeeper",
        on: "ZooKeeper",
        file: "zookeeper",
        title: "Beside other libraries, on ZooKeeper",
        needs: &[Need::ZooKeeper, Need::Java],
        peers: ON_ZOOKEEPER,
        nodes: 1,
        start: |folder| Ok(Box::new(ZooKeeper::start(folder)?)),
        judge: targets::on_zookeeper,
        run: "One run on one server, which writes each transaction to its disk before it replies, as by default.",
        leases: "Nodes live as long as their session, which each client keeps alive.",
        commands: "the requests that clients sent for one lock, pings included. A transaction of several operations is one.",
    },
];

impl Group {
    pub fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        let nodes = self.nodes;
        SCENARIOS
            .iter()
            .filter(move |scenario| scenario.nodes <= nodes)
    }
}

/// By its name.
impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
