//! Whose turn it is when nodes move between two looks, and when a node only looks like one's own.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_session::{Node, ZooKeeperSession};

use uuid::Uuid;

use super::claims::{claim_for, release};
use super::common::{busy, downgrade, granted, in_the_end, node_uuid, open, soon};

const LEASE: Duration = Duration::from_secs(60);

fn session(server: &ZooKeeperServer) -> ZooKeeperSession {
    ZooKeeperSession::open(server.port(), Duration::from_secs(200))
}

fn through(proxy: &Proxy) -> String {
    format!(
        "zk://127.0.0.1:{}/x?session_timeout=200s&timeout=10s",
        proxy.port()
    )
}

async fn stopped(proxy: &Proxy, before: usize) {
    soon("a request that is held", async {
        while proxy.stopped() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A writer is listed, becomes a reader, and is gone when it is looked at: its place is not free.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_does_not_come_beside_a_writer_that_became_a_reader() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let (near, far) = (open(&server.url("x")).await, open(&through(&proxy)).await);
    let writer = claim_for(LEASE, "a", Mode::Write);
    granted(&near, &writer).await;
    let before = proxy.stopped();
    proxy.hold_after("__WRIT__", 0);
    let permit = claim_for(LEASE, "a", Mode::Permit { limit: 2, count: 1 }).with_enqueue(true);
    let (far, permit) = {
        let (far, permit) = (std::sync::Arc::new(far), permit);
        let (store, claim) = (far.clone(), permit.clone());
        let trying = tokio::spawn(async move { store.try_acquire(&claim).await });
        stopped(&proxy, before).await;
        let reader = downgrade(&near, &writer).await;
        proxy.heal();
        let tried = soon("an answer", trying).await.expect("no panic");
        assert!(matches!(tried, Ok(Attempt::Busy { .. })), "{tried:?}");
        assert!(release(&near, &reader).await.expect("releases"));
        (far, permit)
    };
    in_the_end(&*far, &permit).await;
}

/// The same for a lock, where the numbers are at their end and each node has to be looked at.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_does_not_come_beside_a_writer_that_became_a_reader() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let near = open(&server.url("x")).await;
    let keeper = Lockkeeper::connect(&through(&proxy))
        .await
        .expect("connects");
    let writer = claim_for(LEASE, "a", Mode::Write);
    granted(&near, &writer).await;
    let lock = keeper.lock("a").expect("a lock");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let hand = session(&server);
    soon("a waiter", async {
        while hand.children("/x/a").len() < 2 || server.watches() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // Behind all, with the last number that there is.
    let last = hand.create("/x/a/other-lock-2147483647", b"", Node::Ephemeral);
    let last = last.expect("creates");
    let before = proxy.stopped();
    proxy.hold_after("__WRIT__", 0);
    let children = hand.children("/x/a");
    let node = children.iter().find(|node| node.contains("__WRIT__"));
    let node = format!("/x/a/{}", node.expect("the writer's"));
    let (data, _) = hand.data(&node).expect("reads");
    // A waiter that watches it looks at the line again.
    hand.set_data(&node, &data).expect("writes");
    stopped(&proxy, before).await;
    let reader = downgrade(&near, &writer).await;
    proxy.heal();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!waiting.is_finished(), "beside a reader");
    assert!(release(&near, &reader).await.expect("releases"));
    let guard = soon("the lock", waiting).await.expect("no panic");
    drop(guard.expect("acquires"));
    hand.delete(&last).expect("deletes");
}

/// A lock that takes the first node with its id for its own: whether it is its turn.
fn is_first_by_id(children: &[String], id: Uuid) -> bool {
    let number = |node: &&String| node[node.len() - 10..].parse::<u64>().ok();
    let first = children.iter().min_by_key(number);
    first.is_some_and(|node| node.contains(&id.to_string()))
}

/// Curator#1121: the servers still have a node of the claim's, of a session that was given up. It is not the claim's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_session_is_never_taken_for_ones_own() {
    let server = ZooKeeperServer::start();
    for mode in [
        Mode::Exclusive,
        Mode::Write,
        Mode::Permit { limit: 1, count: 1 },
    ] {
        let (first, second) = (open(&server.url("x")).await, open(&server.url("x")).await);
        let claim = claim_for(LEASE, "a", mode).with_enqueue(true);
        let ghost = session(&server);
        let (folder, marker) = match mode {
            Mode::Permit { .. } => ("/x/a/locks", "lock-"),
            Mode::Write => ("/x/a", "__WRIT__"),
            _ => ("/x/a", "lock-"),
        };
        ghost.folders(folder);
        let node = format!("{folder}/_c_{}-{marker}", node_uuid(claim.id));
        ghost.create(&node, b"", Node::Sequential).expect("creates");
        let other = claim_for(LEASE, "a", mode).with_enqueue(true);
        busy(&first, &other).await;
        busy(&second, &claim).await;
        assert!(
            is_first_by_id(&ghost.children(folder), node_uuid(claim.id)),
            "a lock that knows its node by its id believes to hold"
        );
        ghost.close();
        in_the_end(&first, &other).await;
        busy(&second, &claim).await;
        assert!(release(&first, &other).await.expect("releases"));
        in_the_end(&second, &claim).await;
        assert!(release(&second, &claim).await.expect("releases"));
    }
}

/// kazoo#649: readers and writers in every order, each woken by who is before it, until all have had it.
#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_in_every_order_all_get_their_turn() {
    let server = ZooKeeperServer::start();
    let store = open(&server.url("x")).await;
    for order in 0..8u32 {
        let name = format!("o{order}");
        let claims: Vec<_> = (0..4)
            .map(|at| {
                let write = at == 0 || order & (1 << (at - 1)) != 0;
                let mode = if write { Mode::Write } else { Mode::Read };
                claim_for(LEASE, &name, mode).with_enqueue(true)
            })
            .collect();
        granted(&store, &claims[0]).await;
        for claim in &claims[1..] {
            busy(&store, claim).await;
        }
        let mut last = 0;
        for claim in &claims {
            let token = in_the_end(&store, claim).await.token.get();
            assert!(token > last, "{order}: {token} after {last}");
            last = token;
            assert!(release(&store, claim).await.expect("releases"));
        }
    }
    assert_eq!(server.ephemerals(), 0);
}

/// A claim that tries stands in line for a moment. People do not see it wait: it may queue later, behind others.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_only_tries_is_not_seen_to_wait() {
    let server = ZooKeeperServer::start();
    let store = open(&server.url("x")).await;
    let held = claim_for(LEASE, "a", Mode::Exclusive);
    granted(&store, &held).await;
    let hand = session(&server);
    let uuid = Uuid::new_v4();
    for (marker, waiters) in [("try-lock-", 0), ("try-__READ__", 0), ("lock-", 1)] {
        let path = format!("/x/a/_c_{uuid}-{marker}");
        let node = hand.create(&path, b"", Node::Sequential).expect("a node");
        let seen = store.inspect(&held.name).await.expect("looks");
        let seen = seen.expect("it is held");
        assert_eq!((seen.holders.len(), seen.waiters), (1, waiters), "{marker}");
        hand.delete(&node).expect("deletes");
    }
    // The first node of a try has this name, as long as it stands.
    let names = hand.children("/x/a");
    assert!(
        names.iter().all(|name| name.contains("-try-lock-")),
        "{names:?}"
    );
}

/// A claim that waits asks about once a second. That costs the servers no transaction, also where permits are waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_asks_again_writes_nothing() {
    // To sweep a folder is a transaction.
    let sweeps = ("znode.container.checkIntervalMs".into(), "600000".into());
    let server = ZooKeeperServer::start_with(ZooKeeperOptions {
        properties: vec![sweeps],
        ..ZooKeeperOptions::default()
    });
    let (store, other) = (open(&server.url("x")).await, open(&server.url("x")).await);
    for (name, mode) in [
        ("lock", Mode::Exclusive),
        ("permits", Mode::Permit { limit: 2, count: 2 }),
    ] {
        let held = claim_for(LEASE, name, mode);
        granted(&store, &held).await;
        // One that waits for the leases, and one that waits for that.
        let waiting = [(); 2].map(|()| claim_for(LEASE, name, mode).with_enqueue(true));
        for claim in &waiting {
            busy(&other, claim).await;
        }
        let before = server.zxid();
        for claim in waiting.iter().cycle().take(10) {
            busy(&other, claim).await;
        }
        assert_eq!(server.zxid(), before, "{name}");
        assert!(release(&store, &held).await.expect("releases"));
        for claim in &waiting {
            in_the_end(&other, claim).await;
            assert!(release(&other, claim).await.expect("releases"));
        }
    }
}
