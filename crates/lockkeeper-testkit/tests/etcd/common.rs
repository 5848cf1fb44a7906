//! What the tests of the etcd store share.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::etcd::EtcdStore;
use lockkeeper::store::{Attempt, Claim, Grant, Store};
use lockkeeper::url::StoreUrl;

/// A store of its own.
pub async fn open(url: &str) -> EtcdStore {
    let url = StoreUrl::parse(url).expect("a URL");
    EtcdStore::connect(&url).await.expect("connects")
}

/// Waits for what has to come, on the slowest machine.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(Duration::from_secs(120), future).await;
    outcome.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// A try that has to be granted.
pub async fn granted(store: &dyn Store, claim: &Claim) -> Grant {
    match store.try_acquire(claim).await {
        Ok(Attempt::Granted(grant)) => grant,
        other => panic!("{} should be granted, was {other:?}", claim.name),
    }
}

/// A try that has to wait.
pub async fn busy(store: &dyn Store, claim: &Claim) {
    let tried = store.try_acquire(claim).await;
    assert!(matches!(tried, Ok(Attempt::Busy { .. })), "{tried:?}");
}

/// Tries until it is granted.
pub async fn in_the_end(store: &dyn Store, claim: &Claim) -> Grant {
    soon("a grant", async {
        loop {
            let claim = claim.clone().with_not_after(Moment::now() + claim.lease);
            match store.try_acquire(&claim).await {
                Ok(Attempt::Granted(grant)) => return grant,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await
}
