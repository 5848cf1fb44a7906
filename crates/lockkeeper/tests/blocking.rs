//! The blocking API: the same verbs, re-entrant by thread.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::blocking::{Guard, Lockkeeper, MultiGuard, ReadGuard, WriteGuard};
use lockkeeper::{Error, LossCause, ReleaseOutcome};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn threads_exclude_each_other() {
    let keeper = Lockkeeper::connect("memory:blocking-threads").expect("connects");
    let (inside, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let lock = keeper.lock("x").expect("a name");
                for _ in 0..100 {
                    let guard = lock.acquire().expect("acquired");
                    assert!(!inside.swap(true, SeqCst));
                    rounds.fetch_add(1, SeqCst);
                    inside.store(false, SeqCst);
                    guard.release().expect("released");
                }
            });
        }
    });
    assert_eq!(rounds.load(SeqCst), 800);
}

#[test]
fn a_thread_re_enters_and_others_do_not() {
    let keeper = Lockkeeper::connect("memory:blocking-reentry").expect("connects");
    let lock = keeper.lock("x").expect("a name");
    let outer = lock.acquire().expect("acquired");
    let inner = keeper
        .lock("x")
        .expect("a name")
        .acquire()
        .expect("re-entered");
    assert_eq!(inner.depth(), 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| lock.try_acquire().expect("works").is_none());
        assert!(other.join().expect("no panic"));
        let other = scope.spawn(|| lock.acquire_within(MS(20)).expect("works").is_none());
        assert!(other.join().expect("no panic"));
    });
    assert_eq!(inner.release(), Ok(ReleaseOutcome::StillHeld { depth: 1 }));
    assert_eq!(outer.release(), Ok(ReleaseOutcome::Released));
    assert!(
        keeper
            .inspect("x")
            .expect("works")
            .is_some_and(|info| info.holders.is_empty())
    );
}

#[test]
fn a_waiting_thread_is_woken_by_a_release() {
    let keeper = Lockkeeper::connect("memory:blocking-wake").expect("connects");
    let lock = keeper.lock("x").expect("a name");
    let ready = Barrier::new(2);
    let guard = lock.acquire().expect("acquired");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            ready.wait();
            lock.acquire().expect("acquired").token()
        });
        ready.wait();
        let token = guard.token();
        drop(guard);
        assert!(waiter.join().expect("no panic") > token);
    });
}

#[test]
fn readers_writers_permits_and_latches() {
    let keeper = Lockkeeper::connect("memory:blocking-kinds").expect("connects");
    let rwlock = keeper.rwlock("rw").expect("a name");
    let reader = rwlock.read().expect("reads");
    assert!(
        matches!(rwlock.write(), Err(Error::WouldDeadlock { .. })),
        "same thread"
    );
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            let reads = rwlock.try_read().expect("works").is_some();
            reads && rwlock.try_write().expect("works").is_none()
        });
        assert!(elsewhere.join().expect("no panic"));
    });
    drop(reader);
    let reader = rwlock
        .write()
        .expect("writes")
        .downgrade()
        .expect("downgraded");
    let reader = WriteGuard::try_from(Guard::from(reader)).expect_err("it reads");
    drop(ReadGuard::try_from(reader).expect("it reads"));

    let semaphore = keeper.semaphore("s", 2).expect("a name");
    let both = semaphore.acquire(2).expect("acquired");
    assert!(
        semaphore
            .acquire_within(1, MS(10))
            .expect("works")
            .is_none()
    );
    drop(both);

    let latch = keeper.latch("l").expect("a name");
    assert!(latch.set(1).expect("set"));
    assert!(!latch.wait_within(MS(10)).expect("works"));
    std::thread::scope(|scope| {
        scope.spawn(|| latch.count_down().expect("counted"));
        latch.wait().expect("opened");
    });
    assert_eq!(latch.count(), Ok(0));

    let multi: MultiGuard = keeper
        .multi_lock(["b", "a"])
        .expect("names")
        .acquire()
        .expect("all");
    assert!(multi.is_held() && multi.token("a").is_some());
    assert_eq!(multi.release().map(|outcomes| outcomes.len()), Ok(2));
}

#[test]
fn a_lost_lock_is_seen_by_its_thread() {
    let keeper = Lockkeeper::connect("memory:blocking-lost").expect("connects");
    let lock = keeper
        .lock("x")
        .and_then(|lock| lock.fixed_lease(MS(300)))
        .expect("a lock");
    let guard = lock.acquire().expect("acquired");
    assert_eq!(guard.run(|| 7), Ok(7));
    guard.at_risk();
    guard.lost();
    assert!(matches!(guard.run(|| 7), Err(Error::Lost { .. })));
}

#[test]
fn a_thread_waits_for_a_loss_only_as_long_as_it_says() {
    let keeper = Lockkeeper::connect("memory:blocking-lost-within").expect("connects");
    let guard = keeper.lock("a").and_then(|lock| lock.acquire());
    let guard = guard.expect("acquired");
    let both = keeper.multi_lock(["b", "c"]).and_then(|m| m.acquire());
    let both = both.expect("acquired");
    // They are renewed, so that nothing but the time ends these.
    assert!(!guard.lost_within(Duration::ZERO));
    assert!(!guard.lost_within(MS(20)));
    assert!(!guard.at_risk_within(MS(20)));
    assert!(!both.lost_within(MS(20)));
    for name in ["a", "c"] {
        keeper.break_lock(name, "a test").expect("breaks");
    }
    assert!(guard.lost_within(Duration::MAX));
    assert!(guard.at_risk_within(Duration::ZERO), "it is lost by now");
    assert!(both.lost_within(Duration::MAX));
}

/// The cause of a loss.
fn cause<T: std::fmt::Debug>(lost: Result<T, Error>) -> String {
    match lost {
        Err(Error::Lost { cause, .. }) => match cause {
            LossCause::Broken(broken) => broken.reason,
            cause => cause.to_string(),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_broken_lock_has_one_cause_whichever_verb_reports_it() {
    let keeper = Lockkeeper::connect("memory:blocking-cause").expect("connects");
    let lock = keeper.lock("x").expect("a name");
    let broken = |guard: &Guard| {
        keeper.break_lock("x", "a test").expect("breaks");
        while guard.is_held() {
            std::thread::sleep(MS(1));
        }
    };
    let guard = lock.acquire().expect("acquired");
    assert_eq!(cause(guard.run(|| broken(&guard))), "a test");
    assert_eq!(cause(guard.run(|| ())), "a test");
    assert_eq!(cause(guard.release()), "a test");
    // The loss may be why the work failed.
    for own in [Ok(()), Err(Error::Closed)] {
        let guard = lock.acquire().expect("acquired");
        let done = guard.try_run(|| {
            broken(&guard);
            own
        });
        assert_eq!(cause(done), "a test");
        assert_eq!(cause(guard.try_run(|| Ok::<_, Error>(()))), "a test");
    }
}

/// Not advised, but it must not panic or hang.
#[tokio::test]
async fn it_works_inside_a_runtime() {
    let keeper = Lockkeeper::connect("memory:blocking-inside").expect("connects");
    let lock = keeper
        .lock("x")
        .and_then(|lock| lock.with_lease(MS(200)))
        .expect("a lock");
    let guard = lock.acquire().expect("acquired");
    std::thread::sleep(MS(500));
    assert!(guard.is_held());
    guard.release().expect("released");
}
