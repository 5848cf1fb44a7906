//! Closing a keeper, and guards that outlive it.

use std::sync::Arc;

use lockkeeper::*;

use crate::common::{LEASE, SHORT, Tampered, acquired, eventually, waiters};

#[tokio::test]
async fn a_closed_keeper_acquires_nothing_and_keeps_what_it_has() {
    let lease = SHORT * 4; // room for a busy machine
    let keeper = Tampered::new().keeper(lease).await;
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    keeper.close().await;
    assert_eq!(lock.try_acquire().await.err(), Some(Error::Closed));
    tokio::time::sleep(lease * 5 / 4).await;
    assert!(guard.is_held(), "renewed all the same");
}

#[tokio::test]
async fn closing_ends_every_wait() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let held = acquired(&keeper).await;
    let mut waiting = tokio::task::JoinSet::new();
    for fair in [false, true] {
        let lock = keeper.lock("x").expect("a name");
        let lock = if fair {
            lock.fair().expect("fair")
        } else {
            lock
        };
        waiting.spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
        let reader = keeper.rwlock("x").expect("a name");
        waiting.spawn(async move { reader.read().await.map(|guard| guard.token()) });
    }
    eventually("they wait", async || waiters(&keeper).await == 2).await;
    keeper.close().await;
    while let Some(ended) = waiting.join_next().await {
        assert_eq!(ended.expect("no panic"), Err(Error::Closed));
    }
    drop(held);
    eventually("nothing is left", async || store.inner.in_use() == (0, 0)).await;
}

#[tokio::test]
async fn a_guard_dropped_on_a_plain_thread_releases() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let guard = acquired(&keeper).await;
    drop(keeper);
    std::thread::spawn(move || drop(guard))
        .join()
        .expect("no panic");
    eventually("it is free", async || store.inner.in_use().0 == 0).await;
}

#[tokio::test]
async fn the_last_guard_ends_the_keepers_thread() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let guard = acquired(&keeper).await;
    drop(keeper);
    assert_eq!(Arc::strong_count(&store), 2);
    drop(guard);
    eventually("nobody uses the store", async || {
        Arc::strong_count(&store) == 1
    })
    .await;
}
