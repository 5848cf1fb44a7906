//! Histories on one member of etcd, and on three whose leader goes.

use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::etcd::{EtcdCluster, EtcdServer};
use lockkeeper_testkit::servers::proxy::Proxy;

use crate::crew::{LEASE, LINGER};
use crate::crowd::Crowd;
use crate::place::Place;
use crate::redis::on_the_way;
use crate::stage::{ALL_KINDS, Stage, play};
use crate::trouble::{OF_PROCESSES, OF_THE_WAY, Trouble, chosen};

const OPTIONS: &str = "timeout=1s&connect_timeout=1s";
/// How much longer than its last lease the hold of a process that is gone may stay: a lease of etcd's is two seconds at least, and
/// is looked at every half second.
const SESSION: Duration = Duration::from_secs(4);
/// How long an election may take on a busy machine, after which leases begin anew.
const ELECTION: Duration = Duration::from_secs(60);

struct Etcd {
    server: EtcdServer,
    proxy: Proxy,
}

struct Three {
    cluster: EtcdCluster,
}

#[test]
#[ignore = "it takes long: `cargo xtask nightly` runs it"]
fn every_rule_holds_on_etcd() {
    play("etcd", 2, 2, |_| Etcd::start());
}

#[test]
#[ignore = "it takes long: `cargo xtask nightly` runs it"]
fn every_rule_holds_on_three_etcds() {
    play("etcds", 1, 1, |_| Three {
        cluster: EtcdCluster::start(),
    });
}

impl Etcd {
    fn start() -> Etcd {
        let server = EtcdServer::start();
        Etcd {
            proxy: Proxy::to(server.port()),
            server,
        }
    }
}

fn url(hosts: &str) -> String {
    format!("etcd://{hosts}/x?{OPTIONS}")
}

/// What is left below the names.
fn keys(server: &EtcdServer) -> Vec<String> {
    let mut keys = server.keys("x/");
    keys.retain(|key| !key.starts_with("x/.lockkeeper/"));
    keys
}

impl Stage for Etcd {
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
        url(&self.server.host())
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
                proxy.lose_replies("/write/", 1 + random.below(3) as usize);
                crowd.until("a reply is lost", || proxy.lost_replies() > before);
                crowd.driver.fault(Fault::ReplyLost);
                proxy.heal();
            }
            Trouble::Refused => {
                proxy.refuse();
                std::thread::sleep(time);
                proxy.heal();
            }
            // Longer than a lease lives: the server ends them, and nobody hears of it.
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
        keys(&self.server)
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }

    fn linger(&self) -> Duration {
        LINGER + LEASE * 4 + SESSION
    }
}

impl Stage for Three {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::ServerStopped,
            Trouble::ServerRestarted,
            Trouble::MinorityStopped,
        ];
        chosen(&[&OF_PROCESSES, &own])
    }

    fn place(&mut self) -> Place {
        Place::at(&url(&self.cluster.hosts()))
    }

    fn straight(&self, place: &Place) -> String {
        place.url.clone()
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, _: &mut Random) {
        let leader = self.cluster.leader();
        let other = (leader + 1) % 3;
        match trouble {
            // Long enough for another election: the old leader comes back and does not know it.
            Trouble::ServerStopped => {
                self.cluster.all()[leader].pause();
                std::thread::sleep(time * 2);
                self.cluster.all()[leader].resume();
            }
            Trouble::ServerRestarted => {
                self.cluster.members()[leader].kill();
                std::thread::sleep(time);
                self.cluster.members()[leader].relaunch();
            }
            Trouble::MinorityStopped => {
                self.cluster.all()[other].pause();
                std::thread::sleep(time);
                self.cluster.all()[other].resume();
            }
            other => unreachable!("{other:?} is not on the menu"),
        }
        self.cluster.wait_until_all_serve();
        crowd.bitten(&format!("{trouble:?}"));
    }

    fn leftovers(&self) -> Vec<String> {
        keys(&self.cluster.all()[self.cluster.leader()])
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }

    fn linger(&self) -> Duration {
        LINGER + LEASE * 4 + SESSION + ELECTION
    }
}
