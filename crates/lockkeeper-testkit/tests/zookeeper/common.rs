//! What the tests of the ZooKeeper store share.

use std::time::Duration;

use lockkeeper::store::zookeeper::ZooKeeperStore;
use lockkeeper::url::StoreUrl;

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
