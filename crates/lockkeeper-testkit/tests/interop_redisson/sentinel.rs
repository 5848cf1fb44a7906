//! Both sides find their server through the same Sentinels.

use lockkeeper::Lockkeeper;
use lockkeeper_testkit::servers::replicated::{Replicated, SERVICE};
use serde_json::json;

use crate::peer::Peer;
use crate::site::*;

/// Java's release lets ours in, and ours lets Java in.
async fn both_ways(servers: &Replicated, peer: &Peer, keeper: &Lockkeeper, name: &'static str) {
    let master = &servers.servers()[servers.master()];
    for (kind, ours) in [
        ("lock", Ours::Lock),
        ("fair", Ours::Fair),
        ("write", Ours::Read),
    ] {
        let java = peer.object("a", kind, name);
        java.does("lock").await;
        let waiter = {
            let keeper = keeper.clone();
            tokio::spawn(async move { ours.acquire(&keeper, name).await })
        };
        until("ours waits", async || {
            master.strings(&["PUBSUB", "NUMPAT"]) != ["0"]
        })
        .await;
        java.does("unlock").await;
        let guard = tokio::time::timeout(SOON, waiter).await;
        let guard = guard.unwrap_or_else(|_| panic!("{kind}: ours is not woken"));
        let mut waits = java.ask("lock", json!({}));
        assert!(waits.waits_for(2 * A_WHILE).await);
        release(guard.expect("finishes")).await;
        let woken = tokio::time::timeout(SOON, waits.value()).await;
        woken.unwrap_or_else(|_| panic!("{kind}: Java is not woken"));
        java.does("unlock").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_share_locks_through_sentinels() {
    let servers = tokio::task::block_in_place(Replicated::with_sentinels);
    let keeper = Lockkeeper::connect(&servers.url()).await.expect("connects");
    let peer = Peer::through(servers.sentinels(), SERVICE, LEASE).await;
    both_ways(&servers, &peer, &keeper, "before").await;
    tokio::task::block_in_place(|| servers.fail_over());
    // Each side finds the new master in its own time.
    until("Java follows", async || {
        let java = peer.object("b", "lock", "probe");
        let locked = java.ask("tryLock", json!({})).answer().await;
        let unlocked = java.ask("unlock", json!({})).answer().await;
        locked["value"] == true && unlocked["error"].is_null()
    })
    .await;
    until("ours follows", async || {
        let lock = keeper.lock("probe too").expect("a lock");
        matches!(lock.try_acquire().await, Ok(Some(_)))
    })
    .await;
    both_ways(&servers, &peer, &keeper, "after").await;
}
