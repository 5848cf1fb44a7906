//! Several locks at once, on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::clock::Moment;
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

/// How often each side had all of its locks.
#[derive(Default)]
struct Turns {
    /// The client that has all three is alone.
    inside: AtomicBool,
    java: AtomicUsize,
    ours: AtomicUsize,
}

impl Turns {
    /// Nobody stops before both have had enough: each gets its turns while the other wants them as well.
    fn are_over(&self) -> bool {
        const ENOUGH: usize = 40;
        let had = [&self.java, &self.ours].map(|turns| turns.load(Ordering::SeqCst));
        had.iter().all(|turns| *turns >= ENOUGH)
    }

    async fn have_one(&self, turns: &AtomicUsize) {
        assert!(!self.inside.swap(true, Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(self.inside.swap(false, Ordering::SeqCst));
        turns.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_locks_in_opposite_orders_neither_deadlock_nor_starve() {
    let site = Arc::new(Site::start().await);
    let turns = Arc::new(Turns::default());
    let start = Moment::now();
    let java = {
        let (site, turns) = (site.clone(), turns.clone());
        tokio::spawn(async move {
            let java = site.peer.multi("a", &["z", "x", "y"]);
            while !turns.are_over() {
                java.does("lock").await;
                turns.have_one(&turns.java).await;
                java.does("unlock").await;
            }
        })
    };
    let ours = {
        let (site, turns) = (site.clone(), turns.clone());
        tokio::spawn(async move {
            let ours = site.keeper.multi_lock(["y", "z", "x"]).expect("locks");
            while !turns.are_over() {
                let all = ours.acquire().await.expect("acquires");
                turns.have_one(&turns.ours).await;
                all.release().await.expect("releases");
            }
        })
    };
    for side in [java, ours] {
        let done = tokio::time::timeout(Duration::from_secs(60), side).await;
        done.expect("no deadlock").expect("finishes");
    }
    println!(
        "\nfigure: several locks {}",
        json!({
            "turns_of_redisson": turns.java, "turns_of_lockkeeper": turns.ours,
            "seconds": Moment::now().since(start).as_secs_f64(),
        })
    );
    site.nothing_is_left().await;
}
