//! Requests to renew, release and break a hold or to use a latch, and what became of them.

use std::time::Duration;

use super::{Claim, ClaimId, Grant, Holder};
use crate::clock::Moment;
use crate::{Name, Token};

/// One hold to renew.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::{Name, clock::Moment, store::{ClaimId, KeeperId, Renewal}};
///
/// let claim = ClaimId { keeper: KeeperId::new(), number: 1 };
/// let in_time = Moment::now() + Duration::from_secs(20);
/// let renewal = Renewal::new(Name::new("stock:42")?, claim, Duration::from_secs(30), in_time);
/// assert_eq!(renewal.claim, claim);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Renewal {
    /// What is held.
    pub name: Name,
    /// By which claim.
    pub claim: ClaimId,
    /// For how long from now on, at least. Zero asks whether the claim still holds and changes nothing.
    pub lease: Duration,
    /// A request that arrives after this moment does nothing: its holder has given up by then.
    pub not_after: Moment,
}

impl Renewal {
    /// Renews what a claim holds for `lease` from now on.
    pub const fn new(name: Name, claim: ClaimId, lease: Duration, not_after: Moment) -> Renewal {
        Renewal {
            name,
            claim,
            lease,
            not_after,
        }
    }

    /// With another [`lease`](Renewal::lease).
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Arrives too late after this moment: [`not_after`](Renewal::not_after).
    pub fn with_not_after(mut self, not_after: Moment) -> Self {
        self.not_after = not_after;
        self
    }
}

/// What became of one renewal.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use std::time::Duration;
/// # use lockkeeper::{Name, clock::Moment};
/// # use lockkeeper::store::*;
/// # let store = memory::MemoryStore::new();
/// # let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// # let name = Name::new("x")?;
/// # let claim = Claim::new(id, name.clone(), Mode::Exclusive, Duration::from_secs(30));
/// let renewal = Renewal::new(name, id, Duration::from_secs(30), Moment::NEVER);
/// assert_eq!(store.renew(&[renewal]).await?, [Renewed::NotHeld]);         // it was never granted
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Renewed {
    /// The hold goes on.
    Renewed,
    /// The claim holds nothing: its lease had ended, or it was broken.
    NotHeld,
    /// The request arrived past its `not_after` and did nothing. The claim may or may not hold.
    TooLate,
    /// The part of the store that has it did not answer, while others did. It may have been renewed.
    Unknown,
}

/// A hold to end.
///
/// ```
/// use lockkeeper::{Name, store::{ClaimId, KeeperId, Release}};
///
/// let claim = ClaimId { keeper: KeeperId::new(), number: 1 };
/// let release = Release::new(Name::new("stock:42")?, claim);
/// assert!(release.requeue.is_none());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Release {
    /// What is held.
    pub name: Name,
    /// By which claim.
    pub claim: ClaimId,
    /// A fresh claim to put at the end of the queue in the same step, only if the release takes effect. As with a try, a claim
    /// for more permits than there are is not queued.
    pub requeue: Option<Claim>,
}

impl Release {
    /// Ends the hold of a claim, and queues nothing.
    pub const fn new(name: Name, claim: ClaimId) -> Release {
        Release {
            name,
            claim,
            requeue: None,
        }
    }

    /// Queues this claim in the same step: [`requeue`](Release::requeue).
    pub fn with_requeue(mut self, requeue: Option<Claim>) -> Self {
        self.requeue = requeue;
        self
    }
}

/// What became of a release.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use std::time::Duration;
/// # use lockkeeper::{Name, clock::Moment};
/// # use lockkeeper::store::*;
/// # let store = memory::MemoryStore::new();
/// # let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// # let name = Name::new("x")?;
/// # let claim = Claim::new(id, name.clone(), Mode::Exclusive, Duration::from_secs(30));
/// store.try_acquire(&claim).await?;
/// let released = store.release(&Release::new(name, id)).await?;
/// assert!(released.was_held);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Released {
    /// Whether the claim held until now. If not, nothing was changed.
    pub was_held: bool,
    /// The grant of the requeued claim, when nobody waited before it. It needs no confirmation.
    pub regrant: Option<Grant>,
}

impl Released {
    /// Whether the claim held; nothing was granted in the same step.
    pub const fn new(was_held: bool) -> Released {
        Released {
            was_held,
            regrant: None,
        }
    }

    /// The requeued claim holds: [`regrant`](Released::regrant).
    pub const fn with_regrant(mut self, regrant: Option<Grant>) -> Self {
        self.regrant = regrant;
        self
    }
}

/// An administrator's release.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::clock::Moment;
/// use lockkeeper::store::{Break, BreakTarget};
/// use lockkeeper::{Name, Token};
///
/// let in_time = Moment::now() + Duration::from_secs(2);
/// let everyone = Break::new(Name::new("report")?, BreakTarget::All, "its host is gone", in_time);
/// let one = everyone.with_target(BreakTarget::Token(Token::new(7)));
/// assert_eq!(one.reason, "its host is gone");
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Break {
    /// What to free.
    pub name: Name,
    /// Which hold to end.
    pub target: BreakTarget,
    /// Why; shown by `inspect`.
    pub reason: String,
    /// A request that arrives after this moment does nothing: another claim may hold by then. A store that stops waiting for
    /// an answer earlier may choose an earlier moment.
    pub not_after: Moment,
}

impl Break {
    /// Ends these holds of a name, for a reason.
    pub fn new(
        name: Name,
        target: BreakTarget,
        reason: impl Into<String>,
        not_after: Moment,
    ) -> Break {
        Break {
            name,
            target,
            reason: reason.into(),
            not_after,
        }
    }

    /// With another [`target`](Break::target).
    pub fn with_target(mut self, target: BreakTarget) -> Self {
        self.target = target;
        self
    }
}

/// Which hold a break ends.
///
/// A lock may change hands between an inspection and the break that follows. A break that names the hold which was seen
/// does nothing to the next one.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::store::{BreakOutcome, BreakTarget};
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:target-example").await?;
/// let guard = keeper.lock("report")?.acquire().await?;
/// let stuck = BreakTarget::Token(guard.token());
/// guard.release().await?;
///
/// let next = keeper.lock("report")?.acquire().await?;
/// let outcome = keeper.break_hold("report", stuck, "it hangs").await?;
/// assert!(matches!(outcome, BreakOutcome::NotHeld(holders) if holders[0].claim == next.claim()));
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BreakTarget {
    /// Every hold of the name, of whatever client.
    All,
    /// The hold that has this token, anywhere in its run.
    Token(Token),
    /// The hold of this claim. A Redisson client's hold has such an id as well, which `inspect` shows.
    Claim(ClaimId),
}

impl BreakTarget {
    /// Whether this names a hold of this claim with these tokens.
    pub(in crate::store) fn means(self, claim: ClaimId, grant: Grant) -> bool {
        match self {
            BreakTarget::All => true,
            BreakTarget::Token(token) => {
                let offset = token.get().checked_sub(grant.token.get());
                offset.is_some_and(|offset| offset < u64::from(grant.tokens))
            }
            BreakTarget::Claim(meant) => meant == claim,
        }
    }

    /// The claim and the token, as arguments of the Redis scripts.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn as_args(self) -> [String; 2] {
        match self {
            BreakTarget::All => [String::new(), String::new()],
            BreakTarget::Token(token) => [String::new(), token.get().to_string()],
            BreakTarget::Claim(claim) => [claim.to_string(), String::new()],
        }
    }
}

/// What became of a break.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:").await?;
/// use lockkeeper::store::BreakOutcome;
///
/// let guard = keeper.lock("job")?.acquire().await?;
/// match keeper.break_hold("job", lockkeeper::store::BreakTarget::Claim(guard.claim()), "stuck").await? {
///     BreakOutcome::Ended(holders) => println!("ended {}", holders.len()),
///     other => println!("{other:?}"),
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BreakOutcome {
    /// These holds were ended; none if nobody held, and then no record of a break is left.
    Ended(Vec<Holder>),
    /// There is no hold as named, and nothing was done. These are the holds there are.
    NotHeld(Vec<Holder>),
    /// The request arrived past its `not_after` and did nothing.
    TooLate,
}

/// A request to a latch.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use std::time::Duration;
/// # use lockkeeper::{Name, clock::Moment};
/// # use lockkeeper::store::*;
/// # let store = memory::MemoryStore::new();
/// # let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// # let name = Name::new("x")?;
/// # let claim = Claim::new(id, name.clone(), Mode::Exclusive, Duration::from_secs(30));
/// let set = LatchRequest::new(name, id, LatchOp::Set(2), Moment::NEVER);
/// assert_eq!(store.latch(&set).await?.count, 2);
/// # drop(claim);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LatchRequest {
    /// Which latch.
    pub name: Name,
    /// Counting down twice with one id counts once.
    pub id: ClaimId,
    /// A request that arrives after this moment does nothing.
    pub not_after: Moment,
    /// What to do.
    pub op: LatchOp,
}

impl LatchRequest {
    /// One operation on a latch, which counts once for each id.
    pub const fn new(name: Name, id: ClaimId, op: LatchOp, not_after: Moment) -> LatchRequest {
        LatchRequest {
            name,
            id,
            not_after,
            op,
        }
    }
}

/// What to do with a latch.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # use std::time::Duration;
/// # use lockkeeper::{Name, clock::Moment};
/// # use lockkeeper::store::*;
/// # let store = memory::MemoryStore::new();
/// # let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// # let name = Name::new("x")?;
/// # let claim = Claim::new(id, name.clone(), Mode::Exclusive, Duration::from_secs(30));
/// let ask = LatchRequest::new(name, id, LatchOp::Read, Moment::NEVER);
/// assert_eq!(store.latch(&ask).await?.count, 0);                          // a latch that nobody set is open
/// # drop(claim);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LatchOp {
    /// Change nothing, and return the count.
    Read,
    /// Set the count, if the latch is open (its count is 0).
    Set(u32),
    /// Lower the count by one, if it is above 0.
    CountDown,
    /// Open the latch at once, whatever its count.
    Open,
}

/// A latch after a request.
///
/// ```
/// use lockkeeper::store::LatchState;
/// let state = LatchState::new(0, false);
/// assert_eq!(state.count, 0);                 // open
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LatchState {
    /// The count; 0 means open.
    pub count: u32,
    /// Whether this request changed it.
    pub changed: bool,
}

impl LatchState {
    /// A latch with this count, which the request changed or did not.
    pub const fn new(count: u32, changed: bool) -> LatchState {
        LatchState { count, changed }
    }
}
