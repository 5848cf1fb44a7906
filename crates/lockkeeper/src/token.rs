//! Fencing tokens: numbers that grow with every grant, so that a resource can refuse the late write of an earlier holder.

use std::fmt;
use std::num::TryFromIntError;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fencing token. Each grant of a lock carries a higher one than every grant before it.
///
/// A lock alone cannot stop a holder that was paused longer than its lease from writing late. The resource
/// can, by refusing any token lower than the highest it has seen: send the token with each write, and see
/// [`FenceGate`]. `docs/fencing.md` in the repository has recipes for Redis and SQLite, which are tested.
///
/// ```
/// use lockkeeper::Token;
/// let (earlier, later) = (Token::new(41), Token::new(42));
/// assert!(earlier < later);
/// ```
///
/// # As a number elsewhere
/// A token is a `u64`. A column of most databases is an `i64`: [`i64::try_from`] and [`Token::try_from`] convert, and fail
/// above 2^63, which no store of this crate reaches. Tokens begin near the time in microseconds since 1970, about 1.8 · 10^15 now.
/// That is below 2^53 (9.0 · 10^15) until the year 2255, so that JavaScript, JSON parsers that use a `double`, and the
/// scripts of Redis compare them exactly. A store with [`Fencing::Native`](crate::store::Fencing::Native) tokens may give others: send
/// these to JavaScript as text.
///
/// ```
/// use lockkeeper::Token;
///
/// let token = Token::new(1_763_449_000_000_000);
/// let column = i64::try_from(token)?;                    // for a BIGINT
/// assert_eq!(Token::try_from(column)?, token);
/// assert_eq!(u64::from(token), token.get());
/// # Ok::<(), std::num::TryFromIntError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(u64);

impl Token {
    /// Wraps a number that was a token, for instance one read back from a resource.
    pub const fn new(value: u64) -> Token {
        Token(value)
    }

    /// The number to send along with a write.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        token.0
    }
}

impl From<u64> for Token {
    fn from(value: u64) -> Token {
        Token(value)
    }
}

impl TryFrom<Token> for i64 {
    type Error = TryFromIntError;
    fn try_from(token: Token) -> Result<i64, TryFromIntError> {
        token.0.try_into()
    }
}

impl TryFrom<i64> for Token {
    type Error = TryFromIntError;
    fn try_from(value: i64) -> Result<Token, TryFromIntError> {
        value.try_into().map(Token)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far reserved tokens may be ahead of the wall clock at most, in microseconds.
///
/// Tokens go on growing after a lost fence record only because they follow the clock. The bound keeps that true.
pub(crate) const MAX_LEAD_MICROS: u64 = 1_000_000;

/// The next run of tokens after `last`: its first token, and how many of the `wanted` may be reserved.
pub(crate) fn next_run(last: u64, unix_micros: u64, wanted: u32) -> (u64, u32) {
    let first = (last + 1).max(unix_micros);
    let lead = unix_micros
        .saturating_add(MAX_LEAD_MICROS)
        .saturating_sub(first);
    let count = u64::from(wanted.max(1)).min(lead.max(1));
    (first, count as u32)
}

/// How far a token may be ahead of the clock before the clock counts as set back, in microseconds.
pub(crate) const MAX_SKEW_MICROS: u64 = 60_000_000;

/// The time at which a break counts as made: that of its token, so that no hold which it ends has a later one. If the token
/// is far ahead of the clock, the clock was set back, and the time of the clock is taken.
pub(crate) fn break_micros(token: u64, unix_micros: u64) -> u64 {
    if token <= unix_micros.saturating_add(MAX_SKEW_MICROS) {
        token
    } else {
        unix_micros
    }
}

/// Refuses late writers at a resource in this process: tokens it admits never decrease.
///
/// ```
/// use lockkeeper::{FenceGate, Token};
///
/// let gate = FenceGate::new();
/// assert!(gate.admit(Token::new(7)));
/// assert!(gate.admit(Token::new(7)));  // the same hold writes again
/// assert!(gate.admit(Token::new(9)));
/// assert!(!gate.admit(Token::new(8))); // an earlier holder, waking up late
/// ```
///
/// A check and a write that follows it are two steps: admit and write under one mutex, or where the data is
/// (`UPDATE … WHERE fence <= ?`). And show the token when you *read* what you are going to change, not only
/// when you write it: otherwise a late holder that read before you can still write before you do.
#[derive(Debug, Default)]
pub struct FenceGate(AtomicU64);

impl FenceGate {
    /// A gate that has admitted nothing yet.
    pub const fn new() -> FenceGate {
        FenceGate(AtomicU64::new(0))
    }

    /// Whether `token` is at least as high as every token admitted before; if so, remembers it.
    pub fn admit(&self, token: Token) -> bool {
        self.0.fetch_max(token.get(), Ordering::AcqRel) <= token.get()
    }

    /// The highest token admitted so far.
    pub fn highest(&self) -> Token {
        Token(self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_follow_the_clock_and_never_go_back() {
        assert_eq!(next_run(0, 1_000, 1), (1_000, 1));
        assert_eq!(next_run(1_000, 1_000, 1), (1_001, 1));
        // The clock was set back by an hour: tokens still grow.
        assert_eq!(next_run(5_000_000_000, 1_400_000_000, 1).0, 5_000_000_001);
    }

    #[test]
    fn the_reserved_lead_over_the_clock_is_capped() {
        assert_eq!(next_run(0, 10, 64), (10, 64));
        let (first, count) = next_run(MAX_LEAD_MICROS + 5, 10, 64);
        assert_eq!((first, count), (MAX_LEAD_MICROS + 6, 4));
        // Past the cap a grant still gets its one token.
        assert_eq!(next_run(u64::MAX / 2, 10, 64).1, 1);
    }
}
