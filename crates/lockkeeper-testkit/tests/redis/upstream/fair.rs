//! Fair locks: the order, and those who leave it or die in it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::common::{busy, claim, granted, open, release, subscribe, until, waiting};
use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Store};

const QUEUE: &str = "redisson_lock_queue:{line}";
const TIMEOUTS: &str = "redisson_lock_timeout:{line}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_waiters_of_many_keepers_are_served_in_order() {
    let server = RedisServer::start();
    let first = keeper(&server).await;
    let fair = |keeper: &Lockkeeper| keeper.lock("line").expect("a lock").fair().expect("fair");
    let held = fair(&first).acquire().await.expect("acquires");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..12 {
        // Some share a keeper.
        let keeper = match number % 3 {
            0 => first.clone(),
            _ => keeper(&server).await,
        };
        let (lock, order) = (fair(&keeper), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.expect("acquires");
            order.lock().expect("no panic").push(number);
            let_go(guard).await;
        }));
        until("it waits", async || {
            let info = first.inspect("line").await.expect("answers");
            info.is_some_and(|info| info.waiters == number + 1)
        })
        .await;
    }
    let_go(held).await;
    for task in tasks {
        soon("its turn", task).await.expect("finishes");
    }
    let order = order.lock().expect("no panic").clone();
    assert_eq!(order, (0..12).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_first_fair_waiter_is_passed_over() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let held = claim("line", Mode::Fair);
    granted(&store, &held).await;
    let dead = waiting("line", Mode::Fair);
    busy(&store, &dead).await;
    let alive = waiting("line", Mode::Fair);
    let _subscription = subscribe(&store, &alive).await;
    busy(&store, &alive).await;
    let since = Moment::now();
    assert_eq!(release(&store, &held).await, Ok(true));
    // The dead one does not confirm, the next one does.
    until("it is passed over", async || {
        matches!(store.try_acquire(&alive).await, Ok(Attempt::Granted(_)))
    })
    .await;
    let took = Moment::now().since(since);
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(release(&store, &alive).await, Ok(true));
    until("the line is gone", async || {
        // A look clears it up.
        store.inspect(&alive.name).await.expect("answers");
        server.strings(&["LRANGE", QUEUE, "0", "-1"]).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_waiter_that_gives_up_leaves_no_entry() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server).await, keeper(&server).await);
    let fair = |keeper: &Lockkeeper| keeper.lock("line").expect("a lock").fair().expect("fair");
    let held = fair(&one).acquire().await.expect("acquires");
    let patience = Duration::from_millis(100);
    for _ in 0..5 {
        let gave_up = fair(&two).acquire_within(patience).await;
        assert!(gave_up.expect("answers").is_none());
    }
    until("it left the line", async || {
        server.strings(&["LRANGE", QUEUE, "0", "-1"]).is_empty()
            && server.strings(&["ZRANGE", TIMEOUTS, "0", "-1"]).is_empty()
    })
    .await;
    let_go(held).await;
    drop(fair(&two).acquire().await.expect("acquires"));
}

/// A waiter's score depends on the line's length and the time, however many come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scores_of_fair_waiters_do_not_drift() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let held = claim("line", Mode::Fair);
    granted(&store, &held).await;
    // While a Java client waits, ours are in Redisson's line as well.
    let java = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:1";
    let now: u64 = server.strings(&["TIME"])[0].parse().expect("a number");
    server.command(&["RPUSH", QUEUE, java]);
    server.command(&["ZADD", TIMEOUTS, &(now * 1_000 + 60_000).to_string(), java]);
    let patient = waiting("line", Mode::Fair);
    busy(&store, &patient).await;
    for _ in 0..30 {
        let fickle = waiting("line", Mode::Fair);
        busy(&store, &fickle).await;
        store
            .withdraw(&fickle.name, fickle.id)
            .await
            .expect("withdraws");
        busy(&store, &patient).await;
    }
    let line = server.strings(&["LRANGE", QUEUE, "0", "-1"]);
    assert_eq!(line, [java, &patient.id.to_string()]);
    let score = server.strings(&["ZSCORE", TIMEOUTS, &patient.id.to_string()]);
    let score: f64 = score[0].parse().expect("a number");
    let ahead = score / 1_000.0 - now as f64;
    // Redisson's five minutes for each of the two in line, and as long as this test took. Were those who left still
    // in it, it would be hours.
    assert!((60.0..700.0).contains(&ahead), "{ahead} s ahead");
}
