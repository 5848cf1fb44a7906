//! Histories on one ZooKeeper server, and on three whose leader goes.

use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::wall_clock::WallClock;
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperOptions, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_numbers::{leave, spend, with_numbers_set};
use lockkeeper_testkit::servers::zookeeper_session::ZooKeeperSession;

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
fn swept(clock: &WallClock) -> ZooKeeperOptions {
    ZooKeeperOptions {
        properties: vec![("znode.container.checkIntervalMs".into(), "50".into())],
        environment: clock.environment(),
        ..ZooKeeperOptions::default()
    }
}

/// The server of an ensemble that goes on leading for long when it is cut off. The others do not wait for it.
const STUBBORN: usize = 2;

/// The folders of names whose numbers end in a history, below the chroot, and how many numbers each has left. What stands below
/// `KEPT` is never empty, so its numbers never begin again.
const ENDING: [(&str, i32); 6] = [
    ("a", 60),
    ("b", 20),
    ("f", 40),
    ("m", 30),
    ("s/locks", 40),
    ("s/leases", 40),
];
const KEPT: [&str; 4] = ["a", "f", "m", "s/locks"];

struct ZooKeeper {
    server: ZooKeeperServer,
    proxy: Proxy,
    clocks: Clocks,
    /// Whether the numbers end in its histories.
    numbers_end: bool,
    /// How many histories there were.
    played: usize,
}

struct Three {
    servers: Ensemble,
    clocks: Clocks,
}

/// Clocks that are set meanwhile: of each server, and of some processes each.
struct Clocks {
    servers: Vec<WallClock>,
    processes: [WallClock; 2],
}

impl Clocks {
    fn of(servers: usize) -> Clocks {
        Clocks {
            servers: (0..servers).map(|_| WallClock::new()).collect(),
            processes: [(); 2].map(|()| WallClock::new()),
        }
    }

    /// Sets one of the servers' clocks, or of the processes'.
    fn set(&self, trouble: Trouble, random: &mut Random) {
        let clocks = match trouble {
            Trouble::ServerClockSet => &self.servers[..],
            _ => &self.processes,
        };
        let clock = &clocks[random.below(clocks.len() as u64) as usize];
        let by = random.between(Duration::ZERO, Duration::from_secs(3600));
        if random.chance(0.5) {
            clock.ahead(by);
        } else {
            clock.behind(by);
        }
    }

    /// All are right again.
    fn calm_down(&self) {
        let all = self.servers.iter().chain(&self.processes);
        all.for_each(|clock| clock.ahead(Duration::ZERO));
    }
}

#[test]
#[ignore = "it takes long: `cargo xtask nightly` runs it"]
fn every_rule_holds_on_zookeeper() {
    play("zookeeper", 2, 2, |_| ZooKeeper::start(false));
}

#[test]
#[ignore = "it takes long: `cargo xtask nightly` runs it"]
fn the_numbers_end_on_zookeeper() {
    play("zookeeper-numbers", 2, 2, |_| ZooKeeper::start(true));
}

#[test]
#[ignore = "it takes long: `cargo xtask nightly` runs it"]
fn every_rule_holds_on_three_zookeepers() {
    play("zookeepers", 1, 1, |_| Three::start());
}

impl ZooKeeper {
    fn start(numbers_end: bool) -> ZooKeeper {
        let clocks = Clocks::of(1);
        let options = with_numbers_set(swept(&clocks.servers[0]));
        let server = ZooKeeperServer::start_with(options);
        ZooKeeper {
            proxy: Proxy::to(server.port()),
            server,
            clocks,
            numbers_end,
            played: 0,
        }
    }

    fn url(&self, port: u16) -> String {
        format!("zk://127.0.0.1:{port}/x{}?{OPTIONS}", self.played)
    }

    fn hand(&self) -> ZooKeeperSession {
        ZooKeeperSession::open(self.server.port(), SESSION)
    }

    /// The path of what stands below the chroot.
    fn path(&self, folder: &str) -> String {
        format!("/x{}/{folder}", self.played)
    }

    /// Leaves the folders of a history few numbers.
    fn leave_few_numbers(&mut self) {
        let folders = ENDING.map(|(folder, left)| (self.path(folder), left));
        let folders = folders.each_ref().map(|(path, left)| (&**path, *left));
        leave(&mut self.server, &folders);
        let hand = self.hand();
        for folder in KEPT {
            hand.folders(&self.path(&format!("{folder}/kept")));
        }
        hand.close();
    }

    /// Uses up the numbers while the processes work, unless they did.
    fn end_numbers(&self) {
        let hand = self.hand();
        for folder in KEPT {
            spend(&hand, &self.path(folder));
        }
        hand.close();
    }
}

fn left(servers: &[ZooKeeperServer], leader: usize) -> Vec<String> {
    let connections = servers.iter().flat_map(ZooKeeperServer::connections);
    let mut left: Vec<String> = connections.map(|one| format!("connection {one}")).collect();
    let (nodes, sessions) = (servers[leader].ephemerals(), servers[leader].sessions());
    for (count, what) in [(nodes, "nodes"), (sessions, "sessions")] {
        if count > 0 {
            left.push(format!("{count} {what}"));
        }
    }
    left
}

impl Stage for ZooKeeper {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::Refused,
            Trouble::Silent,
            Trouble::ServerStopped,
            Trouble::ServerRestarted,
            Trouble::ServerClockSet,
            Trouble::ClockSet,
        ];
        chosen(&[&OF_PROCESSES, &OF_THE_WAY, &own])
    }

    fn always(&self) -> &'static [Trouble] {
        if self.numbers_end {
            &[Trouble::NumbersEnd]
        } else {
            &[]
        }
    }

    fn place(&mut self) -> Place {
        self.played += 1;
        if self.numbers_end {
            self.leave_few_numbers();
        }
        Place::at(&self.url(self.proxy.port()))
    }

    fn straight(&self, _: &Place) -> String {
        self.url(self.server.port())
    }

    fn clocks(&self) -> &[WallClock] {
        &self.clocks.processes
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, random: &mut Random) {
        if trouble == Trouble::NumbersEnd {
            self.end_numbers();
        }
        let (server, proxy) = (&mut self.server, &self.proxy);
        match trouble {
            Trouble::NumbersEnd => {}
            Trouble::ServerClockSet | Trouble::ClockSet => self.clocks.set(trouble, random),
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
        left(std::slice::from_ref(&self.server), 0)
    }

    fn calm_down(&mut self) {
        self.clocks.calm_down();
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
        let clocks = Clocks::of(3);
        let options = |server: usize, seconds: u32| ZooKeeperOptions {
            sync_limit: seconds * 10,
            // One that is cut off may seem to lead: nobody waits for it for long.
            lines: vec!["initLimit=100".into()],
            ..swept(&clocks.servers[server])
        };
        Three {
            servers: Ensemble::start_apart([options(0, 1), options(1, 1), options(STUBBORN, 60)]),
            clocks,
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
            Trouble::ServerClockSet,
            Trouble::ClockSet,
        ];
        chosen(&[&OF_PROCESSES, &own])
    }

    fn place(&mut self) -> Place {
        Place::at(&format!("zk://{}/x?{OPTIONS}", self.servers.hosts()))
    }

    fn straight(&self, place: &Place) -> String {
        place.url.clone()
    }

    fn clocks(&self) -> &[WallClock] {
        &self.clocks.processes
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, random: &mut Random) {
        let leader = self.servers.leader();
        match trouble {
            Trouble::ServerClockSet | Trouble::ClockSet => self.clocks.set(trouble, random),
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
        left(self.servers.all(), self.servers.leader())
    }

    fn calm_down(&mut self) {
        self.clocks.calm_down();
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }

    fn linger(&self) -> Duration {
        LINGER + LEASE * 4 + SESSION + ELECTION
    }
}
