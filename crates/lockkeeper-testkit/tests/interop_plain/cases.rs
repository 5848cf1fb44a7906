//! What holds with every peer.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Error, Guard, Lockkeeper, ReleaseOutcome};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::peer::{Kind, Peer, Setting, acquire};

/// Ends during the test.
const SHORT: Duration = Duration::from_secs(1);
/// Does not end during the test.
const LONG: Duration = Duration::from_secs(60);
/// A client that is to be kept out is watched for so long; much more than a poll takes.
const A_WHILE: Duration = Duration::from_millis(300);

struct World {
    nodes: Independent,
    peer: Peer,
    /// Of ours on the same nodes.
    url: String,
    ours: Lockkeeper,
}

impl World {
    async fn new(setting: impl Into<Setting>) -> World {
        World::with_lease(setting, LONG).await
    }

    async fn with_lease(setting: impl Into<Setting>, lease: Duration) -> World {
        let setting = setting.into();
        let nodes = Independent::start(setting.nodes);
        let mut peer = Peer::start(setting.kind, &nodes);
        // It is up and connected: on a busy machine that takes longer than a short lease.
        assert!(!peer.sees_locked("nothing"));
        let url = match setting.nodes {
            1 => format!("{}?dialect=plain", nodes.servers()[0].url()),
            // Nothing restarts here.
            _ => nodes.url_at_once("60s&dialect=plain"),
        };
        let ours = Lockkeeper::builder().url(&url).lease(lease);
        let ours = ours.connect().await.expect("connects");
        World {
            nodes,
            peer,
            url,
            ours,
        }
    }

    /// The only node, or one of several.
    fn server(&self) -> &RedisServer {
        &self.nodes.servers()[0]
    }

    /// The nodes that have a value of ours, and what it is. Of several nodes one may have the peer's for a moment longer.
    fn values(&self, name: &str, guard: &Guard) -> Vec<(u16, String)> {
        let claim = guard.claim().to_string();
        let nodes = self.nodes.servers().iter();
        let values = nodes.map(|node| (node.port(), node.command(&["GET", name])));
        values.filter(|(_, value)| value.contains(&claim)).collect()
    }

    async fn try_ours(&self, name: &str) -> Option<Guard> {
        let lock = self.ours.lock(name).expect("a lock");
        lock.try_acquire().await.expect("the store answers")
    }

    async fn wait_ours(&self, name: &str) -> Guard {
        let lock = self.ours.lock(name).expect("a lock");
        lock.acquire_within(LONG)
            .await
            .expect("the store answers")
            .expect("it comes in time")
    }

    /// Ours with a lease that is never renewed.
    async fn fixed(&self, name: &str, lease: Duration) -> Guard {
        let lock = self.ours.lock(name).expect("a lock").fixed_lease(lease);
        let guard = lock.expect("a lease").try_acquire().await;
        guard.expect("the store answers").expect("it is free")
    }

    /// The peer begins to wait and does not get it for a while.
    fn peer_waits(&mut self, name: &str) {
        self.peer.order(&acquire(name, LONG, LONG));
        assert_eq!(
            self.peer.answer_within(A_WHILE),
            None,
            "the peer has to wait"
        );
    }
}

async fn released(guard: Guard) {
    let outcome = guard.release().await.expect("the store answers");
    assert_eq!(outcome, ReleaseOutcome::Released);
}

pub async fn ours_is_busy_and_waits_while_the_peer_holds(setting: Setting) {
    let mut world = World::new(setting).await;
    assert!(world.peer.try_acquire("job", LONG));
    assert!(world.try_ours("job").await.is_none());
    let lock = world.ours.lock("job").expect("a lock");
    let mut waiter = tokio::spawn(async move { lock.acquire().await });
    let early = tokio::time::timeout(A_WHILE, &mut waiter).await;
    assert!(early.is_err(), "ours has to wait");
    assert!(world.peer.owns("job"), "waiting takes nothing away");
    assert!(world.peer.release("job"));
    let guard = waiter.await.expect("finishes").expect("acquires");
    assert!(!world.peer.try_acquire("job", LONG), "ours holds it now");
    released(guard).await;
    assert!(!world.peer.sees_locked("job"));
}

pub async fn the_peer_is_busy_and_waits_while_ours_holds(setting: Setting) {
    let mut world = World::new(setting).await;
    let guard = world.try_ours("job").await.expect("it is free");
    assert!(world.peer.sees_locked("job"));
    assert!(!world.peer.try_acquire("job", LONG));
    world.peer_waits("job");
    assert!(guard.is_held());
    released(guard).await;
    assert!(world.peer.answer(), "the peer gets it");
    assert!(world.try_ours("job").await.is_none(), "the peer holds it");
    assert!(world.peer.release("job"));
    released(world.try_ours("job").await.expect("it is free")).await;
}

pub async fn the_peers_lease_ends(setting: Setting) {
    let mut world = World::new(setting).await;
    let asked = Moment::now();
    assert!(world.peer.try_acquire("job", SHORT));
    let guard = world.wait_ours("job").await;
    let waited = Moment::now().since(asked);
    assert!(waited >= SHORT * 9 / 10, "too early: {waited:?}");
    assert!(!world.peer.owns("job"));
    released(guard).await;
}

pub async fn our_lease_ends_and_we_do_not_free_the_peers_lock(setting: Setting) {
    let mut world = World::new(setting).await;
    let guard = world.fixed("job", SHORT * 2).await;
    let lost = guard.lost();
    assert!(!world.peer.try_acquire("job", LONG));
    world.peer.order(&acquire("job", LONG, LONG));
    assert!(world.peer.answer(), "the peer gets it");
    assert!(!guard.is_held(), "we knew before the peer could get it");
    lost.await;
    guard.extend(LONG).await.expect_err("it is lost");
    let outcome = guard.release().await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    assert!(world.peer.owns("job"), "the peer has it still");
    assert!(world.peer.release("job"));
}

pub async fn the_peer_extends_and_keeps_ours_out(setting: Setting) {
    let mut world = World::new(setting).await;
    assert!(world.peer.try_acquire("job", SHORT * 2));
    assert!(world.peer.extend("job", LONG));
    tokio::time::sleep(SHORT * 2 + A_WHILE).await;
    assert!(world.try_ours("job").await.is_none(), "it was extended");
    assert!(world.peer.release("job"));
    released(world.try_ours("job").await.expect("it is free")).await;
}

pub async fn ours_extends_and_keeps_the_peer_out(setting: Setting) {
    let mut world = World::new(setting).await;
    let guard = world.fixed("job", SHORT * 2).await;
    guard.extend(LONG).await.expect("extends");
    tokio::time::sleep(SHORT * 2 + A_WHILE).await;
    assert!(!world.peer.try_acquire("job", LONG), "it was extended");
    assert!(guard.is_held());
    released(guard).await;
    assert!(world.peer.try_acquire("job", LONG));
}

pub async fn the_watchdog_keeps_the_peer_out(setting: Setting) {
    let lease = SHORT * 3;
    let mut world = World::with_lease(setting, lease).await;
    let guard = world.try_ours("job").await.expect("it is free");
    world.peer.order(&acquire("job", LONG, LONG));
    let early = world.peer.answer_within(lease * 2);
    assert_eq!(early, None, "the watchdog renews");
    assert!(guard.is_held());
    released(guard).await;
    assert!(world.peer.answer(), "the peer gets it");
}

pub async fn a_late_peer_does_not_free_or_extend_our_lock(setting: Setting) {
    let mut world = World::new(setting).await;
    assert!(world.peer.try_acquire("job", SHORT));
    let guard = world.wait_ours("job").await;
    let before = world.values("job", &guard);
    assert!(before.len() > world.nodes.servers().len() / 2);
    assert!(!world.peer.owns("job"));
    assert!(!world.peer.extend("job", LONG), "not its own any more");
    assert!(!world.peer.release("job"), "not its own any more");
    let after = world.values("job", &guard);
    assert!(before.iter().all(|value| after.contains(value)));
    guard.extend(LONG).await.expect("it is ours");
    released(guard).await;
}

pub async fn a_killed_peers_lock_is_free_after_its_lease(setting: Setting) {
    let mut world = World::new(setting).await;
    let asked = Moment::now();
    assert!(world.peer.try_acquire("job", SHORT * 2));
    world.peer.kill();
    released(world.wait_ours("job").await).await;
    let waited = Moment::now().since(asked);
    assert!(waited >= SHORT * 2 * 9 / 10, "too early: {waited:?}");
}

pub async fn our_killed_process_lock_is_free_after_its_lease(setting: Setting) {
    let mut world = World::new(setting).await;
    let url = world.url.clone();
    let arguments = ["hold", "--store", &url, "--name", "job", "--lease", "2s"];
    let mut taker = Taker::start(env!("CARGO_BIN_EXE_lock-taker"), &arguments).expect("starts");
    taker.expect("held");
    world.peer_waits("job");
    taker.kill().expect("it can be killed");
    assert!(world.peer.answer(), "the peer gets it");
    assert!(world.peer.owns("job"));
}

pub async fn odd_names_are_the_same_lock(setting: Setting) {
    let mut world = World::new(setting).await;
    for name in [
        "two words  and spaces",
        "订单:42/ключ é",
        "🔒",
        "{tag}:x",
        "\"quoted\" 'and' \\back",
        "%s $1 *?[a]",
    ] {
        assert!(world.peer.try_acquire(name, LONG), "{name:?}");
        assert!(world.try_ours(name).await.is_none(), "{name:?}");
        assert!(world.peer.release(name), "{name:?}");
        let guard = world.try_ours(name).await.expect(name);
        assert!(!world.peer.try_acquire(name, LONG), "{name:?}");
        released(guard).await;
    }
}

pub async fn a_peers_lock_is_shown_and_can_be_broken(setting: Setting) {
    let mut world = World::new(setting).await;
    assert!(world.peer.try_acquire("job", LONG));
    let info = world.ours.inspect("job").await.expect("answers");
    let info = info.expect("it is known");
    assert_eq!(info.holders.len(), 1);
    assert_eq!(info.holders[0].process.program, "another client");
    assert!(info.holders[0].remaining > Some(LONG / 2));
    let ended = world.ours.break_lock("job", "a test").await;
    assert_eq!(ended.expect("breaks").len(), 1);
    let guard = world.try_ours("job").await.expect("it is free");
    assert!(!world.peer.release("job"), "not its own any more");
    released(guard).await;
}

/// A prefix is part of the name that peers know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_is_part_of_the_peers_name() {
    let mut world = World::new(Kind::Python).await;
    let url = format!("{}&prefix=app:", world.url);
    let ours = Lockkeeper::connect(&url).await.expect("connects");
    let lock = ours.lock("job").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    assert!(!world.peer.try_acquire("app:job", LONG));
    assert!(world.peer.try_acquire("job", LONG), "another lock");
    released(guard).await;
    assert!(world.peer.try_acquire("app:job", LONG));
    assert!(lock.try_acquire().await.expect("answers").is_none());
    // Ours has held it before, so it knows the name.
    let list = ours.list("").await.expect("answers");
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(list[0].name.as_str(), "job");
    assert_eq!(list[0].holders[0].process.program, "another client");
}

/// Of the three, only redis-py knows locks that never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_waits_for_a_lock_without_a_lease() {
    let mut world = World::new(Kind::Python).await;
    assert!(world.peer.try_acquire("job", Duration::ZERO));
    assert_eq!(world.server().command(&["PTTL", "job"]), ":-1\r\n");
    let lock = world.ours.lock("job").expect("a lock");
    let mut waiter = tokio::spawn(async move { lock.acquire().await });
    let early = tokio::time::timeout(A_WHILE, &mut waiter).await;
    assert!(early.is_err(), "ours has to wait");
    let info = world.ours.inspect("job").await.expect("answers");
    assert_eq!(info.expect("it is known").holders.len(), 1);
    assert!(world.peer.release("job"));
    released(waiter.await.expect("finishes").expect("acquires")).await;
}

/// rslock writes twenty random bytes, which are no text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_no_text_is_a_holder() {
    let world = World::new(Kind::Python).await;
    let write =
        r"return redis.call('SET', KEYS[1], '\255\254\0 \128' .. string.rep('x', 15), 'PX', 60000)";
    world.server().command(&["EVAL", write, "1", "job"]);
    assert!(world.try_ours("job").await.is_none());
    let info = world.ours.inspect("job").await.expect("answers");
    assert_eq!(info.expect("it is known").holders.len(), 1);
    let ended = world.ours.break_lock("job", "a test").await;
    assert_eq!(ended.expect("breaks").len(), 1);
    released(world.try_ours("job").await.expect("it is free")).await;
}
