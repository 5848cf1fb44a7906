//! The engine where it is easily wrong: late answers, odd places to drop a guard, closing, silent stores.

mod common;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Fault, LEASE, MS, SHORT, Tampered, Verb, eventually};
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::*;
use lockkeeper::{Error, Event, Lockkeeper, Name, Observer, Owner, ReleaseOutcome};

/// A memory store at the end of a long wire: what was sent arrives although its sender went away.
#[derive(Debug, Default)]
struct Distant {
    inner: Arc<MemoryStore>,
    /// How long a request is on its way, and how long its answer.
    wire: Mutex<HashMap<Verb, (Duration, Duration)>>,
}

impl Distant {
    fn set(&self, verb: Verb, there: Duration, back: Duration) {
        self.wire.lock().expect("wire").insert(verb, (there, back));
    }

    async fn keeper(self: &Arc<Distant>, lease: Duration) -> Lockkeeper {
        let builder = Lockkeeper::builder().store(self.clone()).lease(lease);
        builder.connect().await.expect("connects")
    }

    fn send<'a, T, F>(
        &self,
        verb: Verb,
        call: impl FnOnce(Arc<MemoryStore>) -> F + Send + 'static,
    ) -> Answer<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let wire = self.wire.lock().expect("wire");
        let (there, back) = wire.get(&verb).copied().unwrap_or_default();
        let (inner, (answer, comes)) = (self.inner.clone(), tokio::sync::oneshot::channel());
        std::thread::spawn(move || {
            std::thread::sleep(there);
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let answered = runtime.expect("a runtime").block_on(call(inner));
            std::thread::sleep(back);
            let _ = answer.send(answered);
        });
        Box::pin(async move { comes.await.expect("answered") })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Distant {
    lockkeeper::forward!(inner: facts subscribe inspect list break_lock latch);
    fn ends_in_time(&self) -> bool {
        false
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        let claim = claim.clone();
        self.send(
            Verb::Acquire,
            |s| async move { s.try_acquire(&claim).await },
        )
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        let name = name.clone();
        self.send(Verb::Withdraw, move |s| async move {
            s.withdraw(&name, claim).await
        })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        let renewals = renewals.to_vec();
        self.send(Verb::Renew, |s| async move { s.renew(&renewals).await })
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        let release = release.clone();
        self.send(Verb::Release, |s| async move { s.release(&release).await })
    }
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_lease_is_no_hold() {
    let store = Arc::<Distant>::default();
    let keeper = store.keeper(MS(200)).await;
    let lock = keeper.lock("x").expect("a name");
    store.set(Verb::Acquire, MS(0), MS(300));
    for lock in [lock.clone(), lock.fair().expect("fair")] {
        let tried = lock.try_acquire().await;
        assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    }
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.expect("acquired").is_held() }
    });
    tokio::time::sleep(MS(50)).await;
    store.set(Verb::Acquire, MS(0), MS(0));
    assert!(
        waiter.await.expect("no panic"),
        "held when it was given out"
    );
    keeper.close().await;
    eventually("nothing is left", async || store.inner.in_use() == (0, 0)).await;
}

#[tokio::test]
async fn a_grant_that_came_late_with_a_release_is_no_hold() {
    let store = Arc::<Distant>::default();
    let keeper = store.keeper(MS(200)).await;
    let lock = keeper.lock("x").expect("a name");
    let first = lock.acquire().await.expect("acquired");
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.expect("acquired").is_held() }
    });
    tokio::task::yield_now().await;
    store.set(Verb::Release, MS(0), MS(300));
    first.release().await.expect("released");
    assert!(
        waiter.await.expect("no panic"),
        "held when it was given out"
    );
}

/// As after a long pause of the process: the answer to a renewal is there before anyone looked at the clock.
#[tokio::test]
async fn a_renewal_answered_too_late_does_not_swallow_the_loss() {
    #[derive(Debug, Default)]
    struct Stalls(Tampered);
    #[deny(clippy::missing_trait_methods)]
    impl Store for Stalls {
        lockkeeper::forward!(0: facts ends_in_time try_acquire withdraw release subscribe inspect list break_lock latch);
        fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
            Box::pin(async move {
                std::thread::sleep(SHORT);
                self.0.renew(renewals).await.map(|mut all| {
                    all.fill(Renewed::Renewed);
                    all
                })
            })
        }
    }
    let builder = Lockkeeper::builder().store(Arc::<Stalls>::default());
    let keeper = builder.lease(SHORT).connect().await.expect("connects");
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
    let lost = tokio::time::timeout(SHORT * 5, guard.lost()).await;
    assert!(lost.is_ok(), "nobody told of the loss");
    // Those who wait here contend anew, although the lost guard lives on.
    let next = tokio::time::timeout(SHORT * 10, waiter).await;
    let next = next.expect("in time").expect("no panic").expect("acquired");
    assert!(next > guard.token());
}

#[tokio::test]
async fn a_cancelled_acquire_that_arrives_late_is_taken_back() {
    let store = Arc::<Distant>::default();
    let keeper = store.keeper(LEASE * 4).await;
    let lock = keeper.lock("x").expect("a name");
    store.set(Verb::Acquire, MS(300), MS(0));
    for lock in [lock.clone(), lock.fair().expect("fair")] {
        assert!(tokio::time::timeout(MS(20), lock.acquire()).await.is_err());
        let within = lock.acquire_within(MS(20)).await.expect("works");
        assert!(within.is_none());
    }
    tokio::time::sleep(MS(600)).await;
    assert_eq!(store.inner.in_use().0, 1, "they arrived after all");
    eventually("it is free", async || store.inner.in_use().0 == 0).await;
}

#[tokio::test]
async fn a_claim_queued_by_a_release_that_arrives_late_is_taken_back() {
    let store = Arc::<Distant>::default();
    let keeper = store.keeper(LEASE * 4).await;
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.map(|guard| guard.token()) }
    });
    tokio::task::yield_now().await;
    store.set(Verb::Release, MS(400), MS(0));
    let released = tokio::time::timeout(MS(50), guard.release()).await;
    assert!(released.is_err(), "dropped on its way");
    let next = tokio::time::timeout(Duration::from_secs(20), waiter).await;
    next.expect("in time").expect("no panic").expect("acquired");
    eventually("it is free", async || store.inner.in_use().0 == 0).await;
}

#[tokio::test]
async fn closing_takes_the_waiting_claim_out_of_the_queue() {
    let store = Arc::<MemoryStore>::default();
    let other = Lockkeeper::builder().store(store.clone());
    let other = other.connect().await.expect("connects");
    let held = other.lock("x").expect("a name").acquire().await;
    let tampered = Tampered::interruptible(store.clone());
    let keeper = tampered.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    let waiting = async |count: usize| {
        let info = other.inspect("x").await.expect("works").expect("known");
        info.waiters == count
    };
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) });
    eventually("it waits", async || waiting(1).await).await;
    keeper.close().await;
    assert!(waiting(0).await, "closed, and a claim of it still queues");
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
    let builder = Lockkeeper::builder().store(Tampered::new());
    let builder = builder.observer(Arc::new(Panics)).lease(SHORT);
    let keeper = builder.connect().await.expect("connects");
    let fixed = keeper.lock("x").and_then(|lock| lock.lease(MS(200)));
    let fixed = fixed.expect("a lock").acquire().await.expect("acquired");
    let renewed = keeper.lock("y").expect("a name").acquire().await;
    let renewed = renewed.expect("acquired");
    assert!(tokio::time::timeout(LEASE, fixed.lost()).await.is_ok());
    tokio::time::sleep(SHORT * 2).await;
    assert!(renewed.is_held());
}

#[tokio::test]
async fn a_fixed_lease_stays_fixed_in_a_downgrade() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let fixed = keeper.rwlock("x").and_then(|lock| lock.lease(SHORT));
    let writer = fixed.expect("a lock").write().await.expect("writes");
    let reader = writer.downgrade().await.expect("downgraded");
    let lost = tokio::time::timeout(SHORT * 5, reader.lost()).await;
    assert!(lost.is_ok(), "it is renewed for ever");
    assert_eq!(store.count(Verb::Renew), 0);
}

#[tokio::test]
async fn whoever_leaves_a_lost_hold_learns_it_although_others_share_it() {
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
    for guard in [a, b, inner, outer] {
        let name = guard.name().clone();
        let outcome = guard.release().await.expect("answered");
        match outcome {
            ReleaseOutcome::NotHeld { broken, .. } => assert!(broken.is_some()),
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
    let waited = tokio::time::timeout(LEASE / 6, latch.wait_at_most(MS(50))).await;
    assert_eq!(waited, Ok(Ok(false)));
    store.set(Verb::Other, None);
    store.set(Verb::Subscribe, Some(Fault::Silent));
    let waited = tokio::time::timeout(LEASE / 6, latch.wait_at_most(MS(50))).await;
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
async fn looking_at_a_name_is_no_change_of_it() {
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
fn nobody_hangs_who_asks_while_the_keeper_closes() {
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
async fn a_store_that_panics_does_not_hang_those_in_line() {
    let store = Tampered::new();
    let (keeper, other) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let held = other.lock("x").expect("a name").acquire().await;
    let lock = keeper.lock("x").expect("a name");
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) })
        })
        .collect();
    store.set(Verb::Subscribe, Some(Fault::Panics));
    for waiter in waiters {
        let ended = tokio::time::timeout(LEASE, waiter).await.expect("in time");
        let error = ended.expect("no panic here");
        assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
    }
    store.set(Verb::Subscribe, None);
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
