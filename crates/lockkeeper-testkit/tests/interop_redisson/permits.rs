//! Permits of one semaphore, taken on both sides.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::Mode;
use lockkeeper::{Guard, Semaphore};
use serde_json::json;

use crate::peer::rust;
use crate::site::*;

const POOL: &str = "pool";

fn ours(site: &Site, permits: u32) -> Semaphore {
    site.keeper.semaphore(POOL, permits).expect("a semaphore")
}

async fn waits_for(semaphore: Semaphore, count: u32) -> Guard {
    let guard = semaphore.acquire_within(count, Duration::from_secs(60));
    let guard = guard.await.expect("the store answers");
    guard.expect("within a minute")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_counted_across_sides() {
    let site = Site::start().await;
    let java = site.peer.object("a", "permits", POOL);
    assert_eq!(
        java.does_with("trySetPermits", json!({ "count": 3 })).await,
        true
    );
    assert_eq!(
        java.does_with("trySetPermits", json!({ "count": 9 })).await,
        false
    );
    let two = waits_for(ours(&site, 3), 2).await;
    assert_eq!(java.does("availablePermits").await, 1);
    assert_eq!(java.does("acquiredPermits").await, 2);
    assert_eq!(java.does("getPermits").await, 3);
    let none = java
        .does_with("tryAcquire", json!({ "count": 2, "wait": 100 }))
        .await;
    assert!(none.as_array().is_none_or(Vec::is_empty), "{none}");
    let ids = java.does_with("acquire", json!({ "count": 1 })).await;
    assert_eq!(ids.as_array().map(Vec::len), Some(1));
    let refused = ours(&site, 3).try_acquire(1).await.expect("answers");
    assert!(refused.is_none());
    release(two).await;
    assert_eq!(java.does("availablePermits").await, 2);
    java.does_with("release", json!({ "ids": ids })).await;
    assert_eq!(java.does("availablePermits").await, 3);
    assert_eq!(java.does("acquiredPermits").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_permit_wakes_the_other_side() {
    let site = Site::start().await;
    let java = site.peer.object("a", "permits", POOL);
    java.does_with("trySetPermits", json!({ "count": 2 })).await;
    let mut times = Vec::new();
    for _ in 0..3 {
        let ids = java.does_with("acquire", json!({ "count": 2 })).await;
        let waiter = tokio::spawn(waits_for(ours(&site, 2), 1));
        site.rust_waits().await;
        assert!(!waiter.is_finished());
        let released = Moment::now();
        java.does_with("release", json!({ "ids": ids })).await;
        let guard = waiter.await.expect("finishes");
        times.push(Moment::now().since(released));
        // And back: ours has one, Java wants two.
        let mut waits = java.ask("acquire", json!({ "count": 2 }));
        site.java_waits().await;
        assert!(waits.waits_for(A_WHILE).await);
        let released = Moment::now();
        release(guard).await;
        let ids = waits.value().await;
        let took = Moment::now().since(released);
        assert!(took < SOON, "{took:?}");
        java.does_with("release", json!({ "ids": ids })).await;
    }
    times.sort();
    // As for a lock: a waiter that was not told would have slept for longer.
    assert!(times[1] < Duration::from_millis(500), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_whose_lease_ended_is_free_for_the_other_side() {
    let site = Site::start().await;
    let java = site.peer.object("a", "permits", POOL);
    java.does_with("trySetPermits", json!({ "count": 1 })).await;
    let lease = Duration::from_secs(1);
    let start = Moment::now();
    let ids = java.does_with("acquire", json!({ "lease": 1000 })).await;
    let guard = waits_for(ours(&site, 1), 1).await;
    let took = Moment::now().since(start);
    assert!(took > lease / 2 && took < SOME_TIME, "{took:?}");
    // The late release of Java's must not free ours.
    let error = java.ask("release", json!({ "ids": ids })).error().await;
    assert!(error.contains("Permit"), "{error}");
    assert_eq!(java.does("availablePermits").await, 0);
    release(guard).await;
    let start = Moment::now();
    let semaphore = ours(&site, 1).fixed_lease(lease).expect("a lease");
    let guard = waits_for(semaphore, 1).await;
    let ids = java.does("acquire").await;
    let took = Moment::now().since(start);
    assert!(took > lease / 2 && took < SOME_TIME, "{took:?}");
    assert!(!guard.is_held());
    drop(guard);
    java.does_with("release", json!({ "ids": ids })).await;
    assert_eq!(java.does("availablePermits").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_permit_outlives_its_lease() {
    let lease = Duration::from_secs(3);
    let site = Site::with_lease(lease).await;
    let java = site.peer.object("a", "permits", POOL);
    java.does_with("trySetPermits", json!({ "count": 1 })).await;
    let guard = waits_for(ours(&site, 1), 1).await;
    let wait = (2 * lease).as_millis() as u64;
    let none = java.does_with("tryAcquire", json!({ "wait": wait })).await;
    assert!(none.as_array().is_none_or(Vec::is_empty), "{none}");
    assert!(guard.is_held());
    release(guard).await;
    // Java's, without a lease, are for ever.
    let ids = java.does("acquire").await;
    let refused = ours(&site, 1).acquire_within(1, 2 * lease).await;
    assert!(refused.expect("answers").is_none());
    java.does_with("release", json!({ "ids": ids })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_processs_permit_comes_back() {
    let lease = Duration::from_secs(4);
    let site = Site::with_lease(lease).await;
    let java = site.peer.object("a", "permits", POOL);
    java.does_with("trySetPermits", json!({ "count": 1 })).await;
    let arguments = ["hold", "--kind", "permits", "--name", POOL, "--lease", "4s"];
    let mut taker = rust(&site.server, &arguments);
    taker.expect("held");
    let waits = java.ask("acquire", json!({}));
    site.java_waits().await;
    let killed = Moment::now();
    taker.kill().expect("killed");
    let ids = waits.value().await;
    let took = Moment::now().since(killed);
    assert!(took < SOME_TIME, "{took:?}");
    java.does_with("release", json!({ "ids": ids })).await;
    assert_eq!(java.does("availablePermits").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_java_never_said_how_many_ours_do() {
    let site = Site::start().await;
    let java = site.peer.object("a", "permits", POOL);
    let one = waits_for(ours(&site, 3), 1).await;
    assert_eq!(java.does("availablePermits").await, 2);
    let ids = java.does_with("acquire", json!({ "count": 2 })).await;
    let refused = ours(&site, 3).try_acquire(1).await.expect("answers");
    assert!(refused.is_none());
    let waiter = tokio::spawn(waits_for(ours(&site, 3), 2));
    site.rust_waits().await;
    java.does_with("release", json!({ "ids": ids })).await;
    let two = tokio::time::timeout(SOON, waiter).await.expect("woken");
    let waits = java.ask("acquire", json!({ "count": 2 }));
    site.java_waits().await;
    release(two.expect("finishes")).await;
    let ids = tokio::time::timeout(SOON, waits.value()).await;
    let ids = ids.expect("woken");
    // Whichever side leaves last, the number of permits goes with ours: nobody has said that it is for good.
    java.does_with("release", json!({ "ids": ids })).await;
    release(one).await;
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_break_the_permits_of_java() {
    let site = Site::start().await;
    let java = site.peer.object("a", "permits", POOL);
    java.does_with("trySetPermits", json!({ "count": 2 })).await;
    let ids = java.does_with("acquire", json!({ "count": 2 })).await;
    // Two of two, for good.
    let all = Mode::Permit { limit: 2, count: 2 };
    let info = site.keeper.inspect(POOL).await.expect("answers");
    let info = info.expect("it is held");
    assert_eq!((info.holders.len(), info.free_permits), (1, Some(0)));
    let held = &info.holders[0];
    assert_eq!((held.mode, held.token, held.remaining), (all, None, None));
    let ended = site.keeper.break_lock(POOL, "a test").await;
    let ended = ended.expect("breaks");
    assert_eq!((ended.len(), ended[0].mode), (1, all));
    assert_eq!(java.does("availablePermits").await, 2);
    java.ask("release", json!({ "ids": ids })).error().await;
    assert_eq!(java.does("availablePermits").await, 2);
}
