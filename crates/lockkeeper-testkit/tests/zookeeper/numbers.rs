//! The end of the numbers: a server gives 2147483647 again and again. Transactions decide from there on.
//!
//! Nobody waits for two thousand million nodes: the number is written into a server's snapshot.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::store::Mode;
use lockkeeper_testkit::servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_session::{Node, ZooKeeperSession};

use super::claims::{claim_for, release};
use super::common::{busy, granted, in_the_end, open, soon};

const SESSION: Duration = Duration::from_secs(200);
/// So many more nodes have a number of their own.
const LEFT: i32 = 5;

/// A server with a folder whose numbers are nearly used up.
pub fn server_near_the_end(path: &str) -> ZooKeeperServer {
    let mut server = ZooKeeperServer::start_with(ZooKeeperOptions {
        // A snapshot that was changed has another digest. That and, of newer servers, a number would follow the check sum.
        properties: ["digest.enabled", "serializeLastProcessedZxid.enabled"]
            .map(|name| (format!("zookeeper.{name}"), "false".into()))
            .to_vec(),
        ..ZooKeeperOptions::default()
    });
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    hand.folders(path);
    hand.close();
    // It writes a snapshot when it starts.
    server.restart();
    server.kill();
    rewrite(&newest_snapshot(&server.data()), path);
    server.restart();
    // A snapshot that a server does not believe is passed over.
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    let node = hand.create(&format!("{path}/spent-"), b"", Node::Sequential);
    let node = node.expect("creates");
    assert!(node.contains("-214748364"), "{node}: {}", server.log());
    hand.delete(&node).expect("deletes");
    hand.close();
    server
}

fn newest_snapshot(data: &Path) -> std::path::PathBuf {
    let files = std::fs::read_dir(data.join("version-2")).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let zxid = |path: &std::path::PathBuf| {
        let name = path.file_name()?.to_str()?;
        u64::from_str_radix(name.strip_prefix("snapshot.")?, 16).ok()
    };
    files
        .filter(|path| zxid(path).is_some())
        .max_by_key(zxid)
        .expect("a snapshot")
}

/// Sets how often the children of a node have changed, which is the number of the next one, and the check sum behind all.
fn rewrite(snapshot: &Path, path: &str) {
    let mut bytes = std::fs::read(snapshot).expect("reads");
    let mut node = (path.len() as u32).to_be_bytes().to_vec();
    node.extend(path.as_bytes());
    let at = bytes.windows(node.len()).position(|part| part == node);
    let data = at.expect("the node") + node.len();
    let length = i32::from_be_bytes(bytes[data..data + 4].try_into().expect("four bytes"));
    // Behind its data: the number of its ACL, four long numbers and its version.
    let changes = data + 4 + length.max(0) as usize + 8 + 32 + 4;
    bytes[changes..changes + 4].copy_from_slice(&(i32::MAX - LEFT).to_be_bytes());
    // The check sum is a long number, and a text of one character follows it.
    let sum = bytes.len() - 13;
    let value = adler32(&bytes[..sum]);
    bytes[sum..sum + 8].copy_from_slice(&u64::from(value).to_be_bytes());
    std::fs::write(snapshot, bytes).expect("writes");
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
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
    for _ in 0..=LEFT {
        let node = hand
            .create("/x/a/spent-", b"", Node::Sequential)
            .expect("creates");
        hand.delete(&node).expect("deletes");
    }
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
