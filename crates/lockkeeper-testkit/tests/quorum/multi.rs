//! Several locks of several stores: all or nothing, in one order.

use std::time::Duration;

use crate::common::keeper;
use lockkeeper::{Error, Lockkeeper, MultiLock};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

struct Site {
    keepers: Vec<Lockkeeper>,
    _servers: (RedisServer, Independent, tempfile::TempDir),
}

/// A keeper on every kind of store.
async fn site() -> Site {
    let (redis, nodes) = (RedisServer::start(), Independent::start(3));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("locks.db");
    let urls = [
        format!("sqlite:{}", file.display()),
        redis.url(),
        format!("memory:{}", file.display()),
        nodes.url_at_once("120s&node_timeout=10s"),
    ];
    let mut keepers = Vec::new();
    for url in &urls {
        keepers.push(keeper(url).await);
    }
    Site {
        keepers,
        _servers: (redis, nodes, folder),
    }
}

impl Site {
    fn all(&self, reversed: bool) -> MultiLock {
        let mut locks: Vec<_> = self
            .keepers
            .iter()
            .map(|k| k.lock("x").expect("a lock"))
            .collect();
        if reversed {
            locks.reverse();
        }
        MultiLock::new(locks).expect("locks")
    }
}

#[tokio::test]
async fn all_are_taken_or_none() {
    let site = site().await;
    let all = site.all(false);
    let guards = all.acquire().await.expect("acquires");
    assert_eq!(guards.guards().len(), 4);
    assert!(guards.is_held());
    for keeper in &site.keepers {
        let other = keeper.lock("x").expect("a lock").try_acquire().await;
        assert!(other.expect("answers").is_none(), "{keeper:?}");
    }
    guards.release().await.expect("releases");
    // Whichever is taken, the others are let go of.
    for keeper in &site.keepers {
        let lock = keeper.lock("x").expect("a lock");
        let one = lock.acquire().await.expect("acquires");
        assert!(all.try_acquire().await.expect("answers").is_none());
        let patience = Duration::from_millis(50);
        assert!(
            all.acquire_within(patience)
                .await
                .expect("answers")
                .is_none()
        );
        one.release().await.expect("releases");
        let again = tokio::time::timeout(Duration::from_secs(30), all.acquire()).await;
        let guards = again.expect("they are free").expect("acquires");
        guards.release().await.expect("releases");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_order_they_are_named_in_nobody_waits_for_ever() {
    let site = site().await;
    let (one, two) = (site.all(false), site.all(true));
    let names = |multi: &MultiLock| multi.names().count();
    assert_eq!(names(&one), names(&two));
    let mut tasks = Vec::new();
    for multi in [one, two] {
        tasks.push(tokio::spawn(async move {
            for _ in 0..15 {
                let guards = multi.acquire().await.expect("acquires");
                tokio::task::yield_now().await;
                guards.release().await.expect("releases");
            }
        }));
    }
    for task in tasks {
        let done = tokio::time::timeout(Duration::from_secs(60), task).await;
        done.expect("nobody waits for ever").expect("finishes");
    }
}

/// One name on two stores of a kind is taken in the order of where the stores are, which one may spell differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_spelt_differently_keep_nobody_waiting_for_ever() {
    let (a, b) = (RedisServer::start(), RedisServer::start());
    let (low, high) = (a.port().min(b.port()), a.port().max(b.port()));
    let mut tasks = Vec::new();
    for host in ["127.0.0.1", "localhost"] {
        let (one, two) = (
            keeper(&format!("redis://{host}:{low}")).await,
            keeper(&format!("redis://127.0.0.1:{high}")).await,
        );
        let locks = [&one, &two].map(|keeper| keeper.lock("x").expect("a lock"));
        let multi = MultiLock::new(locks).expect("locks");
        tasks.push(tokio::spawn(async move {
            for _ in 0..30 {
                let guards = multi.acquire().await.expect("acquires");
                assert!(guards.is_held());
                guards.release().await.expect("releases");
            }
        }));
    }
    for task in tasks {
        let done = tokio::time::timeout(Duration::from_secs(60), task).await;
        done.expect("nobody waits for ever").expect("finishes");
    }
}

#[tokio::test]
async fn one_lock_twice_is_refused() {
    let site = site().await;
    for keeper in &site.keepers {
        let twice = [keeper.lock("x"), keeper.lock("x")].map(|lock| lock.expect("a lock"));
        let error = MultiLock::new(twice).expect_err("the same lock");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
    assert!(MultiLock::new([]).is_err());
}

#[tokio::test]
async fn one_name_under_two_prefixes_is_two_locks() {
    let nodes = Independent::start(3);
    let url = nodes.url_at_once("120s&node_timeout=10s");
    let (one, two) = (format!("{url}&prefix=one:"), format!("{url}&prefix=two:"));
    let (one, two) = (keeper(&one).await, keeper(&two).await);
    let lock = |keeper: &Lockkeeper| keeper.lock("x").expect("a lock");
    let both = MultiLock::new([lock(&one), lock(&two)]).expect("they differ");
    let guards = both.acquire().await.expect("acquires");
    guards.release().await.expect("releases");
    let twice = MultiLock::new([lock(&one), lock(&one)]);
    assert!(matches!(twice, Err(Error::InvalidArgument { .. })));
}
