//! What a keeper sends. A network may deliver it late, twice, in another order, or never.

use lockkeeper::clock::Moment;
use lockkeeper::store::{
    Attempt, Break, BreakOutcome, Claim, ClaimId, LatchRequest, LatchState, Release, Released,
    Renewal, Renewed, Store,
};
use lockkeeper::{Error, Name};

/// A verb of the contract that changes something, with its arguments.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Try(Claim),
    Withdraw(ClaimId),
    Renew(Vec<Renewal>),
    Release(Release),
    Break(Break),
    Latch(LatchRequest),
}

/// What a store returned.
#[derive(Debug)]
pub(super) enum Reply {
    Tried(Attempt),
    Withdrawn,
    Renewed(Vec<Renewed>),
    Released(Released),
    Broke(BreakOutcome),
    Latched(LatchState),
}

impl Request {
    /// Has a store do it.
    pub async fn on(&self, store: &dyn Store, name: &Name) -> Result<Reply, Error> {
        Ok(match self {
            Request::Try(claim) => Reply::Tried(store.try_acquire(claim).await?),
            Request::Withdraw(claim) => {
                store.withdraw(name, *claim).await?;
                Reply::Withdrawn
            }
            Request::Renew(renewals) => Reply::Renewed(store.renew(renewals).await?),
            Request::Release(release) => Reply::Released(store.release(release).await?),
            Request::Break(request) => Reply::Broke(store.break_lock(request).await?),
            Request::Latch(request) => Reply::Latched(store.latch(request).await?),
        })
    }

    /// The same request with other times past which it does nothing.
    pub fn timed(mut self, time: impl Fn(Moment) -> Moment) -> Request {
        let set = |at: &mut Moment| *at = time(*at);
        match &mut self {
            Request::Try(claim) => set(&mut claim.not_after),
            Request::Withdraw(_) => {}
            Request::Renew(renewals) => {
                renewals.iter_mut().for_each(|one| set(&mut one.not_after));
            }
            Request::Release(release) => {
                let next = release.requeue.iter_mut();
                next.for_each(|next| set(&mut next.not_after));
            }
            Request::Break(request) => set(&mut request.not_after),
            Request::Latch(request) => set(&mut request.not_after),
        }
        self
    }

    /// The claim whose keeper sends it. Anybody sends the others.
    pub fn sender(&self) -> Option<ClaimId> {
        match self {
            Request::Try(claim) => Some(claim.id),
            Request::Withdraw(claim) => Some(*claim),
            Request::Release(release) => Some(release.claim),
            Request::Renew(_) | Request::Break(_) | Request::Latch(_) => None,
        }
    }

    /// A claim that may hold or wait because of this request.
    pub fn wants(&self) -> Option<ClaimId> {
        match self {
            Request::Try(claim) => Some(claim.id),
            Request::Release(release) => release.requeue.as_ref().map(|next| next.id),
            _ => None,
        }
    }

    /// Past this moment it does nothing, or only a part of it.
    pub fn not_after(&self) -> Moment {
        let all = match self {
            Request::Try(claim) => Some(claim.not_after),
            Request::Withdraw(_) => None,
            Request::Renew(renewals) => renewals.iter().map(|one| one.not_after).min(),
            Request::Release(release) => release.requeue.as_ref().map(|next| next.not_after),
            Request::Break(request) => Some(request.not_after),
            Request::Latch(request) => Some(request.not_after),
        };
        all.unwrap_or(Moment::NEVER)
    }
}
