//! A session that goes on at another server of the ensemble while its old connection is still open there, with a request on its
//! way.

use std::time::Duration;

use lockkeeper::Error;
use lockkeeper::store::zookeeper::ZooKeeperStore;
use lockkeeper::store::{Claim, Mode, Store};
use lockkeeper_testkit::servers::ports::free_port;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_session::{Node, ZooKeeperSession};

use super::claims::{claim_for, release};
use super::common::{granted, in_the_end, open, soon};

const LEASE: Duration = Duration::from_secs(30);

/// The sessions of the clients that a server has.
fn sessions(server: &ZooKeeperServer) -> Vec<String> {
    let said = server.word("cons");
    let ids = said.lines().filter_map(|line| line.split("sid=").nth(1));
    ids.filter_map(|rest| rest.split(',').next())
        .map(str::to_owned)
        .collect()
}

async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    soon(what, async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// A store whose request to queue is held up on the way to its server. The store has given the request up.
struct Scene {
    servers: Ensemble,
    /// The ways of the store: to the server that it was connected to first, and to another.
    ways: [Proxy; 2],
    /// The server that it was connected to first.
    old: usize,
    new: usize,
    store: ZooKeeperStore,
    /// The id of its session.
    session: String,
    /// Its claim, which another store's keeps waiting.
    claim: Claim,
    near: ZooKeeperStore,
    held: Claim,
}

impl Scene {
    async fn begin(servers: Ensemble, old: usize, new: usize) -> Scene {
        let ways = [old, new].map(|server| Proxy::to(servers.all()[server].port()));
        let near = open(&servers.url("x")).await;
        let held = claim_for(LEASE, "a", Mode::Exclusive);
        granted(&near, &held).await;
        ways[1].refuse();
        let before = sessions(&servers.all()[old]);
        let hosts = ways
            .each_ref()
            .map(|way| format!("127.0.0.1:{}", way.port()));
        let store = open(&format!(
            "zk://{}/x?session_timeout=60s&timeout=2s",
            hosts.join(",")
        ))
        .await;
        let session = sessions(&servers.all()[old]);
        let session = session.into_iter().find(|one| !before.contains(one));
        ways[0].hold_after("-lock-", 0);
        Scene {
            session: session.expect("it is connected there"),
            claim: claim_for(LEASE, "a", Mode::Exclusive).with_enqueue(true),
            servers,
            ways,
            old,
            new,
            store,
            near,
            held,
        }
    }

    fn serves(&self, server: usize) -> bool {
        sessions(&self.servers.all()[server]).contains(&self.session)
    }

    async fn gives_up(&self) {
        let tried = self.store.try_acquire(&self.claim).await;
        assert!(
            matches!(tried, Err(Error::OutcomeUnknown { .. })),
            "{tried:?}"
        );
    }

    async fn withdraws(&self) {
        soon("the withdrawal", async {
            let claim = &self.claim;
            while self.store.withdraw(&claim.name, claim.id).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// How many stand in line, when all that the old server was told has reached the leader.
    fn in_line(&self) -> usize {
        let old = ZooKeeperSession::open(self.servers.all()[self.old].port(), LEASE);
        let made = old.create("/after", b"", Node::Ephemeral);
        made.expect("creates");
        let nodes = old.children("/x/a").len();
        old.close();
        nodes
    }

    /// The session goes on where it is.
    async fn goes_on(self) {
        assert!(release(&self.near, &self.held).await.expect("releases"));
        let next = claim_for(LEASE, "a", Mode::Exclusive);
        in_the_end(&self.store, &next).await;
        assert!(self.serves(self.new), "it is still the same session");
        assert!(release(&self.store, &next).await.expect("releases"));
    }
}

async fn started() -> Ensemble {
    let servers = tokio::task::spawn_blocking(Ensemble::start).await;
    servers.expect("no panic")
}

/// Before the session is opened elsewhere the request does what it was to do, however late it comes. The next connection finds
/// that.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_request_counts_until_the_session_moves() {
    let servers = started().await;
    let leader = servers.leader();
    let scene = Scene::begin(servers, (leader + 1) % 3, leader).await;
    // Nobody takes new connections of the store.
    scene.ways[0].point_to(free_port());
    scene.gives_up().await;
    assert_eq!(scene.in_line(), 1, "it was not held up");
    scene.ways[0].heal();
    until("the request", || scene.in_line() == 2).await;
    scene.ways[1].heal();
    scene.withdraws().await;
    assert_eq!(scene.in_line(), 1, "it is left in line");
    scene.goes_on().await;
}

/// The session is open at another server, and the old server still has a connection of it. What comes over that is refused
/// (SessionMoved): the store has looked for its node, and would not find one that is made afterwards.
async fn comes_too_late(servers: Ensemble, old: usize, new: usize) {
    let scene = Scene::begin(servers, old, new).await;
    scene.ways[1].heal();
    scene.gives_up().await;
    scene.withdraws().await;
    assert!(scene.serves(new), "the session goes on there");
    assert!(scene.serves(old), "the old connection is open");
    assert_eq!(scene.in_line(), 1, "it was not held up");
    let leader = &scene.servers.all()[scene.servers.leader()];
    let before = leader.zxid();
    scene.ways[0].heal();
    // A request that is refused is a transaction, too.
    until("the late request", || leader.zxid() != before).await;
    until("the end of the old connection", || !scene.serves(old)).await;
    assert_eq!(scene.in_line(), 1, "it was made after it was withdrawn");
    scene.goes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_a_follower_comes_too_late_once_the_session_has_moved() {
    let servers = started().await;
    let leader = servers.leader();
    comes_too_late(servers, (leader + 1) % 3, (leader + 2) % 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_the_leader_comes_too_late_once_the_session_has_moved() {
    let servers = started().await;
    let leader = servers.leader();
    comes_too_late(servers, leader, (leader + 1) % 3).await;
}
