//! Users, TLS, native tokens, and nodes for clients of other recipes: each met by a real server.

use std::time::Duration;

use lockkeeper::store::zookeeper::ZooKeeperStore;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::certificates::Authority;
use lockkeeper_testkit::servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};

use super::claims::{claim_for, release};
use super::common::{open, soon};

const LEASE: Duration = Duration::from_secs(20);

async fn refused(url: &str) -> Error {
    let url = StoreUrl::parse(url).expect("a URL");
    ZooKeeperStore::connect(&url)
        .await
        .expect_err("it is refused")
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_user_are_for_that_user() {
    let server = ZooKeeperServer::start();
    let port = server.port();
    let mine = open(&format!("zk://me:can%2Fary@127.0.0.1:{port}/mine")).await;
    let claim = claim_for(LEASE, "a", Mode::Exclusive);
    assert!(matches!(
        mine.try_acquire(&claim).await,
        Ok(Attempt::Granted(_))
    ));
    let same = open(&format!("zk://me:can%2Fary@127.0.0.1:{port}/mine")).await;
    let other = claim_for(LEASE, "a", Mode::Exclusive);
    assert!(matches!(
        same.try_acquire(&other).await,
        Ok(Attempt::Busy { .. })
    ));
    assert!(release(&mine, &claim).await.expect("releases"));
    for url in ["zk://127.0.0.1", "zk://me:wrong@127.0.0.1"] {
        // There is no such chroot as the second, and it may not be created.
        for chroot in ["mine", "mine/below"] {
            let error = refused(&format!("{url}:{port}/{chroot}")).await;
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            let error = error.to_string();
            assert!(
                error.contains("rights") && error.contains(chroot),
                "{error}"
            );
            assert!(!error.contains("wrong"), "{error}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "can/ary\n").expect("writes");
    open(&format!(
        "zk://me@127.0.0.1:{port}/mine?password_file={}",
        file.display()
    ))
    .await;
    // Open to all, if it is wanted.
    open(&format!("zk://me:can%2Fary@127.0.0.1:{port}/open?acl=open")).await;
    open(&format!("zk://127.0.0.1:{port}/open")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_and_a_wrong_authority_is_told() {
    let authority = Authority::new();
    let identity = authority.issue("server", &["127.0.0.1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let pem = folder.path().join("server.pem");
    let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("reads");
    std::fs::write(&pem, read(&identity.key) + &read(&identity.cert)).expect("writes");
    let secure = lockkeeper_testkit::servers::ports::free_port();
    let properties = [
        (
            "zookeeper.serverCnxnFactory",
            "org.apache.zookeeper.server.NettyServerCnxnFactory",
        ),
        ("zookeeper.ssl.keyStore.type", "PEM"),
        ("zookeeper.ssl.clientAuth", "none"),
        ("zookeeper.ssl.trustStore.type", "PEM"),
    ];
    let mut properties: Vec<(String, String)> = properties
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    properties.push((
        "zookeeper.ssl.keyStore.location".into(),
        pem.display().to_string(),
    ));
    properties.push((
        "zookeeper.ssl.trustStore.location".into(),
        authority.ca().display().to_string(),
    ));
    let server = ZooKeeperServer::start_with(ZooKeeperOptions {
        lines: vec![
            format!("secureClientPort={secure}"),
            "secureClientPortAddress=127.0.0.1".into(),
        ],
        properties,
        ..ZooKeeperOptions::default()
    });
    let url = format!("zks://127.0.0.1:{secure}/x?ca={}", authority.ca().display());
    // The server opens this port after the one that says that it serves.
    soon("the port for TLS", async {
        while std::net::TcpStream::connect(("127.0.0.1", secure)).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let keeper = Lockkeeper::connect(&url).await.expect("connects");
    let guard = keeper
        .lock("a")
        .expect("a lock")
        .acquire()
        .await
        .expect("acquires");
    guard.release().await.expect("releases");
    let stranger = Authority::new();
    let error = refused(&format!(
        "zks://127.0.0.1:{secure}/x?ca={}",
        stranger.ca().display()
    ))
    .await;
    assert!(error.to_string().contains("authority"), "{error}");
    let error = refused(&format!(
        "zks://127.0.0.1:{}/x?insecure=yes&connect_timeout=2s",
        server.port()
    ))
    .await;
    assert!(
        matches!(error, Error::Refused { .. } | Error::Unavailable { .. }),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn native_tokens_are_transactions() {
    let server = ZooKeeperServer::start();
    let store = open(&format!("{}&tokens=native", server.url("x"))).await;
    let mut last = 0;
    for _ in 0..5 {
        let claim = claim_for(LEASE, "a", Mode::Exclusive);
        let Ok(Attempt::Granted(grant)) = store.try_acquire(&claim).await else {
            panic!("it is free");
        };
        let token = grant.token.get();
        assert!(token > last && token < 1_000, "{token}");
        last = token;
        let info = store
            .inspect(&claim.name)
            .await
            .expect("answers")
            .expect("it is held");
        assert_eq!(info.holders[0].token, Some(grant.token));
        assert!(release(&store, &claim).await.expect("releases"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_for_all_clients_has_a_node_for_each_recipe() {
    let server = ZooKeeperServer::start();
    let store = open(&format!("{}&also=rw,kazoo", server.url("x"))).await;
    let plain = open(&server.url("x")).await;
    for (mode, nodes) in [(Mode::Exclusive, 3), (Mode::Write, 3), (Mode::Read, 2)] {
        let claim = claim_for(LEASE, "a", mode);
        assert!(matches!(
            store.try_acquire(&claim).await,
            Ok(Attempt::Granted(_))
        ));
        assert_eq!(server.ephemerals(), nodes, "{mode}");
        let other = claim_for(LEASE, "a", Mode::Write);
        assert!(matches!(
            plain.try_acquire(&other).await,
            Ok(Attempt::Busy { .. })
        ));
        let info = plain
            .inspect(&claim.name)
            .await
            .expect("answers")
            .expect("it is held");
        assert_eq!((info.holders.len(), info.waiters), (1, 0));
        assert!(release(&store, &claim).await.expect("releases"));
        assert_eq!(server.ephemerals(), 0, "{mode}");
    }
}
