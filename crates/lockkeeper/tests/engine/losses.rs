//! A lost lock is never silent: what its holder and the observers are told, and in which order.

use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::{Answer, Attempt, Claim, Renewal, Renewed, Store};
use lockkeeper::*;

use crate::common::{Fault, LEASE, MS, SHORT, Tampered, Verb, acquired, eventually};

const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Told {
    events: Mutex<Vec<String>>,
    /// A guard that is dropped when a lock is lost.
    drops: Mutex<Option<Guard>>,
}

impl Observer for Told {
    fn event(&self, event: &Event<'_>) {
        let text = match event {
            Event::Lost { name, cause, .. } => format!("{name} lost: {cause}"),
            Event::Released { name, .. } => format!("{name} released"),
            _ => return,
        };
        self.events.lock().expect("events").push(text);
        if let Event::Lost { .. } = event {
            drop(self.drops.lock().expect("drops").take());
        }
    }
}

impl Told {
    fn events(&self) -> Vec<String> {
        self.events.lock().expect("events").clone()
    }
}

async fn observed(store: &Arc<Tampered>, lease: Duration) -> (Lockkeeper, Arc<Told>) {
    let told = Arc::<Told>::default();
    let builder = Lockkeeper::builder().store(store.clone()).lease(lease);
    let keeper = builder.observer(told.clone()).connect().await;
    (keeper.expect("connects"), told)
}

#[tokio::test]
async fn a_release_while_the_store_is_away_says_that_the_lock_was_lost() {
    let store = Tampered::new();
    let (keeper, told) = observed(&store, SHORT).await;
    let guard = acquired(&keeper).await;
    store.set_all(Some(Fault::Refused));
    tokio::time::timeout(TIMEOUT, guard.lost())
        .await
        .expect("it is lost");
    let lost = guard.release().await;
    assert!(
        matches!(
            lost,
            Err(Error::Lost {
                cause: LossCause::NotRenewed,
                now_held_by: None,
                ..
            })
        ),
        "{lost:?}"
    );
    let lost = ["x lost: it was not renewed in time"];
    eventually("it is told", async || told.events() == lost).await;
    store.set_all(None);
    eventually("released once the store is back", async || {
        told.events()[1..] == ["x released"]
    })
    .await;
}

#[tokio::test]
async fn a_fixed_lease_that_is_over_is_reported_once_and_before_the_release() {
    let store = Tampered::new();
    let (keeper, told) = observed(&store, LEASE).await;
    let lock = keeper.lock("x").and_then(|lock| lock.fixed_lease(SHORT));
    let guard = lock.expect("a lease").acquire().await.expect("acquired");
    // Whether the watchdog or the release is first to see it.
    std::thread::sleep(SHORT);
    let lost = guard.release().await;
    assert!(
        matches!(
            lost,
            Err(Error::Lost {
                cause: LossCause::LeaseOver,
                ..
            })
        ),
        "{lost:?}"
    );
    let lost = ["x lost: its fixed lease is over", "x released"];
    assert_eq!(told.events(), lost);
}

#[tokio::test]
async fn a_break_that_only_the_release_notices_is_reported_with_its_reason() {
    let store = Tampered::new();
    let (keeper, told) = observed(&store, LEASE).await;
    let other = store.keeper(LEASE).await;
    // So that neither the hint nor a renewal is first.
    store.set(Verb::Renew, Some(Fault::Refused));
    let guard = acquired(&keeper).await;
    other.break_lock("x", "a test").await.expect("breaks");
    let next = acquired(&other).await;
    assert!(guard.is_held(), "nobody has told it");
    match guard.release().await {
        Err(Error::Lost {
            cause: LossCause::Broken(broken),
            now_held_by: Some(process),
            ..
        }) => {
            assert_eq!(broken.reason, "a test");
            assert_eq!(process.pid, std::process::id());
        }
        other => panic!("{other:?}"),
    }
    let lost = ["x lost: it was broken (a test)", "x released"];
    assert_eq!(told.events(), lost);
    assert!(next.is_held());
}

/// A lock of the keeper that another one has broken, without the keeper having heard of it.
async fn broken_unheard(store: &Arc<Tampered>, keeper: &Lockkeeper) -> Guard {
    store.set(Verb::Renew, Some(Fault::Refused));
    let guard = acquired(keeper).await;
    let other = store.keeper(LEASE).await;
    other.break_lock("x", "a test").await.expect("breaks");
    assert!(guard.is_held(), "nobody has told it");
    guard
}

#[tokio::test]
async fn a_loss_that_only_a_repeated_release_finds_is_reported() {
    for drops in [false, true] {
        let store = Tampered::new();
        let (keeper, told) = observed(&store, LEASE).await;
        let guard = broken_unheard(&store, &keeper).await;
        store.set(Verb::Release, Some(Fault::Refused));
        if drops {
            drop(guard)
        } else {
            let failed = guard.release().await.expect_err("the store is away");
            assert!(failed.is_transient(), "{failed:?}");
        }
        eventually("it is tried", async || store.count(Verb::Release) > 0).await;
        store.set(Verb::Release, None);
        eventually("it is over", async || {
            told.events().contains(&String::from("x released"))
        })
        .await;
        let events = told.events();
        assert_eq!(events, ["x lost: it was broken (a test)", "x released"]);
    }
}

#[tokio::test]
async fn a_hold_that_an_earlier_release_may_have_ended_is_not_lost() {
    for cancelled in [false, true] {
        let store = Tampered::new();
        let (keeper, told) = observed(&store, LEASE).await;
        let guard = acquired(&keeper).await;
        let fault = if cancelled {
            Fault::Silent
        } else {
            Fault::AnswerLost
        };
        store.set(Verb::Release, Some(fault));
        let released = tokio::time::timeout(MS(50), guard.release()).await;
        assert_eq!(released.is_err(), cancelled, "{released:?}");
        store.set(Verb::Release, None);
        eventually("it is over", async || !told.events().is_empty()).await;
        assert_eq!(told.events(), ["x released"]);
    }
}

/// How the keeper may come to hear of a break.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Hears {
    Hint,
    Retry,
    Extension,
}

#[tokio::test]
async fn a_break_is_reported_with_its_reason_however_it_is_noticed() {
    for hears in [Hears::Hint, Hears::Retry, Hears::Extension] {
        let store = Tampered::new();
        let (keeper, told) = observed(&store, LEASE).await;
        let guard = match hears {
            Hears::Hint => {
                let guard = acquired(&keeper).await;
                keeper.break_lock("x", "a test").await.expect("breaks");
                guard
            }
            _ => broken_unheard(&store, &keeper).await,
        };
        store.set(Verb::Renew, None);
        if hears == Hears::Extension {
            let error = guard.extend(LEASE).await.expect_err("it is lost");
            assert!(was_broken(&error), "{error:?}");
        }
        let lost = tokio::time::timeout(TIMEOUT, guard.lost()).await;
        assert!(lost.is_ok(), "{hears:?}");
        drop(guard);
        let expected = ["x lost: it was broken (a test)", "x released"];
        eventually("both are told", async || told.events().len() == 2).await;
        assert_eq!(told.events(), expected, "{hears:?}");
    }
}

/// The hold is gone, and the store says nothing of why.
async fn gone_without_a_word(store: &Arc<Tampered>, keeper: &Lockkeeper) -> Guard {
    let guard = acquired(keeper).await;
    store.set(Verb::Other, Some(Fault::Silent));
    let other = Lockkeeper::builder().store(store.inner.clone());
    let other = other.connect().await.expect("connects");
    other.break_lock("x", "a test").await.expect("breaks");
    let lost = tokio::time::timeout(TIMEOUT, guard.lost()).await;
    assert!(lost.is_ok(), "it is heard of");
    guard
}

#[tokio::test]
async fn a_loss_is_reported_although_the_store_does_not_say_why() {
    let store = Tampered::new();
    let (keeper, told) = observed(&store, LEASE).await;
    drop(gone_without_a_word(&store, &keeper).await);
    let expected = ["x lost: the store no longer had it", "x released"];
    eventually("both are told", async || told.events().len() == 2).await;
    assert_eq!(told.events(), expected);
}

#[tokio::test]
async fn a_loss_is_reported_although_the_keeper_ends_meanwhile() {
    let store = Tampered::new();
    let (keeper, told) = observed(&store, LEASE).await;
    let guard = gone_without_a_word(&store, &keeper).await;
    drop((guard, keeper));
    let expected = ["x lost: the store no longer had it", "x released"];
    eventually("both are told", async || told.events().len() == 2).await;
    assert_eq!(told.events(), expected);
}

#[tokio::test]
async fn a_cancelled_release_reports_the_loss_with_its_reason() {
    let store = Tampered::interruptible(Arc::default());
    let (keeper, told) = observed(&store, LEASE).await;
    let guard = broken_unheard(&store, &keeper).await;
    // The release is answered, and the store is asked for the reason.
    let mut release = Box::pin(guard.release());
    let asked = store.count(Verb::Other);
    std::future::poll_fn(|context| {
        let ended = release.as_mut().poll(context).is_ready();
        assert!(!ended, "nothing was left to cancel");
        if store.count(Verb::Other) > asked {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    drop(release);
    let expected = ["x lost: it was broken (a test)", "x released"];
    eventually("both are told", async || told.events().len() == 2).await;
    assert_eq!(told.events(), expected);
}

/// Leaves the record of a break: nobody holds any more.
async fn broken_before(keeper: &Lockkeeper) {
    let guard = acquired(keeper).await;
    keeper.break_lock("x", "an old one").await.expect("breaks");
    guard.release().await.expect_err("it was broken");
}

#[tokio::test]
async fn a_break_before_the_grant_is_not_the_cause() {
    let store = Tampered::new();
    let (keeper, told) = observed(&store, LEASE).await;
    broken_before(&keeper).await;
    let guard = acquired(&keeper).await;
    // Behind the keeper's back: no hint comes.
    let name = Name::new("x").expect("a name");
    let gone = store.inner.withdraw(&name, guard.claim()).await;
    gone.expect("works");
    match guard.release().await {
        Err(Error::Lost { cause, .. }) => assert_eq!(cause, LossCause::NotHeld),
        other => panic!("{other:?}"),
    }
    let before = ["x lost: it was broken (an old one)", "x released"];
    let lost = ["x lost: the store no longer had it", "x released"];
    assert_eq!(told.events(), [before, lost].concat());
}

#[tokio::test]
async fn an_old_break_is_not_the_cause_of_a_later_loss() {
    let store = Tampered::new();
    let (keeper, _) = observed(&store, LEASE).await;
    broken_before(&keeper).await;
    let lock = keeper.lock("x").and_then(|lock| lock.fixed_lease(SHORT));
    let guard = lock.expect("a lease").acquire().await.expect("acquired");
    guard.lost().await;
    match guard.release().await {
        Err(Error::Lost { cause, .. }) => assert_eq!(cause, LossCause::LeaseOver),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_observer_may_drop_the_guard_of_the_lost_lock() {
    let store = Tampered::new();
    let (keeper, told) = observed(&store, LEASE).await;
    let guard = acquired(&keeper).await;
    let lost = guard.lost();
    *told.drops.lock().expect("drops") = Some(guard);
    keeper.break_lock("x", "a test").await.expect("breaks");
    tokio::time::timeout(TIMEOUT, lost).await.expect("told");
    let expected = ["x lost: it was broken (a test)", "x released"];
    eventually("both are told", async || told.events() == expected).await;
    let next = tokio::time::timeout(TIMEOUT, acquired(&keeper)).await;
    assert!(next.expect("nobody waits for itself").is_held());
}

#[tokio::test]
async fn work_that_fails_needs_no_annotation_and_a_lost_lock_ends_it() {
    #[derive(Debug)]
    struct Failure(String);
    impl From<Error> for Failure {
        fn from(error: Error) -> Failure {
            Failure(error.to_string())
        }
    }
    impl From<std::num::ParseIntError> for Failure {
        fn from(error: std::num::ParseIntError) -> Failure {
            Failure(error.to_string())
        }
    }
    async fn sell(left: &str) -> Result<u32, Failure> {
        Ok(left.parse::<u32>()? - 1)
    }
    let keeper = Tampered::new().keeper(LEASE).await;
    let guard = acquired(&keeper).await;
    assert_eq!(guard.try_run(sell("8")).await.expect("sold"), 7);
    assert!(guard.try_run(sell("eight")).await.is_err());
    keeper.break_lock("x", "a test").await.expect("breaks");
    let never = guard.try_run(async {
        std::future::pending::<()>().await;
        sell("8").await
    });
    let Failure(why) = never.await.expect_err("it is lost");
    assert!(why.contains("it was broken (a test)"), "{why}");
}

/// Breaks the lock and waits until its holder knows of it, without an await.
fn broken_meanwhile(keeper: &Lockkeeper, guard: &Guard) {
    let keeper = keeper.blocking();
    keeper.break_lock("x", "a test").expect("breaks");
    while guard.is_held() {
        std::thread::sleep(MS(1));
    }
}

fn was_broken(error: &Error) -> bool {
    let Error::Lost { cause, .. } = error else {
        return false;
    };
    matches!(cause, LossCause::Broken(broken) if broken.reason == "a test")
}

#[tokio::test]
async fn work_that_ends_after_the_loss_does_not_pass_for_done() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let guard = acquired(&keeper).await;
    let done = guard.run(async {
        broken_meanwhile(&keeper, &guard);
        7
    });
    let error = done.await.expect_err("it was lost under the work");
    assert!(was_broken(&error), "{error:?}");
    drop(guard);

    // Whatever the work says of itself: the loss may be why it failed.
    for own in [Ok(7), Err(Error::Closed)] {
        let guard = acquired(&keeper).await;
        let done = guard.try_run(async {
            broken_meanwhile(&keeper, &guard);
            own
        });
        let error = done.await.expect_err("it was lost under the work");
        assert!(was_broken(&error), "{error:?}");
    }
}

#[tokio::test]
async fn a_holder_that_sees_the_loss_finds_its_cause() {
    let keeper = Tampered::new().keeper(LEASE).await;
    for _ in 0..3_000 {
        let guard = acquired(&keeper).await;
        keeper.break_lock("x", "a test").await.expect("breaks");
        // The keeper's thread is only about to tell it.
        while guard.is_held() {}
        let error = guard.run(async {}).await.expect_err("it is lost");
        assert!(was_broken(&error), "{error:?}");
    }
}

/// Keeps the thread that tells a loss, until it is told to go on.
struct Stalls {
    told: Told,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Observer for Stalls {
    fn event(&self, event: &Event<'_>) {
        self.told.event(event);
        if let Event::Lost { .. } = event {
            let goes_on = self.goes_on.lock().expect("a receiver");
            let _ = goes_on.recv_timeout(TIMEOUT);
        }
    }
}

#[tokio::test]
async fn a_release_waits_for_no_observer_and_is_reported_after_the_loss() {
    let (go_on, goes_on) = mpsc::channel();
    let stalls = Arc::new(Stalls {
        told: Told::default(),
        goes_on: Mutex::new(goes_on),
    });
    let store = Tampered::new();
    // Long enough for the second reader to come to the hold of the first, also on a busy machine.
    let builder = Lockkeeper::builder().store(store.clone()).lease(5 * SHORT);
    let keeper = builder.observer(stalls.clone()).connect().await;
    let lock = keeper.expect("connects").rwlock("x").expect("a name");
    let readers = [lock.read().await, lock.read().await];
    store.set(Verb::Renew, Some(Fault::Refused));
    let lost = ["x lost: it was not renewed in time"];
    eventually("it is told", async || stalls.told.events() == lost).await;
    for reader in readers {
        let mut release = Box::pin(reader.expect("reads").release());
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(released) = release.as_mut().poll(&mut context) else {
            panic!("it waits for the observer");
        };
        let is_lost = matches!(released, Err(Error::Lost { .. }));
        assert!(is_lost, "{released:?}");
        assert_eq!(
            stalls.told.events(),
            lost,
            "the observer is not done with it"
        );
    }
    go_on.send(()).expect("it waits");
    eventually("all is told", async || stalls.told.events().len() == 3).await;
    assert_eq!(stalls.told.events()[1..], ["x released", "x released"]);
}

/// A store that keeps the thread that renews, after it has seen what is held and before it says so.
#[derive(Debug)]
struct SlowToSay {
    inner: MemoryStore,
    goes_on: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Store for SlowToSay {
    lockkeeper::forward!(inner: capabilities facts try_acquire withdraw release subscribe inspect list break_lock latch);
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(async {
            let answers = self.inner.renew(renewals).await;
            if let Some(goes_on) = self.goes_on.lock().expect("a receiver").take() {
                let _ = goes_on.recv_timeout(TIMEOUT);
            }
            answers
        })
    }
}

#[tokio::test]
async fn a_lease_that_ran_out_before_a_break_keeps_that_cause() {
    let (go_on, goes_on) = mpsc::channel();
    let store = Arc::new(SlowToSay {
        inner: MemoryStore::new(),
        goes_on: Mutex::default(),
    });
    let told = Arc::<Told>::default();
    let builder = Lockkeeper::builder().store(store.clone());
    let builder = builder.lease(MS(2_000)).observer(told.clone());
    let keeper = builder.connect().await.expect("connects");
    let guard = acquired(&keeper).await;
    *store.goes_on.lock().expect("a receiver") = Some(goes_on);
    // The keeper hears of it and asks; the answer comes to it when its time is over.
    keeper.break_lock("x", "a test").await.expect("breaks");
    eventually("its time is over", async || !guard.is_held()).await;
    let error = guard.run(async {}).await.expect_err("it is lost");
    let Error::Lost { cause, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(cause, LossCause::NotRenewed);
    go_on.send(()).expect("it waits");
    eventually("it is told", async || !told.events().is_empty()).await;
    let one = ["x lost: it was not renewed in time"];
    assert_eq!(told.events(), one, "one loss has one cause");
}

#[tokio::test]
async fn an_owner_that_re_enters_learns_how_its_lock_was_lost() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name").as_owner(&Owner::new());
    let guard = lock.acquire().await.expect("acquired");
    broken_meanwhile(&keeper, &guard);
    let error = lock.acquire().await.expect_err("it is lost");
    assert!(was_broken(&error), "{error:?}");
}

#[tokio::test]
async fn a_downgrade_of_a_broken_hold_names_no_holder_of_a_free_lock() {
    let store = Tampered::new();
    let (keeper, other) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let there = other.rwlock("x").expect("a name");
    // So that neither the hint nor a renewal is first to tell.
    store.set(Verb::Renew, Some(Fault::Refused));
    let writer = keeper.rwlock("x").expect("a name").write().await;
    let writer = writer.expect("writes");
    other.break_lock("x", "a test").await.expect("breaks");
    assert!(writer.is_held(), "nobody has told it");
    let error = writer.downgrade().await.expect_err("it is lost");
    assert!(was_broken(&error), "{error:?}");
    let Error::Lost { now_held_by, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(now_held_by, None, "its own reader is nobody else");
    let next = there.try_write().await.expect("works");
    assert!(next.is_some(), "the reader is gone");
}

#[tokio::test]
async fn a_downgrade_of_a_broken_hold_names_the_next_holder() {
    let store = Tampered::new();
    let (keeper, other) = (store.keeper(LEASE).await, store.keeper(LEASE).await);
    let there = other.rwlock("x").expect("a name");
    store.set(Verb::Renew, Some(Fault::Refused));
    let writer = keeper.rwlock("x").expect("a name").write().await;
    let writer = writer.expect("writes");
    other.break_lock("x", "a test").await.expect("breaks");
    let next = there.read().await.expect("reads");
    let error = writer.downgrade().await.expect_err("it is lost");
    assert!(was_broken(&error), "{error:?}");
    let Error::Lost { now_held_by, .. } = error else {
        panic!("{error:?}");
    };
    let process = now_held_by.expect("the reader there");
    assert_eq!(process.pid, std::process::id());
    assert!(next.is_held());
}

#[tokio::test]
async fn a_downgrade_while_the_store_is_away_says_that_the_lock_was_lost() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    let writer = keeper.rwlock("x").expect("a name").write().await;
    let writer = writer.expect("writes");
    store.set_all(Some(Fault::Refused));
    tokio::time::timeout(TIMEOUT, writer.lost())
        .await
        .expect("it is lost");
    let error = writer.downgrade().await.expect_err("it is lost");
    let Error::Lost { cause, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(cause, LossCause::NotRenewed);
}

/// A store that every request to read beside a writer reaches too late.
#[derive(Debug, Default)]
struct Late(MemoryStore);

impl Store for Late {
    lockkeeper::forward!(0: capabilities facts);
    lockkeeper::forward!(0: withdraw renew release subscribe inspect list break_lock latch);
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        match claim.beside {
            Some(_) => Box::pin(async { Ok(Attempt::TooLate) }),
            None => self.0.try_acquire(claim),
        }
    }
}

#[tokio::test]
async fn a_downgrade_that_comes_too_late_is_no_loss() {
    let builder = Lockkeeper::builder().store(Arc::new(Late::default()));
    let keeper = builder.connect().await.expect("connects");
    let lock = keeper.rwlock("x").expect("a name");
    let writer = lock.write().await.expect("writes");
    let error = writer.downgrade().await.expect_err("too late");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let next = lock.try_write().await.expect("works");
    assert!(next.is_some(), "the writer is released");
}

#[tokio::test]
async fn the_systems_error_is_the_source() {
    let system = io::Error::from(io::ErrorKind::ConnectionReset);
    let error = Error::outcome_unknown("toy", "it went away").caused_by(system);
    let source = error.source().and_then(|e| e.downcast_ref::<io::Error>());
    assert_eq!(
        source.map(io::Error::kind),
        Some(io::ErrorKind::ConnectionReset)
    );
    assert_eq!(error.clone(), error);
    assert_ne!(error, Error::outcome_unknown("toy", "it went away"));
    assert!(Error::Closed.source().is_none());
}

#[tokio::test]
async fn a_name_given_twice_is_one_lock() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let locks = keeper.multi_lock(["a", "b", "a"]).expect("names");
    let both = tokio::time::timeout(TIMEOUT, locks.acquire()).await;
    let both = both
        .expect("it does not wait for itself")
        .expect("acquired");
    assert_eq!(both.guards().len(), 2);
    assert!(both.token("a").is_some());
    assert_eq!(both.release().await.expect("released").len(), 2);
    assert!(
        keeper
            .lock("a")
            .expect("a name")
            .try_acquire()
            .await
            .expect("works")
            .is_some()
    );
}

/// Readers share one hold. One that leaves before the last has not lost what the last one then releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_leave_together_have_not_lost_their_lock() {
    let keeper = Lockkeeper::builder().store(Arc::new(MemoryStore::new()));
    let keeper = keeper.connect().await.expect("connects");
    let lock = keeper.rwlock("a").expect("a lock");
    for _ in 0..3_000 {
        let mut readers = Vec::new();
        for _ in 0..6 {
            readers.push(lock.read().await.expect("reads"));
        }
        let leaving = readers
            .into_iter()
            .map(|reader| tokio::spawn(reader.release()));
        for left in leaving.collect::<Vec<_>>() {
            let left = left.await.expect("no panic");
            assert!(left.is_ok(), "{left:?}");
        }
    }
}
