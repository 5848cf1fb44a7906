//! What the tests of the quorum store share.

use lockkeeper::Error;
use lockkeeper::store::quorum::QuorumStore;
use lockkeeper::url::StoreUrl;

pub async fn connect(url: &str) -> Result<QuorumStore, Error> {
    QuorumStore::connect(&StoreUrl::parse(url).expect("a URL")).await
}

pub async fn open(url: &str) -> QuorumStore {
    connect(url).await.expect("connects")
}
