//! Waiters, and rows that somebody keeps.

use std::time::Duration;

use crate::claims::{claim_for, release, renewal_for, until};
use crate::common::*;
use crate::late::renewals_become_late;
use lockkeeper::store::{Attempt, Mode, Renewed, Store};
use lockkeeper_testkit::servers::proxy::{Proxy, Way};

/// What a column of the row of a name has.
fn column(prefix: &str, column: &str, name: &str) -> String {
    shared().sql(&format!(
        "SELECT {column} FROM {prefix}lock WHERE name = '{name}'"
    ))
}

/// Over a slow way the confirmation of a grant has to be one request: the grant lasts a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_confirmed_by_one_request() {
    let (server, prefix) = (shared(), prefix());
    let proxy = Proxy::to(server.port());
    let straight = format!("{}?prefix={prefix}{PATIENT}", server.url());
    let slow = format!("{}?prefix={prefix}{PATIENT}", server.url_at(proxy.port()));
    let (holder, waiter) = (open(&straight).await, open(&slow).await);
    let mut confirmed = 0;
    // A machine that is very busy may be late in most of them: a grant that is over is hinted no more.
    for round in 0..60 {
        if confirmed == 3 {
            break;
        }
        let name = format!("x{round}");
        let mode = if round % 2 == 0 {
            Mode::Exclusive
        } else {
            Mode::Read
        };
        let (held, waits) = (claim(&name, Mode::Exclusive), waiting(&name, mode));
        granted(&holder, &held).await;
        let subscription = subscribe(&waiter, &waits).await;
        busy(&waiter, &waits).await;
        proxy.replies(Way::Slow(Duration::from_millis(250)));
        assert!(release(&holder, &held).await.expect("releases"));
        let given: u64 = column(&prefix, "token", &name).parse().expect("a token");
        let hint = tokio::time::timeout(Duration::from_secs(2), subscription.hint());
        let _ = hint.await;
        let attempt = in_time("an answer", waiter.try_acquire(&waits)).await;
        proxy.heal();
        match attempt.expect("answers") {
            Attempt::Granted(grant) if grant.token.get() == given => confirmed += 1,
            other => println!("round {round}: {other:?} instead of token {given}"),
        }
        let _ = release(&waiter, &waits).await.expect("releases");
    }
    assert_eq!(confirmed, 3, "of 60 grants");
}

#[tokio::test]
async fn a_waiter_behind_the_head_leaves_without_disturbing_a_release() {
    let prefix = prefix();
    let store = open(&format!("{}?prefix={prefix}{PATIENT}", shared().url())).await;
    let held = claim("x", Mode::Exclusive);
    granted(&store, &held).await;
    let queue: Vec<_> = (0..3).map(|_| waiting("x", Mode::Exclusive)).collect();
    for waits in &queue {
        busy(&store, waits).await;
    }
    let waiters = async || {
        let info = store.inspect(&held.name).await.expect("inspects");
        info.map_or(0, |info| info.waiters)
    };
    let before = column(&prefix, "version", "x");
    for (left, waits) in [(2, &queue[2]), (1, &queue[1])] {
        store
            .withdraw(&held.name, waits.id)
            .await
            .expect("withdraws");
        assert_eq!(waiters().await, left);
        assert_eq!(column(&prefix, "version", "x"), before);
    }
    // The head may be about to be let in.
    store
        .withdraw(&held.name, queue[0].id)
        .await
        .expect("withdraws");
    assert_eq!(waiters().await, 0);
    assert_ne!(column(&prefix, "version", "x"), before);
    assert!(release(&store, &held).await.expect("releases"));
    granted(&store, &claim("x", Mode::Exclusive)).await;
}

/// A release lets in several readers at once. One that leaves meanwhile is not the head, and must not be let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_leaves_while_a_release_is_on_its_way_is_not_let_in() {
    let (server, prefix) = (shared(), prefix());
    let proxy = Proxy::to(server.port());
    let straight = open(&format!("{}?prefix={prefix}{PATIENT}", server.url())).await;
    let slow = format!("{}?prefix={prefix}{PATIENT}", server.url_at(proxy.port()));
    let slow = std::sync::Arc::new(open(&slow).await);
    let permit = Mode::Permit { limit: 2, count: 1 };
    for (name, holds, waits) in [
        ("book", Mode::Exclusive, Mode::Read),
        ("pool", Mode::Exclusive, permit),
    ] {
        let held = claim(name, holds);
        granted(&slow, &held).await;
        let queue = [waiting(name, waits), waiting(name, waits)];
        for one in &queue {
            busy(&straight, one).await;
        }
        proxy.hold_after("REPLACE INTO", 0);
        let releases = tokio::spawn({
            let (slow, held) = (slow.clone(), held.clone());
            async move { release(&*slow, &held).await }
        });
        until("the release has looked, and saves", async || {
            proxy.has_passed()
        })
        .await;
        let left = straight.withdraw(&held.name, queue[1].id).await;
        left.expect("withdraws");
        proxy.heal();
        let released = in_time("the release", releases).await.expect("no panic");
        assert_eq!(released, Ok(true));
        let info = straight.inspect(&held.name).await.expect("inspects");
        let holders = info.map(|info| info.holders).unwrap_or_default();
        let holders: Vec<_> = holders.iter().map(|holder| holder.claim).collect();
        assert!(!holders.contains(&queue[1].id), "{name}: {holders:?}");
    }
}

/// A user's transaction that checks a token last, as the documents say, and is then stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_kept_costs_no_other_name_its_lease() {
    let (server, prefix) = (shared(), prefix());
    let store = open(&format!("{}?prefix={prefix}{PATIENT}", server.url())).await;
    let lease = Duration::from_secs(6);
    let names: Vec<String> = (0..6).map(|number| format!("name-{number}")).collect();
    let mut holds = Vec::new();
    for name in &names {
        let held = claim_for(lease, name, Mode::Exclusive);
        granted(&store, &held).await;
        holds.push(held);
    }
    let keeps = format!(
        "START TRANSACTION; SELECT 1 FROM {prefix}lock WHERE name = 'name-3' LOCK IN SHARE MODE; SELECT SLEEP(14); ROLLBACK"
    );
    let kept = tokio::task::spawn_blocking(move || server.sql(&keeps));
    until("the row is kept", async || {
        let free =
            format!("SELECT name FROM {prefix}lock WHERE name = 'name-3' FOR UPDATE SKIP LOCKED");
        server.sql(&free).is_empty()
    })
    .await;
    // Somebody waits for the kept name all the while.
    let mut rounds = 0;
    let rival = claim("name-3", Mode::Exclusive);
    let stuck = tokio::spawn({
        let other = open(&format!("{}?prefix={prefix}{PATIENT}", server.url())).await;
        async move { other.try_acquire(&rival).await }
    });
    while !kept.is_finished() {
        let renewals: Vec<_> = holds.iter().map(|held| renewal_for(lease, held)).collect();
        let renewed = in_time("renewals", store.renew(&renewals)).await;
        for (name, renewed) in names.iter().zip(renewed.expect("some are renewed")) {
            if name != "name-3" {
                assert_eq!(renewed, Renewed::Renewed, "{name} in round {rounds}");
            }
        }
        let fresh = claim(&format!("fresh-{rounds}"), Mode::Exclusive);
        granted(&store, &fresh).await;
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    println!("figure: {rounds} rounds of renewals beside a kept row");
    assert!(rounds >= 4, "{rounds} rounds in 14 s");
    let _ = in_time("the rival", stuck).await.expect("no panic");
    kept.await.expect("no panic");
}

/// A renewal that is late once the server has said that the hold is over is answered at once, and not asked for again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_becomes_late_on_its_way_is_told_so() {
    let (server, prefix) = (shared(), prefix());
    let proxy = Proxy::to(server.port());
    let url = format!("{}?prefix={prefix}{PATIENT}", server.url_at(proxy.port()));
    renewals_become_late(&open(&url).await, &proxy).await;
}
