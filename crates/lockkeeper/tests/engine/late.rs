//! Answers that come late.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::*;
use lockkeeper::{Error, Lockkeeper, Name};

use crate::common::{LEASE, MS, SHORT, Tampered, Verb, eventually};

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
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().with_ends_in_time(false)
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
    let keeper = store.keeper(MS(1000)).await;
    let lock = keeper.lock("x").expect("a name");
    let first = lock.acquire().await.expect("acquired");
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.expect("acquired").is_held() }
    });
    tokio::task::yield_now().await;
    store.set(Verb::Release, MS(0), MS(1500));
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
        lockkeeper::forward!(0: capabilities facts try_acquire withdraw release subscribe inspect list break_lock latch);
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
async fn a_cancelled_acquire_that_arrives_late_is_withdrawn() {
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
async fn a_claim_queued_by_a_release_that_arrives_late_is_withdrawn() {
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
    {
        // One poll sends the request. A time-out might only be looked at once the answer is there.
        let mut release = std::pin::pin!(guard.release());
        let polled = std::future::poll_fn(|cx| Poll::Ready(release.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "dropped on its way");
    }
    let next = tokio::time::timeout(Duration::from_secs(20), waiter).await;
    next.expect("in time").expect("no panic").expect("acquired");
    eventually("it is free", async || store.inner.in_use().0 == 0).await;
}
