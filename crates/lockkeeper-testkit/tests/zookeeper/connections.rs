//! Connections, as the servers count them: none stays behind.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::store::Mode;
use lockkeeper_testkit::polling::drop_after;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperOptions, ZooKeeperServer};

use super::claims::{claim_for, until};
use super::common::{granted, in_the_end, open, soon};

/// A session that ends soon, and answers that are soon missed.
const SHORT: &str = "session_timeout=4s&timeout=700ms&connect_timeout=700ms";

fn url(port: u16) -> String {
    format!("zk://127.0.0.1:{port}/x?{SHORT}")
}

async fn keeper(port: u16) -> Lockkeeper {
    let keeper = Lockkeeper::connect(&url(port)).await;
    keeper.expect("connects")
}

/// How many sockets to a port of this machine some process has open. A server closes connections that their client forgot.
fn sockets(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let open = table.lines().skip(1).filter(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let to = columns[2].rsplit(':').next();
        let to = to.and_then(|port| u16::from_str_radix(port, 16).ok());
        // One that no process has open any more has no inode.
        to == Some(port) && columns[9] != "0"
    });
    open.count()
}

/// Waits until a server has so many connections, and its clients, which reach it at a port, so many sockets; and again after a
/// while, when all has come that comes late.
async fn has(server: &ZooKeeperServer, port: u16, count: usize, when: &str) {
    let now = || (server.connections().len(), sockets(port));
    for _ in 0..2 {
        // A child of another test has copies of our sockets for a moment, so they may be more.
        let waited = async {
            while now() != (count, count) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waited).await;
        assert!(waited.is_ok(), "{count} connections {when}: {:?}", now());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// A keeper that locks and frees, so that it is known to be connected.
async fn works(keeper: &Lockkeeper) {
    let lock = keeper.lock("works").expect("a lock");
    soon("a lock", async {
        loop {
            match lock.acquire().await {
                Ok(guard) => match guard.release().await {
                    Ok(_) => return,
                    Err(error) => assert!(!matches!(error, lockkeeper::Error::Closed), "{error}"),
                },
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    })
    .await;
}

/// Keepers that are closed, dropped, dropped with what they hold, and dropped with a runtime of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_has_one_connection_and_takes_it_along() {
    let server = ZooKeeperServer::start();
    let port = server.port();
    has(&server, port, 0, "before all").await;
    let keepers = [(); 3].map(|()| keeper(port));
    let [one, two, three] = keepers;
    let (one, two, three) = tokio::join!(one, two, three);
    for keeper in [&one, &two, &three] {
        works(keeper).await;
    }
    has(&server, port, 3, "while three live").await;
    one.close().await;
    drop(one);
    has(&server, port, 2, "after one was closed").await;
    let guard = two.lock("a").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let lock = three.lock("a").expect("a lock");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("a waiter", async || server.ephemerals() == 2).await;
    drop((guard, two));
    let guard = soon("the lock", waiting).await.expect("no panic");
    has(&server, port, 1, "after one was dropped with its guard").await;
    drop((guard, three));
    has(&server, port, 0, "after all were dropped").await;
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let store = runtime.block_on(open(&url(port)));
        // It outlives what drives it.
        drop(runtime);
        drop(store);
    })
    .await
    .expect("no panic");
    has(&server, port, 0, "after a store's runtime was dropped").await;
    assert_eq!((server.sessions(), server.ephemerals()), (0, 0));
}

/// Connecting, waiting and releasing are given up half way.
#[tokio::test(flavor = "multi_thread")]
async fn futures_that_are_dropped_leave_no_connection() {
    let server = ZooKeeperServer::start();
    let port = server.port();
    let url = url(port);
    for polls in 0..6 {
        drop(drop_after(polls, Lockkeeper::connect(&url)).await);
    }
    has(&server, port, 0, "after connects were dropped").await;
    let (one, two) = (keeper(port).await, keeper(port).await);
    let held = one.lock("a").expect("a lock").acquire().await;
    let held = held.expect("acquires");
    let lock = two.lock("a").expect("a lock");
    for polls in 0..10 {
        drop(drop_after(polls, lock.acquire()).await);
    }
    drop(drop_after(1, held.release()).await);
    works(&two).await;
    has(&server, port, 2, "after verbs were dropped").await;
    drop((lock, one, two));
    has(&server, port, 0, "after the keepers").await;
}

/// A connection is cut, or given up since nothing is answered on it. The session goes on over another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_given_up_does_not_stay() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let port = proxy.port();
    let options = "session_timeout=200s&timeout=700ms&connect_timeout=700ms";
    let far = Lockkeeper::connect(&format!("zk://127.0.0.1:{port}/x?{options}")).await;
    let far = far.expect("connects");
    let guard = far.lock("a").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    for _ in 0..5 {
        proxy.cut();
        works(&far).await;
    }
    has(&server, port, 1, "after connections were cut").await;
    for _ in 0..3 {
        proxy.black_hole();
        until("an outage", async || far.inspect("a").await.is_err()).await;
        proxy.heal();
        works(&far).await;
    }
    has(&server, port, 1, "after answers were missed").await;
    proxy.refuse();
    until("an outage", async || far.inspect("a").await.is_err()).await;
    proxy.heal();
    works(&far).await;
    has(&server, port, 1, "after connections were refused").await;
    assert!(guard.is_held(), "it was one session");
    drop((guard, far));
    has(&server, port, 0, "after the keeper").await;
    assert_eq!((server.sessions(), server.ephemerals()), (0, 0));
}

/// The session ends, and the server hangs: new connections are made, and nobody greets.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_lost_takes_its_connections_along() {
    let mut server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let port = proxy.port();
    let far = keeper(port).await;
    let guard = far.lock("a").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    proxy.black_hole();
    soon("the loss", guard.lost()).await;
    until("the end of the session", async || server.ephemerals() == 0).await;
    proxy.heal();
    works(&far).await;
    drop(guard);
    has(&server, port, 1, "after the session was lost").await;
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server.pause();
        std::thread::sleep(Duration::from_secs(5));
        server.resume();
        server
    });
    let server = server.await.expect("no panic");
    works(&far).await;
    has(&server, port, 1, "after the server hung").await;
    drop(far);
    has(&server, port, 0, "after the keeper").await;
    until("the end of all sessions", async || server.sessions() == 0).await;
}

/// The servers keep the session for less time than before, so the store gives it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_given_up_takes_its_connection_along() {
    let mut server = ZooKeeperServer::start_with(ZooKeeperOptions {
        lines: vec!["maxSessionTimeout=60000".into()],
        ..ZooKeeperOptions::default()
    });
    let port = server.port();
    let store = open(&format!(
        "zk://127.0.0.1:{port}/x?session_timeout=60s&timeout=2s"
    ))
    .await;
    let lease = Duration::from_secs(3);
    granted(&store, &claim_for(lease, "a", Mode::Exclusive)).await;
    let server = tokio::task::spawn_blocking(move || {
        server.add_line("maxSessionTimeout=6000");
        server.restart();
        server
    });
    let server = server.await.expect("no panic");
    let next = claim_for(lease, "a", Mode::Exclusive);
    in_the_end(&store, &next).await;
    has(&server, port, 1, "after the session was given up").await;
    drop(store);
    has(&server, port, 0, "after the store").await;
}

/// Of three servers, all of them looked at: a keeper is at one, wherever the leader goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_is_at_one_of_three_servers() {
    let servers = tokio::task::spawn_blocking(Ensemble::start).await;
    let mut servers = servers.expect("no panic");
    let url = format!("zk://{}/x?{SHORT}", servers.hosts());
    let keeper = Lockkeeper::connect(&url).await.expect("connects");
    let all = |servers: &Ensemble| -> usize {
        let each = servers.all().iter();
        each.map(|server| server.connections().len().max(sockets(server.port())))
            .sum()
    };
    for _ in 0..2 {
        servers = tokio::task::spawn_blocking(move || {
            let leader = servers.leader();
            servers.servers()[leader].kill();
            servers.leader();
            servers.servers()[leader].relaunch();
            servers.wait_until_all_serve();
            servers
        })
        .await
        .expect("no panic");
        works(&keeper).await;
        until("one connection", async || all(&servers) == 1).await;
    }
    drop(keeper);
    until("no connection", async || all(&servers) == 0).await;
}
