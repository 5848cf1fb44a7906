//! Names that a path cannot hold as they are. Java finds our locks at the paths that the documentation names.

use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use super::peer::{Peer, finish, keeper, soon};

/// How long Java tries where it must fail.
const IN_VAIN: u32 = 300;
/// How long Java waits where it must succeed.
const LONG: u32 = 50_000;

/// As the peer reads a path.
fn word(path: &str) -> String {
    let byte = |byte: u8| match byte {
        b'/' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    path.bytes().map(byte).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_names_are_the_same_lock_in_java() {
    let server = ZooKeeperServer::start();
    let (java, rust) = (
        Peer::start(server.port()).await,
        keeper(server.port()).await,
    );
    let long = ["x".repeat(512), "锁".repeat(170), "a/".repeat(255) + "b"];
    let long_paths = long.clone().map(|name| format!("/{name}"));
    let mut names = vec![
        (
            "Käse é e\u{301} ß".to_owned(),
            "/Käse é e\u{301} ß".to_owned(),
        ),
        ("订单/库存".into(), "/订单/库存".into()),
        (" a b  c ".into(), "/ a b  c ".into()),
        ("100%".into(), "/100%25".into()),
        ("%41".into(), "/%2541".into()),
        ("a+b&c=d?#\"'\\*".into(), "/a+b&c=d?#\"'\\*".into()),
        ("🔒".into(), "/%F0%9F%94%92".into()),
        ("\u{E000}\u{FFFD}".into(), "/%EE%80%80%EF%BF%BD".into()),
        ("..".into(), "/%2E%2E".into()),
        ("a/./b".into(), "/a/%2E/b".into()),
        ("/x//y/".into(), "/%/x/%/y/%".into()),
        ("zookeeper".into(), "/%7Aookeeper".into()),
        (".latches".into(), "/%2Elatches".into()),
        ("pool/locks".into(), "/pool/%6Cocks".into()),
    ];
    names.extend(long.into_iter().zip(long_paths));
    for (name, path) in &names {
        let (lock, path) = (rust.lock(name).expect("a lock"), word(path));
        let guard = lock.acquire().await.expect("acquires");
        let tried = java.ask(&format!("lock a {path} mutex {IN_VAIN}")).await;
        assert_eq!(tried, "false", "{name:?} is another lock in Java");
        guard.release().await.expect("releases");
        let tried = java.ask(&format!("lock a {path} mutex {LONG}")).await;
        assert_eq!(tried, "true", "{name:?}");
        assert!(
            lock.try_acquire().await.expect("answers").is_none(),
            "{name:?} is another lock in Java"
        );
        let seen = rust.list("").await.expect("lists");
        let seen: Vec<_> = seen.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(seen, [name.as_str()], "the path is read as another name");
        java.ask("unlock a mutex").await;
    }
    // Each wakes the other there.
    for (name, path) in &names[..3] {
        let (lock, path) = (rust.lock(name).expect("a lock"), word(path));
        let guard = lock.acquire().await.expect("acquires");
        let waiting = java.begin(&format!("lock a {path} mutex {LONG}"));
        soon("a waiter", async {
            while java.ask(&format!("participants look {path}")).await != "2" {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        guard.release().await.expect("releases");
        assert_eq!(finish(waiting).await, "true", "{name:?}");
        java.ask("unlock a mutex").await;
    }
}
