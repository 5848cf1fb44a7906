//! The end of the numbers: a server gives 2147483647 again and again. Transactions decide from there on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper_testkit::checker::{Demands, FaultKind, Rule, Verdict};
use lockkeeper_testkit::servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_numbers::{leave, spend, with_numbers_set};
use lockkeeper_testkit::servers::zookeeper_session::{Node, ZooKeeperSession};

use super::claims::{claim_for, release};
use super::common::{busy, downgrade, granted, in_the_end, node_uuid, open, soon};
use crate::crew::{Crew, LINGER, Watcher, demands, judged};

const SESSION: Duration = Duration::from_secs(200);
/// So many more nodes have a number of their own.
const LEFT: i32 = 5;

/// A server with a folder whose numbers are nearly used up.
pub fn server_near_the_end(path: &str) -> ZooKeeperServer {
    let options = with_numbers_set(ZooKeeperOptions::default());
    let mut server = ZooKeeperServer::start_with(options);
    leave(&mut server, &[(path, LEFT)]);
    server
}

/// A lock that sorts by numbers alone: whether this node is the first.
fn is_first_by_number(children: &[String], node: &str) -> bool {
    let number = |name: &str| name[name.len() - 10..].parse::<i64>().expect("a number");
    children.iter().all(|other| number(other) >= number(node))
}

/// kazoo#730, and what Curator does: with numbers alone two hold it. Ours waits.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_alone_let_two_in_and_transactions_do_not() {
    let server = tokio::task::spawn_blocking(|| server_near_the_end("/x/a"));
    let server = server.await.expect("no panic");
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    spend(&hand, "/x/a");
    let first = hand
        .create("/x/a/z-lock-", b"", Node::Sequential)
        .expect("creates");
    let second = hand
        .create("/x/a/b-lock-", b"", Node::Sequential)
        .expect("creates");
    assert!(first.ends_with("2147483647") && second.ends_with("2147483647"));
    let children = hand.children("/x/a");
    let naive = |node: &String| is_first_by_number(&children, node);
    assert!(naive(&first) && naive(&second), "both believe to hold");
    let store = open(&server.url("x")).await;
    let claim = claim_for(Duration::from_secs(60), "a", Mode::Exclusive).with_enqueue(true);
    busy(&store, &claim).await;
    let third = hand
        .create("/x/a/a-lock-", b"", Node::Sequential)
        .expect("creates");
    hand.delete(&first).expect("deletes");
    busy(&store, &claim).await;
    hand.delete(&second).expect("deletes");
    // The third has the same number and the lowest name, and came later.
    in_the_end(&store, &claim).await;
    let (_, ours) = hand
        .data(&format!("/x/a/{}", hand.children("/x/a")[0]))
        .expect("reads");
    let (_, theirs) = hand.data(&third).expect("reads");
    assert!(ours.czxid < theirs.czxid);
    assert!(release(&store, &claim).await.expect("releases"));
    hand.delete(&third).expect("deletes");
}

/// Many come and go over the end of the numbers, and when they begin again: nobody overlaps, and tokens grow.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_overlaps_at_the_end_of_the_numbers() {
    let server = tokio::task::spawn_blocking(|| server_near_the_end("/x/a"));
    let server = server.await.expect("no panic");
    let inside = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let keeper = Lockkeeper::connect(&server.url("x"))
            .await
            .expect("connects");
        let (inside, last) = (inside.clone(), last.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..12 {
                let guard = keeper.lock("a").expect("a lock").acquire().await;
                let guard = guard.expect("acquires");
                assert!(!inside.swap(true, SeqCst), "two hold it");
                let before = last.swap(guard.token().get(), SeqCst);
                assert!(before < guard.token().get(), "tokens go back");
                tokio::time::sleep(Duration::from_millis(2)).await;
                inside.store(false, SeqCst);
                guard.release().await.expect("releases");
            }
        }));
    }
    for task in tasks {
        soon("the end", task).await.expect("no panic");
    }
    // Nobody is there, so the numbers begin again.
    let store = open(&server.url("x")).await;
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    soon("a low number", async {
        loop {
            let claim = claim_for(Duration::from_secs(60), "a", Mode::Exclusive);
            granted(&store, &claim).await;
            let low = hand
                .children("/x/a")
                .iter()
                .all(|node| node.contains("-lock-00"));
            assert!(release(&store, &claim).await.expect("releases"));
            if low {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Readers, writers and permits at the end of the numbers, too: all have their turn in the order in which they came.
#[tokio::test(flavor = "multi_thread")]
async fn every_mode_keeps_its_order_at_the_end_of_the_numbers() {
    let permit = Mode::Permit { limit: 1, count: 1 };
    for (path, modes) in [
        ("/x/a", [Mode::Write, Mode::Read, Mode::Write]),
        ("/x/a/locks", [permit; 3]),
    ] {
        let server = tokio::task::spawn_blocking(|| server_near_the_end(path));
        let server = server.await.expect("no panic");
        let store = open(&server.url("x")).await;
        let lease = Duration::from_secs(60);
        let claim = |mode: &Mode| claim_for(lease, "a", *mode).with_enqueue(true);
        let claims: Vec<_> = modes.iter().cycle().take(12).map(claim).collect();
        granted(&store, &claims[0]).await;
        for claim in &claims[1..] {
            busy(&store, claim).await;
        }
        let mut last = 0;
        for (at, claim) in claims.iter().enumerate() {
            let token = in_the_end(&store, claim).await.token.get();
            assert!(token > last, "{path}: {token} after {last}");
            last = token;
            // Of two readers that stand together the second need not wait for the first; here a writer is between them.
            for later in &claims[at + 1..] {
                busy(&store, later).await;
            }
            assert!(release(&store, claim).await.expect("releases"));
        }
    }
}

/// Of nodes that are created at the same time, all but the first get numbers below zero. A writer with such a number that becomes a
/// reader keeps its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_has_the_place_of_a_writer_whose_number_is_below_zero() {
    let server = tokio::task::spawn_blocking(|| server_near_the_end("/x/a"));
    let server = server.await.expect("no panic");
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    spend(&hand, "/x/a");
    let store = Arc::new(open(&server.url("x")).await);
    let writer = |_| claim_for(Duration::from_secs(60), "a", Mode::Write).with_enqueue(true);
    let mut writers: Vec<_> = (0..12).map(writer).collect();
    let trying = writers.iter().map(|writer| {
        let (store, writer) = (store.clone(), writer.clone());
        tokio::spawn(async move { store.try_acquire(&writer).await })
    });
    for tried in trying.collect::<Vec<_>>() {
        tried.await.expect("no panic").expect("answers");
    }
    let mut below_zero = 0;
    while !writers.is_empty() {
        let first = soon("a turn", async {
            loop {
                for (at, writer) in writers.iter().enumerate() {
                    let tried = store.try_acquire(writer).await.expect("answers");
                    if matches!(tried, Attempt::Granted(_)) {
                        return at;
                    }
                }
            }
        });
        let writer = writers.remove(first.await);
        let uuid = node_uuid(writer.id).to_string();
        let nodes = hand.children("/x/a");
        let node = nodes.iter().find(|node| node.contains(&uuid));
        below_zero += usize::from(node.expect("its node").contains("__WRIT__-"));
        let reader = downgrade(&*store, &writer).await;
        for other in &writers {
            busy(&*store, other).await;
        }
        assert!(release(&*store, &reader).await.expect("releases"));
    }
    assert!(below_zero > 0, "they came one after the other");
}

/// Permits have a line of their own. Nobody sweeps its folder but us: it is no container.
#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_a_line_for_permits_begin_again() {
    let server = tokio::task::spawn_blocking(|| server_near_the_end("/x/a/locks"));
    let server = server.await.expect("no panic");
    let store = open(&server.url("x")).await;
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    let permit = Mode::Permit { limit: 1, count: 1 };
    soon("a low number", async {
        loop {
            let claims = [(); 2].map(|()| claim_for(Duration::from_secs(60), "a", permit));
            granted(&store, &claims[0]).await;
            let waiting = claims[1].clone().with_enqueue(true);
            busy(&store, &waiting).await;
            let line = hand.children("/x/a/locks");
            assert!(release(&store, &claims[0]).await.expect("releases"));
            in_the_end(&store, &waiting).await;
            assert!(release(&store, &waiting).await.expect("releases"));
            if line.iter().all(|node| node.contains("-lock-00")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Processes under load before, at and behind the end of a folder's numbers, while a holder is killed.
fn over_the_end(lock: &str, session: &str) -> Verdict {
    let options = with_numbers_set(ZooKeeperOptions::default());
    let mut server = ZooKeeperServer::start_with(options);
    leave(&mut server, &[("/x/a", 40)]);
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    let ours = lock == "ours";
    if ours {
        // So that the folder is never empty, and its numbers never begin again.
        hand.folders("/x/a/kept");
    }
    let url = format!("zk://127.0.0.1:{}/x{session}", server.port());
    let mut crew = Crew::at(&url);
    crew.lock = lock.into();
    if !ours {
        // A naive lock is one client's.
        crew.tasks = 1;
    }
    crew.busy(3, 20);
    if ours {
        let watcher = Watcher::new(&url);
        let holder = crew.stop_a_holder(&watcher);
        crew.kill(holder);
        crew.healed();
        crew.one_more(&url);
    }
    crew.work(20);
    spend(&hand, "/x/a");
    crew.bitten("numbers");
    crew.healed();
    crew.work(60);
    hand.close();
    let events = crew.finish(|| match server.ephemerals() {
        0 => Vec::new(),
        count => vec![format!("{count} nodes")],
    });
    let demands = if ours {
        demands()
            .linger(LINGER + Duration::from_secs(4))
            .fault(FaultKind::HolderKilled, 1)
            .fault(FaultKind::Other("numbers".into()), 1)
    } else {
        Demands::none()
    };
    judged(&events, &demands)
}

/// The checker of histories sees nothing wrong with ours.
#[test]
fn a_load_goes_over_the_end_of_the_numbers() {
    over_the_end("ours", "?session_timeout=4s&timeout=1s").expect_valid();
}

/// It sees what is wrong with a lock that sorts by numbers alone, and nothing where the transactions are looked at.
#[test]
fn a_load_of_locks_that_sort_by_number_alone_is_caught() {
    let caught = over_the_end("sorts-by-number", "");
    assert!(caught.breaks(Rule::S1), "{caught}");
    over_the_end("right", "").expect_valid();
}
