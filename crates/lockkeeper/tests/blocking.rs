//! The blocking API: the same verbs, re-entrant by thread.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::blocking::{Lockkeeper, MultiGuard};
use lockkeeper::{Error, ReleaseOutcome};

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
    drop(reader);

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
