//! Real Sentinels: the master is found, followed when it changes, and waited for when there is none.

use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper::{Error, HandOff, Lockkeeper, Token};
use lockkeeper_testkit::servers::certificates::Authority;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::replicated::{Replicated, SERVICE};

/// Waits for servers while the runtime goes on.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Tries until something is granted. Meanwhile there are errors that may pass, and nothing hangs.
async fn heals(store: &RedisStore, text: &str) -> Token {
    let mut token = None;
    until("the store grants again", async || {
        let before = Moment::now();
        let attempt = store.try_acquire(&claim(text, Mode::Exclusive)).await;
        let took = Moment::now().since(before);
        assert!(took < Duration::from_secs(6), "it hung for {took:?}");
        match attempt {
            Ok(Attempt::Granted(grant)) => token = Some(grant.token),
            Ok(_) => {}
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        token.is_some()
    })
    .await;
    token.expect("granted")
}

/// Whether a store uses this server just now.
fn uses(store: &RedisStore, server: &RedisServer) -> bool {
    format!("{store:?}").contains(&format!("127.0.0.1:{}", server.port()))
}

async fn follows(store: &RedisStore, servers: &Replicated, master: usize) {
    let since = Moment::now();
    until("the new master is used", async || {
        uses(store, &servers.servers()[master])
    })
    .await;
    let took = Moment::now().since(since);
    assert!(
        took < Duration::from_secs(5),
        "followed only after {took:?}"
    );
}

/// How many of our connections a server or Sentinel has.
fn ours(server: &RedisServer) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]);
    clients
        .lines()
        .filter(|line| line.contains(" resp=3"))
        .count()
}

async fn nobody_is_left(servers: &Replicated) {
    until("no connection of ours is left", async || {
        let all = servers.servers().iter().chain(servers.sentinels());
        all.filter(|server| server.pid().is_some())
            .all(|server| ours(server) == 0)
    })
    .await;
    for server in servers
        .servers()
        .iter()
        .filter(|server| server.pid().is_some())
    {
        let channels = server.strings(&["PUBSUB", "CHANNELS", "lockkeeper*"]);
        assert!(channels.is_empty(), "{channels:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fail_overs_are_followed_and_tokens_grow() {
    let servers = aside(Replicated::with_sentinels);
    let store = open(&servers.url()).await;
    let mut last = granted(&store, &claim("before", Mode::Exclusive))
        .await
        .token;
    for round in 0..2 {
        let old = aside(|| servers.master());
        let new = aside(|| servers.fail_over());
        follows(&store, &servers, new).await;
        let token = heals(&store, &format!("round {round}")).await;
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
        assert_ne!(old, new);
        aside(|| servers.wait_until_complete(new));
        assert!(!uses(&store, &servers.servers()[old]));
    }
    drop(store);
    nobody_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_and_a_waiter_go_on_after_the_master_is_killed() {
    let mut servers = aside(Replicated::with_sentinels);
    let connect = async || {
        let builder = Lockkeeper::builder()
            .url(&servers.url())
            .lease(Duration::from_secs(10))
            .hand_off(HandOff::OFF);
        builder.connect().await.expect("connects")
    };
    let (one, two) = (connect().await, connect().await);
    let lock = one.lock("passed on").expect("a lock");
    let guard = lock.acquire().await.expect("free");
    let first = guard.token();
    let wanted = two.lock("passed on").expect("a lock");
    let waiter = tokio::spawn(async move { wanted.acquire().await });
    until("it waits", async || {
        let info = one.inspect("passed on").await.expect("answers");
        info.is_some_and(|info| info.waiters == 1)
    })
    .await;
    // What the replicas have not heard of dies with the master.
    let master = aside(|| servers.master());
    aside(|| servers.wait_until_complete(master));
    aside(|| servers.kill_master());
    let new = aside(|| servers.wait_for_another(master));
    // The hold is known to the new master, and is kept up there.
    until("it is renewed on the new master", async || {
        let info = one.inspect("passed on").await.ok().flatten();
        info.is_some_and(|info| info.holders.len() == 1)
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.expect("released");
    let next = tokio::time::timeout(Duration::from_secs(10), waiter).await;
    let next = next.expect("in time").expect("finishes").expect("acquires");
    assert!(next.token() > first);
    // The old master comes back as a replica, and is not used.
    servers.server(master).restart();
    aside(|| servers.wait_until_complete(new));
    assert_eq!(ours(&servers.servers()[master]), 0);
    next.release().await.expect("released");
    drop((lock, one, two));
    nobody_is_left(&servers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_only_slept_is_left_behind() {
    let servers = aside(Replicated::with_sentinels);
    let store = open(&format!("{}?response_timeout=1s", servers.url())).await;
    let first = granted(&store, &claim("before", Mode::Exclusive))
        .await
        .token;
    let old = aside(|| servers.master());
    servers.servers()[old].pause();
    let error = store
        .try_acquire(&claim("meanwhile", Mode::Exclusive))
        .await;
    assert!(error.as_ref().is_err_and(Error::is_transient), "{error:?}");
    // It still takes itself for the master, and cannot be asked.
    let new = aside(|| servers.wait_for_another(old));
    follows(&store, &servers, new).await;
    assert!(heals(&store, "after").await > first);
    servers.servers()[old].resume();
    // It answers again, as a master for a moment; a client that connects now does not stay with it.
    let late = open(&servers.url()).await;
    heals(&late, "late").await;
    aside(|| servers.wait_until_complete(new));
    follows(&late, &servers, new).await;
    assert!(uses(&store, &servers.servers()[new]));
    assert_eq!(ours(&servers.servers()[old]), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_not_told_is_left_all_the_same() {
    let servers = aside(Replicated::with_sentinels);
    let store = open(&servers.url()).await;
    let first = granted(&store, &claim("before", Mode::Exclusive))
        .await
        .token;
    let old = aside(|| servers.master());
    // Nobody can make it a replica: it goes on as a master, and answers.
    let stubborn = &servers.servers()[old];
    let rules = ["ACL", "SETUSER", "default", "-replicaof", "-slaveof"];
    assert_eq!(stubborn.command(&rules), "+OK\r\n");
    let new = aside(|| servers.fail_over());
    follows(&store, &servers, new).await;
    assert_eq!(stubborn.info("role").as_deref(), Some("master"));
    assert!(heals(&store, "after").await > first);
    assert_eq!(ours(stubborn), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_of_sentinels_leads_nobody_back_to_an_old_master() {
    let mut servers = aside(Replicated::with_sentinels);
    let store = open(&servers.url()).await;
    let old = aside(|| servers.master());
    let rules = ["ACL", "SETUSER", "default", "-replicaof", "-slaveof"];
    assert_eq!(servers.servers()[old].command(&rules), "+OK\r\n");
    // One Sentinel misses the fail-over, and is then the only one that answers.
    servers.sentinel(2).kill();
    let new = aside(|| servers.fail_over());
    follows(&store, &servers, new).await;
    let last = heals(&store, "after").await;
    servers.sentinels()[..2].iter().for_each(RedisServer::pause);
    servers.sentinel(2).restart();
    let named = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
    let named = servers.sentinels()[2].strings(&named);
    assert_eq!(named[1], servers.servers()[old].port().to_string());
    let role = servers.servers()[old].info("role");
    assert_eq!(role.as_deref(), Some("master"));
    for kind in ["normal", "pubsub"] {
        servers.servers()[new].command(&["CLIENT", "KILL", "TYPE", kind]);
    }
    let end = Moment::now() + Duration::from_secs(3);
    while Moment::now() < end {
        let attempt = store.try_acquire(&claim("lonely", Mode::Exclusive)).await;
        assert!(
            attempt.as_ref().is_err_and(Error::is_transient),
            "{attempt:?}"
        );
        assert_eq!(ours(&servers.servers()[old]), 0);
    }
    let error = store.try_acquire(&claim("lonely", Mode::Exclusive)).await;
    let error = error.expect_err("one is no majority").to_string();
    assert!(error.contains("1 of 3 Sentinels"), "{error}");
    servers.sentinels()[0].resume();
    assert!(heals(&store, "healed").await > last);
    assert!(uses(&store, &servers.servers()[new]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_with_tls_and_certificates() {
    let authority = Authority::new();
    let identity = authority.issue("all", &["127.0.0.1"]);
    let options = RedisOptions {
        tls: Some(identity.clone()),
        clients_of: Some(authority.ca()),
        ..RedisOptions::default()
    };
    let servers = aside(|| Replicated::start_with(1, 1, &options));
    let url = servers.url().replace("redis+", "rediss+");
    let (ca, cert, key) = (authority.ca(), identity.cert, identity.key);
    let trust = format!(
        "ca={}&cert={}&key={}",
        ca.display(),
        cert.display(),
        key.display()
    );
    let store = open(&format!("{url}?{trust}&replicas=1")).await;
    let first = granted(&store, &claim("secret", Mode::Exclusive))
        .await
        .token;
    let new = aside(|| servers.fail_over());
    follows(&store, &servers, new).await;
    aside(|| servers.wait_until_complete(new));
    assert!(heals(&store, "after").await > first);
    // Without TLS a Sentinel says what is wrong.
    let error = connect(&servers.url()).await.expect_err("it speaks TLS");
    assert!(error.to_string().contains("speaks TLS"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_may_come_and_go() {
    let mut servers = aside(Replicated::with_sentinels);
    let store = open(&servers.url()).await;
    // The first two are named first, and are dead or silent.
    servers.sentinel(0).kill();
    let other = open(&servers.url()).await;
    granted(&other, &claim("one is dead", Mode::Exclusive)).await;
    servers.sentinel(0).restart();
    servers.sentinels()[1].pause();
    let other = open(&servers.url()).await;
    granted(&other, &claim("one is silent", Mode::Exclusive)).await;
    servers.sentinels()[1].resume();
    // With none of them the connection there is goes on.
    for at in 0..3 {
        servers.sentinel(at).kill();
    }
    granted(&store, &claim("none is there", Mode::Exclusive)).await;
    let before = Moment::now();
    let error = connect(&servers.url()).await.expect_err("none is there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("no Sentinel answers"), "{error}");
    assert!(Moment::now().since(before) < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_sentinels_is_told() {
    let mut servers = aside(|| Replicated::start(0));
    let watcher = |lines: &[&str]| {
        let port = servers.servers()[0].port();
        let mut lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
        lines.push(format!("sentinel monitor {SERVICE} 127.0.0.1 {port} 1"));
        RedisServer::start_with(RedisOptions {
            sentinel: true,
            lines,
            ..RedisOptions::default()
        })
    };
    let sentinel = watcher(&[]);
    let port = sentinel.port();
    let url = format!("redis+sentinel://127.0.0.1:{port}");
    granted(
        &open(&format!("{url}/{SERVICE}")).await,
        &claim("found", Mode::Exclusive),
    )
    .await;

    let error = connect(&format!("{url}/typo"))
        .await
        .expect_err("no such service");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("\"typo\""), "{error}");
    assert!(error.to_string().contains(SERVICE), "{error}");

    let plain = servers.servers()[0].port();
    let error = connect(&format!("redis+sentinel://127.0.0.1:{plain}/{SERVICE}")).await;
    let error = error.expect_err("it is a server");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("is a server"), "{error}");

    let error = connect(&format!("redis://127.0.0.1:{port}")).await;
    let error = error.expect_err("it is a Sentinel");
    assert!(error.to_string().contains("redis+sentinel:"), "{error}");

    // Sentinels have passwords of their own.
    let shy = watcher(&["requirepass right-canary"]);
    let url = format!("redis+sentinel://127.0.0.1:{}/{SERVICE}", shy.port());
    let error = connect(&url).await.expect_err("it asks for a password");
    assert!(
        error.to_string().contains("sentinel_password_file"),
        "{error}"
    );
    let file = shy.folder().join("password");
    let with_file = format!("{url}?sentinel_password_file={}", file.display());
    std::fs::write(&file, "wrong-canary\n").expect("writes");
    let error = connect(&with_file).await.expect_err("it is wrong");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    std::fs::write(&file, "right-canary\n").expect("writes");
    let store = open(&with_file).await;
    assert!(!format!("{store:?}").contains("canary"));

    servers.server(0).kill();
    let before = Moment::now();
    let error = connect(&format!("redis+sentinel://127.0.0.1:{port}/{SERVICE}")).await;
    let error = error.expect_err("the master is dead");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("no working master"), "{error}");
    assert!(Moment::now().since(before) < Duration::from_secs(8));
}
