//! Subscriptions for a server that sends no hints: the client inspects or tries again at intervals.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use uuid::Uuid;

use super::AbortOnDrop;
use crate::store::{Broken, ClaimId, LockInfo, Subscription};
use crate::{Error, Token};

/// How often [`watch`] inspects a name.
const INSPECT_EVERY: Duration = Duration::from_millis(100);
/// How often a waiter tries, on average.
const TRY_EVERY: Duration = Duration::from_millis(25);

/// How long a waiter that gets no hints sleeps until its next try: 25 ms on average. It is random, so that waiters do not all
/// try at once.
pub fn pause() -> Duration {
    let spread = Uuid::new_v4().as_u128() % TRY_EVERY.as_micros();
    TRY_EVERY / 2 + Duration::from_micros(spread as u64)
}

/// A subscription that hints after every [`pause`], for a claim.
pub fn poll(runtime: &Handle) -> Subscription {
    let hints = Arc::new(Notify::new());
    let hint = hints.clone();
    let task = runtime.spawn(async move {
        loop {
            tokio::time::sleep(pause()).await;
            hint.notify_one();
        }
    });
    Subscription::new(hints, AbortOnDrop::of(&task))
}

/// A subscription that inspects a name every 100 ms, and hints when its holders, waiters, token or break have changed.
/// `inspect` returns `None` when the store is gone.
///
/// # Errors
/// That of the first inspection; [`Error::Closed`] if the store is gone already. Later errors are ignored.
pub async fn watch<F>(
    runtime: &Handle,
    inspect: impl Fn() -> Option<F> + Send + 'static,
) -> Result<Subscription, Error>
where
    F: Future<Output = Result<Option<LockInfo>, Error>> + Send,
{
    let mut seen = snapshot(inspect().ok_or(Error::Closed)?.await?);
    let hints = Arc::new(Notify::new());
    let hint = hints.clone();
    let task = runtime.spawn(async move {
        loop {
            tokio::time::sleep(INSPECT_EVERY).await;
            let Some(inspecting) = inspect() else { return };
            if let Ok(info) = inspecting.await {
                let now = snapshot(info);
                if now != seen {
                    seen = now;
                    hint.notify_one();
                }
            }
        }
    });
    Ok(Subscription::new(hints, AbortOnDrop::of(&task)))
}

/// What changes about a name when it is acquired, waited for, released or broken.
type Snapshot = (Vec<ClaimId>, usize, Option<Token>, Option<Broken>);

fn snapshot(info: Option<LockInfo>) -> Option<Snapshot> {
    let info = info?;
    let holders = info.holders.iter().map(|holder| holder.claim).collect();
    Some((holders, info.waiters, info.last_token, info.broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_over_their_range() {
        let pauses: Vec<Duration> = (0..100).map(|_| pause()).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        let range = TRY_EVERY / 2..TRY_EVERY * 3 / 2;
        assert!(pauses.iter().all(|pause| range.contains(pause)));
    }
}
