//! A session that becomes shorter, and one that was silent for a while.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Mode, Release, Renewed, Store};
use lockkeeper_testkit::servers::ports::free_port;
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};

use super::claims::{claim_for, release, renewal_for};
use super::common::{granted, open, soon};

/// A server comes back with a lower `maxSessionTimeout`: it ends the session sooner than the lease counts on.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_became_shorter_is_given_up() {
    let mut server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!(
        "zk://127.0.0.1:{}/x?session_timeout=60s&timeout=2s",
        proxy.port()
    );
    let far = Lockkeeper::connect(&url).await.expect("connects");
    let guard = far.lock("a").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let server = tokio::task::spawn_blocking(move || {
        server.add_line("maxSessionTimeout=4000");
        server.restart();
        server
    });
    let server = server.await.expect("no panic");
    soon("a connection", async {
        while far.inspect("a").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    proxy.black_hole();
    let url = format!("zk://127.0.0.1:{}/x?session_timeout=4s", server.port());
    let near = Lockkeeper::connect(&url).await.expect("connects");
    let next = soon("the lock", near.lock("a").expect("a lock").acquire()).await;
    let next = next.expect("acquires");
    assert!(!guard.is_held(), "two hold it");
    assert!(next.token() > guard.token());
}

/// The source ports of the clients that a server has.
fn ports(server: &ZooKeeperServer) -> Vec<String> {
    let said = server.word("cons");
    let ports = said.lines().filter(|line| line.contains("sid=0x"));
    ports
        .filter_map(|line| line.split(['[', ']']).next())
        .map(|port| port.trim().to_owned())
        .collect()
}

/// Nothing was said for a while: a follower may not have told its leader of the session since. A write counts only after
/// the session was opened anew, which the leader hears of itself.
async fn a_silence_before_a_write(others: &str) {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let store = open(&format!(
        "zk://127.0.0.1:{}{others}/x?session_timeout=20s&timeout=10s",
        proxy.port()
    ))
    .await;
    let lease = Duration::from_secs(13);
    let claim = claim_for(lease, "a", Mode::Exclusive);
    granted(&store, &claim).await;
    let renew = async || {
        let renewed = store.renew(&[renewal_for(lease, &claim)]).await;
        renewed.expect("answers")
    };
    let before = ports(&server);
    assert_eq!(renew().await, [Renewed::Renewed]);
    assert_eq!((before.len(), ports(&server)), (1, before.clone()));
    proxy.requests(Way::Held);
    tokio::time::sleep(Duration::from_secs(8)).await;
    proxy.heal();
    let asked = Moment::now();
    assert_eq!(renew().await, [Renewed::Renewed]);
    assert_ne!(
        ports(&server),
        before,
        "it trusted a connection that was silent"
    );
    assert!(Moment::now().since(asked) < lease);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_after_a_silence_opens_the_session_anew() {
    a_silence_before_a_write("").await;
}

/// Another server of the ensemble is down. The one that the session was open at answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_opened_anew_where_it_was() {
    a_silence_before_a_write(&format!(",127.0.0.1:{}", free_port())).await;
}

/// A release that was to queue the next claim waits until the leader has heard of the session. The claim's time ends meanwhile, and
/// then the connection does. The hold is there until it is released again.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_tried_again_finds_the_hold() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!(
        "zk://127.0.0.1:{}/x?session_timeout=24s&timeout=10s&connect_timeout=10s",
        proxy.port()
    );
    let store = Arc::new(open(&url).await);
    let held = claim_for(Duration::from_secs(16), "a", Mode::Exclusive);
    // After a third of the session's time-out a write needs an echo before it.
    tokio::time::sleep(Duration::from_millis(6_500)).await;
    granted(&*store, &held).await;
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    proxy.replies(Way::Held);
    let next = claim_for(Duration::from_secs(1), "a", Mode::Exclusive).with_enqueue(true);
    let request = Release::new(held.name.clone(), held.id).with_requeue(Some(next));
    let releasing = store.clone();
    let releasing = tokio::spawn(async move { releasing.release(&request).await });
    // The echo comes too late to say anything, and there is no server any more.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    proxy.point_to(free_port());
    proxy.heal();
    let first = soon("an answer", releasing).await.expect("no panic");
    proxy.point_to(server.port());
    let was_held = match first {
        Ok(released) => released.was_held,
        Err(_) => {
            let again = async {
                loop {
                    match release(&*store, &held).await {
                        Ok(was_held) => return was_held,
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
            };
            soon("a release", again).await
        }
    };
    assert!(was_held, "it was released, not lost");
    assert_eq!(server.ephemerals(), 0);
}

/// The servers grant a shorter session than was asked for. Leases go by what they grant.
#[tokio::test(flavor = "multi_thread")]
async fn leases_go_by_the_session_that_is_granted() {
    let server = ZooKeeperServer::start_with(ZooKeeperOptions {
        lines: vec!["maxSessionTimeout=6000".into()],
        ..ZooKeeperOptions::default()
    });
    let store = open(&server.url("x")).await;
    let longest = store.capabilities().longest_lease;
    assert_eq!(longest, Duration::from_secs(4));
    // A keeper that asks for no lease of its own gets one that fits.
    let keeper = Lockkeeper::connect(&server.url("x")).await;
    let keeper = keeper.expect("connects");
    let guard = keeper.lock("a").expect("a lock").acquire().await;
    guard.expect("acquires").release().await.expect("releases");
}
