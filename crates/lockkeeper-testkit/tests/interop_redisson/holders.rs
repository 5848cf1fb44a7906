//! One holder on one side and one waiter on the other, for every kind of lock that excludes.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{BreakOutcome, BreakTarget, ClaimId};
use lockkeeper::{Error, Owner, ReleaseOutcome};
use serde_json::json;

use crate::peer::{Peer, rust};
use crate::site::*;

/// Every case below, for one pair of kinds.
macro_rules! cases {
    ($module:ident, $java:literal, $rust:expr, [$($case:ident),* $(,)?]) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let pair = crate::site::Pair { java: $java, rust: $rust };
                    super::$case(pair).await;
                }
            )*
        }
    };
    ($module:ident, $java:literal, $rust:expr) => {
        cases!($module, $java, $rust, [
            java_lets_rust_in,
            rust_lets_java_in,
            who_waits_in_vain_gives_up,
            a_fixed_lease_ends_for_the_other_side,
            a_renewed_lease_outlives_itself,
            re_entry_counts_on_either_side,
            java_forces_ours_open,
            we_break_what_java_holds,
            we_break_the_hold_of_java_that_is_named,
            a_killed_holder_is_in_nobodys_way,
        ]);
    };
}

cases!(lock, "lock", crate::site::Ours::Lock);
cases!(fenced, "fenced", crate::site::Ours::Lock);
cases!(spin, "spin", crate::site::Ours::Lock);
cases!(fair, "fair", crate::site::Ours::Fair);
cases!(writers, "write", crate::site::Ours::Write);
cases!(java_writer, "write", crate::site::Ours::Read);
cases!(java_reader, "read", crate::site::Ours::Write);

const NAME: &str = "order:42";

async fn java_lets_rust_in(pair: Pair) {
    let site = Site::start().await;
    let java = pair.object(&site.peer, "a", NAME);
    let mut times = Vec::new();
    for _ in 0..3 {
        java.does("lock").await;
        assert!(pair.rust.at_once(&site.keeper, NAME).await.is_none());
        let keeper = site.keeper.clone();
        let waiter = tokio::spawn(async move {
            let guard = pair.rust.acquire(&keeper, NAME).await;
            (guard, Moment::now())
        });
        site.rust_waits().await;
        assert!(!waiter.is_finished());
        let unlocked = Moment::now();
        java.does("unlock").await;
        let (guard, at) = waiter.await.expect("finishes");
        times.push(at.since(unlocked));
        assert!(!java.gets_it().await, "{pair:?}");
        release(guard).await;
    }
    times.sort();
    assert!(times[2] < SOON, "{times:?}");
    // It slept for less than 0.1 s of at least 0.75 s: only a message can have woken it.
    assert!(
        pair.spins() || times[1] < Duration::from_millis(500),
        "{times:?}"
    );
    site.nothing_is_left().await;
}

async fn rust_lets_java_in(pair: Pair) {
    let site = Site::start().await;
    let java = pair.object(&site.peer, "a", NAME);
    for _ in 0..3 {
        let guard = pair.rust.acquire(&site.keeper, NAME).await;
        assert!(!java.gets_it().await, "{pair:?}");
        let mut waiter = java.ask("lock", json!({}));
        match pair.spins() {
            true => assert!(waiter.waits_for(A_WHILE).await),
            false => site.java_waits().await,
        }
        let released = Moment::now();
        release(guard).await;
        waiter.value().await;
        let took = Moment::now().since(released);
        // Without a message Java would sleep until the lease ends.
        assert!(took < SOON, "{took:?}");
        assert!(pair.rust.at_once(&site.keeper, NAME).await.is_none());
        java.does("unlock").await;
    }
    site.nothing_is_left().await;
}

async fn who_waits_in_vain_gives_up(pair: Pair) {
    let site = Site::start().await;
    let java = pair.object(&site.peer, "a", NAME);
    let guard = pair.rust.acquire(&site.keeper, NAME).await;
    assert_eq!(
        java.does_with("tryLock", json!({ "wait": 300 })).await,
        false
    );
    assert_eq!(java.does("isHeld").await, false);
    release(guard).await;
    assert_eq!(
        java.does_with("tryLock", json!({ "wait": 300 })).await,
        true
    );
    let start = Moment::now();
    let none = pair.rust.within(&site.keeper, NAME, A_WHILE).await;
    assert!(none.is_none());
    assert!(Moment::now().since(start) >= A_WHILE);
    assert_eq!(java.does("isHeld").await, true);
    java.does("unlock").await;
    // A client that gave up stands in nobody's way.
    assert!(pair.rust.at_once(&site.keeper, NAME).await.is_some());
    site.ours_left_nothing().await;
}

async fn a_fixed_lease_ends_for_the_other_side(pair: Pair) {
    let site = Site::start().await;
    let java = pair.object(&site.peer, "a", NAME);
    let lease = Duration::from_secs(1);
    let start = Moment::now();
    java.does_with("lock", json!({ "lease": 1000 })).await;
    let guard = pair.rust.acquire(&site.keeper, NAME).await;
    let took = Moment::now().since(start);
    assert!(took > lease / 2 && took < SOME_TIME, "{took:?}");
    assert_eq!(java.does("isHeld").await, false);
    let error = java.fails("unlock").await;
    assert!(error.contains("IllegalMonitorState"), "{error}");
    release(guard).await;

    let start = Moment::now();
    let guard = pair.rust.fixed(&site.keeper, NAME, lease).await;
    java.does("lock").await;
    let took = Moment::now().since(start);
    assert!(took > lease / 2 && took < SOME_TIME, "{took:?}");
    // Ours knew before Java got in.
    assert!(!guard.is_held());
    let outcome = guard.release().await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    assert_eq!(java.does("isHeld").await, true);
    java.does("unlock").await;
    site.nothing_is_left().await;
}

async fn a_renewed_lease_outlives_itself(pair: Pair) {
    let lease = Duration::from_secs(3);
    let site = Site::with_lease(lease).await;
    let java = pair.object(&site.peer, "a", NAME);
    java.does("lock").await;
    assert!(
        pair.rust
            .within(&site.keeper, NAME, 2 * lease)
            .await
            .is_none()
    );
    assert_eq!(java.does("isHeld").await, true);
    java.does("unlock").await;
    let guard = pair.rust.acquire(&site.keeper, NAME).await;
    let wait = (2 * lease).as_millis() as u64;
    assert_eq!(
        java.does_with("tryLock", json!({ "wait": wait })).await,
        false
    );
    assert!(guard.is_held());
    release(guard).await;
    site.nothing_is_left().await;
}

async fn re_entry_counts_on_either_side(pair: Pair) {
    let site = Site::start().await;
    let java = pair.object(&site.peer, "a", NAME);
    java.does("lock").await;
    java.does("lock").await;
    assert_eq!(java.does("holdCount").await, 2);
    java.does("unlock").await;
    assert!(pair.rust.at_once(&site.keeper, NAME).await.is_none());
    java.does("unlock").await;

    let owner = Owner::new();
    let outer = pair.rust.as_owner(&site.keeper, NAME, &owner).await;
    let inner = pair.rust.as_owner(&site.keeper, NAME, &owner).await;
    assert_eq!(inner.depth(), 2);
    let outcome = inner.release().await.expect("answers");
    assert_eq!(outcome, ReleaseOutcome::StillHeld { depth: 1 });
    assert!(!java.gets_it().await);
    release(outer).await;
    assert!(java.gets_it().await);
    java.does("unlock").await;
    site.nothing_is_left().await;
}

async fn java_forces_ours_open(pair: Pair) {
    let site = Site::with_lease(Duration::from_secs(3)).await;
    let java = site.peer.object("a", pair.rust.in_java(), NAME);
    let guard = pair.rust.acquire(&site.keeper, NAME).await;
    assert_eq!(java.does("isLocked").await, true);
    let left = java.does("remaining").await.as_i64();
    assert!(
        left.is_some_and(|left| left > 0 && left <= 3000),
        "{left:?}"
    );
    assert_eq!(java.does("forceUnlock").await, true);
    assert_eq!(java.does("isLocked").await, false);
    // The next renewal tells.
    let lost = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await;
    lost.expect("it is noticed");
    assert!(!guard.is_held());
    java.does("lock").await;
    let outcome = guard.release().await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    assert_eq!(java.does("isHeld").await, true);
    java.does("unlock").await;
    site.nothing_is_left().await;
}

async fn we_break_what_java_holds(pair: Pair) {
    let site = Site::start().await;
    let java = pair.object(&site.peer, "a", NAME);
    java.does("lock").await;
    let keeper = site.keeper.clone();
    let waiter = tokio::spawn(async move { pair.rust.acquire(&keeper, NAME).await });
    site.rust_waits().await;
    let info = site.keeper.inspect(NAME).await.expect("answers");
    assert_eq!(info.expect("it is held").holders.len(), 1);
    site.keeper
        .break_lock(NAME, "a test")
        .await
        .expect("breaks");
    let guard = tokio::time::timeout(SOON, waiter).await;
    let guard = guard.expect("it is free").expect("finishes");
    let error = java.fails("unlock").await;
    assert!(error.contains("IllegalMonitorState"), "{error}");
    assert_eq!(java.does("isHeld").await, false);
    assert!(guard.is_held());
    // A thread of Java's that waits is let in as well when we break our own.
    let mut waiting = java.ask("lock", json!({}));
    match pair.spins() {
        true => assert!(waiting.waits_for(A_WHILE).await),
        false => site.java_waits().await,
    }
    let broken = Moment::now();
    site.keeper
        .break_lock(NAME, "a test")
        .await
        .expect("breaks");
    waiting.value().await;
    let took = Moment::now().since(broken);
    assert!(took < SOON, "{took:?}");
    assert!(!guard.is_held());
    java.does("unlock").await;
}

async fn we_break_the_hold_of_java_that_is_named(pair: Pair) {
    let site = Site::start().await;
    let java = pair.object(&site.peer, "a", NAME);
    java.does("lock").await;
    java.does("lock").await;
    let info = site.keeper.inspect(NAME).await.expect("answers");
    let held = info.expect("it is held").holders[0].claim;
    let named = async |claim| {
        let target = BreakTarget::Claim(claim);
        let outcome = site.keeper.break_hold(NAME, target, "a test").await;
        outcome.expect("answers")
    };
    // Another thread of the same client.
    let number = held.number + 1;
    match named(ClaimId { number, ..held }).await {
        BreakOutcome::NotHeld(holders) => assert_eq!(holders[0].claim, held),
        other => panic!("another is meant, was {other:?}"),
    }
    assert_eq!(java.does("isHeld").await, true);
    match named(held).await {
        BreakOutcome::Ended(ended) => assert_eq!(ended[0].claim, held),
        other => panic!("it is there, was {other:?}"),
    }
    assert_eq!(java.does("isHeld").await, false);
    let guard = pair.rust.acquire(&site.keeper, NAME).await;
    match named(held).await {
        BreakOutcome::NotHeld(holders) => assert_eq!(holders[0].claim, guard.claim()),
        other => panic!("it has ended, was {other:?}"),
    }
    assert!(guard.is_held());
    release(guard).await;
}

async fn a_killed_holder_is_in_nobodys_way(pair: Pair) {
    let lease = Duration::from_secs(4);
    let mut site = Site::with_lease(lease).await;
    pair.object(&site.peer, "a", NAME).does("lock").await;
    let keeper = site.keeper.clone();
    let waiter = tokio::spawn(async move { pair.rust.acquire(&keeper, NAME).await });
    site.rust_waits().await;
    let killed = Moment::now();
    site.peer.kill();
    let guard = waiter.await.expect("finishes");
    let took = Moment::now().since(killed);
    assert!(took < SOME_TIME, "{took:?}");
    release(guard).await;

    let kind = pair.rust.in_java();
    let arguments = ["hold", "--kind", kind, "--name", NAME, "--lease", "4s"];
    let mut taker = rust(&site.server, &arguments);
    taker.expect("held");
    site.peer = Peer::start(&site.server, lease).await;
    let java = pair.object(&site.peer, "a", NAME);
    let mut waiting = java.ask("lock", json!({}));
    assert!(waiting.waits_for(A_WHILE).await);
    let killed = Moment::now();
    taker.kill().expect("killed");
    waiting.value().await;
    let took = Moment::now().since(killed);
    assert!(took < SOME_TIME, "{took:?}");
    java.does("unlock").await;
    site.nothing_is_left().await;
}
