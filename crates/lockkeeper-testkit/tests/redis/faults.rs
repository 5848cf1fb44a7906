//! The Redis store when the server is stopped, killed, emptied, demoted, or does not let us in.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Renewed, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

/// What must not take long takes less, also on a busy machine.
const BOUNDED: Duration = Duration::from_secs(10);

fn durable() -> RedisServer {
    RedisServer::start_with(RedisOptions {
        durable: true,
        ..RedisOptions::default()
    })
}

/// Tries until the store answers again.
async fn answers_again(store: &lockkeeper::store::redis::RedisStore) {
    let since = Moment::now();
    until("the store answers again", async || {
        store.inspect(&name("anything")).await.is_ok()
    })
    .await;
    let took = Moment::now().since(since);
    assert!(took < BOUNDED, "healed only after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_script_cache_costs_nothing() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for _ in 0..3 {
        let held = claim("cached", Mode::Exclusive);
        granted(&store, &held).await;
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(release(&store, &held).await, Ok(true));
        server.command(&["SCRIPT", "FLUSH"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_survives_a_restart_with_its_data() {
    let mut server = durable();
    let store = open(&server.url()).await;
    for mode in [
        Mode::Exclusive,
        Mode::Read,
        Mode::Write,
        Mode::Permit { limit: 3, count: 2 },
    ] {
        let held = claim("kept", mode);
        let grant = granted(&store, &held).await;
        server.kill();
        let error = store.try_acquire(&claim("kept", Mode::Exclusive)).await;
        assert!(
            error.as_ref().is_err_and(Error::is_transient),
            "{mode}: {error:?}"
        );
        server.restart();
        answers_again(&store).await;
        busy(&store, &claim("kept", Mode::Exclusive)).await;
        assert_eq!(granted(&store, &held).await, grant, "{mode}");
        assert_eq!(
            store.renew(&[renewal(&held)]).await,
            Ok(vec![Renewed::Renewed]),
            "{mode}"
        );
        assert_eq!(release(&store, &held).await, Ok(true), "{mode}");
        let next = claim("kept", Mode::Exclusive);
        assert!(granted(&store, &next).await.token > grant.token);
        assert_eq!(release(&store, &next).await, Ok(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_lost_data_the_holder_is_told_and_tokens_still_grow() {
    let mut server = durable();
    let store = open(&server.url()).await;
    let held = claim("lost", Mode::Exclusive);
    let grant = granted(&store, &held).await;
    server.restart_empty();
    answers_again(&store).await;
    let renewed = store.renew(&[renewal(&held)]).await;
    assert_eq!(renewed, Ok(vec![Renewed::NotHeld]));
    assert_eq!(release(&store, &held).await, Ok(false));
    let next = granted(&store, &claim("lost", Mode::Exclusive)).await;
    assert!(next.token > grant.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_hangs_nobody() {
    let server = RedisServer::start();
    let store = open(&format!("{}?response_timeout=1s", server.url())).await;
    let held = claim("stopped", Mode::Exclusive);
    granted(&store, &held).await;
    server.pause();
    let before = Moment::now();
    // It was sent, and may be done once the server goes on.
    let error = store
        .try_acquire(&claim("other", Mode::Exclusive))
        .await
        .expect_err("nobody answers");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert!(Moment::now().since(before) < BOUNDED);
    // The next ones are not even sent, or get no answer either; nothing hangs.
    let before = Moment::now();
    let error = release(&store, &held).await.expect_err("nobody answers");
    assert!(error.is_transient(), "{error:?}");
    let error = store.inspect(&held.name).await.expect_err("nobody answers");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(Moment::now().since(before) < BOUNDED);
    server.resume();
    answers_again(&store).await;
    // A release in doubt is harmless to repeat.
    release(&store, &held).await.expect("answers");
    granted(&store, &claim("stopped", Mode::Exclusive)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_arrives_late_does_nothing() {
    let server = RedisServer::start();
    let store = open(&format!("{}?response_timeout=1s", server.url())).await;
    granted(&store, &claim("warm", Mode::Exclusive)).await;
    server.pause();
    let late =
        claim("late", Mode::Exclusive).with_not_after(Moment::now() + Duration::from_secs(2));
    let error = store.try_acquire(&late).await.expect_err("nobody answers");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    while Moment::now() <= late.not_after {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.resume();
    answers_again(&store).await;
    // The request was in the socket all the while, and the server has read it by now.
    let info = store.inspect(&late.name).await.expect("answers");
    assert!(
        info.is_none_or(|info| info.holders.is_empty()),
        "it took the lock after its time"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_is_lost_in_time_when_the_server_stops() {
    let server = RedisServer::start();
    // A tenth of it is for the notice to arrive in.
    let lease = Duration::from_secs(5);
    let keeper = Lockkeeper::builder()
        .url(&format!("{}?response_timeout=500ms", server.url()))
        .lease(lease)
        .connect()
        .await
        .expect("connects");
    let guard = keeper
        .lock("guarded")
        .expect("a lock")
        .acquire()
        .await
        .expect("free");
    server.pause();
    let before = Moment::now();
    guard.lost().await;
    let took = Moment::now().since(before);
    assert!(took < lease, "told only after {took:?}");
    assert!(!guard.is_held());
    server.resume();
    let lock = keeper.lock("guarded").expect("a lock");
    let next = tokio::time::timeout(Duration::from_secs(10), lock.acquire()).await;
    drop(next.expect("in time").expect("free again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_told_at_once() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill();
    let before = Moment::now();
    let error = connect(&url).await.expect_err("nobody is there");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    assert!(Moment::now().since(before) < BOUNDED);
    let error = connect("redis+unix:///no/such/socket").await;
    assert!(error.is_err_and(|error| error.is_transient()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_refused_and_never_shown() {
    let server = RedisServer::start_with(RedisOptions {
        password: Some("right-canary".into()),
        ..RedisOptions::default()
    });
    let store = open(&server.url()).await;
    granted(&store, &claim("let in", Mode::Exclusive)).await;
    assert!(!format!("{store:?}").contains("canary"));
    let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
    assert!(!format!("{keeper:?}").contains("canary"));
    let port = server.port();
    for url in [
        format!("redis://:wrong-canary@127.0.0.1:{port}"),
        format!("redis://nobody:wrong-canary@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let error = connect(&url).await.expect_err(&url);
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains("password"), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_is_refused() {
    let server = RedisServer::start();
    let error = connect(&format!("redis://127.0.0.1:{}/99", server.port())).await;
    let error = error.expect_err("there are 16");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("database 99"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused_and_a_demoted_master_left() {
    let master = RedisServer::start();
    let replica = RedisServer::start_with(RedisOptions {
        lines: vec![format!("replicaof 127.0.0.1 {}", master.port())],
        ..RedisOptions::default()
    });
    let error = connect(&replica.url()).await.expect_err("a replica");
    assert!(error.to_string().contains("replica"), "{error}");

    // One that is demoted under us is an error too, until it is a master again.
    let store = open(&master.url()).await;
    let mut renewals = Vec::new();
    for dialect in ["redisson", "plain"] {
        // Stores that only renew see it as well.
        let store = open(&format!("{}?dialect={dialect}", master.url())).await;
        let held = claim(dialect, Mode::Exclusive);
        granted(&store, &held).await;
        let renewal = renewal(&held).with_lease(2 * LEASE);
        renewals.push((store, renewal));
    }
    let port = replica.port().to_string();
    master.command(&["REPLICAOF", "127.0.0.1", &port]);
    for (store, renewal) in &renewals {
        let error = store.renew(std::slice::from_ref(renewal)).await;
        let error = error.expect_err("it is a replica");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("replica"), "{error}");
    }
    for _ in 0..3 {
        let error = store.try_acquire(&claim("demoted", Mode::Exclusive)).await;
        let error = error.expect_err("it is a replica");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("replica"), "{error}");
    }
    master.command(&["REPLICAOF", "NO", "ONE"]);
    until("it is a master again", async || {
        let attempt = store.try_acquire(&claim("demoted", Mode::Exclusive)).await;
        matches!(attempt, Ok(Attempt::Granted(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_made_again_and_waiters_go_on() {
    let server = RedisServer::start();
    let (one, two) = (open(&server.url()).await, open(&server.url()).await);
    let held = claim("cut", Mode::Exclusive);
    granted(&one, &held).await;
    let wish = waiting("cut", Mode::Exclusive);
    let subscription = subscribe(&two, &wish).await;
    busy(&two, &wish).await;
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]);
    // Told to look again, since hints may have been missed meanwhile.
    let hint = tokio::time::timeout(Duration::from_secs(5), subscription.hint()).await;
    hint.expect("a hint");
    until("it is released", async || {
        release(&one, &held).await.is_ok()
    })
    .await;
    until("the waiter has it", async || {
        matches!(two.try_acquire(&wish).await, Ok(Attempt::Granted(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_acl_hides_is_unknown_and_what_it_forbids_is_told() {
    let server = RedisServer::start();
    let port = server.port();
    let all = ["ACL", "SETUSER", "shy", "on", ">pw", "~*", "&*", "+@all"];
    server.command(&[&all[..], &["-info"]].concat());
    let store = open(&format!("redis://shy:pw@127.0.0.1:{port}")).await;
    granted(&store, &claim("shy", Mode::Exclusive)).await;

    server.command(&[
        "ACL", "SETUSER", "poor", "on", ">pw", "~other:*", "&*", "+@all",
    ]);
    let store = open(&format!("redis://poor:pw@127.0.0.1:{port}")).await;
    let error = store.try_acquire(&claim("mine", Mode::Exclusive)).await;
    let error = error.expect_err("its keys are others'");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("ACL"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_kind_is_refused_and_kept() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.command(&["RPUSH", "a list", "x"]);
    server.command(&["SET", "a string", "x"]);
    for text in ["a list", "a string"] {
        for mode in [
            Mode::Exclusive,
            Mode::Fair,
            Mode::Read,
            Mode::Write,
            Mode::Permit { limit: 1, count: 1 },
        ] {
            let refused = store.try_acquire(&claim(text, mode)).await;
            assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
        }
        let refused = store.inspect(&name(text)).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
    assert_eq!(server.strings(&["LLEN", "a list"]), ["1"]);
    assert_eq!(server.strings(&["GET", "a string"]), ["x"]);
}

/// It says so and closes the connection; a client that wrote in the meantime hears only that.
#[tokio::test]
async fn a_server_that_is_full_says_so() {
    let server = RedisServer::start();
    // The connection that makes it so small is the only one.
    let mut only = std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("connects");
    only.write_all(b"CONFIG SET maxclients 1\r\n")
        .expect("asks");
    let mut done = [0; 5];
    only.read_exact(&mut done).expect("answers");
    assert_eq!(&done, b"+OK\r\n");
    let error = connect(&server.url()).await.expect_err("it is full");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("max number of clients"), "{text}");
    drop(only);
    until("there is room again", async || {
        connect(&server.url()).await.is_ok()
    })
    .await;
}
