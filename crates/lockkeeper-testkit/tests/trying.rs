//! A keeper that dropped its guard gets the lock when it tries again, if nobody else is there: on every store, as a URL
//! opens it, and on every kind of runtime.

use lockkeeper::{Lockkeeper, blocking};
use lockkeeper_testkit::conformance::trying_after_a_drop;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use tokio::runtime::Builder;

const ROUNDS: usize = 200;

fn try_on(url: &str) {
    for threads in [1, 2] {
        let runtime = match threads {
            1 => Builder::new_current_thread().enable_all().build(),
            many => Builder::new_multi_thread()
                .worker_threads(many)
                .enable_all()
                .build(),
        };
        runtime.expect("a runtime").block_on(async {
            let keeper = Lockkeeper::connect(url).await.expect("connects");
            trying_after_a_drop(&keeper, ROUNDS).await;
        });
    }
    let keeper = blocking::Lockkeeper::connect(url).expect("connects");
    let lock = keeper.lock("blocking").expect("a lock");
    let none = (0..ROUNDS).filter(|_| {
        drop(lock.acquire().expect("acquires"));
        lock.try_acquire().expect("tries").is_none()
    });
    assert_eq!(none.count(), 0, "of {ROUNDS}, with the blocking API");
}

#[test]
fn on_memory() {
    try_on("memory:trying");
}

#[test]
fn on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    try_on(&format!(
        "sqlite:{}",
        folder.path().join("locks.db").display()
    ));
}

#[test]
fn on_redis() {
    let server = RedisServer::start();
    try_on(&server.url());
}

#[test]
fn on_plain_redis() {
    let server = RedisServer::start();
    try_on(&format!("{}?dialect=plain", server.url()));
}

#[test]
fn on_a_quorum() {
    let nodes = Independent::start(3);
    try_on(&nodes.url_at_once("30s"));
}

#[test]
fn on_a_plain_quorum() {
    let nodes = Independent::start(3);
    try_on(&nodes.url_at_once("30s&dialect=plain"));
}
