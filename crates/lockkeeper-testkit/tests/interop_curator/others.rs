//! kazoo and go-zookeeper: who holds keeps the other out, and wakes it.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use super::load::count_together;
use super::peer::{Other, Peer, finish, keeper, soon};

/// How long a peer tries where it must fail.
const IN_VAIN: u32 = 300;
/// How long a peer waits where it must succeed.
const LONG: u32 = 50_000;

pub async fn waiters(rust: &Lockkeeper, name: &str, expected: usize) {
    soon("waiters", async {
        loop {
            let seen = rust.inspect(name).await.expect("answers");
            if seen.is_some_and(|seen| seen.waiters == expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn both_directions(other: Other) {
    let server = ZooKeeperServer::start();
    let (peer, rust) = (
        Peer::other(other, server.port()).await,
        keeper(server.port()).await,
    );
    for round in 0..3 {
        // One that has given up in vain may still stand in line elsewhere.
        let name = format!("orders/{round}");
        let lock = rust.lock(&name).expect("a lock");
        let guard = lock.acquire().await.expect("acquires");
        let tried = peer.ask(&format!("lock a /{name} mutex {IN_VAIN}")).await;
        assert_eq!(tried, "false", "{other:?} holds beside us");
        guard.release().await.expect("releases");
        let name = format!("waits/{round}");
        let lock = rust.lock(&name).expect("a lock");
        let guard = lock.acquire().await.expect("acquires");
        let waiting = peer.begin(&format!("lock a /{name} mutex {LONG}"));
        waiters(&rust, &name, 1).await;
        guard.release().await.expect("releases");
        assert_eq!(finish(waiting).await, "true");
        assert!(lock.try_acquire().await.expect("answers").is_none());
        let ours = lock.clone();
        let waiting = tokio::spawn(async move { ours.acquire().await });
        waiters(&rust, &name, 1).await;
        peer.ask("unlock a mutex").await;
        let guard = soon("the lock", waiting).await.expect("no panic");
        guard.expect("acquires").release().await.expect("releases");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kazoo_excludes_and_wakes_in_both_directions() {
    both_directions(Other::Kazoo).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn go_excludes_and_wakes_in_both_directions() {
    both_directions(Other::Go).await;
}

/// kazoo waits for our nodes, and ours for kazoo's.
#[tokio::test(flavor = "multi_thread")]
async fn kazoo_and_ours_lose_no_update() {
    let server = ZooKeeperServer::start();
    let mut peers = Vec::new();
    for _ in 0..3 {
        peers.push(Peer::other(Other::Kazoo, server.port()).await);
    }
    count_together(&server, "", &peers, "mutex", 3).await;
}

/// Nodes of go-zookeeper are Curator's.
#[tokio::test(flavor = "multi_thread")]
async fn go_java_and_ours_lose_no_update() {
    let server = ZooKeeperServer::start();
    let mut peers = Vec::new();
    for _ in 0..2 {
        peers.push(Peer::other(Other::Go, server.port()).await);
        peers.push(Peer::start(server.port()).await);
    }
    count_together(&server, "", &peers, "mutex", 2).await;
}
