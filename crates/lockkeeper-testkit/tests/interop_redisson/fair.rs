//! Waiters of both sides in one line.

use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::peer::Call;
use crate::site::*;

/// The clients that had the lock, in that order.
type Order = Arc<Mutex<Vec<String>>>;

/// A line of `a`, 1, `b`, 2, `c`, 3: letters are threads of Java's. Each leaves once it had its turn.
async fn line_forms_behind(holder_is_java: bool) {
    let site = Site::start().await;
    let queue = ["LLEN", "redisson_lock_queue:{line}"];
    let order = Order::default();
    let first = site.peer.object("first", "fair", "line");
    let mut guard = None;
    match holder_is_java {
        true => drop(first.does("lock").await),
        false => guard = Some(Ours::Fair.acquire(&site.keeper, "line").await),
    }
    let mut java: Vec<(&str, Call)> = Vec::new();
    let mut ours = Vec::new();
    for (number, letter) in [(1, "a"), (2, "b"), (3, "c")] {
        let waiter = site.peer.object(letter, "fair", "line");
        java.push((letter, waiter.ask("lock", json!({}))));
        let length = 2 * number - 1;
        until("it is in the line", async || {
            site.server.strings(&queue) == [length.to_string()]
        })
        .await;
        let (keeper, order) = (site.keeper.clone(), order.clone());
        ours.push(tokio::spawn(async move {
            let guard = Ours::Fair.acquire(&keeper, "line").await;
            order.lock().expect("sound").push(number.to_string());
            release(guard).await;
        }));
        until("it is in the line", async || {
            site.server.strings(&queue) == [(length + 1).to_string()]
        })
        .await;
    }
    assert!(order.lock().expect("sound").is_empty());
    match guard {
        Some(guard) => release(guard).await,
        None => drop(first.does("unlock").await),
    }
    for (letter, call) in java {
        call.value().await;
        order.lock().expect("sound").push(letter.to_owned());
        let object = site.peer.object(letter, "fair", "line");
        object.does("unlock").await;
    }
    for task in ours {
        task.await.expect("finishes");
    }
    let order = order.lock().expect("sound").clone();
    assert_eq!(order, ["a", "1", "b", "2", "c", "3"]);
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_wait_in_one_line_behind_java() {
    line_forms_behind(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_wait_in_one_line_behind_ours() {
    line_forms_behind(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_the_line_is_waited_for_by_nobody() {
    let site = Site::start().await;
    let (first, a, b) = (
        site.peer.object("first", "fair", "line"),
        site.peer.object("a", "fair", "line"),
        site.peer.object("b", "fair", "line"),
    );
    first.does("lock").await;
    // Java, ours, Java, ours: the first two give up.
    let gives_up = a.ask("tryLock", json!({ "wait": 600 }));
    let queue = ["LLEN", "redisson_lock_queue:{line}"];
    until("it waits", async || site.server.strings(&queue) == ["1"]).await;
    let keeper = site.keeper.clone();
    let gave_up = Ours::Fair.within(&keeper, "line", 2 * A_WHILE).await;
    assert!(gave_up.is_none());
    assert_eq!(gives_up.value().await, false);
    until("both have left", async || {
        site.server.strings(&queue) == ["0"]
    })
    .await;
    let waits = b.ask("lock", json!({}));
    until("only one waits", async || {
        site.server.strings(&queue) == ["1"]
    })
    .await;
    let last = tokio::spawn(async move { Ours::Fair.acquire(&keeper, "line").await });
    until("both wait", async || site.server.strings(&queue) == ["2"]).await;
    first.does("unlock").await;
    waits.value().await;
    b.does("unlock").await;
    let guard = tokio::time::timeout(SOON, last).await.expect("it is free");
    release(guard.expect("finishes")).await;
    site.ours_left_nothing().await;
}
