//! ZooKeeper's sequence numbers near their end, 2^31: from there on a server gives 2147483647 again and again.
//!
//! Nobody waits for two thousand million nodes: the number is written into a server's snapshot.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use super::zookeeper_session::{Node, ZooKeeperSession};

/// The last number that a server gives.
pub const LAST: i32 = i32::MAX;

const SESSION: Duration = Duration::from_secs(200);

/// These options, for a server that reads a snapshot which was changed: that has another digest, and newer servers would write a
/// number behind its check sum.
pub fn with_numbers_set(mut options: ZooKeeperOptions) -> ZooKeeperOptions {
    for name in ["digest.enabled", "serializeLastProcessedZxid.enabled"] {
        let property = (format!("zookeeper.{name}"), "false".into());
        options.properties.push(property);
    }
    options
}

/// Creates these folders of a server that was started [`with_numbers_set`], and leaves each so many numbers. The server is
/// restarted: nobody else may use it meanwhile.
///
/// # Panics
/// When the server does not believe the snapshot.
pub fn leave(server: &mut ZooKeeperServer, folders: &[(&str, i32)]) {
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    folders.iter().for_each(|(folder, _)| hand.folders(folder));
    hand.close();
    // It writes a snapshot when it starts.
    server.restart();
    server.kill();
    let snapshot = newest_snapshot(&server.data());
    for (folder, left) in folders {
        // One of them is for the look at it.
        rewrite(&snapshot, folder, LAST - left - 1);
    }
    server.restart();
    // A snapshot that a server does not believe is passed over.
    let hand = ZooKeeperSession::open(server.port(), SESSION);
    for (folder, left) in folders {
        let number = next_number(&hand, folder);
        assert_eq!(number, i64::from(LAST - left - 1), "{}", server.log());
    }
    hand.close();
}

/// The number of the next node of a folder, which it uses up.
///
/// # Panics
/// When the server refuses.
pub fn next_number(hand: &ZooKeeperSession, folder: &str) -> i64 {
    let path = format!("{folder}/spent-");
    let node = hand.create(&path, b"", Node::Sequential).expect("creates");
    hand.delete(&node).expect("deletes");
    node[path.len()..].parse().expect("a number")
}

/// Uses up what numbers a folder has left.
///
/// # Panics
/// When the server refuses.
pub fn spend(hand: &ZooKeeperSession, folder: &str) {
    // Nodes that are created at the same time may have numbers below zero, behind the last.
    while (0..i64::from(LAST)).contains(&next_number(hand, folder)) {}
}

fn newest_snapshot(data: &Path) -> PathBuf {
    let files = fs::read_dir(data.join("version-2")).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let zxid = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        u64::from_str_radix(name.strip_prefix("snapshot.")?, 16).ok()
    };
    files
        .filter(|path| zxid(path).is_some())
        .max_by_key(zxid)
        .expect("a snapshot")
}

/// Sets how often the children of a node have changed, which is the number of the next one, and the check sum behind all.
fn rewrite(snapshot: &Path, folder: &str, next: i32) {
    let mut bytes = fs::read(snapshot).expect("reads");
    let mut node = (folder.len() as u32).to_be_bytes().to_vec();
    node.extend(folder.as_bytes());
    let at = bytes.windows(node.len()).position(|part| part == node);
    let data = at.expect("the node") + node.len();
    let length = i32::from_be_bytes(bytes[data..data + 4].try_into().expect("four bytes"));
    // Behind its data: the number of its ACL, four long numbers and its version.
    let changes = data + 4 + length.max(0) as usize + 8 + 32 + 4;
    bytes[changes..changes + 4].copy_from_slice(&next.to_be_bytes());
    // The check sum is a long number, and a text of one character follows it.
    let sum = bytes.len() - 13;
    let value = adler32(&bytes[..sum]);
    bytes[sum..sum + 8].copy_from_slice(&u64::from(value).to_be_bytes());
    fs::write(snapshot, bytes).expect("writes");
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}
