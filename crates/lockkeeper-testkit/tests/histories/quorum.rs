//! Histories on a quorum: three nodes in Redisson's dialect, five in the plain one.

use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::crew::{LEASE, left_on};
use crate::crowd::Crowd;
use crate::place::Place;
use crate::redis::on_the_way;
use crate::stage::{Stage, play};
use crate::trouble::{OF_PROCESSES, OF_THE_WAY, Trouble, chosen};

struct Quorum {
    nodes: Independent,
    proxies: Vec<Proxy>,
    query: String,
}

#[test]
fn every_rule_holds_on_a_quorum() {
    play("quorum", 2, 2, |lane| match lane % 2 {
        0 => Quorum::start(3, ""),
        _ => Quorum::start(5, "&dialect=plain"),
    });
}

const SECRET: &str = "rotated";

impl Quorum {
    fn start(count: usize, query: &str) -> Quorum {
        let nodes = Independent::start(count);
        nodes.wait_out_quarantine(LEASE);
        let proxies = nodes.servers().iter().map(|node| Proxy::to(node.port()));
        Quorum {
            proxies: proxies.collect(),
            nodes,
            query: format!("?max_lease={}ms{query}", LEASE.as_millis()),
        }
    }

    /// A node is sick while a process starts, which needs a majority and no more.
    fn sick(&self, crowd: &mut Crowd, time: Duration, node: usize, trouble: Trouble) {
        let node = &self.nodes.servers()[node];
        let told = |node: &RedisServer, parts: &[&str]| {
            let answer = node.command(parts);
            assert!(answer.starts_with('+'), "{parts:?}: {answer}");
        };
        match trouble {
            Trouble::SickPassword => told(node, &["CONFIG", "SET", "requirepass", SECRET]),
            Trouble::SickReplica => told(node, &["REPLICAOF", "127.0.0.1", "1"]),
            _ => told(node, &["ACL", "SETUSER", "default", "-info"]),
        }
        let forget = ["CLIENT", "KILL", "TYPE", "normal"];
        match trouble {
            Trouble::SickPassword => drop(node.command_as("default", SECRET, &forget)),
            _ => drop(node.command(&forget)),
        }
        std::thread::sleep(time);
        crowd.one_more();
        let works = crowd.newest_works();
        match trouble {
            Trouble::SickPassword => {
                let well = ["CONFIG", "SET", "requirepass", ""];
                node.command_as("default", SECRET, &well);
            }
            Trouble::SickReplica => told(node, &["REPLICAOF", "NO", "ONE"]),
            _ => told(node, &["ACL", "SETUSER", "default", "+info"]),
        }
        assert!(
            works,
            "nobody can start while one node is sick: {trouble:?}"
        );
    }
}

impl Stage for Quorum {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::NodeEmptied,
            Trouble::MinorityStopped,
            Trouble::MajorityStopped,
            Trouble::MinorityFull,
            Trouble::MinoritySilent,
            Trouble::SickPassword,
            Trouble::SickReplica,
            Trouble::SickPermission,
        ];
        // No visitor: its lease has to outlast the history, and these nodes grant none that is longer than they sit out.
        chosen(&[&OF_PROCESSES, &OF_THE_WAY, &own])
    }

    fn place(&mut self) -> Place {
        let ports = self.proxies.iter().map(Proxy::port);
        Place::at(&(Independent::url_of(ports) + &self.query))
    }

    fn straight(&self, _: &Place) -> String {
        self.nodes.plain_url() + &self.query
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, random: &mut Random) {
        let all = self.proxies.len();
        let minority = all / 2;
        // Which nodes it hits: as many as it needs, from one on.
        let from = random.below(all as u64) as usize;
        let some = |count: usize| (0..count).map(move |at| (from + at) % all);
        match trouble {
            Trouble::NodeEmptied => {
                // Those that sit out already are not to be joined by a majority.
                self.nodes.wait_out_quarantine(LEASE);
                self.nodes.server(from).restart_empty();
            }
            Trouble::MinorityStopped | Trouble::MajorityStopped => {
                let count = minority + usize::from(trouble == Trouble::MajorityStopped);
                some(count).for_each(|node| self.nodes.servers()[node].pause());
                std::thread::sleep(time);
                some(count).for_each(|node| self.nodes.servers()[node].resume());
            }
            Trouble::MinorityFull => {
                let set = |node: usize, value| {
                    let node = &self.nodes.servers()[node];
                    node.command(&["CONFIG", "SET", "maxmemory", value]);
                };
                some(minority).for_each(|node| set(node, "1mb"));
                std::thread::sleep(time);
                some(minority).for_each(|node| set(node, "0"));
            }
            Trouble::MinoritySilent => {
                let silent: Vec<&Proxy> = some(minority).map(|node| &self.proxies[node]).collect();
                let stopped = || -> usize { silent.iter().map(|proxy| proxy.stopped()).sum() };
                let before = stopped();
                silent.iter().for_each(|proxy| proxy.black_hole());
                std::thread::sleep(time);
                crowd.until("something is lost", || stopped() > before);
                silent.iter().for_each(|proxy| proxy.heal());
                silent.iter().for_each(|proxy| proxy.cut());
            }
            Trouble::SickPassword | Trouble::SickReplica | Trouble::SickPermission => {
                self.nodes.wait_out_quarantine(LEASE);
                self.sick(crowd, time, from, trouble);
            }
            other => {
                let count = 1 + random.below(all as u64) as usize;
                let hit: Vec<&Proxy> = some(count).map(|node| &self.proxies[node]).collect();
                on_the_way(other, &hit, crowd, time, random);
            }
        }
        crowd.bitten(&format!("{trouble:?}"));
    }

    fn leftovers(&self) -> Vec<String> {
        let nodes = self.nodes.servers().iter().enumerate();
        let left = nodes.flat_map(|(number, node)| {
            let name = move |what| format!("{what} on node {number}");
            left_on(node).into_iter().map(name)
        });
        left.collect()
    }

    fn kinds(&self) -> &'static [Kind] {
        match self.query.contains("plain") {
            true => &[Kind::Exclusive, Kind::Together, Kind::Reentered],
            false => &[
                Kind::Exclusive,
                Kind::Read,
                Kind::Write,
                Kind::Together,
                Kind::Reentered,
                Kind::Downgraded,
            ],
        }
    }

    fn calm_down(&mut self) {
        self.nodes.wait_out_quarantine(LEASE);
    }
}
