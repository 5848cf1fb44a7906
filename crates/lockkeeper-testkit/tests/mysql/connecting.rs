//! Which server the store connects to, as which user, and what it refuses.

use std::time::Duration;

use crate::claims::until;
use crate::common::*;
use crate::switch_over::is_outlasted;
use lockkeeper::Error;
use lockkeeper::store::{Mode, Store};
use lockkeeper_testkit::servers::certificates::Authority;
use lockkeeper_testkit::servers::mariadb::{DATABASE, MariaDbOptions, MariaDbServer, PASSWORD};

fn refused(outcome: Result<impl std::fmt::Debug, Error>) -> String {
    match outcome {
        Err(Error::Refused { reason, .. }) => {
            assert!(!reason.contains(PASSWORD), "{reason}");
            reason
        }
        other => panic!("it should be refused, was {other:?}"),
    }
}

#[tokio::test]
async fn the_reason_of_a_refusal_says_what_to_do() {
    let server = shared();
    let port = server.port();
    let wrong = format!("mysql://keeper:wrong@127.0.0.1:{port}/{DATABASE}");
    assert!(refused(connect(&wrong).await).contains("user or password"));
    // Such a user may not even know whether the database is there.
    let nobody = format!("mysql://keeper:{PASSWORD}@127.0.0.1:{port}/nowhere");
    assert!(refused(connect(&nobody).await).contains("nowhere"));
    // Without the tables, and without the right to make them.
    let least = format!("{}?prefix={}", server.url_of(LEAST, port), prefix());
    assert!(refused(connect(&least).await).contains("lockkeeper schema mysql"));
}

/// It is let in, since it can look at locks, and is refused what it may not do.
#[tokio::test]
async fn a_user_who_may_only_read_is_told_what_to_run() {
    let (server, prefix) = (shared(), prefix());
    drop(open(&format!("{}?prefix={prefix}", server.url())).await);
    server.sql(&format!(
        "CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON {DATABASE}.* TO reader@'%'"
    ));
    let url = format!("{}?prefix={prefix}", server.url_of("reader", server.port()));
    let store = open(&url).await;
    let tried = store.try_acquire(&claim("x", Mode::Exclusive)).await;
    assert!(refused(tried).contains("lockkeeper schema mysql"));
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let (server, prefix) = (shared(), prefix());
    let url = format!("{}?prefix={prefix}", server.url());
    drop(open(&url).await);
    server.sql(&format!("UPDATE {prefix}meta SET version = 2"));
    assert!(refused(connect(&url).await).contains("version 2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_use_by_many_at_once_makes_the_tables_once() {
    let url = fresh();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        let url = url.clone();
        tasks.spawn(async move {
            let store = open(&url).await;
            granted(&store, &claim(&format!("first-{number}"), Mode::Exclusive)).await;
        });
    }
    in_time("twenty first uses", tasks.join_all()).await;
    let store = open(&url).await;
    assert_eq!(store.list("first-").await.expect("lists").len(), 20);
}

#[tokio::test]
async fn a_server_that_is_read_only_is_refused_and_the_next_host_is_taken() {
    let replica = MariaDbServer::start_as(&["--read-only=1"]);
    assert!(refused(connect(&replica.url()).await).contains("read only"));
    let both = format!(
        "mysql://keeper:{PASSWORD}@127.0.0.1:{},127.0.0.1:{}/{DATABASE}?prefix={}",
        replica.port(),
        shared().port(),
        prefix()
    );
    let store = open(&both).await;
    granted(&store, &claim("x", Mode::Exclusive)).await;
}

#[tokio::test]
async fn a_binary_log_of_statements_is_refused_and_the_reason_says_what_to_do() {
    let mut server = MariaDbServer::start_as(&["--log-bin", "--binlog-format=STATEMENT"]);
    assert!(refused(connect(&server.url()).await).contains("MIXED or ROW"));
    server.restart_as(&["--log-bin", "--binlog-format=MIXED", "--sync-binlog=1"]);
    granted(&open(&server.url()).await, &claim("x", Mode::Exclusive)).await;
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    for version in ["10.5.27-MariaDB", "5.7.44-log"] {
        let server = MariaDbServer::start_as(&[&format!("--version={version}")]);
        let reason = refused(connect(&server.url()).await);
        assert!(
            reason.contains(version) && reason.contains("MariaDB 10.6"),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn a_server_that_turns_read_only_is_left_and_comes_back() {
    let server = MariaDbServer::start();
    let store = open(&server.url()).await;
    granted(&store, &claim("before", Mode::Exclusive)).await;
    server.sql("SET GLOBAL read_only = 1");
    let error = store
        .try_acquire(&claim("meanwhile", Mode::Exclusive))
        .await;
    assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
    let told = async {
        let is_told = |error: &Error| error.to_string().contains("as a replica is");
        let meanwhile = claim("meanwhile", Mode::Exclusive);
        loop {
            let error = store.try_acquire(&meanwhile).await;
            let error = error.expect_err("it is read only");
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            if is_told(&error) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("a new connection", told).await;
    server.sql("SET GLOBAL read_only = 0");
    let comes_back = async {
        while store
            .try_acquire(&claim("after", Mode::Exclusive))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("the way back", comes_back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_and_releases_outlast_a_server_that_is_read_only_for_a_while() {
    let server = MariaDbServer::start();
    let (holder, waiter) = (keeper(&server.url()).await, keeper(&server.url()).await);
    let turn = |on| drop(server.sql(&format!("SET GLOBAL read_only = {}", u8::from(on))));
    is_outlasted(holder, waiter, turn, "as a replica is").await;
}

/// Each of several servers is named with its reason, and one that may be the primary in a moment refuses nobody.
#[tokio::test]
async fn several_servers_are_named_with_their_reasons() {
    let replica = MariaDbServer::start_as(&["--read-only=1"]);
    let port = lockkeeper_testkit::servers::ports::free_port();
    let hosts = |user: &str| {
        format!(
            "mysql://{user}:{PASSWORD}@127.0.0.1:{},127.0.0.1:{port}/{DATABASE}",
            replica.port()
        )
    };
    for (user, word) in [("keeper", "read only"), ("nobody", "user or password")] {
        let error = connect(&hosts(user)).await.expect_err("none is usable");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let (error, nowhere) = (error.to_string(), format!("127.0.0.1:{port}"));
        assert!(error.contains(word) && error.contains(&nowhere), "{error}");
    }
    let twice = format!(
        "mysql://nobody:{PASSWORD}@127.0.0.1:{0},127.0.0.1:{0}/{DATABASE}",
        replica.port()
    );
    assert!(refused(connect(&twice).await).contains("user or password"));
}

/// A standby says that another server is the primary. If that one refuses us, the user is told so, also where the store is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_refuses_us_is_told_beside_a_standby() {
    let (primary, standby) = (
        MariaDbServer::start(),
        MariaDbServer::start_as(&["--read-only=1"]),
    );
    let of = |one: &MariaDbServer, other: &MariaDbServer| {
        let (one, other) = (one.port(), other.port());
        format!(
            "mysql://keeper:{PASSWORD}@127.0.0.1:{one},127.0.0.1:{other}/{DATABASE}?connect_timeout=10s"
        )
    };
    let waiter = keeper(&of(&standby, &primary)).await;
    let lock = waiter.lock("x").expect("a lock");
    let other = keeper(&primary.url()).await;
    let held = other.lock("x").expect("a lock");
    let held = held.acquire().await.expect("acquires");
    let waits = tokio::spawn(async move { lock.acquire().await.map(drop) });
    primary.sql("ALTER USER keeper@'%' IDENTIFIED BY 'another'");
    primary.kill_connections();
    for url in [of(&primary, &standby), of(&standby, &primary)] {
        let reason = refused(connect(&url).await);
        assert!(
            reason.contains("user or password") && reason.contains("read only"),
            "{reason}"
        );
    }
    // A store that is open waits: the one that refuses it may be the standby in a moment.
    let refusals = || {
        let status = primary.sql("SHOW GLOBAL STATUS LIKE 'Aborted_connects'");
        let number = status.split('\t').next_back();
        number
            .and_then(|text| text.parse::<u64>().ok())
            .expect("a number")
    };
    let before = refusals();
    until("both keepers are refused", async || {
        refusals() >= before + 8
    })
    .await;
    assert!(!waits.is_finished(), "{:?}", waits.await);
    primary.sql(&format!("ALTER USER keeper@'%' IDENTIFIED BY '{PASSWORD}'"));
    drop(held);
    let got = in_time("the lock", waits).await.expect("no panic");
    got.expect("acquires");
}

#[tokio::test]
async fn tls_is_verified_and_the_password_stays_hidden() {
    let authority = Authority::new();
    let server = MariaDbServer::start_with(MariaDbOptions {
        tls: Some(authority.issue("server", &["127.0.0.1"])),
        ..MariaDbOptions::default()
    });
    let ca = authority.ca();
    let store = open(&format!("{}?ca={}", server.url(), ca.display())).await;
    granted(&store, &claim("x", Mode::Exclusive)).await;
    let ciphers = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'keeper'";
    assert_ne!(server.sql(ciphers), "0");
    // Another authority, and a server without TLS.
    let other = Authority::new();
    let url = format!("{}?ca={}", server.url(), other.ca().display());
    assert!(refused(connect(&url).await).contains("authority"));
    let url = format!("{}?sslmode=require&insecure=yes", shared().url());
    assert!(refused(connect(&url).await).contains("TLS"));
    assert!(
        open(&format!("{}?insecure=yes", server.url()))
            .await
            .place()
            .contains("127.0.0.1")
    );
    assert!(!format!("{store:?}").contains(PASSWORD));
}
