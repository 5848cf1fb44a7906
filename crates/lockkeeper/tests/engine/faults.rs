//! The engine over a store that fails, loses answers or is silent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::*;

use crate::common::{Fault, LEASE, MS, SHORT, Tampered, Verb, acquired, eventually};

#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn event(&self, event: &Event<'_>) {
        let text = match event {
            Event::Acquired { .. } => "acquired",
            Event::Released { .. } => "released",
            Event::AtRisk { .. } => "at risk",
            Event::Lost { .. } => "lost",
            Event::RenewalFailed { .. } => "renewal failed",
            _ => "other",
        };
        self.0.lock().expect("told").push(text.into());
    }
}

impl Told {
    fn has(&self, what: &str) -> bool {
        self.0.lock().expect("told").iter().any(|told| told == what)
    }
}

#[tokio::test]
async fn an_outage_puts_locks_at_risk_and_its_end_brings_them_back() {
    let (store, told) = (Tampered::new(), Arc::<Told>::default());
    let builder = Lockkeeper::builder()
        .store(store.clone())
        .observer(told.clone());
    let keeper = builder
        .lease(Duration::from_secs(3))
        .connect()
        .await
        .expect("connects");
    let guard = acquired(&keeper).await;
    store.set(Verb::Renew, Some(Fault::Refused));
    guard.at_risk().await;
    assert!(guard.is_held());
    store.set(Verb::Renew, None);
    let deadline = guard.deadline();
    eventually("renewed again", async || guard.deadline() > deadline).await;
    assert!(guard.is_held());
    guard.release().await.expect("released");
    for what in ["acquired", "renewal failed", "at risk", "released"] {
        assert!(told.has(what), "{what}");
    }
    assert!(!told.has("lost"));
}

#[tokio::test]
async fn an_outage_longer_than_the_lease_loses_the_lock_before_the_store_does() {
    let (store, told) = (Tampered::new(), Arc::<Told>::default());
    let builder = Lockkeeper::builder()
        .store(store.clone())
        .observer(told.clone());
    let keeper = builder.lease(SHORT).connect().await.expect("connects");
    let guard = acquired(&keeper).await;
    store.set(Verb::Renew, Some(Fault::Refused));
    let lost = guard.run(std::future::pending::<()>()).await;
    assert!(matches!(lost, Err(Error::Lost { .. })));
    store.set(Verb::Renew, None);
    tokio::time::sleep(SHORT).await;
    assert!(!guard.is_held(), "lost is for good");
    assert!(told.has("lost"));
}

#[tokio::test]
async fn an_answer_lost_on_renewal_is_not_a_loss_as_long_as_one_comes_through() {
    let store = Tampered::new();
    let keeper = store.keeper(Duration::from_secs(2)).await;
    let guard = acquired(&keeper).await;
    store.set(Verb::Renew, Some(Fault::AnswerLost));
    guard.at_risk().await;
    store.set(Verb::Renew, None);
    let deadline = guard.deadline();
    eventually("renewed", async || guard.deadline() > deadline).await;
}

#[tokio::test]
async fn an_acquire_in_doubt_is_withdrawn() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    store.set(Verb::Acquire, Some(Fault::AnswerLost));
    assert!(matches!(
        lock.try_acquire().await,
        Err(Error::OutcomeUnknown { .. })
    ));
    store.set(Verb::Acquire, None);
    keeper.close().await;
    assert_eq!(
        store.inner.in_use().0,
        0,
        "the grant nobody heard of is gone"
    );
}

#[tokio::test]
async fn waiting_survives_an_outage_shorter_than_the_lease() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    store.set_all(Some(Fault::Refused));
    let lock = keeper.lock("x").expect("a name");
    assert!(matches!(
        lock.try_acquire().await,
        Err(Error::Unavailable { .. })
    ));
    // Not that somebody has it.
    let within = lock.acquire_within(MS(50)).await;
    assert!(
        matches!(within, Err(Error::Unavailable { .. })),
        "{within:?}"
    );
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
    eventually("it tries again", async || store.count(Verb::Acquire) > 4).await;
    store.set_all(None);
    waiter.await.expect("no panic").expect("acquired");
}

#[tokio::test]
async fn waiting_reports_an_outage_longer_than_the_lease() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    store.set_all(Some(Fault::Refused));
    let lock = keeper.lock("x").expect("a name");
    let (a, b) = tokio::join!(lock.acquire(), lock.acquire());
    for error in [a, b] {
        assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
    }
    let fair = lock.fair().expect("fair").acquire().await;
    assert!(matches!(fair, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn a_release_that_failed_goes_on_in_the_background() {
    for fault in [Fault::Refused, Fault::AnswerLost] {
        let store = Tampered::new();
        let keeper = store.keeper(LEASE).await;
        let lock = keeper.lock("x").expect("a name");
        let guard = lock.acquire().await.expect("acquired");
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.map(|guard| guard.token()) }
        });
        tokio::task::yield_now().await;
        store.set(Verb::Release, Some(fault));
        assert!(guard.release().await.is_err());
        store.set(Verb::Release, None);
        waiter
            .await
            .expect("no panic")
            .expect("the next in line got it");
        keeper.close().await;
        assert_eq!(store.inner.in_use(), (0, 0));
    }
}

#[tokio::test]
async fn a_lost_hint_costs_a_bounded_delay() {
    let store = Tampered::new();
    let deaf = store.keeper(LEASE).await;
    let other = store.keeper(LEASE).await;
    let held = acquired(&other).await;
    // Subscribed to nothing: no hint can arrive.
    store.set(Verb::Subscribe, Some(Fault::AnswerLost));
    let lock = deaf.lock("x").expect("a name");
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
    eventually("it waits", async || store.count(Verb::Subscribe) > 0).await;
    held.release().await.expect("released");
    let waited = tokio::time::timeout(Duration::from_secs(10), waiter).await;
    waited
        .expect("in time")
        .expect("no panic")
        .expect("acquired");
}

#[tokio::test]
async fn a_silent_store_does_not_stretch_a_wait() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    store.set(Verb::Acquire, Some(Fault::Silent));
    for lock in [lock.clone(), lock.fair().expect("fair")] {
        let waited = tokio::time::timeout(LEASE, lock.acquire_within(MS(50))).await;
        assert!(waited.expect("in time").expect("works").is_none());
    }
    store.set(Verb::Acquire, None);
    eventually("it works again", async || {
        lock.try_acquire().await.expect("works").is_some()
    })
    .await;
}

/// As in a cluster of which one node does not answer.
#[tokio::test]
async fn a_renewal_without_an_answer_costs_only_its_own_hold() {
    let lease = Duration::from_secs(2);
    let store = Tampered::new();
    let keeper = store.keeper(lease).await;
    let dark = keeper.lock("dark").expect("a name");
    let dark = dark.acquire().await.expect("acquired");
    let lit = keeper.lock("lit").expect("a name");
    let lit = lit.acquire().await.expect("acquired");
    // For a while: it is tried again in time.
    store.leave_unanswered(Some(dark.name().clone()));
    tokio::time::sleep(lease / 2).await;
    assert!(matches!(
        dark.extend(lease * 2).await,
        Err(Error::OutcomeUnknown { .. })
    ));
    store.leave_unanswered(None);
    tokio::time::sleep(lease * 3 / 2).await;
    assert!(dark.is_held() && lit.is_held());
    // For good: it is lost, and the other is not.
    store.leave_unanswered(Some(dark.name().clone()));
    let lost = tokio::time::timeout(Duration::from_secs(20), dark.lost()).await;
    assert!(lost.is_ok(), "nobody told of the loss");
    tokio::time::sleep(lease).await;
    assert!(lit.is_held(), "it has nothing to do with it");
}
