//! A server that takes no writes for a while, as in a switch-over.

use std::time::Duration;

use lockkeeper::{Error, Lockkeeper};

/// How long the test waits for what has to happen.
const LONG: Duration = Duration::from_secs(60);

/// Waits until a keeper was told, by a connection that it made since, that the server takes no writes.
async fn knows(keeper: &Lockkeeper, says: &str) {
    let probe = keeper.lock("probe").expect("a lock");
    let told = async {
        loop {
            match probe.try_acquire().await {
                Err(Error::Unavailable { reason, .. }) if reason.contains(says) => return,
                Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => {}
                // A session of PostgreSQL may answer once more before it reads the new setting.
                Ok(Some(guard)) => drop(guard),
                other => panic!("it takes no writes now: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, told)
        .await
        .expect("it is noticed");
}

/// Waiters wait on, and what is dropped meanwhile is released afterwards. `turn` makes the server read only or not, and `says` is what its
/// clients then say of it.
pub async fn is_outlasted(holder: Lockkeeper, waiter: Lockkeeper, turn: impl Fn(bool), says: &str) {
    let guard = holder.lock("waited-for").expect("a lock");
    let guard = guard.acquire().await.expect("acquires");
    let alone = holder.lock("alone").expect("a lock");
    let alone = alone.acquire().await.expect("acquires");
    let waits = waiter.lock("waited-for").expect("a lock");
    let waits = tokio::spawn(async move { waits.acquire().await.map(drop) });
    let queued = async {
        while !matches!(holder.inspect("waited-for").await, Ok(Some(info)) if info.waiters == 1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, queued).await.expect("it waits");
    turn(true);
    knows(&holder, says).await;
    knows(&waiter, says).await;
    drop((guard, alone));
    // The waiter asks again within that.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waits.is_finished(), "{:?}", waits.await);
    turn(false);
    // Well before the lease of what was dropped is over.
    let soon = Duration::from_secs(12);
    let waited = tokio::time::timeout(soon, waits).await;
    waited
        .expect("it gets in")
        .expect("no panic")
        .expect("acquires");
    let free = waiter.lock("alone").expect("a lock");
    let free = free.acquire_within(soon).await.expect("answers");
    assert!(free.is_some(), "what was dropped is still held");
}
