//! Readers share, across sides; writers do not. A writer that becomes a reader lets readers in.

use lockkeeper::WriteGuard;
use serde_json::json;

use crate::site::*;

const BOOK: &str = "book";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_both_sides_read_together() {
    let site = Site::start().await;
    let (a, b) = (
        site.peer.object("a", "read", BOOK),
        site.peer.object("b", "read", BOOK),
    );
    let writer = site.peer.object("w", "write", BOOK);
    a.does("lock").await;
    let ours = Ours::Read.at_once(&site.keeper, BOOK).await;
    let ours = ours.expect("readers share");
    assert!(b.gets_it().await);
    assert!(!writer.gets_it().await);
    assert!(Ours::Write.at_once(&site.keeper, BOOK).await.is_none());
    // They leave in any order; the last one makes room.
    a.does("unlock").await;
    assert!(!writer.gets_it().await);
    release(ours).await;
    assert!(!writer.gets_it().await);
    b.does("unlock").await;
    assert!(writer.gets_it().await);
    assert!(Ours::Read.at_once(&site.keeper, BOOK).await.is_none());
    writer.does("unlock").await;
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_reader_wakes_a_writer_whichever_side_they_are() {
    let site = Site::start().await;
    let reader = site.peer.object("r", "read", BOOK);
    let writer = site.peer.object("w", "write", BOOK);
    for last_is_java in [true, false] {
        // Java's writer behind readers of both sides.
        reader.does("lock").await;
        let ours = Ours::Read.acquire(&site.keeper, BOOK).await;
        let mut waits = writer.ask("lock", json!({}));
        site.java_waits().await;
        match last_is_java {
            true => {
                release(ours).await;
                assert!(waits.waits_for(A_WHILE).await);
                reader.does("unlock").await;
            }
            false => {
                reader.does("unlock").await;
                assert!(waits.waits_for(A_WHILE).await);
                release(ours).await;
            }
        }
        tokio::time::timeout(SOON, waits.value())
            .await
            .expect("woken");
        writer.does("unlock").await;
        // Ours behind both.
        reader.does("lock").await;
        let ours = Ours::Read.acquire(&site.keeper, BOOK).await;
        let keeper = site.keeper.clone();
        let waits = tokio::spawn(async move { Ours::Write.acquire(&keeper, BOOK).await });
        site.rust_waits().await;
        match last_is_java {
            true => {
                release(ours).await;
                tokio::time::sleep(A_WHILE).await;
                assert!(!waits.is_finished());
                reader.does("unlock").await;
            }
            false => {
                reader.does("unlock").await;
                tokio::time::sleep(A_WHILE).await;
                assert!(!waits.is_finished());
                release(ours).await;
            }
        }
        let guard = tokio::time::timeout(SOON, waits).await.expect("woken");
        release(guard.expect("finishes")).await;
    }
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_readers_of_both_sides_are_let_in_after_a_writer() {
    let site = Site::start().await;
    let writer = site.peer.object("w", "write", BOOK);
    for writer_is_java in [true, false] {
        let mut guard = None;
        match writer_is_java {
            true => drop(writer.does("lock").await),
            false => guard = Some(Ours::Write.acquire(&site.keeper, BOOK).await),
        }
        let threads = ["a", "b", "c"];
        let java: Vec<_> = threads
            .iter()
            .map(|thread| {
                site.peer
                    .object(thread, "read", BOOK)
                    .ask("lock", json!({}))
            })
            .collect();
        site.java_waits().await;
        let ours: Vec<_> = (0..3)
            .map(|_| {
                let keeper = site.keeper.clone();
                tokio::spawn(async move { Ours::Read.acquire(&keeper, BOOK).await })
            })
            .collect();
        tokio::time::sleep(A_WHILE).await;
        match guard {
            Some(guard) => release(guard).await,
            None => drop(writer.does("unlock").await),
        }
        // All of them at the same time: nobody leaves before the last one is in.
        let mut guards = Vec::new();
        for task in ours {
            let guard = tokio::time::timeout(SOON, task).await.expect("let in");
            guards.push(guard.expect("finishes"));
        }
        for call in java {
            tokio::time::timeout(SOON, call.value())
                .await
                .expect("let in");
        }
        for guard in guards {
            release(guard).await;
        }
        for thread in threads {
            site.peer.object(thread, "read", BOOK).does("unlock").await;
        }
    }
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_writer_that_becomes_a_reader_lets_java_readers_in() {
    let site = Site::start().await;
    let reader = site.peer.object("r", "read", BOOK);
    let writer = site.peer.object("w", "write", BOOK);
    let guard = Ours::Write.acquire(&site.keeper, BOOK).await;
    let mut reads = reader.ask("lock", json!({}));
    site.java_waits().await;
    assert!(reads.waits_for(A_WHILE).await);
    let writes = WriteGuard::try_from(guard).expect("it writes");
    let guard = writes.downgrade().await.expect("becomes a reader");
    tokio::time::timeout(SOON, reads.value())
        .await
        .expect("let in");
    assert!(!writer.gets_it().await);
    release(guard.into()).await;
    assert!(!writer.gets_it().await);
    reader.does("unlock").await;
    assert!(writer.gets_it().await);
    writer.does("unlock").await;
    site.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_writer_that_becomes_a_reader_lets_ours_in() {
    let site = Site::start().await;
    // One thread: Redisson's writer may read as well.
    let writer = site.peer.object("a", "write", BOOK);
    let reader = site.peer.object("a", "read", BOOK);
    writer.does("lock").await;
    reader.does("lock").await;
    assert!(Ours::Read.at_once(&site.keeper, BOOK).await.is_none());
    let keeper = site.keeper.clone();
    let waits = tokio::spawn(async move { Ours::Read.acquire(&keeper, BOOK).await });
    site.rust_waits().await;
    // Redisson says nothing here: ours finds out by itself, which takes less than a second.
    writer.does("unlock").await;
    let guard = tokio::time::timeout(SOON, waits).await.expect("let in");
    assert!(Ours::Write.at_once(&site.keeper, BOOK).await.is_none());
    reader.does("unlock").await;
    assert!(!writer.gets_it().await);
    release(guard.expect("finishes")).await;
    assert!(writer.gets_it().await);
    writer.does("unlock").await;
    site.nothing_is_left().await;
}
