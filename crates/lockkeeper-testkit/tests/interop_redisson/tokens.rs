//! Fencing tokens grow from holder to holder, of whichever side.

use std::time::Duration;

use serde_json::json;

use crate::site::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_across_holders_of_both_sides() {
    let site = Site::start().await;
    let java = site.peer.object("a", "fenced", "safe");
    let mut last = 0;
    let mut grew = |token: u64, whose: &str| {
        assert!(token > last, "{whose}: {token} after {last}");
        last = token;
    };
    // Redisson starts at 1; ours go on from there.
    for _ in 0..5 {
        let token = java.does("lockAndGetToken").await;
        grew(token.as_u64().expect("a token"), "Java's");
        java.does("unlock").await;
        let guard = Ours::Lock.acquire(&site.keeper, "safe").await;
        grew(guard.token().get(), "ours");
        // What Java reads is what ours has, and a try in vain changes nothing.
        assert_eq!(java.does("getToken").await, guard.token().get());
        // Long enough for Java's subscription, or it is an error instead of a refusal.
        let none = java.does_with("tryLockAndGetToken", json!({ "wait": 1000, "lease": 1000 }));
        assert!(none.await.is_null());
        assert_eq!(java.does("getToken").await, guard.token().get());
        release(guard).await;
        let arguments = json!({ "wait": 1000, "lease": 30000 });
        let token = java.does_with("tryLockAndGetToken", arguments).await;
        grew(token.as_u64().expect("a token"), "Java's");
        java.does("unlock").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_has_a_larger_token_than_the_holder_it_waited_for() {
    let site = Site::start().await;
    let java = site.peer.object("a", "fenced", "safe");
    let held = java
        .does("lockAndGetToken")
        .await
        .as_u64()
        .expect("a token");
    let keeper = site.keeper.clone();
    let waiter = tokio::spawn(async move { Ours::Lock.acquire(&keeper, "safe").await });
    site.rust_waits().await;
    java.does("unlock").await;
    let guard = waiter.await.expect("finishes");
    let ours = guard.token().get();
    assert!(ours > held, "{ours} after {held}");
    let waiting = java.ask("lockAndGetToken", json!({}));
    site.java_waits().await;
    release(guard).await;
    let theirs = waiting.value().await.as_u64().expect("a token");
    assert!(theirs > ours, "{theirs} after {ours}");
    java.does("unlock").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tokens_of_a_hand_off_stay_below_the_next_ones_of_java() {
    // Tasks of one process hand a lock on with tokens reserved beforehand.
    let site = Site::start().await;
    let java = site.peer.object("a", "fenced", "safe");
    for _ in 0..5 {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let keeper = site.keeper.clone();
                tokio::spawn(async move {
                    let guard = Ours::Lock.acquire(&keeper, "safe").await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let token = guard.token().get();
                    release(guard).await;
                    token
                })
            })
            .collect();
        let mut largest = 0;
        for task in tasks {
            largest = largest.max(task.await.expect("finishes"));
        }
        let token = java.does("lockAndGetToken").await.as_u64();
        assert!(token > Some(largest), "{token:?} after {largest}");
        java.does("unlock").await;
    }
}
