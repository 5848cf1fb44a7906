//! What the tests of the quorum store share.

use std::time::Duration;

use lockkeeper::store::quorum::QuorumStore;
use lockkeeper::store::{Attempt, Claim, Mode, NodeState, Renewed, Store};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Error, Lockkeeper};

pub use crate::claims::until;
use crate::claims::{self, claim_for, renewal_for};

pub const LEASE: Duration = Duration::from_secs(60);

pub async fn connect(url: &str) -> Result<QuorumStore, Error> {
    QuorumStore::connect(&StoreUrl::parse(url).expect("a URL")).await
}

pub async fn open(url: &str) -> QuorumStore {
    connect(url).await.expect("connects")
}

pub async fn keeper(url: &str) -> Lockkeeper {
    Lockkeeper::connect(url).await.expect("connects")
}

pub fn claim(text: &str, mode: Mode) -> Claim {
    claim_for(LEASE, text, mode)
}

pub async fn release(store: &QuorumStore, claim: &Claim) -> Result<bool, Error> {
    claims::release(store, claim).await
}

pub async fn is_granted(store: &QuorumStore, claim: &Claim) -> bool {
    match store.try_acquire(claim).await.expect("answers") {
        Attempt::Granted(_) => true,
        Attempt::Busy { .. } => false,
        other => panic!("{claim:?}: {other:?}"),
    }
}

pub async fn renew(store: &QuorumStore, claim: &Claim, lease: Duration) -> Result<Renewed, Error> {
    let renewed = store.renew(&[renewal_for(lease, claim)]).await;
    renewed.map(|answers| answers[0])
}

/// How many nodes are known to keep a hold.
pub fn votes(store: &QuorumStore, claim: &Claim) -> usize {
    let votes = store.votes(claim.id).unwrap_or_default();
    votes.iter().filter(|vote| vote.holds).count()
}

pub fn states(store: &dyn Store) -> Vec<NodeState> {
    let nodes = store.health().nodes.into_iter();
    nodes.map(|status| status.state).collect()
}
