//! What an observer is told: each wait has one end, each loss comes once and before the release, an outage is no storm.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::*;

use crate::common::{Fault, LEASE, MS, SHORT, Tampered, Verb, acquired, eventually};

/// What was told: kind, and name and more where a test needs it.
#[derive(Default)]
struct Told(Mutex<Vec<(&'static str, String)>>);

impl Observer for Told {
    fn event(&self, event: &Event<'_>) {
        let more = match event {
            Event::Lost {
                token, mode, cause, ..
            } => format!("{token} {mode} {cause:?}"),
            Event::Acquired { token, .. } | Event::Released { token, .. } => token.to_string(),
            other => other.name().map(Name::to_string).unwrap_or_default(),
        };
        self.0.lock().expect("told").push((event.kind(), more));
    }
}

impl Told {
    fn count(&self, kind: &str) -> usize {
        let told = self.0.lock().expect("told");
        told.iter().filter(|(one, _)| *one == kind).count()
    }

    fn position(&self, kind: &str) -> Option<usize> {
        let told = self.0.lock().expect("told");
        told.iter().position(|(one, _)| *one == kind)
    }

    fn more(&self, kind: &str) -> Vec<String> {
        let told = self.0.lock().expect("told");
        let some = told.iter().filter(|(one, _)| *one == kind);
        some.map(|(_, more)| more.clone()).collect()
    }

    /// How many waits have ended.
    fn ends(&self) -> usize {
        let ends = ["granted", "timed_out", "cancelled", "failed"];
        ends.iter().map(|end| self.count(end)).sum()
    }
}

async fn observed(lease: Duration) -> (Arc<Tampered>, Lockkeeper, Arc<Told>) {
    let (store, told) = (Tampered::new(), Arc::<Told>::default());
    let builder = Lockkeeper::builder().store(store.clone()).lease(lease);
    let keeper = builder.observer(told.clone()).connect().await;
    (store, keeper.expect("connects"), told)
}

/// Gives nobody else of this thread a turn.
fn spin_while(so: impl Fn() -> bool) {
    while so() {
        std::hint::spin_loop();
    }
}

#[tokio::test]
async fn a_lock_that_is_free_is_not_waited_for() {
    let (_store, keeper, told) = observed(LEASE).await;
    acquired(&keeper).await.release().await.expect("released");
    assert_eq!((told.count("waiting"), told.ends()), (0, 0));
    assert_eq!((told.count("acquired"), told.count("released")), (1, 1));
}

#[tokio::test]
async fn each_end_of_each_way_to_wait_is_reported_once() {
    let (_store, keeper, told) = observed(LEASE).await;
    let plain = keeper.lock("x").expect("a name");
    let labelled = keeper.lock("x").and_then(|lock| lock.label("own"));
    let fair = plain.fair().expect("fair");
    for lock in [plain.clone(), fair, labelled.expect("a label")] {
        let before = told.count("waiting");
        let held = plain.acquire().await.expect("acquired");
        assert!(lock.try_acquire().await.expect("works").is_none());
        let late = lock.acquire_within(MS(5)).await;
        assert!(late.expect("works").is_none());
        let now = lock.acquire_within(Duration::ZERO).await;
        assert!(now.expect("works").is_none());
        let gives_up = tokio::time::timeout(MS(20), lock.acquire()).await;
        assert!(gives_up.is_err());
        let waits = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.expect("acquired").release().await }
        });
        eventually("it waits", async || told.count("waiting") == before + 4).await;
        held.release().await.expect("released");
        waits.await.expect("no panic").expect("released");
    }
    let ends = ["timed_out", "cancelled", "granted", "failed"].map(|end| told.count(end));
    assert_eq!(ends, [6, 3, 3, 0], "{:?}", told.0);
    assert_eq!((told.count("waiting"), told.count("busy")), (12, 3));
    assert_eq!(told.count("acquired"), told.count("released"));
}

#[tokio::test]
async fn closing_and_an_outage_end_a_wait_with_their_error() {
    let (store, keeper, told) = observed(SHORT).await;
    let held = acquired(&keeper).await;
    let lock = keeper.lock("x").and_then(|lock| lock.label("own"));
    let lock = lock.expect("a label");
    store.set(Verb::Acquire, Some(Fault::Refused));
    assert!(
        lock.acquire().await.is_err(),
        "away for longer than a lease"
    );
    assert_eq!((told.count("waiting"), told.count("failed")), (1, 1));
    store.set(Verb::Acquire, None);
    let plain = keeper.lock("x").expect("a name");
    let waits = tokio::spawn(async move { plain.acquire().await.map(drop) });
    eventually("it waits", async || told.count("waiting") == 2).await;
    keeper.close().await;
    let waited = waits.await.expect("no panic");
    assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
    assert_eq!((told.ends(), told.count("failed")), (2, 2));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_come_and_go_end_every_wait() {
    let (_store, keeper, told) = observed(LEASE).await;
    let got = Arc::new(AtomicUsize::new(0));
    let tasks = (0..60).map(|number: u64| {
        let (keeper, got) = (keeper.clone(), got.clone());
        tokio::spawn(async move {
            for round in 0..10 {
                let lock = keeper.lock("x").expect("a name");
                let limit = MS((number * 7 + round * 3) % 11);
                // A wait that ends by itself, one that is dropped, and one without end.
                let guard = match number % 3 {
                    0 => lock.acquire_within(limit).await.expect("works"),
                    1 => tokio::time::timeout(limit, lock.acquire())
                        .await
                        .ok()
                        .and_then(Result::ok),
                    _ => Some(lock.acquire().await.expect("acquired")),
                };
                if let Some(guard) = guard {
                    got.fetch_add(1, SeqCst);
                    tokio::time::sleep(MS(round % 2)).await;
                    guard.release().await.expect("released");
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    keeper.close().await;
    assert!(told.count("waiting") > 0);
    assert_eq!(told.count("waiting"), told.ends());
    assert_eq!(told.count("acquired"), told.count("released"));
    assert!(told.count("acquired") >= got.load(SeqCst));
}

#[tokio::test]
async fn a_loss_says_what_and_why_once_and_before_the_release() {
    // The watchdog finds it, or the task that leaves: it must make no difference.
    for at_once in [false, true] {
        let (store, keeper, told) = observed(SHORT).await;
        let guard = acquired(&keeper).await;
        let token = guard.token();
        store.set(Verb::Renew, Some(Fault::Refused));
        match at_once {
            // Without a turn for anybody else between the loss and the release.
            true => spin_while(|| guard.is_held()),
            false => guard.lost().await,
        }
        let _ = guard.release().await;
        // The watchdog's thread may still be telling the loss.
        eventually("all is told", async || told.count("released") == 1).await;
        assert_eq!(told.more("lost"), [format!("{token} exclusive NotRenewed")]);
        assert!(told.position("lost") < told.position("released"));
    }
}

#[tokio::test]
async fn the_cause_of_a_loss_is_reported() {
    let (_store, keeper, told) = observed(LEASE).await;
    let fixed = keeper.lock("y").and_then(|lock| lock.fixed_lease(MS(150)));
    let fixed = fixed.expect("a lock").acquire().await.expect("acquired");
    fixed.lost().await;
    let guard = acquired(&keeper).await;
    keeper.break_lock("x", "a test").await.expect("breaks");
    guard.lost().await;
    eventually("both are told", async || told.count("lost") == 2).await;
    let lost = told.more("lost");
    assert!(lost[0].ends_with("LeaseOver"), "{lost:?}");
    assert!(lost[1].contains("Broken"), "{lost:?}");
    assert_eq!(
        told.count("at_risk"),
        0,
        "the end of a fixed lease is meant"
    );
}

#[tokio::test]
async fn a_hold_that_the_store_no_longer_had_is_lost_before_it_is_released() {
    let (store, keeper, told) = observed(LEASE).await;
    let guard = acquired(&keeper).await;
    // Behind the keeper's back: no hint comes.
    let name = Name::new("x").expect("a name");
    let claim = guard.claim();
    use lockkeeper::store::Store;
    store.inner.withdraw(&name, claim).await.expect("works");
    let _ = guard.release().await;
    assert_eq!(told.count("lost"), 1);
    assert!(told.position("lost") < told.position("released"));
}

#[tokio::test]
async fn an_outage_is_reported_once_for_the_store_and_once_for_each_hold() {
    const HOLDS: usize = 50;
    let (store, keeper, told) = observed(Duration::from_secs(10)).await;
    let mut guards = Vec::new();
    for number in 0..HOLDS {
        let lock = keeper.lock(&format!("n{number}")).expect("a name");
        guards.push(lock.acquire().await.expect("acquired"));
    }
    store.set_all(Some(Fault::Refused));
    eventually("all fail", async || told.count("renewal_failed") >= HOLDS).await;
    let tries = store.count(Verb::Renew);
    eventually("again", async || store.count(Verb::Renew) > tries + 2).await;
    assert_eq!(told.count("renewal_failed"), HOLDS);
    assert_eq!(told.count("store_away"), 1);
    store.set_all(None);
    eventually("it is back", async || told.count("store_back") == 1).await;
    assert_eq!(told.count("store_away"), 1);
    // The next outage is told anew.
    let back = told.count("renewal_failed");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    store.set_all(Some(Fault::Refused));
    eventually("told anew", async || told.count("renewal_failed") > back).await;
    eventually("away", async || told.count("store_away") == 2).await;
}

#[tokio::test]
async fn an_idle_keeper_finds_that_the_store_is_back() {
    let (store, keeper, told) = observed(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    store.set_all(Some(Fault::Refused));
    assert!(lock.try_acquire().await.is_err());
    assert_eq!(told.count("store_away"), 1);
    store.set_all(None);
    eventually("it is back", async || told.count("store_back") == 1).await;
    assert_eq!(store.inner.in_use().0, 0, "asking leaves nothing behind");
}

#[tokio::test]
async fn an_extension_a_break_and_a_latch_find_out_too_that_the_store_is_away() {
    for verb in ["extend", "break", "latch"] {
        let (store, keeper, told) = observed(LEASE).await;
        let guard = acquired(&keeper).await;
        let latch = keeper.latch("y").expect("a name");
        store.set_all(Some(Fault::Refused));
        let failed = match verb {
            "extend" => guard.extend(LEASE).await.is_err(),
            "break" => keeper.break_lock("x", "a test").await.is_err(),
            _ => latch.set(1).await.is_err(),
        };
        assert!(failed, "{verb}");
        assert_eq!(told.count("store_away"), 1, "{verb}");
        store.set_all(None);
        eventually("it is back", async || told.count("store_back") == 1).await;
    }
}

#[tokio::test]
async fn a_release_that_fails_is_reported_once_and_ends_all_the_same() {
    for drops in [true, false] {
        let (store, keeper, told) = observed(LEASE).await;
        let guard = acquired(&keeper).await;
        store.set(Verb::Release, Some(Fault::Refused));
        if drops {
            drop(guard)
        } else {
            assert!(guard.release().await.is_err())
        }
        eventually("told", async || told.count("release_failed") == 1).await;
        eventually("tried again", async || store.count(Verb::Release) > 2).await;
        assert_eq!(
            (told.count("release_failed"), told.count("released")),
            (1, 0)
        );
        store.set(Verb::Release, None);
        eventually("released", async || told.count("released") == 1).await;
        assert_eq!((told.count("release_failed"), told.count("lost")), (1, 0));
    }
}

/// Does what an observer may do: drops the guard of the lost lock, and calls back.
#[derive(Default)]
struct CallsBack(Mutex<Option<(Lockkeeper, Kept)>>, Told);

type Kept = Box<dyn std::any::Any + Send>;

impl Observer for CallsBack {
    fn event(&self, event: &Event<'_>) {
        if let Event::Lost { name, .. } = event
            && let Some((keeper, guard)) = self.0.lock().expect("kept").take()
        {
            drop(guard);
            keeper.lock(name.as_str()).expect("a name");
            keeper.nodes();
        }
        self.1.event(event);
    }
}

#[tokio::test]
async fn an_observer_may_drop_the_guard_of_a_lost_lock() {
    for task_finds_out in [false, true] {
        let (store, calls) = (Tampered::new(), Arc::<CallsBack>::default());
        let builder = Lockkeeper::builder().store(store.clone()).lease(SHORT);
        let keeper = builder.observer(calls.clone()).connect().await;
        let keeper = keeper.expect("connects");
        let reader = keeper.rwlock("x").expect("a name");
        let (kept, other) = (reader.read().await, reader.read().await);
        let (kept, other) = (kept.expect("reads"), other.expect("reads"));
        *calls.0.lock().expect("kept") = Some((keeper.clone(), Box::new(kept)));
        store.set(Verb::Renew, Some(Fault::Refused));
        if task_finds_out {
            spin_while(|| other.is_held());
            let _ = other.release().await;
        } else {
            other.lost().await;
            let _ = other.release().await;
        }
        eventually("both are released", async || calls.1.count("released") == 2).await;
        assert_eq!(calls.1.count("lost"), 1);
        assert!(calls.1.position("lost") < calls.1.position("released"));
    }
}
