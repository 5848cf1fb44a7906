//! Labels: others see the label of the task that holds, and of each claim that waits.

use lockkeeper::store::LockInfo;
use lockkeeper::*;

use crate::common::{LEASE, Tampered, Verb, eventually};

async fn info(keeper: &Lockkeeper) -> LockInfo {
    keeper.inspect("x").await.expect("works").expect("known")
}

/// The labels of those who hold `x`, and of those who wait for it.
async fn labels(keeper: &Lockkeeper) -> (Vec<String>, Vec<String>) {
    let text = |label: Option<&Label>| label.map_or("-".to_owned(), Label::to_string);
    let info = info(keeper).await;
    (
        info.holders
            .iter()
            .map(|h| text(h.label.as_ref()))
            .collect(),
        info.queue.iter().map(|w| text(w.label.as_ref())).collect(),
    )
}

async fn labelled(store: &std::sync::Arc<Tampered>, label: &str) -> Lockkeeper {
    let builder = Lockkeeper::builder().store(store.clone()).lease(LEASE);
    builder.label(label).connect().await.expect("connects")
}

async fn until_shown(keeper: &Lockkeeper, holders: &[&str], waiters: &[&str]) {
    eventually(&format!("{holders:?} and {waiters:?}"), async || {
        let (held, waited) = labels(keeper).await;
        held == holders && waited == waiters
    })
    .await;
}

#[tokio::test]
async fn tasks_of_one_keeper_show_their_own_labels() {
    let store = Tampered::new();
    let keeper = labelled(&store, "shop").await;
    let lock = keeper.lock("x").expect("a name");
    let take = |label: &str| {
        let lock = lock.label(label).expect("a label");
        tokio::spawn(async move { lock.acquire().await.expect("acquired") })
    };
    let first = take("order 1").await.expect("no panic");
    let second = take("order 2");
    until_shown(&keeper, &["order 1"], &["order 2"]).await;
    let third = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.expect("acquired") }
    });
    until_shown(&keeper, &["order 1"], &["order 2", "shop"]).await;
    first.release().await.expect("released");
    let second = second.await.expect("no panic");
    until_shown(&keeper, &["order 2"], &["shop"]).await;
    second.release().await.expect("released");
    let third = third.await.expect("no panic");
    until_shown(&keeper, &["shop"], &[]).await;
    third.release().await.expect("released");
}

/// Handed on and queued again with a release, the claim is the process's, and so is its label.
#[tokio::test]
async fn the_keepers_label_is_on_every_claim_of_its_queues() {
    let store = Tampered::new();
    let keeper = labelled(&store, "shop").await;
    let other = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    let foreign = other.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    let theirs = tokio::spawn(async move { foreign.acquire().await.expect("acquired") });
    until_shown(&other, &["shop"], &["-"]).await;
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.expect("acquired") }
    });
    // Longer than the hold may be handed on: the release queues the next claim.
    tokio::time::sleep(HandOff::default().time * 2).await;
    guard.release().await.expect("released");
    let theirs = theirs.await.expect("no panic");
    until_shown(&other, &["-"], &["shop"]).await;
    theirs.release().await.expect("released");
    let guard = waits.await.expect("no panic");
    until_shown(&other, &["shop"], &[]).await;
    guard.release().await.expect("released");
}

#[tokio::test]
async fn readers_writers_permits_and_several_locks_are_labelled() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.rwlock("x").expect("a name");
    let writer = lock.label("report").expect("a label");
    let writer = writer.write().await.expect("acquired");
    until_shown(&keeper, &["report"], &[]).await;
    let reader = writer.downgrade().await.expect("downgraded");
    until_shown(&keeper, &["report"], &[]).await;
    let page = lock.label("page").expect("a label");
    let second = page.read().await.expect("acquired");
    let third = page
        .try_read()
        .await
        .expect("works")
        .expect("readers share");
    let plain = lock.read().await.expect("acquired");
    until_shown(&keeper, &["report", "page", "page", "-"], &[]).await;
    drop((reader, second, third, plain));

    let permits = keeper.semaphore("x", 2).expect("a semaphore");
    let permits = permits.label("download").expect("a label");
    let held = permits.acquire(2).await.expect("acquired");
    until_shown(&keeper, &["download"], &[]).await;
    drop(held);

    let several = keeper.multi_lock(["x", "y"]).expect("names");
    let several = several.label("transfer").expect("a label");
    let held = several.acquire().await.expect("acquired");
    until_shown(&keeper, &["transfer"], &[]).await;
    drop(held);

    let fair = keeper.lock("x").and_then(|lock| lock.fair());
    let fair = fair.and_then(|lock| lock.label("in order"));
    let held = fair.expect("a lock").acquire().await.expect("acquired");
    until_shown(&keeper, &["in order"], &[]).await;
    drop(held);
}

#[tokio::test]
async fn an_owner_that_re_enters_keeps_the_label_of_its_first_guard() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name").as_owner(&Owner::new());
    let outer = lock.label("order 1").expect("a label").acquire().await;
    let inner = lock.label("order 2").expect("a label").acquire().await;
    assert_eq!(inner.as_ref().expect("re-entered").depth(), 2);
    until_shown(&keeper, &["order 1"], &[]).await;
    drop((outer, inner));
}

#[tokio::test]
async fn a_lock_with_a_lease_of_its_own_has_the_keepers_label() {
    let keeper = labelled(&Tampered::new(), "shop").await;
    let lock = keeper.lock("x").expect("a name");
    let lock = lock.fixed_lease(LEASE / 2).expect("a lease");
    let guard = lock.acquire().await.expect("acquired");
    until_shown(&keeper, &["shop"], &[]).await;
    assert_eq!(info(&keeper).await.holders[0].lease, Some(LEASE / 2));
    drop(guard);
}

#[tokio::test]
async fn unusable_labels_are_refused_before_anything_is_asked() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    for label in ["", "two\nlines", &"x".repeat(MAX_LABEL_BYTES + 1)] {
        let error = lock.label(label).expect_err("refused");
        assert!(matches!(
            error,
            Error::InvalidArgument { what: "label", .. }
        ));
        let builder = Lockkeeper::builder().store(store.clone()).label(label);
        let error = builder.connect().await.expect_err("refused");
        assert!(matches!(
            error,
            Error::InvalidArgument { what: "label", .. }
        ));
    }
    assert_eq!(store.count(Verb::Acquire), 0);
}

/// Tasks with the keeper's label share its claim, whether they name that label or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_that_is_the_keepers_costs_the_store_nothing() {
    let store = Tampered::new();
    let keeper = labelled(&store, "shop").await;
    let lock = keeper.lock("x").expect("a name");
    let named = lock.label("shop").expect("a label");
    let mut running = tokio::task::JoinSet::new();
    for number in 0..64 {
        let lock = if number % 2 == 0 { &lock } else { &named }.clone();
        running.spawn(async move {
            for _ in 0..20 {
                let guard = lock.acquire().await.expect("acquired");
                tokio::task::yield_now().await;
                guard.release().await.expect("released");
            }
        });
    }
    running.join_all().await;
    let requests = store.count(Verb::Acquire) + store.count(Verb::Release);
    assert!(requests < 640, "{requests} requests for 1,280 acquisitions");
}
