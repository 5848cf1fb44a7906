//! Servers whose settings are against us, and servers that go away.

use std::time::Duration;

use crate::common::*;
use lockkeeper::Error;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper_testkit::servers::mariadb::{MariaDbOptions, MariaDbServer};
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::wall_clock::WallClock;

/// Two keepers contend for one name in several modes.
async fn contend(url: &str) {
    let (one, other) = (keeper(url).await, keeper(url).await);
    for round in 0..5 {
        for keeper in [&one, &other] {
            let lock = keeper.lock("contended").expect("a lock");
            let guard = in_time("a lock", lock.acquire()).await.expect("acquires");
            let waits = tokio::spawn({
                let lock = one.lock("contended").expect("a lock");
                async move { lock.acquire_within(LONG).await.expect("acquires").is_some() }
            });
            tokio::time::sleep(Duration::from_millis(5)).await;
            guard.release().await.expect("releases");
            assert!(
                in_time("a hand-off", waits).await.expect("no panic"),
                "round {round}"
            );
            let book = keeper.rwlock("book").expect("a lock");
            drop(in_time("a reader", book.read()).await.expect("reads"));
            drop(in_time("a writer", book.write()).await.expect("writes"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolation_zone_and_time_outs_of_the_server_do_not_matter() {
    for options in [
        &[
            "--transaction-isolation=SERIALIZABLE",
            "--default-time-zone=+09:00",
        ][..],
        &[
            "--transaction-isolation=REPEATABLE-READ",
            "--wait-timeout=1",
            "--interactive-timeout=1",
        ],
        &[
            "--autocommit=0",
            "--sql-mode=ANSI,SIMULTANEOUS_ASSIGNMENT",
            "--max-statement-time=0.05",
            "--completion-type=CHAIN",
        ],
        &["--log-bin", "--binlog-format=MIXED", "--sync-binlog=1"],
        &[
            "--innodb-flush-log-at-trx-commit=0",
            "--lower-case-table-names=1",
        ],
    ] {
        let server = MariaDbServer::start_as(options);
        // Whether it sits out is another matter.
        contend(&format!("{}?sit_out=never", server.url())).await;
    }
}

#[tokio::test]
async fn a_session_that_idles_longer_than_the_servers_time_out_is_kept() {
    let server = MariaDbServer::start_as(&["--wait-timeout=1", "--interactive-timeout=1"]);
    let store = open(&server.url()).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    granted(&store, &claim("x", Mode::Exclusive)).await;
}

#[tokio::test]
async fn a_hold_survives_a_killed_server_and_its_token_is_passed() {
    let mut server = MariaDbServer::start();
    let store = open(&server.url()).await;
    let held = claim("x", Mode::Exclusive);
    let before = granted(&store, &held).await;
    server.kill();
    server.restart();
    let back = async {
        loop {
            match store.try_acquire(&claim("x", Mode::Exclusive)).await {
                Ok(attempt) => break attempt,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let attempt = in_time("the way back", back).await;
    assert!(matches!(attempt, Attempt::Busy { .. }), "{attempt:?}");
    assert!(
        crate::claims::release(&store, &held)
            .await
            .expect("releases")
    );
    let after = granted(&store, &claim("x", Mode::Exclusive)).await;
    assert!(after.token.get() > before.token.get());
}

#[tokio::test]
async fn a_server_that_may_have_forgotten_grants_sits_out() {
    let mut server = MariaDbServer::start_as(&["--innodb-flush-log-at-trx-commit=2"]);
    let url = format!("{}?max_lease=2s", server.url());
    let short =
        |name: &str| crate::claims::claim_for(Duration::from_secs(2), name, Mode::Exclusive);
    let store = open(&url).await;
    // So does the first use: the first grants may be lost together with the mark that there were any.
    let first = async {
        while let Attempt::Busy { .. } = store.try_acquire(&short("x")).await.expect("answers") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    in_time("sitting out", first).await;
    server.kill();
    // Two starts are told apart by their second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    server.restart();
    let store = open(&url).await;
    assert!(store.health().ready_in > Duration::ZERO);
    let attempt = store.try_acquire(&short("y")).await.expect("answers");
    assert!(matches!(attempt, Attempt::Busy { .. }), "{attempt:?}");
    let waits = async {
        while let Attempt::Busy { .. } = store.try_acquire(&short("y")).await.expect("answers") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    in_time("sitting out", waits).await;
    assert_eq!(store.health().ready_in, Duration::ZERO);
    // With the data of another server: the tables say which one made the grants.
    server.sql("UPDATE lockkeeper_meta SET server = 'another'");
    let attempt = open(&url)
        .await
        .try_acquire(&short("z"))
        .await
        .expect("answers");
    assert!(matches!(attempt, Attempt::Busy { .. }), "{attempt:?}");
    server.sql("UPDATE lockkeeper_meta SET server = 'another', ready_at = 0");
    granted(&open(&format!("{url}&sit_out=never")).await, &short("z")).await;
}

#[tokio::test]
async fn a_lost_reply_is_in_doubt_and_the_claim_can_be_withdrawn() {
    let server = shared();
    let proxy = Proxy::to(server.port());
    let prefix = prefix();
    let url = format!(
        "{}?prefix={prefix}&response_timeout=500ms",
        server.url_at(proxy.port())
    );
    let store = open(&url).await;
    granted(&store, &claim("known", Mode::Exclusive)).await;
    let lost = claim("lost", Mode::Exclusive);
    proxy.replies(Way::Dropped);
    let outcome = store.try_acquire(&lost).await;
    assert!(
        matches!(
            outcome,
            Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. })
        ),
        "{outcome:?}"
    );
    proxy.heal();
    proxy.cut();
    let withdrawn = async {
        while store.withdraw(&lost.name, lost.id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("a withdrawal", withdrawn).await;
    granted(&store, &claim("lost", Mode::Exclusive)).await;
}

#[tokio::test]
async fn a_dropped_future_never_gives_its_answer_to_the_next() {
    let store = open(&fresh()).await;
    for round in 0..200_u64 {
        let name = format!("name-{round}");
        let first = claim(&name, Mode::Exclusive);
        // Dropped before it was sent, under way, or just answered.
        let time = Duration::from_micros(round * 7);
        let _ = tokio::time::timeout(time, store.try_acquire(&first)).await;
        let info = store.inspect(&first.name).await.expect("inspects");
        let holder = info.as_ref().and_then(|info| info.holders.first());
        assert!(holder.is_none_or(|holder| holder.claim == first.id));
        let other = claim(&format!("other-{round}"), Mode::Exclusive);
        granted(&store, &other).await;
        let info = store
            .inspect(&other.name)
            .await
            .expect("inspects")
            .expect("is known");
        assert_eq!(info.holders[0].claim, other.id);
    }
}

#[tokio::test]
async fn connections_that_an_administrator_kills_come_back() {
    let server = MariaDbServer::start();
    let (holder, waiter) = (keeper(&server.url()).await, keeper(&server.url()).await);
    for _ in 0..5 {
        let guard = holder
            .lock("x")
            .expect("a lock")
            .acquire()
            .await
            .expect("acquires");
        let waits = tokio::spawn({
            let lock = waiter.lock("x").expect("a lock");
            async move { lock.acquire_within(LONG).await }
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(server.kill_connections() > 0);
        drop(guard);
        let got = in_time("a hand-off", waits).await.expect("no panic");
        assert!(got.expect("acquires").is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_stopped_in_a_verb_keeps_nobody_waiting() {
    let (server, prefix) = (shared(), prefix());
    let proxy = Proxy::to(server.port());
    let slow = format!("{}?prefix={prefix}", server.url_at(proxy.port()));
    let straight = format!("{}?prefix={prefix}", server.url());
    let (stopped, other) = (open(&slow).await, open(&straight).await);
    let known = claim("x", Mode::Exclusive);
    granted(&stopped, &known).await;
    crate::claims::release(&stopped, &known)
        .await
        .expect("releases");
    // From here on its answers do not reach it: it may be anywhere between two of its statements.
    proxy.replies(Way::Held);
    let late = claim("x", Mode::Read);
    let tried = tokio::spawn(async move { stopped.try_acquire(&late).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let goes_on = async {
        for _ in 0..20 {
            let claim = claim("x", Mode::Exclusive);
            granted(&other, &claim).await;
            assert!(
                crate::claims::release(&other, &claim)
                    .await
                    .expect("releases")
            );
        }
    };
    in_time("the others", goes_on).await;
    proxy.heal();
    let _ = in_time("the stopped one", tried).await.expect("no panic");
}

#[tokio::test]
async fn a_server_at_its_limit_of_connections_says_so_and_serves_those_who_are_in() {
    let server = MariaDbServer::start_as(&["--max-connections=10"]);
    let url = server.url();
    let mut stores = Vec::new();
    let error = loop {
        match connect(&url).await {
            Ok(store) => stores.push(store),
            Err(error) => break error,
        }
        assert!(stores.len() <= 10, "there is no limit");
    };
    assert!(
        matches!(&error, Error::Unavailable { .. })
            && error.to_string().contains("max_connections"),
        "{error}"
    );
    // There is no room for a bell either: waiters try by themselves.
    let (holder, waiter) = (&stores[0], &stores[1]);
    let (held, waits) = (claim("x", Mode::Exclusive), waiting("x", Mode::Exclusive));
    granted(holder, &held).await;
    let subscription = subscribe(waiter, &waits).await;
    busy(waiter, &waits).await;
    assert!(
        crate::claims::release(holder, &held)
            .await
            .expect("releases")
    );
    in_time("a hint", subscription.hint()).await;
    granted(waiter, &waits).await;
    // A connection that ends makes room.
    drop(stores.pop());
    let room = async {
        while connect(&url).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("room for another", room).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_by_an_hour_stops_no_lock_and_no_token() {
    let (hour, wall) = (Duration::from_secs(3_600), WallClock::new());
    let server = MariaDbServer::start_with(MariaDbOptions {
        environment: wall.environment(),
        ..MariaDbOptions::default()
    });
    let url = format!("{}?max_lease=2s{PATIENT}", server.url());
    let short = || crate::claims::claim_for(Duration::from_secs(2), "x", Mode::Exclusive);
    let (one, other) = (open(&url).await, open(&url).await);
    let mut last = 0;
    for (set, name) in [(1, "ahead"), (-1, "behind"), (0, "right")] {
        // A holder that died: its lease ends by itself, by whichever clock.
        let dead = granted(&one, &short()).await;
        match set {
            1 => wall.ahead(hour),
            -1 => wall.behind(hour),
            _ => wall.ahead(Duration::ZERO),
        }
        let next = short();
        let got = async {
            loop {
                let next = next.clone().with_not_after(Moment::now() + LEASE);
                match other.try_acquire(&next).await.expect("answers") {
                    Attempt::Granted(grant) => break grant,
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        let grant = in_time(name, got).await;
        assert!(
            dead.token.get() > last && grant.token > dead.token,
            "{name}"
        );
        last = grant.token.get();
        assert!(
            crate::claims::release(&other, &next)
                .await
                .expect("releases")
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_stays_open_delays_nobody() {
    let (server, prefix) = (shared(), prefix());
    let url = format!("{}?prefix={prefix}{PATIENT}", server.url());
    let store = open(&url).await;
    let pairs = async |how: &str| {
        let began = std::time::Instant::now();
        for _ in 0..500 {
            let claim = claim("x", Mode::Exclusive);
            granted(&store, &claim).await;
            assert!(
                crate::claims::release(&store, &claim)
                    .await
                    .expect("releases")
            );
        }
        let took = began.elapsed();
        println!("figure: 500 pairs {how} a snapshot: {took:?}");
        took
    };
    let without = in_time("pairs", pairs("without")).await;
    let open = format!(
        "START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT SLEEP(20), '{prefix}'; ROLLBACK"
    );
    let snapshot = tokio::task::spawn_blocking(move || server.sql(&open));
    crate::claims::until("the snapshot is open", async || {
        let sleeps = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(20)%{prefix}%'"
        );
        server.sql(&sleeps) == "1"
    })
    .await;
    let with = in_time("pairs", pairs("with")).await;
    // Old versions of the row are kept for it. They must not be walked for each pair.
    assert!(with < without * 10, "{with:?} instead of {without:?}");
    snapshot.await.expect("no panic");
}

/// The server ends the session of a keeper whose machine is gone within a minute. A keeper that lives asks more often.
#[tokio::test]
async fn a_session_of_a_dead_machine_ends_within_a_minute() {
    let server = MariaDbServer::start();
    server.sql("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1");
    let store = open(&server.url()).await;
    granted(&store, &claim("x", Mode::Exclusive)).await;
    let _hints = subscribe(&store, &waiting("x", Mode::Exclusive)).await;
    let said = "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE 'SET SESSION %wait\\_timeout=60,%'";
    let both = async {
        while server.sql(said) != "2" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("the session and its bell", both).await;
}
