//! Where it is easily wrong: odd places to drop a guard, panics, silent stores, moments of closing.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::{Answer, Attempt, Claim, Grant, Store};
use lockkeeper::{Error, Event, Guard, Lockkeeper, LossCause, Observer, Owner};

use crate::common::{Fault, LEASE, MS, SHORT, Tampered, Verb, acquired, eventually, waiters};

#[tokio::test]
async fn closing_takes_the_waiting_claim_out_of_the_queue() {
    let store = Arc::<MemoryStore>::default();
    let other = Lockkeeper::builder().store(store.clone());
    let other = other.connect().await.expect("connects");
    let held = other.lock("x").expect("a name").acquire().await;
    let tampered = Tampered::interruptible(store.clone());
    let keeper = tampered.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
    eventually("it waits", async || waiters(&other).await == 1).await;
    keeper.close().await;
    let left = waiters(&other).await;
    assert_eq!(left, 0, "closed, and a claim of it still queues");
    assert_eq!(waiter.await.expect("no panic"), Err(Error::Closed));
    drop(held);
}

#[tokio::test]
async fn blocking_calls_do_not_spin_in_a_task_that_used_up_its_budget() {
    let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:budget").expect("connects");
    let done = Arc::<AtomicBool>::default();
    let task = std::thread::spawn({
        let done = done.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(async {
                let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
                (0..1000).for_each(|i| send.send(i).expect("sent"));
                std::future::poll_fn(|context| {
                    while receive.poll_recv(context).is_ready() {}
                    let guard = keeper.lock("x").expect("a name").acquire();
                    guard.expect("acquired").release().expect("released");
                    done.store(true, SeqCst);
                    std::task::Poll::Ready(())
                })
                .await;
            });
        }
    });
    eventually("it ends", async || done.load(SeqCst)).await;
    task.join().expect("no panic");
}

#[tokio::test]
async fn a_loop_that_always_finds_the_lock_free_lets_other_tasks_run() {
    let keeper = Lockkeeper::connect("memory:").await.expect("connects");
    let lock = keeper.lock("x").expect("a name");
    let stop = Arc::<AtomicBool>::default();
    let other = tokio::spawn({
        let stop = stop.clone();
        async move { stop.store(true, SeqCst) }
    });
    for _ in 0..100_000 {
        let guard = lock.acquire().await.expect("acquires");
        guard.release().await.expect("releases");
        if stop.load(SeqCst) {
            break;
        }
    }
    assert!(stop.load(SeqCst), "nobody else ran");
    other.await.expect("no panic");
}

#[tokio::test]
async fn a_guard_kept_in_a_thread_local_releases_when_its_thread_ends() {
    thread_local!(static KEPT: RefCell<Vec<lockkeeper::Guard>> = const { RefCell::new(Vec::new()) });
    let store = Tampered::interruptible(Arc::default());
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    for touched in [false, true] {
        let guard = lock.acquire().await.expect("acquired");
        let handle = tokio::runtime::Handle::current();
        let thread = std::thread::spawn(move || {
            if touched {
                let _ = handle.enter();
            }
            KEPT.with_borrow_mut(|kept| kept.push(guard));
            if !touched {
                let _ = handle.enter();
            }
        });
        thread.join().expect("no panic");
        eventually("it is free", async || store.inner.in_use().0 == 0).await;
    }
}

#[tokio::test]
async fn an_observer_that_panics_does_not_stop_renewals() {
    struct Panics;
    impl Observer for Panics {
        fn event(&self, event: &Event<'_>) {
            assert!(!matches!(event, Event::AtRisk { .. } | Event::Lost { .. }));
        }
    }
    // A panic prints a backtrace, on the thread that renews.
    let lease = SHORT * 5;
    let builder = Lockkeeper::builder().store(Tampered::new());
    let builder = builder.observer(Arc::new(Panics)).lease(lease);
    let keeper = builder.connect().await.expect("connects");
    let fixed = keeper.lock("x").and_then(|lock| lock.fixed_lease(MS(200)));
    let fixed = fixed.expect("a lock").acquire().await.expect("acquired");
    let renewed = keeper.lock("y").expect("a name").acquire().await;
    let renewed = renewed.expect("acquired");
    assert!(tokio::time::timeout(LEASE, fixed.lost()).await.is_ok());
    tokio::time::sleep(lease * 2).await;
    assert!(renewed.is_held());
}

#[tokio::test]
async fn a_fixed_lease_stays_fixed_in_a_downgrade() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let fixed = keeper.rwlock("x").and_then(|lock| lock.fixed_lease(SHORT));
    let writer = fixed.expect("a lock").write().await.expect("writes");
    let reader = writer.downgrade().await.expect("downgraded");
    let lost = tokio::time::timeout(SHORT * 5, reader.lost()).await;
    assert!(lost.is_ok(), "it is renewed for ever");
    assert_eq!(store.count(Verb::Renew), 0);
}

#[tokio::test]
async fn a_reader_that_leaves_a_lost_hold_learns_it_although_others_share_it() {
    let keeper = Tampered::new().keeper(SHORT).await;
    let lock = keeper.rwlock("x").expect("a name");
    let (a, b) = tokio::join!(lock.read(), lock.read());
    let (a, b) = (a.expect("reads"), b.expect("reads"));
    assert_eq!(a.claim(), b.claim(), "they share a hold");
    let mine = keeper.lock("y").expect("a name").as_owner(&Owner::new());
    let outer = mine.acquire().await.expect("acquired");
    let inner = mine.acquire().await.expect("re-entered");
    for name in ["x", "y"] {
        keeper.break_lock(name, "a test").await.expect("broken");
    }
    tokio::join!(a.lost(), inner.lost());
    for guard in [a.into(), b.into(), inner, outer] {
        let guard: Guard = guard;
        let name = guard.name().clone();
        match guard.release().await {
            Err(Error::Lost { cause, .. }) => {
                assert!(matches!(cause, LossCause::Broken(_)), "{name}: {cause:?}")
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(mine.try_acquire().await.expect("works").is_some());
}

#[tokio::test]
async fn nothing_waits_past_its_time_for_a_silent_store() {
    let store = Tampered::new();
    let (keeper, other) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let latch = keeper.latch("l").expect("a name");
    latch.set(1).await.expect("set");
    let held = other.lock("x").expect("a name").acquire().await;
    store.set(Verb::Other, Some(Fault::Silent));
    let waited = tokio::time::timeout(LEASE / 6, latch.wait_within(MS(50))).await;
    assert_eq!(waited, Ok(Ok(false)));
    store.set(Verb::Other, None);
    store.set(Verb::Subscribe, Some(Fault::Silent));
    let waited = tokio::time::timeout(LEASE / 6, latch.wait_within(MS(50))).await;
    assert_eq!(waited, Ok(Ok(false)));
    let fair = keeper.lock("x").and_then(|lock| lock.fair()).expect("fair");
    let waited = tokio::time::timeout(LEASE / 6, fair.acquire_within(MS(50))).await;
    assert!(waited.expect("in time").expect("works").is_none());
    drop(held);
}

#[tokio::test]
async fn a_silent_store_hangs_neither_an_extension_nor_closing() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    let guard = keeper.lock("x").expect("a name").acquire().await;
    let guard = guard.expect("acquired");
    store.set(Verb::Renew, Some(Fault::Silent));
    let extended = tokio::time::timeout(SHORT * 5, guard.extend(LEASE)).await;
    assert!(
        matches!(extended, Ok(Err(Error::Lost { .. }))),
        "{extended:?}"
    );
    store.set(Verb::Other, Some(Fault::Silent));
    drop(guard);
    let closed = tokio::time::timeout(LEASE, keeper.close()).await;
    assert!(closed.is_ok(), "closing waits for ever");
}

#[tokio::test]
async fn a_failed_release_is_tried_until_an_extended_lease_has_ended() {
    let store = Tampered::new();
    let keeper = store.keeper(MS(100)).await;
    let guard = keeper.lock("x").expect("a name").acquire().await;
    let guard = guard.expect("acquired");
    guard.extend(LEASE * 4).await.expect("extended");
    store.set(Verb::Release, Some(Fault::Refused));
    assert!(guard.release().await.is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.set(Verb::Release, None);
    eventually("it is free", async || store.inner.in_use().0 == 0).await;
}

#[tokio::test]
async fn a_failed_release_is_tried_until_an_extension_in_doubt_has_ended() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    let guard = acquired(&keeper).await;
    store.set(Verb::Renew, Some(Fault::AnswerLost));
    assert!(guard.extend(LEASE * 4).await.is_err());
    store.set(Verb::Release, Some(Fault::Refused));
    drop(guard);
    tokio::time::sleep(SHORT * 5).await;
    store.set(Verb::Release, None);
    eventually("it is free", async || store.inner.in_use().0 == 0).await;
}

#[tokio::test]
async fn a_failed_release_is_tried_no_longer_than_the_lease_of_its_lock() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE * 100).await;
    let lock = keeper.lock("x").expect("a name");
    let lock = lock.with_lease(SHORT).expect("a lease");
    let guard = lock.acquire().await.expect("acquired");
    store.set(Verb::Release, Some(Fault::Refused));
    drop(guard);
    let closed = tokio::time::timeout(LEASE * 2, keeper.close()).await;
    assert!(closed.is_ok(), "closing waits for the lease of other locks");
}

#[tokio::test]
async fn inspecting_a_name_does_not_change_it() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let guard = keeper.lock("x").expect("a name").acquire().await;
    let watch = keeper.watch("x").await.expect("watches");
    keeper.inspect("x").await.expect("works");
    keeper.list("").await.expect("works");
    let hint = tokio::time::timeout(MS(100), watch.hint()).await;
    assert!(
        hint.is_err(),
        "a watcher that looks would wake itself for ever"
    );
    drop(guard);
    let hint = tokio::time::timeout(LEASE, watch.hint()).await;
    assert!(hint.is_ok());
}

#[test]
fn an_acquire_does_not_hang_while_the_keeper_closes() {
    for _ in 0..50 {
        let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:closing").expect("connects");
        let held = keeper
            .lock("x")
            .expect("a name")
            .acquire()
            .expect("acquired");
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let lock = keeper.lock("x").expect("a name");
                    start.wait();
                    let ended = lock.acquire_within(Duration::from_secs(10));
                    assert!(matches!(ended, Err(Error::Closed)), "waited on");
                });
            }
            start.wait();
            keeper.close();
        });
        drop(held);
    }
}

#[tokio::test]
async fn a_store_that_panics_does_not_hang_waiting_tasks() {
    let store = Tampered::new();
    let (keeper, other) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let held = other.lock("x").expect("a name").acquire().await;
    let lock = keeper.lock("x").expect("a name");
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) })
        })
        .collect();
    // A task that came after the panic would ask by itself, and panic itself.
    eventually("all are in line", async || waiters(&other).await == 1).await;
    store.set(Verb::Acquire, Some(Fault::Panics));
    for waiter in waiting {
        let ended = tokio::time::timeout(LEASE, waiter).await.expect("in time");
        let error = ended.expect("no panic here");
        assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
    }
    store.set(Verb::Acquire, None);
    drop(held);
    assert!(lock.acquire().await.expect("goes on").is_held());
}

#[tokio::test]
async fn guards_dropped_in_odd_places_release() {
    let store = Tampered::interruptible(Arc::default());
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    let free = async || eventually("it is free", async || store.inner.in_use().0 == 0).await;

    let guard = lock.acquire().await.expect("acquired");
    let unwound = tokio::spawn(async move {
        let _guard = guard;
        panic!("a test");
    });
    assert!(unwound.await.is_err());
    free().await;

    // By a runtime that shuts down, one while it holds and one while it waits in line.
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn({
        let lock = lock.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.expect("a runtime");
            runtime.spawn({
                let lock = lock.clone();
                async move {
                    let _guard = lock.acquire().await.expect("acquired");
                    ready.send(()).expect("awaited");
                    std::future::pending::<()>().await;
                }
            });
            runtime.block_on(is_ready).expect("holds");
            runtime.spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
            runtime.block_on(tokio::task::yield_now());
        }
    });
    thread.join().expect("no panic");
    free().await;

    // After the keeper itself is gone.
    let guard = lock.acquire().await.expect("acquired");
    drop((lock, keeper));
    std::thread::spawn(move || drop(guard))
        .join()
        .expect("no panic");
    free().await;
}

/// A store that grants a run of no tokens, against the contract.
#[derive(Debug, Default)]
struct Stingy(MemoryStore);

impl Store for Stingy {
    lockkeeper::forward!(0: capabilities facts);
    lockkeeper::forward!(0: withdraw renew release subscribe inspect list break_lock latch);
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(async {
            Ok(match self.0.try_acquire(claim).await? {
                Attempt::Granted(grant) => Attempt::Granted(Grant::new(grant.token, 0)),
                other => other,
            })
        })
    }
}

#[tokio::test]
async fn a_grant_of_no_tokens_is_one_of_one() {
    let builder = Lockkeeper::builder().store(Arc::new(Stingy::default()));
    let keeper = builder.connect().await.expect("connects");
    for _ in 0..2 {
        let lock = keeper.lock("x").expect("a name");
        // A panic of the first would leave the second waiting.
        let task = tokio::spawn(async move { lock.acquire().await?.release().await });
        let ended = tokio::time::timeout(SHORT * 20, task).await;
        let ended = ended.expect("it does not wait for ever");
        ended.expect("no panic").expect("acquired and released");
    }
}
