//! Names that Redisson writes in its own ways: with braces, spaces, quotes and letters beyond ASCII.

use serde_json::json;

use crate::site::*;

const NAMES: [&str; 6] = [
    "{user}:7",
    "order:{42}:line",
    "half { open",
    "köln ☃ 注文",
    "with \"quotes\", 'more' and \\ and [a-z]*?",
    " ",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_the_same_lock_on_both_sides() {
    let site = Site::start().await;
    for name in NAMES {
        for pair in [
            ("lock", Ours::Lock),
            ("fair", Ours::Fair),
            ("write", Ours::Write),
            ("read", Ours::Write),
        ] {
            let (kind, rust) = pair;
            let java = site.peer.object("a", kind, name);
            java.does("lock").await;
            let keeper = site.keeper.clone();
            let waiter = tokio::spawn(async move { rust.acquire(&keeper, name).await });
            site.rust_waits().await;
            assert!(!waiter.is_finished(), "{name:?} {pair:?}");
            java.does("unlock").await;
            let guard = tokio::time::timeout(SOON, waiter).await;
            let guard = guard.unwrap_or_else(|_| panic!("{name:?} {pair:?}: not woken"));
            let waits = java.ask("lock", json!({}));
            site.java_waits().await;
            release(guard.expect("finishes")).await;
            let woken = tokio::time::timeout(SOON, waits.value()).await;
            woken.unwrap_or_else(|_| panic!("{name:?} {pair:?}: Java is not woken"));
            java.does("unlock").await;
            site.nothing_is_left().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_the_same_semaphore_and_latch_on_both_sides() {
    let site = Site::start().await;
    for name in NAMES {
        let java = site.peer.object("a", "permits", name);
        java.does_with("trySetPermits", json!({ "count": 1 })).await;
        let ids = java.does("acquire").await;
        let semaphore = site.keeper.semaphore(name, 1).expect("a semaphore");
        let waiter = tokio::spawn(async move { semaphore.acquire(1).await });
        site.rust_waits().await;
        java.does_with("release", json!({ "ids": ids })).await;
        let guard = tokio::time::timeout(SOON, waiter).await;
        let guard = guard.unwrap_or_else(|_| panic!("{name:?}: not woken"));
        let waits = java.ask("acquire", json!({}));
        site.java_waits().await;
        release(guard.expect("finishes").expect("acquires")).await;
        let ids = tokio::time::timeout(SOON, waits.value()).await;
        let ids = ids.unwrap_or_else(|_| panic!("{name:?}: Java is not woken"));
        java.does_with("release", json!({ "ids": ids })).await;

        let name = format!("latch {name}");
        let java = site.peer.object("a", "latch", &name);
        let latch = site.keeper.latch(&name).expect("a latch");
        for opened_by_java in [true, false] {
            java.does_with("trySetCount", json!({ "count": 1 })).await;
            let waits = {
                let latch = latch.clone();
                tokio::spawn(async move { latch.wait().await })
            };
            let awaits = site
                .peer
                .object("b", "latch", &name)
                .ask("await", json!({}));
            until("both wait", async || {
                let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
                site.server.strings(&["PUBSUB", "NUMSUB", &channel])[1] == "2"
            })
            .await;
            match opened_by_java {
                true => drop(java.does("countDown").await),
                false => drop(latch.count_down().await.expect("answers")),
            }
            let woken = tokio::time::timeout(SOON, waits).await;
            let woken = woken.unwrap_or_else(|_| panic!("{name:?}: not woken"));
            woken.expect("finishes").expect("opens");
            let woken = tokio::time::timeout(SOON, awaits.value()).await;
            woken.unwrap_or_else(|_| panic!("{name:?}: Java is not woken"));
        }
    }
}
