//! Keepers that take turns.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Error, Lockkeeper, Token};

/// So many keepers want one lock, each so often, and hold it for so long. No two are inside, tokens grow, and nobody loses a lease. Returns
/// how long they waited, the shortest first.
pub async fn take_turns(url: &str, keepers: u32, turns: u32, hold: Duration) -> Vec<Duration> {
    let (inside, last) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(Mutex::new(None::<Token>)),
    );
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..keepers {
        let (url, inside, last) = (url.to_owned(), inside.clone(), last.clone());
        tasks.spawn(async move {
            let keeper = Lockkeeper::connect(&url).await?;
            let lock = keeper.lock("hot")?;
            let mut waited = Vec::new();
            for _ in 0..turns {
                let began = Moment::now();
                let guard = lock.acquire().await?;
                waited.push(Moment::now().since(began));
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "another is inside");
                let before = last.lock().expect("no panic").replace(guard.token());
                assert!(before < Some(guard.token()), "{before:?}, {guard:?}");
                tokio::time::sleep(hold).await;
                assert!(guard.is_held());
                assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                match guard.release().await {
                    // Others were in the way, and it is tried again.
                    Err(Error::Unavailable { .. }) => {}
                    released => {
                        released?;
                    }
                }
            }
            Ok::<_, Error>(waited)
        });
    }
    let mut waited = Vec::new();
    for outcome in tasks.join_all().await {
        waited.extend(outcome.expect("no acquire or release fails"));
    }
    waited.sort();
    waited
}
