//! Re-entry, and how holds end: leases, extensions, breaks.

use std::time::Duration;

use lockkeeper::*;

use crate::common::{Fault, LEASE, MS, SHORT, Tampered, Verb, acquired, eventually};

#[tokio::test]
async fn owners_re_enter_and_others_do_not() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name");
    let (me, you) = (Owner::new(), Owner::new());
    let (mine, yours) = (lock.as_owner(&me), lock.as_owner(&you));
    let outer = mine.acquire().await.expect("acquired");
    let requests = store.count(Verb::Acquire);
    let inner = mine.try_acquire().await.expect("works");
    let inner = inner.expect("re-entered");
    assert_eq!(
        store.count(Verb::Acquire),
        requests,
        "re-entry asks no store"
    );
    assert_eq!((inner.token(), inner.depth()), (outer.token(), 2));
    let info = keeper.inspect("x").await.expect("works").expect("known");
    assert_eq!(info.holders[0].depth, Some(2));
    assert!(yours.try_acquire().await.expect("works").is_none());
    assert!(lock.try_acquire().await.expect("works").is_none());
    // A second keeper of the same process is another client altogether.
    let other = store.keeper(LEASE).await;
    let foreign = other.lock("x").expect("a name").as_owner(&me);
    assert!(foreign.try_acquire().await.expect("works").is_none());
    assert_eq!(
        outer.release().await,
        Ok(ReleaseOutcome::StillHeld { depth: 1 })
    );
    assert!(yours.try_acquire().await.expect("works").is_none());
    assert_eq!(inner.release().await, Ok(ReleaseOutcome::Released));
    assert!(yours.try_acquire().await.expect("works").is_some());
}

#[tokio::test]
async fn re_entry_has_a_limit() {
    let keeper = Tampered::new().keeper(LEASE).await;
    let lock = keeper.lock("x").expect("a name").as_owner(&Owner::new());
    let mut guards = Vec::new();
    let error = loop {
        match lock.acquire().await {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::LimitExceeded { limit, .. } if limit == guards.len() as u64));
}

#[tokio::test]
async fn a_renewed_lease_outlives_a_blocked_runtime() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    let guard = acquired(&keeper).await;
    std::thread::sleep(SHORT * 3); // blocks the only thread of this runtime
    assert!(guard.is_held());
    assert!(store.count(Verb::Renew) >= 3);
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn a_fixed_lease_ends_and_says_so_before_others_get_in() {
    let store = Tampered::new();
    let keeper = store.keeper(LEASE).await;
    let other = store.keeper(LEASE).await;
    let fixed = keeper.lock("x").expect("a name").fixed_lease(SHORT);
    let guard = fixed.expect("a lease").acquire().await.expect("acquired");
    let next = tokio::spawn(async move {
        let guard = acquired(&other).await;
        (lockkeeper::clock::Moment::now(), guard)
    });
    guard.at_risk().await;
    assert!(guard.is_held());
    guard.lost().await;
    let lost = lockkeeper::clock::Moment::now();
    assert!(!guard.is_held() && !guard.is_held_for(Duration::ZERO));
    assert!(guard.extend(SHORT).await.is_err());
    let (granted, _next) = next.await.expect("no panic");
    assert!(lost < granted);
    assert_eq!(store.count(Verb::Renew), 0);
    match guard.release().await {
        Err(Error::Lost {
            cause: LossCause::LeaseOver,
            now_held_by,
            ..
        }) => assert!(now_held_by.is_some()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn extending_moves_the_deadline_and_is_never_shortened() {
    let keeper = Tampered::new().keeper(SHORT).await;
    let fixed = keeper.lock("x").expect("a name").fixed_lease(SHORT);
    let guard = fixed.expect("a lease").acquire().await.expect("acquired");
    assert!(!guard.is_held_for(LEASE / 2));
    guard.extend(LEASE).await.expect("extended");
    assert!(guard.is_held_for(LEASE / 2));
    guard.extend(SHORT).await.expect("extended");
    assert!(guard.is_held_for(LEASE / 2));
    assert!(guard.extend(MS(1)).await.is_err(), "a lease out of range");
}

#[tokio::test]
async fn a_broken_lock_is_lost_with_its_reason_and_local_waiters_go_on() {
    let store = Tampered::new();
    let keeper = store.keeper(SHORT).await;
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.expect("acquired").token() }
    });
    tokio::task::yield_now().await;
    let held_by = keeper.break_lock("x", "it hangs").await.expect("broken");
    assert_eq!(held_by[0].claim, guard.claim());
    guard.lost().await;
    // The first guard is still alive: the next in line gets its turn all the same.
    assert!(waiter.await.expect("no panic") > guard.token());
    assert!(matches!(
        guard.run(std::future::pending::<()>()).await,
        Err(Error::Lost {
            cause: LossCause::Broken(_),
            ..
        })
    ));
    match guard.release().await {
        Err(Error::Lost {
            cause: LossCause::Broken(broken),
            ..
        }) => assert_eq!(broken.reason, "it hangs"),
        other => panic!("{other:?}"),
    }
    assert!(
        keeper.break_lock("x", "  ").await.is_err(),
        "needs a reason"
    );
}

#[tokio::test]
async fn a_break_is_noticed_although_the_store_did_not_answer_at_first() {
    let store = Tampered::new();
    let keeper = store.keeper(Duration::from_secs(120)).await;
    let lock = keeper.lock("x").expect("a name");
    let guard = lock.acquire().await.expect("acquired");
    store.set(Verb::Renew, Some(Fault::Refused));
    keeper.break_lock("x", "it hangs").await.expect("broken");
    eventually("it looked", async || store.count(Verb::Renew) > 0).await;
    store.set(Verb::Renew, None);
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost());
    assert!(lost.await.is_ok(), "long before its renewal");
}

#[tokio::test]
async fn a_break_is_noticed_long_before_the_next_renewal() {
    let store = Tampered::new();
    let keeper = store.keeper(Duration::from_secs(3600)).await;
    let other = store.keeper(LEASE).await;
    let fixed = keeper
        .lock("fixed")
        .and_then(|l| l.fixed_lease(Duration::from_secs(3600)));
    let guards = [
        keeper
            .lock("renewed")
            .expect("a name")
            .acquire()
            .await
            .expect("acquired"),
        fixed.expect("a lock").acquire().await.expect("acquired"),
        keeper
            .rwlock("read")
            .expect("a name")
            .read()
            .await
            .expect("reads")
            .into(),
    ];
    let untouched = keeper
        .lock("untouched")
        .expect("a name")
        .acquire()
        .await
        .expect("acquired");
    for guard in guards {
        other
            .break_lock(guard.name(), "a test")
            .await
            .expect("broken");
        let lost = tokio::time::timeout(LEASE, guard.lost()).await;
        assert!(lost.is_ok(), "{guard:?}");
    }
    assert!(untouched.is_held());
}

#[tokio::test]
async fn re_entering_a_lost_lock_is_an_error() {
    let keeper = Tampered::new().keeper(SHORT).await;
    let lock = keeper.lock("x").expect("a name").as_owner(&Owner::new());
    let guard = lock.acquire().await.expect("acquired");
    keeper.break_lock("x", "a test").await.expect("broken");
    guard.lost().await;
    assert!(matches!(lock.acquire().await, Err(Error::Lost { .. })));
    drop(guard);
    assert!(lock.try_acquire().await.expect("works").is_some());
}
