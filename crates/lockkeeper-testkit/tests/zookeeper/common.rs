//! What the tests of the ZooKeeper store share.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::zookeeper::ZooKeeperStore;
use lockkeeper::store::{Attempt, Claim, ClaimId, Grant, Mode, Store};
use lockkeeper::url::StoreUrl;
use uuid::Uuid;

use super::claims::{claim_for, release};

/// A store on a session of its own.
pub async fn open(url: &str) -> ZooKeeperStore {
    let url = StoreUrl::parse(url).expect("a URL");
    ZooKeeperStore::connect(&url).await.expect("connects")
}

/// Waits for what has to come, on the slowest machine.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(Duration::from_secs(120), future).await;
    outcome.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// The id in the names of a claim's nodes, as documented: the keeper's bits, with the claim's number added to the low half.
pub fn node_uuid(id: ClaimId) -> Uuid {
    let bits = id.keeper.to_bits();
    let low = (bits as u64).wrapping_add(id.number);
    Uuid::from_u128((bits >> 64 << 64) | u128::from(low))
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

/// A claim that becomes a reader in the place of a writer that holds, which then goes.
pub async fn downgrade(store: &dyn Store, writer: &Claim) -> Claim {
    let reader = claim_for(writer.lease, &writer.name, Mode::Read).with_beside(Some(writer.id));
    // Only a keeper's own writer can become its reader.
    let reader = reader.with_id(ClaimId {
        number: writer.id.number + 1,
        ..writer.id
    });
    granted(store, &reader).await;
    assert!(release(store, writer).await.expect("releases"));
    reader
}
