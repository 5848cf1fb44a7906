//! Ways to the members: TLS with and without our certificate, and users.

use std::time::Duration;

use lockkeeper::store::etcd::EtcdStore;
use lockkeeper::store::{Mode, Store};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::certificates::Authority;
use lockkeeper_testkit::servers::etcd::EtcdServer;

use super::claims::{claim_for, release};
use super::common::{granted, open, soon};

const LEASE: Duration = Duration::from_secs(20);

async fn refused(url: &str) -> Error {
    let url = StoreUrl::parse(url).expect("a URL");
    EtcdStore::connect(&url).await.expect_err("it is refused")
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_and_certificates_are_checked() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let identity = authority.issue("server", &["127.0.0.1", "localhost"]);
    let client = authority.issue("client", &["client"]);
    let ca = authority.ca();
    let server = EtcdServer::start_with(&[
        &format!("--cert-file={}", identity.cert.display()),
        &format!("--key-file={}", identity.key.display()),
        &format!("--trusted-ca-file={}", ca.display()),
        "--client-cert-auth",
    ]);
    let url = |options: &str| format!("etcds://{}/x?{options}", server.host());
    let ours = format!(
        "ca={}&cert={}&key={}",
        ca.display(),
        client.cert.display(),
        client.key.display()
    );
    let keeper = soon("a connection", async {
        loop {
            match Lockkeeper::connect(&url(&ours)).await {
                Ok(keeper) => return keeper,
                // It listens before it serves.
                Err(Error::Unavailable { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    let keeper = keeper.await;
    let guard = keeper.lock("secret").expect("a lock").acquire().await;
    guard.expect("acquires").release().await.expect("releases");
    let error = refused(&url(&format!("ca={}", stranger.ca().display()))).await;
    assert!(error.to_string().contains("authority"), "{error}");
    let error = refused(&url(&format!("ca={}", ca.display()))).await;
    assert!(
        matches!(error, Error::Refused { .. } | Error::Unavailable { .. }),
        "{error}"
    );
    let error = refused(&format!("etcd://{}/x?connect_timeout=2s", server.host())).await;
    assert!(!error.to_string().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_let_in_and_a_token_that_lapses_is_renewed() {
    // Tokens of three seconds.
    let server = EtcdServer::start_with(&["--auth-token=simple", "--auth-token-ttl=1"]);
    server.ctl(&["user", "add", "root:canary-root"]);
    server.ctl(&["user", "grant-role", "root", "root"]);
    server.ctl(&["user", "add", "app:canary-app"]);
    server.ctl(&["role", "add", "locks"]);
    server.ctl(&[
        "role",
        "grant-permission",
        "locks",
        "--prefix=true",
        "readwrite",
        "x/",
    ]);
    server.ctl(&["user", "grant-role", "app", "locks"]);
    server.ctl(&["auth", "enable"]);
    let url = |user: &str, prefix: &str| format!("etcd://{user}@{}/{prefix}", server.host());
    let store = open(&url("app:canary-app", "x")).await;
    for round in 0..3 {
        let claim = claim_for(LEASE, "a", Mode::Exclusive);
        granted(&store, &claim).await;
        if round < 2 {
            // Longer than the token lives.
            tokio::time::sleep(Duration::from_millis(2_500)).await;
        }
        assert!(release(&store, &claim).await.expect("releases"));
    }
    assert!(store.list("").await.expect("lists").is_empty());
    for (url, word) in [
        (url("app:wrong-canary", "x"), "let the user"),
        (url("app:canary-app", "y"), "prefix"),
        (server.url("x"), "user"),
    ] {
        let error = refused(&url).await;
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let said = format!("{error} {error:?}");
        assert!(said.contains(word) && !said.contains("canary"), "{said}");
    }
    assert!(!format!("{store:?}").contains("canary"));
}
