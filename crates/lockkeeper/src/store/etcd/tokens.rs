//! Fencing tokens: they follow the revisions that create keys, on the scale of the clock.
//!
//! A token is a base in microseconds and [`RUN`] for each revision. The base is kept in a key, and whatever creates a claim's key
//! checks its revision in the same transaction. So all agree on it. It is raised when tokens fall behind the clock, and when
//! revisions have gone back because the cluster was restored from a copy; it never goes back.

use super::data::Fence;
use crate::Token;
use crate::store::Grant;

/// How many numbers each revision has.
pub const RUN: u64 = 64;
/// How many of them a hold may have. Behind these are those of readers that stand beside it, and the last one is for a break.
pub const MOST: u32 = 48;
/// How far tokens may be behind the clock.
const BEHIND: u64 = 5_000_000;

/// What is known of the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// The revision that wrote it; 0 if there is none yet.
    pub written: i64,
    pub micros: u64,
}

/// What this process knows of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens {
    pub base: Option<Base>,
    /// The last revision that was seen.
    pub seen: i64,
    /// The highest token that was seen.
    highest: u64,
}

/// What a transaction that creates a key has to do with the base, and what the base is then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The revision that wrote the base, as it has to be.
    pub written: i64,
    /// What it is then.
    pub micros: u64,
    /// Whether it is written.
    pub writes: bool,
    /// Every later revision is above this one.
    seen: i64,
}

fn at(micros: u64, revision: i64) -> u64 {
    micros.saturating_add(revision.unsigned_abs().saturating_mul(RUN))
}

impl Tokens {
    /// What to do in a transaction that follows; `clock` in microseconds. `None`: the base has to be read first.
    pub fn step(&self, clock: u64) -> Option<Step> {
        let base = self.base?;
        let next = self.seen + 1;
        let token = at(base.micros, next);
        let raised = clock.max(self.highest + RUN);
        let writes =
            base.written == 0 || token.saturating_add(BEHIND) < clock || token <= self.highest;
        Some(Step {
            written: base.written,
            micros: if writes {
                base.micros
                    .max(raised.saturating_sub(next.unsigned_abs() * RUN))
            } else {
                base.micros
            },
            writes,
            seen: self.seen,
        })
    }

    /// A member has answered with this revision, and the base that it has.
    pub fn learn(&mut self, base: Base, revision: i64) {
        self.base = Some(base);
        self.seen = self.seen.max(revision);
    }

    /// The step was done in this revision. Returns the first token, or `None` if it is not sound: then what was created has to go.
    pub fn done(&mut self, step: Step, revision: i64, clock: u64) -> Option<u64> {
        let token = at(step.micros, revision);
        if revision <= step.seen || token.saturating_add(BEHIND) < clock {
            // The cluster is as it was before, or the base has stood for long: it is read anew, and raised.
            self.base = None;
            self.seen = revision;
            return None;
        }
        if step.writes {
            self.base = Some(Base {
                written: revision,
                micros: step.micros,
            });
        }
        self.seen = self.seen.max(revision);
        self.highest = self.highest.max(token);
        Some(token)
    }
}

/// The tokens of a claim whose key was created by this revision.
pub fn grant(fence: Fence, created: i64, tokens: u32) -> Grant {
    let token = match fence {
        Fence::Base(base) => at(base, created),
        Fence::Token(token) => token.get(),
    };
    Grant {
        token: Token::new(token),
        tokens: tokens.max(1),
    }
}

/// The last number of the run of this revision: where a break of its hold puts the fence.
pub fn last_of_run(fence: Fence, created: i64) -> u64 {
    match fence {
        Fence::Base(base) => at(base, created) + RUN - 1,
        Fence::Token(token) => token.get().saturating_add(RUN - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: u64 = 1_800_000_000_000_000;

    fn fresh() -> Tokens {
        let mut tokens = Tokens::default();
        tokens.learn(
            Base {
                written: 0,
                micros: 0,
            },
            10,
        );
        tokens
    }

    #[test]
    fn tokens_grow_with_revisions_and_the_clock() {
        let (mut tokens, mut last, mut clock) = (fresh(), 0, CLOCK);
        for (at, later) in [(11, 0), (12, 0), (900, 1), (901, 9_000_000), (902, 0)] {
            clock += later;
            let step = tokens.step(clock).expect("known");
            let token = tokens.done(step, at, clock).expect("sound");
            assert!(token > last && token + BEHIND >= clock, "{at}");
            last = token;
        }
        // A clock that was set back has no part in it.
        let step = tokens.step(CLOCK - 1_000_000_000).expect("known");
        assert!(!step.writes);
        assert!(tokens.done(step, 903, CLOCK - 1_000_000_000) > Some(last));
    }

    #[test]
    fn two_that_are_answered_in_another_order_are_both_sound() {
        let mut tokens = fresh();
        let step = tokens.step(CLOCK).expect("known");
        tokens.done(step, 11, CLOCK).expect("sound");
        let (one, other) = (tokens.step(CLOCK), tokens.step(CLOCK));
        let later = tokens.done(other.expect("known"), 13, CLOCK);
        let sooner = tokens.done(one.expect("known"), 12, CLOCK);
        assert!(later > sooner && sooner.is_some());
        assert_eq!(tokens.seen, 13);
    }

    #[test]
    fn a_cluster_that_was_restored_takes_no_token_back() {
        let mut tokens = fresh();
        let step = tokens.step(CLOCK).expect("known");
        tokens.done(step, 11, CLOCK).expect("sound");
        let step = tokens.step(CLOCK).expect("known");
        let last = tokens.done(step, 5_000, CLOCK).expect("sound");
        // Revisions are back, and the base was not written since.
        let step = tokens.step(CLOCK).expect("known");
        assert!(!step.writes);
        assert_eq!(tokens.done(step, 30, CLOCK), None);
        assert_eq!(tokens.base, None);
        tokens.learn(
            Base {
                written: step.written,
                micros: step.micros,
            },
            30,
        );
        let step = tokens.step(CLOCK).expect("known");
        assert!(step.writes);
        let next = tokens.done(step, 31, CLOCK).expect("sound");
        assert!(next > last, "{next} after {last}");
        // A process that knows nothing of before follows the clock.
        let mut other = Tokens::default();
        other.learn(
            Base {
                written: 7,
                micros: CLOCK - 900_000_000,
            },
            31,
        );
        let step = other.step(CLOCK + 1_000_000).expect("known");
        assert!(other.done(step, 32, CLOCK + 1_000_000) > Some(last - 5_000 * RUN));
    }
}
