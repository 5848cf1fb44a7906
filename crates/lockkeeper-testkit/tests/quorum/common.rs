//! What the tests of the quorum store share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::quorum::QuorumStore;
use lockkeeper::store::{
    Attempt, Claim, ClaimId, KeeperId, Mode, NodeState, Release, Renewal, Renewed, Store,
};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Error, Lockkeeper, Name};

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

/// A fresh claim of a keeper of its own.
pub fn claim(text: &str, mode: Mode) -> Claim {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    Claim {
        id: ClaimId {
            keeper: KeeperId::new(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        },
        name: Name::new(text).expect("a name"),
        mode,
        lease: LEASE,
        reserve: 1,
        not_after: Moment::now() + LEASE,
        enqueue: false,
        beside: None,
    }
}

pub async fn is_granted(store: &QuorumStore, claim: &Claim) -> bool {
    match store.try_acquire(claim).await.expect("answers") {
        Attempt::Granted(_) => true,
        Attempt::Busy { .. } => false,
        Attempt::TooLate => panic!("{claim:?} came too late"),
    }
}

pub async fn renew(store: &QuorumStore, claim: &Claim, lease: Duration) -> Result<Renewed, Error> {
    let renewal = Renewal {
        name: claim.name.clone(),
        claim: claim.id,
        lease,
    };
    store.renew(&[renewal]).await.map(|answers| answers[0])
}

pub async fn release(store: &QuorumStore, claim: &Claim) -> Result<bool, Error> {
    let release = Release {
        name: claim.name.clone(),
        claim: claim.id,
        requeue: None,
    };
    store.release(&release).await.map(|done| done.was_held)
}

/// How many nodes are known to keep a hold.
pub fn votes(store: &QuorumStore, claim: &Claim) -> usize {
    let votes = store.votes(claim.id).unwrap_or_default();
    votes.iter().filter(|vote| vote.holds).count()
}

pub fn states(store: &dyn Store) -> Vec<NodeState> {
    let nodes = store.nodes().into_iter();
    nodes.map(|status| status.state).collect()
}

/// Waits for something that has to become true.
pub async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let end = Moment::now() + Duration::from_secs(30);
    while !check().await {
        assert!(Moment::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
