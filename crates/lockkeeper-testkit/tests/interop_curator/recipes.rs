//! Each recipe, in both directions: who holds keeps the other out, and wakes it.

use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use super::peer::{Peer, finish, keeper, soon};

/// How long Java tries where it must fail.
const IN_VAIN: u32 = 300;
/// How long Java waits where it must succeed.
const LONG: u32 = 50_000;

/// Waits until so many contenders stand below a path, as Curator sees them.
async fn participants(java: &Peer, path: &str, expected: usize) {
    soon("contenders", async {
        while java.ask(&format!("participants look {path}")).await != expected.to_string() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_excludes_and_wakes_in_both_directions() {
    let server = ZooKeeperServer::start();
    let (java, rust) = (
        Peer::start(server.port()).await,
        keeper(server.port()).await,
    );
    let lock = rust.lock("orders/42").expect("a lock");
    for _ in 0..3 {
        let guard = lock.acquire().await.expect("acquires");
        assert_eq!(
            java.ask(&format!("lock a /orders/42 mutex {IN_VAIN}"))
                .await,
            "false"
        );
        let waiting = java.begin(&format!("lock a /orders/42 mutex {LONG}"));
        participants(&java, "/orders/42", 2).await;
        guard.release().await.expect("releases");
        assert_eq!(finish(waiting).await, "true");
        assert!(lock.try_acquire().await.expect("answers").is_none());
        let seen = rust
            .inspect("orders/42")
            .await
            .expect("answers")
            .expect("it is held");
        assert_eq!(seen.holders.len(), 1);
        let (ours, rest) = (lock.clone(), &java);
        let waiting = tokio::spawn(async move { ours.acquire().await });
        participants(rest, "/orders/42", 2).await;
        java.ask("unlock a mutex").await;
        let guard = soon("the lock", waiting)
            .await
            .expect("no panic")
            .expect("acquires");
        guard.release().await.expect("releases");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_exclude_and_share_in_both_directions() {
    let server = ZooKeeperServer::start();
    let (java, rust) = (
        Peer::start(server.port()).await,
        keeper(server.port()).await,
    );
    let lock = rust.rwlock("book").expect("a lock");
    let reader = lock.read().await.expect("reads");
    assert_eq!(java.ask(&format!("lock a /book read {LONG}")).await, "true");
    assert_eq!(
        java.ask(&format!("lock b /book write {IN_VAIN}")).await,
        "false"
    );
    assert!(lock.try_write().await.expect("answers").is_none());
    java.ask("unlock a read").await;
    let waiting = java.begin(&format!("lock b /book write {LONG}"));
    soon("the writer in line", async {
        while !java.ask("children look /book").await.contains("__WRIT__") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    // A writer that waits is not passed.
    assert!(lock.try_read().await.expect("answers").is_none());
    reader.release().await.expect("releases");
    assert_eq!(finish(waiting).await, "true");
    assert!(lock.try_read().await.expect("answers").is_none());
    // Java's writer becomes a reader: its node has the writer's number.
    assert_eq!(java.ask(&format!("lock b /book read {LONG}")).await, "true");
    assert!(
        lock.try_read().await.expect("answers").is_none(),
        "the writer is still there"
    );
    java.ask("unlock b write").await;
    let reader = lock
        .try_read()
        .await
        .expect("answers")
        .expect("readers share");
    assert!(lock.try_write().await.expect("answers").is_none());
    java.ask("unlock b read").await;
    reader.release().await.expect("releases");
    let writer = lock
        .try_write()
        .await
        .expect("answers")
        .expect("it is free");
    assert_eq!(
        java.ask(&format!("lock a /book read {IN_VAIN}")).await,
        "false"
    );
    writer.release().await.expect("releases");
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_add_up_in_both_directions() {
    let server = ZooKeeperServer::start();
    let (java, rust) = (
        Peer::start(server.port()).await,
        keeper(server.port()).await,
    );
    let pool = rust.semaphore("pool", 3).expect("a semaphore");
    let two = pool.acquire(2).await.expect("acquires");
    assert_eq!(
        java.ask(&format!("permits a /pool 3 1 {LONG}")).await,
        "true"
    );
    assert_eq!(
        java.ask(&format!("permits b /pool 3 1 {IN_VAIN}")).await,
        "false"
    );
    assert!(pool.try_acquire(1).await.expect("answers").is_none());
    let waiting = java.begin(&format!("permits b /pool 3 2 {LONG}"));
    two.release().await.expect("releases");
    assert_eq!(finish(waiting).await, "true");
    assert!(pool.try_acquire(1).await.expect("answers").is_none());
    let ours = pool.clone();
    let waiting = tokio::spawn(async move { ours.acquire(3).await });
    java.ask("return a").await;
    java.ask("return b").await;
    let all = soon("the permits", waiting)
        .await
        .expect("no panic")
        .expect("acquires");
    assert_eq!(
        java.ask(&format!("permits a /pool 3 1 {IN_VAIN}")).await,
        "false"
    );
    all.release().await.expect("releases");
    assert_eq!(
        java.ask(&format!("permits a /pool 3 3 {LONG}")).await,
        "true"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_java_holder_is_seen_and_broken() {
    let server = ZooKeeperServer::start();
    let (java, rust) = (
        Peer::start(server.port()).await,
        keeper(server.port()).await,
    );
    assert_eq!(
        java.ask(&format!("lock a /stuck mutex {LONG}")).await,
        "true"
    );
    let seen = rust.list("").await.expect("lists");
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].name.as_str(), seen[0].holders.len()), ("stuck", 1));
    rust.break_lock("stuck", "it hangs").await.expect("breaks");
    let guard = rust
        .lock("stuck")
        .expect("a lock")
        .try_acquire()
        .await
        .expect("answers");
    assert!(guard.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_a_shared_count() {
    let server = ZooKeeperServer::start();
    let (java, rust) = (
        Peer::start(server.port()).await,
        keeper(server.port()).await,
    );
    let latch = rust.latch("gate").expect("a latch");
    assert!(latch.set(3).await.expect("sets"));
    latch.count_down().await.expect("counts");
    assert_eq!(java.ask("count a /.latches/gate").await, "2");
}
