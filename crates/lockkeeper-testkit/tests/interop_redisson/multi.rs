//! Several locks at once, on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::site::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_locks_at_once_exclude_and_wake_both_sides() {
    let site = Site::start().await;
    let java = site.peer.multi("a", &["x", "y", "z"]);
    let ours = site.keeper.multi_lock(["z", "y", "w"]).expect("locks");
    java.does("lock").await;
    assert!(ours.try_acquire().await.expect("answers").is_none());
    let waits = {
        let ours = ours.clone();
        tokio::spawn(async move { ours.acquire().await })
    };
    site.rust_waits().await;
    java.does("unlock").await;
    let all = tokio::time::timeout(SOON, waits).await.expect("woken");
    let all = all.expect("finishes").expect("acquires");
    assert!(!java.gets_it().await);
    // A lock of Java's that ours has not is not kept by a try in vain.
    let x = site.peer.object("b", "lock", "x");
    until("it is free", async || x.gets_it().await).await;
    x.does("unlock").await;
    let waits = java.ask("lock", json!({}));
    site.java_waits().await;
    all.release().await.expect("releases");
    // Redisson may be in a pause of its own making: it takes its locks one after the other.
    tokio::time::timeout(3 * SOON, waits.value())
        .await
        .expect("let in");
    java.does("unlock").await;
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_locks_in_opposite_orders_do_not_deadlock() {
    const ROUNDS: usize = 40;
    let site = Arc::new(Site::start().await);
    // Whoever has all three is alone.
    let inside = Arc::new(AtomicBool::new(false));
    let java = {
        let (site, inside) = (site.clone(), inside.clone());
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let java = site.peer.multi("a", &["z", "x", "y"]);
                java.does("lock").await;
                assert!(!inside.swap(true, Ordering::SeqCst));
                tokio::time::sleep(Duration::from_millis(2)).await;
                assert!(inside.swap(false, Ordering::SeqCst));
                java.does("unlock").await;
            }
        })
    };
    let ours = {
        let (site, inside) = (site.clone(), inside.clone());
        tokio::spawn(async move {
            let ours = site.keeper.multi_lock(["y", "z", "x"]).expect("locks");
            for _ in 0..ROUNDS {
                let all = ours.acquire().await.expect("acquires");
                assert!(!inside.swap(true, Ordering::SeqCst));
                tokio::time::sleep(Duration::from_millis(2)).await;
                assert!(inside.swap(false, Ordering::SeqCst));
                all.release().await.expect("releases");
            }
        })
    };
    for side in [java, ours] {
        let done = tokio::time::timeout(Duration::from_secs(300), side).await;
        done.expect("no deadlock").expect("finishes");
    }
    site.nothing_is_left().await;
}
