//! `also=`: locks of ours that keep out clients of other recipes, as these clients have them by themselves.

use lockkeeper::Lockkeeper;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use super::load::count_together;
use super::others::waiters;
use super::peer::{Other, Peer, finish, keeper, keeper_with, soon};

/// How long a peer tries where it must fail.
const IN_VAIN: u32 = 300;
/// How long a peer waits where it must succeed.
const LONG: u32 = 50_000;

/// A lock of ours and one of theirs keep each other out, and wake each other.
async fn both_directions(peer: &Peer, rust: &Lockkeeper, recipe: &str) {
    let name = format!("both-{recipe}");
    let lock = rust.lock(&name).expect("a lock");
    for _ in 0..3 {
        let guard = lock.acquire().await.expect("acquires");
        let line = format!("lock a /{name} {recipe} {IN_VAIN}");
        assert_eq!(peer.ask(&line).await, "false", "{recipe} holds beside us");
        let waiting = peer.begin(&format!("lock a /{name} {recipe} {LONG}"));
        waiters(rust, &name, 1).await;
        guard.release().await.expect("releases");
        assert_eq!(finish(waiting).await, "true");
        assert!(lock.try_acquire().await.expect("answers").is_none());
        let ours = lock.clone();
        let waiting = tokio::spawn(async move { ours.acquire().await });
        waiters(rust, &name, 1).await;
        peer.ask(&format!("unlock a {recipe}")).await;
        let guard = soon("the lock", waiting).await.expect("no panic");
        guard.expect("acquires").release().await.expect("releases");
    }
}

/// kazoo's recipes as they are: without `extra_lock_patterns` they do not see Curator's nodes.
#[tokio::test(flavor = "multi_thread")]
async fn kazoo_by_itself_is_kept_out_with_also_kazoo() {
    let server = ZooKeeperServer::start();
    let peer = Peer::other(Other::Kazoo, server.port()).await;
    let rust = keeper_with(server.port(), "?also=kazoo").await;
    for recipe in ["own", "write", "read"] {
        both_directions(&peer, &rust, recipe).await;
    }
    // Which they are not without the option. Ours see them all the same.
    let plain = keeper(server.port()).await;
    let lock = plain.lock("plain").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    let tried = peer.ask(&format!("lock a /plain own {LONG}")).await;
    assert_eq!(tried, "true", "also=kazoo is needed no longer");
    guard.release().await.expect("releases");
    assert!(lock.try_acquire().await.expect("answers").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_kazoo_and_ours_share_with_also_kazoo() {
    let server = ZooKeeperServer::start();
    let peer = Peer::other(Other::Kazoo, server.port()).await;
    let rust = keeper_with(server.port(), "?also=kazoo").await;
    let lock = rust.rwlock("book").expect("a lock");
    let reader = lock.read().await.expect("reads");
    assert_eq!(peer.ask(&format!("lock a /book read {LONG}")).await, "true");
    let tried = peer.ask(&format!("lock b /book write {IN_VAIN}")).await;
    assert_eq!(tried, "false", "it writes beside a reader of ours");
    assert!(lock.try_write().await.expect("answers").is_none());
    peer.ask("unlock a read").await;
    let waiting = peer.begin(&format!("lock b /book write {LONG}"));
    waiters(&rust, "book", 1).await;
    reader.release().await.expect("releases");
    assert_eq!(finish(waiting).await, "true");
    assert!(lock.try_read().await.expect("answers").is_none());
    peer.ask("unlock b write").await;
    let writer = lock.try_write().await.expect("answers");
    let writer = writer.expect("it is free");
    for recipe in ["read", "write", "own"] {
        let tried = peer.ask(&format!("lock a /book {recipe} {IN_VAIN}")).await;
        assert_eq!(tried, "false", "{recipe} holds beside our writer");
    }
    writer.release().await.expect("releases");
}

#[tokio::test(flavor = "multi_thread")]
async fn kazoo_by_itself_and_ours_lose_no_update_with_also_kazoo() {
    let server = ZooKeeperServer::start();
    let mut peers = Vec::new();
    for _ in 0..3 {
        peers.push(Peer::other(Other::Kazoo, server.port()).await);
    }
    count_together(&server, "?also=kazoo", &peers, "own", 3).await;
}

/// In Java a mutex and a read-write lock of one path do not exclude each other. A lock of ours keeps out both.
#[tokio::test(flavor = "multi_thread")]
async fn java_readers_and_writers_are_kept_out_with_also_rw() {
    let server = ZooKeeperServer::start();
    let java = Peer::start(server.port()).await;
    let rust = keeper_with(server.port(), "?also=rw").await;
    for recipe in ["write", "read", "mutex"] {
        both_directions(&java, &rust, recipe).await;
    }
    // The writer of a read-write lock of ours keeps out a mutex, too.
    let lock = rust.rwlock("book").expect("a lock");
    let writer = lock.write().await.expect("writes");
    for recipe in ["mutex", "write", "read"] {
        let tried = java.ask(&format!("lock a /book {recipe} {IN_VAIN}")).await;
        assert_eq!(tried, "false", "{recipe} holds beside our writer");
    }
    writer.release().await.expect("releases");
    // Without the option only the recipe's own clients are kept out. Ours see all of them.
    let plain = keeper(server.port()).await;
    let lock = plain.lock("plain").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    let tried = java.ask(&format!("lock a /plain write {LONG}")).await;
    assert_eq!(tried, "true", "also=rw is needed no longer");
    guard.release().await.expect("releases");
    assert!(lock.try_acquire().await.expect("answers").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn java_writers_and_ours_lose_no_update_with_also_rw() {
    let server = ZooKeeperServer::start();
    let mut peers = Vec::new();
    for _ in 0..2 {
        peers.push(Peer::start(server.port()).await);
    }
    count_together(&server, "?also=rw", &peers, "write", 2).await;
}

/// Every recipe at once: each keeps out all that ours keeps out.
#[tokio::test(flavor = "multi_thread")]
async fn with_both_options_every_client_is_kept_out() {
    let server = ZooKeeperServer::start();
    let java = Peer::start(server.port()).await;
    let kazoo = Peer::other(Other::Kazoo, server.port()).await;
    let rust = keeper_with(server.port(), "?also=rw,kazoo").await;
    let lock = rust.lock("all").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    for (peer, recipe) in [
        (&java, "mutex"),
        (&java, "write"),
        (&java, "read"),
        (&kazoo, "mutex"),
        (&kazoo, "own"),
        (&kazoo, "write"),
        (&kazoo, "read"),
    ] {
        let tried = peer.ask(&format!("lock a /all {recipe} {IN_VAIN}")).await;
        assert_eq!(tried, "false", "{recipe} holds beside us");
    }
    guard.release().await.expect("releases");
    let guard = lock.try_acquire().await.expect("answers");
    guard
        .expect("nobody is left in line")
        .release()
        .await
        .expect("releases");
}
