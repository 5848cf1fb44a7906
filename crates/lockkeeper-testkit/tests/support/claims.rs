//! Claims, straight to a store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{
    Break, BreakOutcome, BreakTarget, Claim, ClaimId, Holder, KeeperId, Mode, Release, Renewal,
    Store,
};
use lockkeeper::{Error, Name};

/// A fresh claim of a keeper of its own.
pub fn claim_for(lease: Duration, text: &str, mode: Mode) -> Claim {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    Claim::new(
        ClaimId {
            keeper: KeeperId::new(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        },
        Name::new(text).expect("a name"),
        mode,
        lease,
    )
    .with_not_after(Moment::now() + lease)
}

/// What renews the hold of a claim.
pub fn renewal_for(lease: Duration, claim: &Claim) -> Renewal {
    Renewal::new(
        claim.name.clone(),
        claim.id,
        lease,
        Moment::now() + claim.lease,
    )
}

/// What breaks the lock of a claim, for all who hold it.
pub fn break_of(claim: &Claim) -> Break {
    Break::new(
        claim.name.clone(),
        BreakTarget::All,
        "a test",
        Moment::now() + Duration::from_secs(10),
    )
}

/// Breaks a lock, and answers whose holds that ended.
pub async fn break_all(store: &dyn Store, held: &Claim) -> Vec<Holder> {
    match store.break_lock(&break_of(held)).await {
        Ok(BreakOutcome::Ended(ended)) => ended,
        other => panic!("it should be broken, was {other:?}"),
    }
}

pub async fn release(store: &dyn Store, claim: &Claim) -> Result<bool, Error> {
    let release = Release::new(claim.name.clone(), claim.id);
    store.release(&release).await.map(|done| done.was_held)
}

/// Waits for something that has to become true.
pub async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let end = Moment::now() + Duration::from_secs(120);
    while !check().await {
        assert!(Moment::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
