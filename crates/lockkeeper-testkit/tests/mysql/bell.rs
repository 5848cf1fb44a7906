//! How waiters in other processes are woken, and what happens when they are not.

use std::time::{Duration, Instant};

use crate::common::*;
use lockkeeper::Lockkeeper;
use lockkeeper::store::Mode;
use lockkeeper_testkit::servers::mariadb::{DATABASE, MariaDbServer, PASSWORD};

/// Hands a lock from one keeper to another so often, and returns how long each took.
async fn hand_offs(one: &Lockkeeper, other: &Lockkeeper, rounds: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let guard = one
            .lock("x")
            .expect("a lock")
            .acquire()
            .await
            .expect("acquires");
        let waits = tokio::spawn({
            let lock = other.lock("x").expect("a lock");
            async move {
                let guard = lock.acquire().await.expect("acquires");
                let got = Instant::now();
                drop(guard);
                got
            }
        });
        let queued = async {
            while other_waits(one).await == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time("a place in the queue", queued).await;
        let began = Instant::now();
        guard.release().await.expect("releases");
        let got = in_time("a hand-off", waits).await.expect("no panic");
        times.push(got.saturating_duration_since(began));
    }
    times.sort();
    times
}

async fn other_waits(keeper: &Lockkeeper) -> usize {
    let info = keeper.inspect("x").await.expect("inspects");
    info.map_or(0, |info| info.waiters)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_long_before_it_would_try_by_itself() {
    let url = fresh();
    let (one, other) = (keeper(&url).await, keeper(&url).await);
    let times = hand_offs(&one, &other, 30).await;
    let median = times[times.len() / 2];
    println!(
        "figure: hand-off by the bell: median {median:?}, worst {:?}",
        times[times.len() - 1]
    );
    // By itself it tries after 0.9 s; the bell looks by itself after 0.845 s.
    assert!(median < Duration::from_millis(300), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_bell_is_hung_up_again() {
    let server = MariaDbServer::start();
    let (one, other) = (keeper(&server.url()).await, keeper(&server.url()).await);
    hand_offs(&one, &other, 2).await;
    let bells = "SELECT id FROM information_schema.processlist WHERE (info LIKE '%GET_LOCK%lw:%' OR info LIKE 'SELECT SLEEP(%') AND user = 'keeper'";
    for _ in 0..3 {
        let guard = one
            .lock("x")
            .expect("a lock")
            .acquire()
            .await
            .expect("acquires");
        let waits = tokio::spawn({
            let lock = other.lock("x").expect("a lock");
            async move { lock.acquire_within(LONG).await.expect("acquires").is_some() }
        });
        let killed = async {
            loop {
                let found = server.sql(bells);
                let killed = found
                    .lines()
                    .filter(|id| server.try_sql(&format!("KILL {id}")).is_ok());
                if killed.count() > 0 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        in_time("a bell to kill", killed).await;
        drop(guard);
        assert!(in_time("a hand-off", waits).await.expect("no panic"));
    }
    hand_offs(&one, &other, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_may_not_ring_and_the_waiter_polls() {
    let (server, prefix) = (shared(), prefix());
    make_tables(&prefix);
    let ours = format!("{}?prefix={prefix}", server.url());
    let theirs = format!("{}?prefix={prefix}", server.url_of(LEAST, server.port()));
    let (one, other) = (keeper(&ours).await, keeper(&theirs).await);
    let times = hand_offs(&one, &other, 10).await;
    let median = times[times.len() / 2];
    assert!(median < Duration::from_millis(600), "{times:?}");
    hand_offs(&other, &one, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_for_a_bell_still_serves_waiters() {
    // Two keepers, and one that the administrator has in reserve.
    let server = MariaDbServer::start_as(&["--max-connections=10"]);
    let limited = format!(
        "CREATE USER two@'%' IDENTIFIED BY '{PASSWORD}' WITH MAX_USER_CONNECTIONS 2; GRANT ALL ON {DATABASE}.* TO two@'%'"
    );
    server.sql(&limited);
    let url = server.url_of("two", server.port());
    let (one, other) = (keeper(&url).await, keeper(&url).await);
    hand_offs(&one, &other, 3).await;
    let third = Lockkeeper::connect(&url)
        .await
        .expect_err("there is no room");
    assert!(third.to_string().contains("max_connections"), "{third}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_releaser_died_before_it_rang_is_found() {
    let url = fresh();
    let (holder, waiter) = (open(&url).await, open(&url).await);
    let (held, waits) = (claim("x", Mode::Exclusive), waiting("x", Mode::Exclusive));
    granted(&holder, &held).await;
    let subscription = subscribe(&waiter, &waits).await;
    busy(&waiter, &waits).await;
    // What a releaser commits, by hand: it never rings.
    let prefix = url
        .split("prefix=")
        .nth(1)
        .and_then(|rest| rest.split('&').next());
    let prefix = prefix.expect("a prefix");
    shared().sql(&format!(
        "START TRANSACTION; UPDATE {prefix}lock l JOIN {prefix}waiter w ON w.name = l.name SET l.claim = w.claim, l.first = l.token + 1, \
         l.tokens = 1, l.lease = 1000000, l.expires = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 1000000, \
         l.token = l.token + 1, l.version = l.version + 1, l.waited = 0; DELETE FROM {prefix}waiter; COMMIT"
    ));
    in_time("a hint", subscription.hint()).await;
    assert!(subscription.granted().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_keepers_on_one_name_all_get_their_turn() {
    let url = fresh();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let keeper = keeper(&url).await;
        tasks.spawn(async move {
            let lock = keeper.lock("one").expect("a lock");
            let mut tokens = Vec::new();
            for _ in 0..5 {
                let guard = in_time("a turn", lock.acquire()).await.expect("acquires");
                tokens.push(guard.token());
            }
            tokens
        });
    }
    let mut tokens: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    tokens.sort();
    let all = tokens.len();
    tokens.dedup();
    assert_eq!((tokens.len(), all), (80, 80));
}
