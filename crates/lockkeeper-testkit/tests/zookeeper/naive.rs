//! Locks on ZooKeeper as they are written every day, each in the scene that shows its mistake: the checker catches all of
//! them, and the right way passes in the same scene.

use std::time::Duration;

use lockkeeper::Token;
use lockkeeper::clock::{Clock, Moment};
use lockkeeper_testkit::checker::{Demands, Rule, check};
use lockkeeper_testkit::history::{Answer, Mode, Recorder, merge};
use lockkeeper_testkit::naive::{NaiveZooKeeper, ZooKeeperMistake};
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_numbers::spend;
use lockkeeper_testkit::servers::zookeeper_session::ZooKeeperSession;

use super::numbers::server_near_the_end;
use super::parted::patient;

const FOLDER: &str = "/naive";
const SESSION: Duration = Duration::from_secs(4);

/// A client that takes the lock, and what it believes.
struct Client {
    lock: NaiveZooKeeper,
    id: &'static str,
    saw: Recorder,
}

impl Client {
    fn new(mistake: ZooKeeperMistake, id: &'static str, port: u16) -> Client {
        Client {
            lock: NaiveZooKeeper::new(mistake, port, FOLDER, id, SESSION),
            id,
            saw: Recorder::in_memory(id, Clock::real()),
        }
    }

    fn queues(&self) {
        self.lock.queue().expect("creates");
    }

    /// Looks whether it holds, and records what it believes. `written`: when its last write was sent.
    fn looks(&self, written: Moment) -> bool {
        let op = self.saw.acquire("lock", self.id, Mode::Exclusive);
        let Some(stat) = self.lock.first() else {
            self.saw.ok(op, Answer::Busy);
            return false;
        };
        let deadline = match self.lock.mistake() {
            ZooKeeperMistake::None => written + self.lock.session().timeout() * 2 / 3,
            _ => Moment::NEVER,
        };
        let token = Token::new(stat.czxid as u64);
        self.saw.granted(op, token, deadline);
        true
    }

    fn looks_until_it_holds(&self) {
        let end = Moment::now() + Duration::from_secs(120);
        while !self.looks(Moment::now()) {
            assert!(Moment::now() < end, "it is never free");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether two held at the same time.
#[track_caller]
fn judged(clients: [&Client; 2]) {
    let wrong = clients[0].lock.mistake() != ZooKeeperMistake::None;
    let events = merge(clients.map(|client| client.saw.events()));
    let verdict = check(&events, &Demands::none());
    assert_eq!(verdict.breaks(Rule::S1), wrong, "{verdict}");
}

fn folder(server: &ZooKeeperServer) {
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    hand.folders(FOLDER);
    hand.close();
}

/// A follower that lost its leader answers pings for as long as it waits. The others have ended the session.
#[test]
fn a_lock_that_renews_by_ping_is_caught() {
    for mistake in [ZooKeeperMistake::TrustsPings, ZooKeeperMistake::None] {
        let servers = Ensemble::start_apart([patient(60), patient(60), patient(60)]);
        let leader = servers.leader();
        let follower = (leader + 1) % 3;
        folder(&servers.all()[leader]);
        let one = Client::new(mistake, "one", servers.all()[follower].port());
        let two = Client::new(mistake, "two", servers.all()[leader].port());
        let written = Moment::now();
        one.queues();
        assert!(one.looks(written));
        two.queues();
        servers.cut_off(follower);
        two.looks_until_it_holds();
        assert!(one.lock.session().is_answered(), "it believes to live");
        judged([&one, &two]);
    }
}

/// Curator#1121: the client comes back in another session while the servers still have a node of the one before.
#[test]
fn a_lock_that_adopts_a_node_of_a_dead_session_is_caught() {
    let server = ZooKeeperServer::start();
    folder(&server);
    for mistake in [ZooKeeperMistake::AdoptsById, ZooKeeperMistake::None] {
        let before = Client::new(mistake, "one", server.port());
        before.queues();
        let two = Client::new(mistake, "two", server.port());
        two.queues();
        // Nobody pings it any more; the servers wait for its time-out.
        drop(before);
        let one = Client::new(mistake, "one", server.port());
        assert_eq!(
            one.looks(Moment::now()),
            mistake == ZooKeeperMistake::AdoptsById
        );
        two.looks_until_it_holds();
        judged([&one, &two]);
        two.lock.session().close();
    }
}

/// Where the numbers are at their end, the servers give the last one again and again.
#[test]
fn a_lock_that_sorts_by_number_alone_is_caught() {
    for mistake in [ZooKeeperMistake::SortsByNumber, ZooKeeperMistake::None] {
        let server = server_near_the_end(FOLDER);
        let hand = ZooKeeperSession::open(server.port(), SESSION);
        spend(&hand, FOLDER);
        let clients = ["one", "two"].map(|id| Client::new(mistake, id, server.port()));
        let written = Moment::now();
        clients.iter().for_each(Client::queues);
        let hold = clients.iter().map(|client| client.looks(written));
        assert!(hold.collect::<Vec<_>>()[0]);
        let [one, two] = &clients;
        judged([one, two]);
    }
}
