//! How waiters are woken, and what they leave behind.

use std::time::Duration;

use super::*;
use crate::common::until;
use lockkeeper::clock::Moment;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_operations_leave_no_channel() {
    let server = RedisServer::start();
    let mut tasks = Vec::new();
    for number in 0..4 {
        let keeper = match number % 2 {
            0 => keeper(&server).await,
            _ => plain_keeper(&server).await,
        };
        for task in 0..5 {
            let keeper = keeper.clone();
            tasks.push(tokio::spawn(async move {
                for round in 0..250 {
                    let lock = keeper.lock(&format!("op {}", (task + round) % 7));
                    let_go(lock.expect("a lock").acquire().await.expect("acquires")).await;
                }
                keeper
            }));
        }
    }
    let mut keepers = Vec::new();
    for task in tasks {
        keepers.push(task.await.expect("finishes"));
    }
    // The keepers are still there: one channel each, and nothing of any name.
    let channels = server.strings(&["PUBSUB", "CHANNELS"]);
    assert_eq!(channels.len(), 4, "{channels:?}");
    assert!(
        channels
            .iter()
            .all(|one| one.starts_with("lockkeeper_wake:"))
    );
    assert_eq!(server.strings(&["PUBSUB", "NUMPAT"]), ["0"]);
    until("only tokens are left", async || {
        let keys = server.keys();
        keys.iter()
            .all(|key| key.starts_with("redisson_lock_token:"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_names_are_waited_for_on_one_connection() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..1_000 {
        let text = format!("name {number}");
        let lock = one.lock(&text).expect("a lock");
        held.push(lock.acquire().await.expect("acquires"));
        let lock = two.lock(&text).expect("a lock");
        waiting.push(tokio::spawn(async move { lock.acquire().await }));
    }
    until("all wait", async || {
        let infos = one.list("").await.expect("answers");
        infos.iter().filter(|info| info.waiters == 1).count() == 1_000
    })
    .await;
    // Each has one; and there is the one that asks.
    until("no name has a connection of its own", async || {
        let clients = server.command(&["CLIENT", "LIST"]);
        clients.matches(" addr=").count() == 3
    })
    .await;
    assert_eq!(server.strings(&["PUBSUB", "CHANNELS"]).len(), 2);
    drop(held);
    for task in waiting {
        let guard = soon("the lock", task).await.expect("finishes");
        drop(guard.expect("acquires"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlock_that_nobody_published_costs_a_bounded_delay() {
    let server = RedisServer::start();
    let keeper = keeper(&server).await;
    // A Java client holds, and dies while an administrator removes its lock.
    server.command(&[
        "HSET",
        "silent",
        "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:1",
        "1",
    ]);
    server.command(&["PEXPIRE", "silent", "60000"]);
    let lock = keeper.lock("silent").expect("a lock");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let removed = Moment::now();
    server.command(&["DEL", "silent"]);
    let guard = soon("the lock", waiter).await.expect("finishes");
    let took = Moment::now().since(removed);
    // It looks once a second; a minute is what is left of the lease.
    assert!(took < Duration::from_secs(10), "{took:?}");
    let_go(guard.expect("acquires")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_that_the_acl_forbids_cost_time_and_not_the_lock() {
    let server = RedisServer::start();
    let rules = ["ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all"];
    let channel = ["resetchannels", "&lockkeeper_wake:*"];
    server.command(&[&rules[..], &channel].concat());
    let url = format!("redis://deaf:pw@127.0.0.1:{}/0", server.port());
    let keeper = keeper_at(&url, Duration::from_secs(30)).await;
    server.command(&[
        "HSET",
        "java",
        "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:1",
        "1",
    ]);
    server.command(&["PEXPIRE", "java", "60000"]);
    let lock = keeper.lock("java").expect("a lock");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.command(&["DEL", "java"]);
    server.command(&["PUBLISH", "redisson_lock__channel:{java}", "0"]);
    let guard = soon("the lock", waiter).await.expect("finishes");
    let guard = guard.expect("acquires");
    assert!(guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_is_what_redisson_calls_a_name_mapper() {
    let server = RedisServer::start();
    let url = format!("{}?prefix=app:", server.url());
    let keeper = keeper_at(&url, Duration::from_secs(30)).await;
    let guard = keeper.lock("job").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    assert_eq!(server.strings(&["TYPE", "app:job"]), ["hash"]);
    let mut listener = server.listen("redisson_lock__channel:{app:job}");
    let listed = keeper.list("").await.expect("answers");
    assert_eq!(listed[0].name.as_str(), "job");
    let_go(guard).await;
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    // Once the listeners had their chance.
    until("only its token is left", async || {
        server.keys() == ["redisson_lock_token:{app:job}"]
    })
    .await;
}
