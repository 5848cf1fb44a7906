//! What cases are written with: a client that asks, and expects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::Name;
use lockkeeper::clock::Moment;
use lockkeeper::store::{
    Attempt, Break, BreakOutcome, BreakTarget, Claim, ClaimId, Grant, Holder, Interest, KeeperId,
    LatchOp, LatchRequest, LatchState, LockInfo, Mode, Release, Released, Renewal, Renewed, Store,
    Subscription,
};

use super::Subject;

/// A lease that no case outlives.
pub(super) const LONG: Duration = Duration::from_secs(120);
/// A lease that a case waits out.
pub(super) const SHORT: Duration = Duration::from_millis(250);
/// By when anything that has to happen has happened, on the slowest machine.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// How often a waiting client tries.
const RETRY: Duration = Duration::from_millis(50);

/// One keeper on one handle.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub store: Arc<dyn Store>,
    pub keeper: KeeperId,
    next: Arc<AtomicU64>,
}

impl Subject {
    /// Two clients, on different handles where there are two.
    pub(super) fn clients(&self) -> (Client, Client) {
        (Client::new(self.store()), Client::new(self.other()))
    }

    /// This many clients, on the handles in turn.
    pub(super) fn crowd(&self, size: usize) -> Vec<Client> {
        let handle = |number: usize| match number % 2 {
            0 => self.store(),
            _ => self.other(),
        };
        (0..size).map(|n| Client::new(handle(n))).collect()
    }
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// A moment that requests sent now arrive before.
pub(super) fn in_time() -> Moment {
    Moment::now() + LONG
}

impl Client {
    fn new(store: Arc<dyn Store>) -> Client {
        Client {
            store,
            keeper: KeeperId::new(),
            next: Arc::new(AtomicU64::new(1)),
        }
    }

    pub fn id(&self) -> ClaimId {
        ClaimId {
            keeper: self.keeper,
            number: self.next.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// A fresh claim: exclusive, long, not queued.
    pub fn claim(&self, text: &str) -> Claim {
        Claim::new(self.id(), name(text), Mode::Exclusive, LONG).with_not_after(in_time())
    }

    pub fn with_mode(&self, text: &str, mode: Mode) -> Claim {
        let claim = self.claim(text);
        claim.with_mode(mode)
    }

    pub fn with_lease(&self, text: &str, lease: Duration) -> Claim {
        let claim = self.claim(text);
        claim.with_lease(lease)
    }

    pub async fn attempt(&self, claim: &Claim) -> Attempt {
        let answer = self.store.try_acquire(claim).await;
        answer.expect("try_acquire answers")
    }

    #[track_caller]
    pub fn granted(&self, claim: &Claim) -> impl Future<Output = Grant> {
        let caller = std::panic::Location::caller();
        async move {
            match self.attempt(claim).await {
                Attempt::Granted(grant) => {
                    assert!(
                        grant.tokens >= 1,
                        "{caller}: {claim:?} has no token of its own"
                    );
                    grant
                }
                other => panic!("{caller}: {claim:?} should be granted, was {other:?}"),
            }
        }
    }

    #[track_caller]
    pub fn busy(&self, claim: &Claim) -> impl Future<Output = Option<Duration>> {
        let caller = std::panic::Location::caller();
        async move {
            match self.attempt(claim).await {
                Attempt::Busy { free_in } => free_in,
                other => panic!("{caller}: {claim:?} should be busy, was {other:?}"),
            }
        }
    }

    /// Queues a fresh claim behind the holder.
    #[track_caller]
    pub fn queued(&self, claim: Claim) -> impl Future<Output = Claim> {
        let caller = std::panic::Location::caller();
        async move {
            let claim = claim.with_enqueue(true);
            let attempt = self.attempt(&claim).await;
            let busy = matches!(attempt, Attempt::Busy { .. });
            assert!(busy, "{caller}: {claim:?} should wait, was {attempt:?}");
            claim
        }
    }

    /// Tries until granted, as a waiter without hints does.
    #[track_caller]
    pub fn eventually(&self, claim: &Claim) -> impl Future<Output = Grant> {
        let caller = std::panic::Location::caller();
        async move {
            let end = Moment::now() + SOON;
            loop {
                if let Attempt::Granted(grant) = self.attempt(claim).await {
                    return grant;
                }
                assert!(Moment::now() < end, "{caller}: {claim:?} is never granted");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Whether the claim held until now.
    pub async fn release(&self, claim: &Claim) -> bool {
        self.release_and(claim, None).await.was_held
    }

    pub async fn release_and(&self, claim: &Claim, requeue: Option<Claim>) -> Released {
        let release = Release::new(claim.name.clone(), claim.id).with_requeue(requeue);
        let answer = self.store.release(&release).await;
        answer.expect("release answers")
    }

    pub async fn withdraw(&self, claim: &Claim) {
        let answer = self.store.withdraw(&claim.name, claim.id).await;
        answer.expect("withdraw answers");
    }

    pub async fn renew(&self, claim: &Claim, lease: Duration) -> Renewed {
        let answers = self.renew_all(&[(claim, lease)]).await;
        assert_eq!(answers.len(), 1);
        answers[0]
    }

    pub async fn renew_all(&self, holds: &[(&Claim, Duration)]) -> Vec<Renewed> {
        let holds = holds.iter();
        let holds: Vec<_> = holds
            .map(|(claim, lease)| (*claim, *lease, in_time()))
            .collect();
        self.renew_until(&holds).await
    }

    /// Renews holds, each with the moment past which that is void.
    pub async fn renew_until(&self, holds: &[(&Claim, Duration, Moment)]) -> Vec<Renewed> {
        let renewal = |(claim, lease, not_after): &(&Claim, Duration, Moment)| {
            Renewal::new(claim.name.clone(), claim.id, *lease, *not_after)
        };
        let renewals: Vec<Renewal> = holds.iter().map(renewal).collect();
        let answer = self.store.renew(&renewals).await;
        answer.expect("renew answers")
    }

    /// Whether the claim holds, without a trace of having asked.
    pub async fn holds(&self, claim: &Claim) -> bool {
        let info = self.inspect(&claim.name).await;
        info.is_some_and(|info| info.holders.iter().any(|h| h.claim == claim.id))
    }

    pub async fn inspect(&self, name: &Name) -> Option<LockInfo> {
        let answer = self.store.inspect(name).await;
        answer.expect("inspect answers")
    }

    pub async fn waiters(&self, name: &Name) -> usize {
        self.inspect(name).await.map_or(0, |info| info.waiters)
    }

    pub async fn list(&self, prefix: &str) -> Vec<String> {
        let answer = self.store.list(prefix).await.expect("list answers");
        answer.iter().map(|info| info.name.to_string()).collect()
    }

    pub async fn break_lock(&self, name: &Name, reason: &str) -> Vec<Holder> {
        match self.break_hold(name, BreakTarget::All, reason).await {
            BreakOutcome::Ended(holders) => holders,
            other => panic!("{name:?} should be broken, was {other:?}"),
        }
    }

    pub async fn break_hold(&self, name: &Name, target: BreakTarget, reason: &str) -> BreakOutcome {
        let request = Break::new(name.clone(), target, reason.to_owned(), in_time());
        self.break_as(&request).await
    }

    pub async fn break_as(&self, request: &Break) -> BreakOutcome {
        let answer = self.store.break_lock(request).await;
        answer.expect("break_lock answers")
    }

    pub async fn subscribe(&self, interest: Interest) -> Subscription {
        let answer = self.store.subscribe(interest).await;
        answer.expect("subscribe answers")
    }

    pub async fn subscribe_to(&self, claim: &Claim) -> Subscription {
        let interest = Interest::Claim(claim.name.clone(), claim.id);
        self.subscribe(interest).await
    }

    pub async fn latch(&self, text: &str, op: LatchOp) -> LatchState {
        self.latch_as(text, self.id(), op).await
    }

    pub async fn latch_as(&self, text: &str, id: ClaimId, op: LatchOp) -> LatchState {
        let request = LatchRequest::new(name(text), id, op, in_time());
        let answer = self.store.latch(&request).await;
        answer.expect("latch answers")
    }
}

/// Waits for a hint that has to come.
#[track_caller]
pub(super) fn hinted(subscription: &Subscription) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let hint = tokio::time::timeout(SOON, subscription.hint()).await;
        assert!(hint.is_ok(), "{caller}: the hint never came");
    }
}

/// Whether a hint comes within a while in which it would have.
pub(super) async fn hinted_at_all(subscription: &Subscription) -> bool {
    let while_ = Duration::from_millis(300);
    let hint = tokio::time::timeout(while_, subscription.hint()).await;
    hint.is_ok()
}

/// Sleeps until `duration` has passed on the clock that leases follow.
pub(super) async fn pass(duration: Duration) {
    let end = Moment::now() + duration;
    while Moment::now() <= end {
        tokio::time::sleep(end.remaining() + Duration::from_millis(1)).await;
    }
}
