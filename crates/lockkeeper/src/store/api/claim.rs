//! Claims: one try to hold one name, and what became of it.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Moment;
use crate::{Error, Label, Name, Token};

/// Identifies one keeper: 128 random bits.
///
/// ```
/// use lockkeeper::store::KeeperId;
/// let id = KeeperId::new();
/// assert_eq!(KeeperId::from_bits(id.to_bits()), id);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeeperId(u128);

impl KeeperId {
    /// A new, unique id.
    #[allow(clippy::new_without_default, reason = "a random value is no default")]
    pub fn new() -> KeeperId {
        KeeperId(Uuid::new_v4().as_u128())
    }

    /// The id with these bits.
    pub const fn from_bits(bits: u128) -> KeeperId {
        KeeperId(bits)
    }

    /// The id's bits.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for KeeperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_u128(self.0).fmt(f)
    }
}

impl fmt::Debug for KeeperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identifies one claim: its keeper, and a number that counts up. Used for one grant and never again.
///
/// ```
/// use lockkeeper::store::{ClaimId, KeeperId};
/// let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// assert!(id.to_string().ends_with(":1"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    /// The keeper whose claim it is.
    pub keeper: KeeperId,
    /// Which of its claims.
    pub number: u64,
}

impl ClaimId {
    /// The id of a hold whose claim a store cannot tell. No claim has it.
    pub const UNKNOWN: ClaimId = ClaimId {
        keeper: KeeperId(0),
        number: 0,
    };
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.keeper, self.number)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for ClaimId {
    type Err = Error;
    fn from_str(text: &str) -> Result<ClaimId, Error> {
        let parsed = text.split_once(':').and_then(|(keeper, number)| {
            Some(ClaimId {
                keeper: KeeperId(Uuid::parse_str(keeper).ok()?.as_u128()),
                number: number.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| Error::InvalidArgument {
            what: "claim id",
            reason: format!("{text:?} is not <uuid>:<number>"),
        })
    }
}

/// How a claim wants to hold a name, and so beside which other holds it fits.
///
/// ```
/// use lockkeeper::store::Mode;
/// assert!(Mode::Read.admits([Mode::Read]));
/// assert!(!Mode::Write.admits([Mode::Read]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Alone, and strictly first come, first served among all processes.
    Fair,
    /// Beside other readers.
    Read,
    /// Alone, as the writer among readers.
    Write,
    /// Beside other permits, as long as their counts add up to no more than the limit. If holders name different limits, the
    /// smallest applies.
    Permit {
        /// How many permits there are in all.
        limit: u32,
        /// How many this claim takes, at most the limit: a claim for more is never granted and never queued.
        count: u32,
    },
}

impl Mode {
    /// Whether a hold of this mode leaves room for no other.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Mode::Exclusive | Mode::Fair | Mode::Write)
    }

    /// Whether a claim of this mode may hold beside these holds.
    pub fn admits(self, holds: impl IntoIterator<Item = Mode>) -> bool {
        let mut holds = holds.into_iter();
        match self {
            Mode::Exclusive | Mode::Fair | Mode::Write => holds.next().is_none(),
            Mode::Read => holds.all(|held| held == Mode::Read),
            Mode::Permit { limit, count } => {
                let (mut taken, mut smallest) = (u64::from(count), limit);
                for held in holds {
                    let Mode::Permit { limit, count } = held else {
                        return false;
                    };
                    taken += u64::from(count);
                    smallest = smallest.min(limit);
                }
                taken <= u64::from(smallest)
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Exclusive => f.write_str("exclusive"),
            Mode::Fair => f.write_str("fair"),
            Mode::Read => f.write_str("read"),
            Mode::Write => f.write_str("write"),
            Mode::Permit { limit, count } => write!(f, "{count} of {limit} permits"),
        }
    }
}

/// One try of one keeper to hold one name.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::{Name, store::{Claim, ClaimId, KeeperId, Mode}};
///
/// let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// let claim = Claim::new(id, Name::new("stock:42")?, Mode::Exclusive, Duration::from_secs(30)).with_enqueue(true);
/// assert_eq!(claim.reserve, 1);
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// Fresh for every claim.
    pub id: ClaimId,
    /// What to hold.
    pub name: Name,
    /// How to hold it.
    pub mode: Mode,
    /// For how long, from the grant on, unless renewed.
    pub lease: Duration,
    /// How many tokens to reserve, at least 1: local tasks that hand the lock on use one each.
    pub reserve: u32,
    /// A request that arrives after this moment does nothing.
    pub not_after: Moment,
    /// Whether to wait in the queue when busy.
    pub enqueue: bool,
    /// An exclusive hold of the same keeper, beside which this claim may hold if it is a reader: so a writer becomes a reader
    /// without a moment in which it holds nothing. While that hold lasts, the claim goes before the queue. It never joins the
    /// queue.
    pub beside: Option<ClaimId>,
    /// What the caller calls it. Stored with the hold and with the entry in the queue, and shown with them.
    pub label: Option<Label>,
}

impl Claim {
    /// A claim for one token that never arrives too late, does not queue and has no label.
    pub const fn new(id: ClaimId, name: Name, mode: Mode, lease: Duration) -> Claim {
        Claim {
            id,
            name,
            mode,
            lease,
            reserve: 1,
            not_after: Moment::NEVER,
            enqueue: false,
            beside: None,
            label: None,
        }
    }

    /// The same claim under another id.
    pub fn with_id(mut self, id: ClaimId) -> Self {
        self.id = id;
        self
    }

    /// The same claim to another name.
    pub fn with_name(mut self, name: Name) -> Self {
        self.name = name;
        self
    }

    /// With another [`mode`](Claim::mode).
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// With another [`lease`](Claim::lease).
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Reserves so many tokens: [`reserve`](Claim::reserve).
    pub fn with_reserve(mut self, reserve: u32) -> Self {
        self.reserve = reserve;
        self
    }

    /// Arrives too late after this moment: [`not_after`](Claim::not_after).
    pub fn with_not_after(mut self, not_after: Moment) -> Self {
        self.not_after = not_after;
        self
    }

    /// Whether it waits in the queue when busy: [`enqueue`](Claim::enqueue).
    pub fn with_enqueue(mut self, enqueue: bool) -> Self {
        self.enqueue = enqueue;
        self
    }

    /// May stand beside this hold: [`beside`](Claim::beside).
    pub fn with_beside(mut self, beside: Option<ClaimId>) -> Self {
        self.beside = beside;
        self
    }

    /// With another [`label`](Claim::label).
    pub fn with_label(mut self, label: Option<Label>) -> Self {
        self.label = label;
        self
    }
}

/// The rule of [`Claim::beside`]: a reader may stand beside an exclusive hold of its own keeper.
pub(crate) fn may_stand_beside(
    (claim, mode): (ClaimId, Mode),
    (held, held_mode): (ClaimId, Mode),
) -> bool {
    claim.keeper == held.keeper && mode == Mode::Read && held_mode.is_exclusive()
}

/// What became of one try.
///
/// ```
/// use lockkeeper::store::Attempt;
///
/// fn line(attempt: Attempt) -> String {
///     match attempt {
///         Attempt::Granted(grant) => format!("token {}", grant.token),
///         Attempt::Busy { free_in } => format!("busy; a lease ends in {free_in:?}"),
///         other => format!("{other:?}"),
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The claim holds.
    Granted(Grant),
    /// Other claims hold, or wait before it.
    Busy {
        /// After how long the first of the holders' leases ends at the latest, if known.
        free_in: Option<Duration>,
    },
    /// The request arrived past its `not_after` and did nothing.
    TooLate,
}

/// A hold, as granted.
///
/// ```
/// use lockkeeper::{Token, store::Grant};
///
/// let grant = Grant::new(Token::new(1_700_000_000_000_000), 64);
/// assert_eq!(grant.tokens, 64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The first fencing token of the reserved run.
    pub token: Token,
    /// How many tokens in a row are reserved, at least 1.
    pub tokens: u32,
}

impl Grant {
    /// A run of `tokens` tokens that begins with `token`.
    pub const fn new(token: Token, tokens: u32) -> Grant {
        Grant { token, tokens }
    }
}

/// A grant that came with a hint: the claim holds since another one was released.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::store::{DirectGrant, GRANT_LEASE, Grant};
/// use lockkeeper::{Token, clock::Moment};
///
/// let direct = DirectGrant::new(Grant::new(Token::new(7), 1), Moment::now(), GRANT_LEASE);
/// assert_eq!(direct.lease, Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DirectGrant {
    /// The hold.
    pub grant: Grant,
    /// When a request was sent that found the claim still waiting, as the store knows it: the lease counts from then, as
    /// it cannot have begun any earlier.
    pub sent: Moment,
    /// How long the hold lasts unless it is renewed. The claim's own lease ends it earlier if that is shorter.
    pub lease: Duration,
}

impl DirectGrant {
    /// A grant whose lease counts from `sent`.
    pub const fn new(grant: Grant, sent: Moment, lease: Duration) -> DirectGrant {
        DirectGrant { grant, sent, lease }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: fn(u32, u32) -> Mode = |limit, count| Mode::Permit { limit, count };

    #[test]
    fn modes_stand_beside_each_other_only_where_they_may() {
        for alone in [Mode::Exclusive, Mode::Fair, Mode::Write] {
            assert!(alone.admits([]));
            for held in [
                Mode::Exclusive,
                Mode::Fair,
                Mode::Read,
                Mode::Write,
                P(9, 1),
            ] {
                assert!(!alone.admits([held]));
                if held != Mode::Read {
                    assert!(!Mode::Read.admits([held]));
                }
            }
        }
        assert!(Mode::Read.admits([Mode::Read, Mode::Read]));
        assert!(P(3, 1).admits([P(3, 2)]));
        assert!(!P(3, 2).admits([P(3, 2)]));
        assert!(!P(3, 1).admits([Mode::Read]));
        // If limits differ, the smallest applies.
        assert!(!P(9, 1).admits([P(2, 1), P(9, 1)]));
        assert!(!P(u32::MAX, u32::MAX).admits([P(u32::MAX, u32::MAX)]));
    }

    #[test]
    fn claim_ids_read_back() {
        let id = ClaimId {
            keeper: KeeperId::new(),
            number: 42,
        };
        assert_eq!(id.to_string().parse::<ClaimId>().expect("reads back"), id);
        assert!("nonsense".parse::<ClaimId>().is_err());
    }
}
