//! Histories on one ZooKeeper server, and on three whose leader goes.

use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperOptions, ZooKeeperServer};

use crate::crew::{LEASE, LINGER};
use crate::crowd::Crowd;
use crate::place::Place;
use crate::redis::on_the_way;
use crate::stage::{ALL_KINDS, Stage, play};
use crate::trouble::{OF_PROCESSES, OF_THE_WAY, Trouble, chosen};

/// A session that two thirds of are longer than the leases, that a process that is gone does not outlive by much, and that a busy machine
/// does not end: sessions of two seconds came to no line there.
const OPTIONS: &str = "session_timeout=4s&timeout=1s&connect_timeout=1s";
/// How much longer than its last lease the hold of a process that is gone may stay.
const SESSION: Duration = Duration::from_secs(4);
/// How long an election may take on a busy machine where the old leader does not step back. Otherwise it takes seconds.
const ELECTION: Duration = Duration::from_secs(180);

/// Empty folders are swept all the time.
fn swept() -> ZooKeeperOptions {
    ZooKeeperOptions {
        properties: vec![("znode.container.checkIntervalMs".into(), "50".into())],
        ..ZooKeeperOptions::default()
    }
}

/// The server of an ensemble that goes on leading for long when it is cut off. The others do not wait for it.
const STUBBORN: usize = 2;

struct ZooKeeper {
    server: ZooKeeperServer,
    proxy: Proxy,
}

struct Three {
    servers: Ensemble,
}

#[test]
#[ignore = "it takes long: `cargo xtask nightly` runs it"]
fn every_rule_holds_on_zookeeper() {
    play("zookeeper", 2, 2, |_| ZooKeeper::start());
}

#[test]
#[ignore = "it takes long: `cargo xtask nightly` runs it"]
fn every_rule_holds_on_three_zookeepers() {
    play("zookeepers", 1, 1, |_| Three::start());
}

impl ZooKeeper {
    fn start() -> ZooKeeper {
        let server = ZooKeeperServer::start_with(swept());
        ZooKeeper {
            proxy: Proxy::to(server.port()),
            server,
        }
    }
}

fn url(hosts: &str) -> String {
    format!("zk://{hosts}/x?{OPTIONS}")
}

fn nodes(server: &ZooKeeperServer) -> Vec<String> {
    match server.ephemerals() {
        0 => Vec::new(),
        count => vec![format!("{count} nodes")],
    }
}

impl Stage for ZooKeeper {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::Refused,
            Trouble::Silent,
            Trouble::ServerStopped,
            Trouble::ServerRestarted,
        ];
        chosen(&[&OF_PROCESSES, &OF_THE_WAY, &own])
    }

    fn place(&mut self) -> Place {
        Place::at(&url(&format!("127.0.0.1:{}", self.proxy.port())))
    }

    fn straight(&self, _: &Place) -> String {
        url(&format!("127.0.0.1:{}", self.server.port()))
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, random: &mut Random) {
        let (server, proxy) = (&mut self.server, &self.proxy);
        match trouble {
            Trouble::ServerStopped => {
                server.pause();
                std::thread::sleep(time);
                server.resume();
            }
            Trouble::ServerRestarted => server.restart(),
            Trouble::RepliesLost => {
                let before = proxy.lost_replies();
                proxy.lose_replies("_c_", 1 + random.below(3) as usize);
                crowd.until("a reply is lost", || proxy.lost_replies() > before);
                crowd.driver.fault(Fault::ReplyLost);
                proxy.heal();
            }
            Trouble::Refused => {
                proxy.refuse();
                std::thread::sleep(time);
                proxy.heal();
            }
            // Longer than a session lives: the server ends them, and nobody hears of it.
            Trouble::Silent => {
                let before = proxy.stopped();
                proxy.black_hole();
                std::thread::sleep(time * 2);
                crowd.until("something is lost", || proxy.stopped() > before);
                proxy.heal();
                proxy.cut();
            }
            other => on_the_way(other, &[proxy], crowd, time, random),
        }
        crowd.bitten(&format!("{trouble:?}"));
    }

    fn leftovers(&self) -> Vec<String> {
        nodes(&self.server)
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }

    fn linger(&self) -> Duration {
        LINGER + LEASE * 4 + SESSION
    }
}

impl Three {
    fn start() -> Three {
        Three {
            servers: Ensemble::start_apart([1, 1, 60].map(|seconds| ZooKeeperOptions {
                sync_limit: seconds * 10,
                // One that is cut off may seem to lead: nobody waits for it for long.
                lines: vec!["initLimit=100".into()],
                ..swept()
            })),
        }
    }
}

impl Stage for Three {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::ServerStopped,
            Trouble::ServerRestarted,
            Trouble::MinorityStopped,
            Trouble::FollowerCutOff,
            Trouble::LeaderDeposed,
        ];
        chosen(&[&OF_PROCESSES, &own])
    }

    fn place(&mut self) -> Place {
        Place::at(&url(&self.servers.hosts()))
    }

    fn straight(&self, place: &Place) -> String {
        place.url.clone()
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, _: &mut Random) {
        let leader = self.servers.leader();
        match trouble {
            Trouble::ServerStopped => {
                self.servers.servers()[leader].pause();
                std::thread::sleep(time);
                self.servers.servers()[leader].resume();
            }
            Trouble::ServerRestarted => {
                self.servers.servers()[leader].kill();
                std::thread::sleep(time);
                self.servers.servers()[leader].relaunch();
            }
            Trouble::MinorityStopped => {
                let follower = (leader + 1) % 3;
                self.servers.servers()[follower].pause();
                std::thread::sleep(time);
                self.servers.servers()[follower].resume();
            }
            Trouble::FollowerCutOff => {
                let follower = if leader == STUBBORN { 0 } else { STUBBORN };
                self.servers.cut_off(follower);
                std::thread::sleep(time);
                self.servers.heal(follower);
            }
            Trouble::LeaderDeposed => {
                self.servers.elect(STUBBORN);
                self.servers.cut_off(STUBBORN);
                let servers = &self.servers;
                let is_there = || servers.leads(0) || servers.leads(1);
                crowd.until_within(ELECTION, "another leader", is_there);
                std::thread::sleep(time);
                self.servers.heal(STUBBORN);
            }
            other => unreachable!("{other:?} is not on the menu"),
        }
        self.servers.wait_until_all_serve();
        crowd.bitten(&format!("{trouble:?}"));
    }

    fn leftovers(&self) -> Vec<String> {
        nodes(&self.servers.all()[self.servers.leader()])
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }

    fn linger(&self) -> Duration {
        LINGER + LEASE * 4 + SESSION + ELECTION
    }
}
