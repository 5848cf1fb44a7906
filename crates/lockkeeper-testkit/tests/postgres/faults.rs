//! What the server, the network and other settings can do to a lock.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::postgres::PostgresStore;
use lockkeeper::store::{Attempt, Claim, Interest, Mode, Renewed, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::claims::{claim_for, release, renewal_for, until};
use crate::common::{connect, open};

const LEASE: Duration = Duration::from_secs(30);

fn claim(text: &str) -> Claim {
    claim_for(LEASE, text, Mode::Exclusive)
}

async fn granted(store: &PostgresStore, claim: &Claim) -> bool {
    matches!(store.try_acquire(claim).await, Ok(Attempt::Granted(_)))
}

/// A try as soon as the store is connected again.
async fn answered(store: &PostgresStore, claim: &Claim) -> Attempt {
    let mut last = None;
    until("the store answers", async || {
        last = store.try_acquire(claim).await.ok();
        last.is_some()
    })
    .await;
    last.expect("an answer")
}

fn started(settings: &[(&str, &str)]) -> PostgresServer {
    let settings = settings.iter();
    PostgresServer::start_with(PostgresOptions {
        settings: settings
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect(),
        ..PostgresOptions::default()
    })
}

/// Nobody is granted before the longest lease is over, the holder goes on, and a waiter that waits in vain is told why.
async fn sits_out(store: &PostgresStore, held: &Claim) {
    let attempt = answered(store, &claim("other")).await;
    assert!(matches!(attempt, Attempt::Busy { .. }), "{attempt:?}");
    let ready_in = store.health().ready_in;
    assert!(ready_in > Duration::from_secs(10), "{ready_in:?}");
    let renewed = store.renew(&[renewal_for(LEASE, held)]).await;
    assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
    assert_eq!(release(store, held).await, Ok(true));
}

#[tokio::test]
async fn a_server_that_was_stopped_at_once_sits_out() {
    let mut server = started(&[]);
    let store = open(&server.url()).await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    // A clean restart forgets nothing, and nobody waits.
    server.stop();
    server.restart();
    let next = claim("next");
    assert!(matches!(answered(&store, &next).await, Attempt::Granted(_)));
    server.stop_at_once();
    server.restart();
    sits_out(&store, &held).await;
    // With the tables, not with the connection: another client is told the same.
    let other = open(&server.url()).await;
    assert!(!granted(&other, &claim("other")).await);
    let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
    let lock = keeper.lock("third").expect("a lock");
    let error = lock.acquire_within(Duration::from_millis(200)).await;
    let error = error.expect_err("it sits out").to_string();
    assert!(error.contains("nothing can be granted"), "{error}");
}

#[tokio::test]
async fn a_server_of_which_one_process_was_killed_sits_out() {
    let server = started(&[]);
    let store = open(&server.url()).await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    let pids = server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'lockkeeper'");
    let killed = std::process::Command::new("kill")
        .args(["-9", &pids[0]])
        .status();
    assert!(killed.expect("kill runs").success());
    until("the server is back", async || {
        server.try_sql("SELECT 1").is_ok()
    })
    .await;
    sits_out(&store, &held).await;
}

#[tokio::test]
async fn a_promoted_standby_sits_out() {
    let mut primary = started(&[]);
    let url = |port: u16| format!("127.0.0.1:{port}");
    let store = open(&primary.url()).await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    let standby = PostgresServer::standby_of(&primary);
    let error = connect(&standby.url()).await.expect_err("a replica");
    assert!(error.to_string().contains("replica"), "{error}");
    let both = format!(
        "postgres://postgres@{},{}/postgres",
        url(standby.port()),
        url(primary.port())
    );
    let store = open(&both).await;
    assert!(granted(&store, &claim("before")).await);
    until("the standby has it all", async || {
        standby.sql("SELECT count(*) FROM lockkeeper.lock WHERE claim IS NOT NULL") == ["2"]
    })
    .await;
    primary.stop_at_once();
    standby.promote();
    sits_out(&store, &held).await;
}

#[tokio::test]
async fn a_server_told_never_to_sit_out_does_not() {
    let mut server = started(&[]);
    let store = open(&format!("{}&sit_out=never", server.url())).await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    server.restart();
    let again = claim("held");
    assert!(matches!(
        answered(&store, &again).await,
        Attempt::Busy { .. }
    ));
    assert!(granted(&store, &claim("other")).await);
}

#[tokio::test]
async fn a_reply_that_is_lost_after_the_commit_leaves_no_doubt_behind() {
    let server = PostgresServer::shared();
    let proxy = Proxy::to(server.port());
    let url = |port: u16, schema: &str| {
        format!(
            "postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}&response_timeout=500ms"
        )
    };
    let schema = PostgresServer::fresh_schema();
    let store = open(&url(proxy.port(), &schema)).await;
    let straight = open(&url(server.port(), &schema)).await;
    let first = claim("first");
    assert!(granted(&store, &first).await);
    proxy.lose_replies("lk_take", 1);
    let lost = claim("lost");
    let outcome = store.try_acquire(&lost).await;
    assert!(
        matches!(outcome, Err(Error::OutcomeUnknown { .. })),
        "{outcome:?}"
    );
    assert_eq!(proxy.lost_replies(), 1);
    proxy.heal();
    assert!(!granted(&straight, &claim("lost")).await);
    until("it is withdrawn", async || {
        store.withdraw(&lost.name, lost.id).await.is_ok()
    })
    .await;
    assert!(granted(&straight, &claim("lost")).await);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_and_found_again() {
    let server = PostgresServer::shared();
    let proxy = Proxy::to(server.port());
    let schema = PostgresServer::fresh_schema();
    let store = open(&format!(
        "postgres://postgres@127.0.0.1:{}/postgres?schema={schema}&response_timeout=300ms&connect_timeout=300ms",
        proxy.port()
    ))
    .await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    proxy.black_hole();
    let began = Moment::now();
    let outcome = store.renew(&[renewal_for(LEASE, &held)]).await;
    assert!(
        matches!(outcome, Err(Error::OutcomeUnknown { .. })),
        "{outcome:?}"
    );
    assert!(Moment::now().since(began) < Duration::from_secs(10));
    proxy.heal();
    proxy.cut();
    let again = answered(&store, &claim("held")).await;
    assert!(matches!(again, Attempt::Busy { .. }), "{again:?}");
}

/// A role that is set against us: nothing of it is left once we are connected.
#[tokio::test]
async fn settings_of_a_role_do_not_matter() {
    let server = started(&[("synchronous_commit", "off")]);
    server.sql(
        "CREATE USER app; GRANT CREATE ON DATABASE postgres TO app; \
         ALTER ROLE app SET default_transaction_isolation = 'serializable'; \
         ALTER ROLE app SET statement_timeout = '2s'; ALTER ROLE app SET lock_timeout = '1ms'; \
         ALTER ROLE app SET idle_session_timeout = '2s'; ALTER ROLE app SET timezone = 'Asia/Shanghai'; \
         ALTER ROLE app SET datestyle = 'German'; ALTER ROLE app SET standard_conforming_strings = off; \
         ALTER ROLE app SET bytea_output = 'escape'",
    );
    let url = server.url_of("app");
    let one = Lockkeeper::connect(&url).await.expect("connects");
    let two = Lockkeeper::connect(&url).await.expect("connects");
    for name in ["a", "it's a \\ \"name\" %", "名前"] {
        for _ in 0..20 {
            let (first, second) = (
                one.lock(name).expect("a lock"),
                two.lock(name).expect("a lock"),
            );
            let guard = first.acquire().await.expect("acquires");
            let waits = tokio::spawn(async move { second.acquire().await.map(drop) });
            tokio::time::sleep(Duration::from_millis(5)).await;
            guard.release().await.expect("releases");
            waits.await.expect("no panic").expect("acquires");
        }
        // Longer than a session of that role may idle.
        tokio::time::sleep(Duration::from_millis(2_500)).await;
    }
    let sync =
        server.sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'");
    assert_eq!(sync, ["0"]);
}

/// The server's clock is set back by an hour: locks are stuck no longer than their lease.
#[tokio::test]
async fn a_clock_that_is_set_back_does_not_keep_a_lock() {
    let wall = WallClock::new();
    let server = PostgresServer::start_with(PostgresOptions {
        environment: wall.environment(),
        ..PostgresOptions::default()
    });
    let store = open(&server.url()).await;
    let lease = Duration::from_millis(500);
    let dead = claim_for(lease, "dead", Mode::Exclusive);
    let reader = claim_for(lease, "read", Mode::Read);
    assert!(granted(&store, &dead).await && granted(&store, &reader).await);
    wall.behind(Duration::from_secs(3_600));
    let began = Moment::now();
    for name in ["dead", "read"] {
        until("it is free", async || granted(&store, &claim(name)).await).await;
    }
    assert!(
        Moment::now().since(began) >= lease / 2,
        "it was freed early"
    );
}

#[tokio::test]
async fn a_clock_that_is_set_forward_keeps_tokens_growing() {
    let wall = WallClock::new();
    let server = PostgresServer::start_with(PostgresOptions {
        environment: wall.environment(),
        ..PostgresOptions::default()
    });
    let store = open(&server.url()).await;
    let mut last = 0;
    for shift in [0, 3_600, 0] {
        wall.ahead(Duration::from_secs(shift));
        let next = claim("clock");
        let attempt = store.try_acquire(&next).await.expect("answers");
        let Attempt::Granted(grant) = attempt else {
            panic!("{attempt:?}")
        };
        assert!(grant.token.get() > last);
        last = grant.token.get();
        assert_eq!(release(&store, &next).await, Ok(true));
    }
}

/// A user's transaction has a row locked: others go on, and the verb on that name is answered in time.
#[tokio::test]
async fn a_row_that_is_locked_keeps_no_other_name() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::fresh_schema();
    let store = open(&format!("{}&schema={schema}", server.url())).await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    let sleeps = format!(
        "BEGIN; SELECT * FROM {schema}.lock WHERE name = 'held' FOR UPDATE; SELECT pg_sleep(3); COMMIT"
    );
    let locked = tokio::task::spawn_blocking(move || server.sql(&sleeps));
    until("the row is locked", async || {
        let seen =
            format!("SELECT name FROM {schema}.lock WHERE name = 'held' FOR UPDATE SKIP LOCKED");
        server.sql(&seen).is_empty()
    })
    .await;
    let (slow, fast) = (renewal_for(LEASE, &held), claim("other"));
    let (slow, fast) = tokio::join!(
        store.renew(std::slice::from_ref(&slow)),
        granted(&store, &fast)
    );
    assert!(fast, "another name waited for it");
    assert!(matches!(slow, Err(Error::Unavailable { .. })), "{slow:?}");
    locked.await.expect("no panic");
    let renewed = store.renew(&[renewal_for(LEASE, &held)]).await;
    assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
}

/// Hints that are lost with a connection are made up for, and channels are listened to again.
#[tokio::test]
async fn a_waiter_is_woken_after_its_connection_was_ended() {
    let server = started(&[]);
    let url = server.url();
    let (store, other) = (open(&url).await, open(&url).await);
    let held = claim("held");
    assert!(granted(&other, &held).await);
    let waits = claim("held").with_enqueue(true);
    let interest = Interest::Claim(waits.name.clone(), waits.id);
    let subscription = store.subscribe(interest).await.expect("subscribes");
    assert!(!granted(&store, &waits).await);
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'lockkeeper'";
    assert_eq!(server.sql(ended), ["2"]);
    tokio::time::timeout(LEASE, subscription.hint())
        .await
        .expect("the loss is told");
    assert!(matches!(
        answered(&store, &waits).await,
        Attempt::Busy { .. }
    ));
    until("it is released", async || {
        release(&other, &held).await.is_ok()
    })
    .await;
    tokio::time::timeout(LEASE, subscription.hint())
        .await
        .expect("the grant is told");
    assert!(granted(&store, &waits).await);
}

/// A server that turns read-only under a live connection, as a primary that becomes a replica does.
#[tokio::test]
async fn a_server_that_turns_read_only_is_left_and_found_again() {
    let server = started(&[]);
    let store = open(&server.url()).await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    let turn = |how: &str| {
        server.sql(&format!(
            "ALTER SYSTEM SET default_transaction_read_only = {how}"
        ));
        server.sql("SELECT pg_reload_conf()");
    };
    turn("on");
    let mut told = String::new();
    until("it is noticed", async || {
        let error = store.renew(&[renewal_for(LEASE, &held)]).await.err();
        told = error.map(|error| error.to_string()).unwrap_or_default();
        told.contains("default_transaction_read_only")
    })
    .await;
    turn("off");
    until("it is found again", async || {
        store.renew(&[renewal_for(LEASE, &held)]).await == Ok(vec![Renewed::Renewed])
    })
    .await;
}
