//! Hints where nobody tells: another look, or another try, now and then.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::store::ends::Ends;
use crate::store::{Broken, ClaimId, LockInfo, Subscription};
use crate::{Error, Token};

/// How often whoever watches a name looks at it. Nobody publishes that a lock was taken.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a waiter of the plain dialect tries, on average: as its peers do, which tell nobody.
const POLL_EVERY: Duration = Duration::from_millis(25);

/// How long a waiter of the plain dialect stays until its next try. Spread out, so that those who wait do not all try at
/// once.
pub(in crate::store) fn pause() -> Duration {
    let spread = Uuid::new_v4().as_u128() % POLL_EVERY.as_micros();
    POLL_EVERY / 2 + Duration::from_micros(spread as u64)
}

/// A subscription that hints when something else is to be seen about a name. `look` answers `None` when there is nobody
/// left to look.
pub(in crate::store) async fn watch<F>(
    runtime: &Handle,
    look: impl Fn() -> Option<F> + Send + 'static,
) -> Result<Subscription, Error>
where
    F: Future<Output = Result<Option<LockInfo>, Error>> + Send,
{
    let mut seen = sight(look().ok_or(Error::Closed)?.await?);
    let hints = Arc::new(Notify::new());
    let hint = hints.clone();
    let task = runtime.spawn(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(looking) = look() else { return };
            if let Ok(info) = looking.await {
                let now = sight(info);
                if now != seen {
                    seen = now;
                    hint.notify_one();
                }
            }
        }
    });
    Ok(Subscription::new(hints, Ends::of(&task)))
}

/// What changes about a name when somebody takes it, waits for it, lets go of it or breaks it.
type Sight = (Vec<ClaimId>, usize, Option<Token>, Option<Broken>);

fn sight(info: Option<LockInfo>) -> Option<Sight> {
    let info = info?;
    let holders = info.holders.iter().map(|holder| holder.claim).collect();
    Some((holders, info.waiters, info.last_token, info.broken))
}
