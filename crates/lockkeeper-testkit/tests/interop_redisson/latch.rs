//! A latch that either side sets, counts down and waits for.

use lockkeeper::clock::Moment;
use serde_json::json;

use crate::site::*;

const GATE: &str = "gate";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_is_set_counted_and_awaited_by_both() {
    let site = Site::start().await;
    let java = site.peer.object("a", "latch", GATE);
    let ours = site.keeper.latch(GATE).expect("a latch");
    for set_by_java in [true, false, true] {
        match set_by_java {
            true => {
                assert_eq!(
                    java.does_with("trySetCount", json!({ "count": 4 })).await,
                    true
                );
                assert!(!ours.set(9).await.expect("answers"));
            }
            false => {
                assert!(ours.set(4).await.expect("answers"));
                let refused = java.does_with("trySetCount", json!({ "count": 9 })).await;
                assert_eq!(refused, false);
            }
        }
        let mut awaits = site.peer.object("b", "latch", GATE).ask("await", json!({}));
        let latch = ours.clone();
        let waits = tokio::spawn(async move { latch.wait().await });
        site.java_waits().await;
        java.does("countDown").await;
        assert_eq!(ours.count_down().await.expect("answers"), 2);
        assert_eq!(java.does("getCount").await, 2);
        java.does("countDown").await;
        assert_eq!(ours.count().await.expect("answers"), 1);
        assert!(awaits.waits_for(A_WHILE).await);
        assert!(!waits.is_finished());
        let opened = Moment::now();
        match set_by_java {
            true => drop(ours.count_down().await.expect("answers")),
            false => drop(java.does("countDown").await),
        }
        waits.await.expect("finishes").expect("opens");
        awaits.value().await;
        let took = Moment::now().since(opened);
        assert!(took < SOON, "{took:?}");
        assert_eq!(java.does("getCount").await, 0);
        assert_eq!(ours.count().await.expect("answers"), 0);
    }
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_awaits_a_latch_in_vain_gives_up() {
    let site = Site::start().await;
    let java = site.peer.object("a", "latch", GATE);
    let ours = site.keeper.latch(GATE).expect("a latch");
    java.does_with("trySetCount", json!({ "count": 1 })).await;
    assert!(!ours.wait_within(A_WHILE).await.expect("answers"));
    assert_eq!(java.does_with("await", json!({ "wait": 300 })).await, false);
    assert!(ours.open().await.expect("answers"));
    assert_eq!(java.does_with("await", json!({ "wait": 300 })).await, true);
    site.ours_left_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_we_open_lets_java_through() {
    let site = Site::start().await;
    let java = site.peer.object("a", "latch", GATE);
    let ours = site.keeper.latch(GATE).expect("a latch");
    java.does_with("trySetCount", json!({ "count": 5 })).await;
    let mut awaits = java.ask("await", json!({}));
    site.java_waits().await;
    assert!(awaits.waits_for(A_WHILE).await);
    assert!(ours.open().await.expect("answers"));
    tokio::time::timeout(SOON, awaits.value())
        .await
        .expect("let through");
    site.nothing_is_left().await;
}
