//! Fencing tokens: they follow the transactions that create nodes, on the scale of the clock.
//!
//! A transaction's number has an epoch, which grows with each election, and a counter. A token is a base in microseconds
//! and [`RUN`] for each transaction of the epoch. The base is kept in a node, and whatever creates a claim's node checks
//! its version in the same transaction. So all agree on it. It is raised when tokens fall behind the clock, in a
//! new epoch, and when the servers have lost data; it never goes back.

use super::client::wire::Op;
use super::data::Fence;
use crate::Token;
use crate::store::Grant;

/// How many numbers each transaction has.
pub const RUN: u64 = 64;
/// How many of them a hold may have. Behind these are those of readers that stand beside it, and the last one is for a break.
pub const MOST: u32 = 48;
/// How far tokens may be behind the clock.
const BEHIND: u64 = 1_000_000;
/// After so many transactions the base is written anew, so that it tells where an epoch ended.
const CHECKPOINT: u64 = 1 << 16;
/// How many transactions may come in between.
const SLACK: u64 = 1 << 12;

/// What is known of the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    pub version: i32,
    pub epoch: u32,
    pub micros: u64,
    /// The counter when it was written; at least where its epoch was then, if it was written in a later one.
    pub written: u32,
}

/// What this process knows of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokens {
    pub base: Option<Base>,
    /// The last transaction that was seen.
    pub seen: i64,
    /// The highest token that was seen.
    pub highest: u64,
}

pub fn epoch(zxid: i64) -> u32 {
    (zxid as u64 >> 32) as u32
}

pub fn counter(zxid: i64) -> u32 {
    zxid as u32
}

impl Base {
    /// Reads what the node has.
    pub fn read(bytes: &[u8], version: i32, mzxid: i64) -> Option<Base> {
        let fields = super::data::Fields::read(bytes)?;
        let base_epoch = u32::try_from(fields.number("epoch")?).ok()?;
        let expected = fields.number("counter").unwrap_or_default();
        let expected = u32::try_from(expected).unwrap_or(u32::MAX);
        Some(Base {
            version,
            epoch: base_epoch,
            micros: fields.number("base")?,
            // Its writer had not heard of an election: this counter says nothing of the epoch that it knew.
            written: if epoch(mzxid) == base_epoch {
                counter(mzxid)
            } else {
                expected.max(counter(mzxid))
            },
        })
    }

    /// What the node has; `expected` is the least counter that this is written at in its epoch.
    fn write(epoch: u32, micros: u64, expected: u32) -> Vec<u8> {
        let mut json = String::from("{");
        super::data::number(&mut json, "epoch", u64::from(epoch));
        super::data::number(&mut json, "base", micros);
        super::data::number(&mut json, "counter", u64::from(expected));
        json.push('}');
        json.into_bytes()
    }

    fn at(&self, counter: u32) -> u64 {
        self.micros.saturating_add(u64::from(counter) * RUN)
    }
}

/// What a transaction that creates a node has to do with the base, and what the base is then.
#[derive(Clone, Debug)]
pub struct Step {
    pub op: Op,
    pub epoch: u32,
    pub micros: u64,
    /// The version of the node once it is done.
    pub version: i32,
    /// The counter when the base was written, unless this step writes it.
    written: u32,
}

impl Tokens {
    /// What to do in a transaction that is expected to follow `zxid`; `clock` in microseconds.
    pub fn step(&self, path: &str, base: Base, zxid: i64, clock: u64) -> Step {
        let (now, next) = (epoch(zxid), u64::from(counter(zxid)) + 1);
        let mut lowest = base.micros;
        let elected = now != base.epoch;
        if elected {
            let last = u64::from(base.written) + CHECKPOINT + SLACK;
            lowest = lowest.saturating_add(last * RUN);
        }
        let token = lowest.saturating_add(next * RUN);
        // The servers are as they were before: they have lost data.
        let lost = zxid < self.seen || token.saturating_add(SLACK * RUN) < self.highest;
        if lost {
            lowest += (self.highest + RUN).saturating_sub(token);
        }
        let behind = token.saturating_add(BEHIND) < clock;
        if behind || elected || lost {
            lowest = lowest.max(clock.saturating_sub(next * RUN));
        }
        let due = u64::from(counter(zxid).saturating_sub(base.written)) >= CHECKPOINT;
        if behind || elected || lost || due {
            let mut expected = counter(zxid).saturating_add(1);
            if !elected {
                expected = expected.max(base.written);
            }
            return Step {
                op: Op::SetData {
                    path: path.to_owned(),
                    data: Base::write(now, lowest, expected),
                    version: base.version,
                },
                epoch: now,
                micros: lowest,
                version: base.version.wrapping_add(1),
                written: base.written,
            };
        }
        Step {
            op: Op::Check {
                path: path.to_owned(),
                version: base.version,
            },
            epoch: base.epoch,
            micros: base.micros,
            version: base.version,
            written: base.written,
        }
    }

    /// What the node has at first.
    pub fn first(&self, zxid: i64, clock: u64) -> Vec<u8> {
        let now = u64::from(counter(zxid)) * RUN;
        let micros = clock.max(self.highest + RUN).saturating_sub(now);
        Base::write(epoch(zxid), micros, counter(zxid).saturating_add(1))
    }

    /// The step was done by this transaction. Returns the first token, or `None` if it is not sound: the epoch has changed, or
    /// so many transactions came in between that the next epoch would not begin above it.
    pub fn done(&mut self, step: &Step, zxid: i64) -> Option<u64> {
        let written = match step.op {
            Op::SetData { .. } => counter(zxid),
            _ => step.written,
        };
        let since = u64::from(counter(zxid).saturating_sub(written));
        if epoch(zxid) != step.epoch || since > CHECKPOINT + SLACK {
            self.base = None;
            return None;
        }
        let base = Base {
            version: step.version,
            epoch: step.epoch,
            micros: step.micros,
            written,
        };
        // Another request may have seen a later one.
        if self.base.is_none_or(|known| known.version <= base.version) {
            self.base = Some(base);
        }
        let token = base.at(counter(zxid));
        self.seen = match step.op {
            Op::SetData { .. } => zxid,
            _ => self.seen.max(zxid),
        };
        self.highest = self.highest.max(token);
        Some(token)
    }
}

/// The tokens of a claim whose node was created by this transaction.
pub fn grant(fence: Fence, czxid: i64, tokens: u32) -> Grant {
    let (token, tokens) = match fence {
        Fence::Base(base) => (base.saturating_add(u64::from(counter(czxid)) * RUN), tokens),
        Fence::Token(token) => (token.get(), tokens),
        Fence::Native => (czxid as u64, 1),
    };
    Grant {
        token: Token::new(token),
        tokens: tokens.max(1),
    }
}

/// The last number of the run that a token belongs to: where a break of its hold puts the fence.
pub fn last_of_run(fence: Fence, czxid: i64, token: u64) -> u64 {
    match fence {
        Fence::Base(base) => base.saturating_add(u64::from(counter(czxid)) * RUN) + RUN - 1,
        Fence::Token(_) => token.saturating_add(RUN - 1),
        Fence::Native => token,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: u64 = 1_800_000_000_000_000;

    fn zxid(epoch: u32, counter: u32) -> i64 {
        (i64::from(epoch) << 32) | i64::from(counter)
    }

    /// Takes a step with what follows `seen`, in the transaction `at`.
    fn take(tokens: &mut Tokens, base: Base, seen: i64, at: i64, clock: u64) -> Option<u64> {
        let step = tokens.step("/b", base, seen, clock);
        tokens.done(&step, at)
    }

    #[test]
    fn tokens_grow_with_transactions_elections_and_the_clock() {
        let mut tokens = Tokens::default();
        let base = Base {
            version: 0,
            epoch: 1,
            micros: CLOCK,
            written: 5,
        };
        tokens.base = Some(base);
        let mut last = 0;
        let mut seen = zxid(1, 10);
        for (at, clock) in [
            (zxid(1, 11), CLOCK),
            (zxid(1, 12), CLOCK),
            (zxid(1, 13), CLOCK + 5_000_000),
            (zxid(1, 14), CLOCK - 1_000_000_000),
            (zxid(1, 60_000), CLOCK),
            (zxid(1, 60_001), CLOCK),
        ] {
            let base = tokens.base.expect("known");
            let token = take(&mut tokens, base, seen, at, clock).expect("sound");
            assert!(token > last, "{at:x}");
            (last, seen) = (token, at);
        }
        // An election that nobody heard of yet: the claim has to be made anew.
        let base = tokens.base.expect("known");
        assert_eq!(take(&mut tokens, base, seen, zxid(2, 1), CLOCK), None);
        tokens.seen = 0;
        let token = take(&mut tokens, base, zxid(2, 1), zxid(2, 2), CLOCK).expect("sound");
        assert!(token > last, "also with a clock that was set back");
        assert!(token < last + 10_000_000, "and not far ahead");
    }

    #[test]
    fn an_election_needs_no_clock() {
        let mut tokens = Tokens::default();
        let base = Base {
            version: 3,
            epoch: 1,
            micros: CLOCK,
            written: 5,
        };
        // Others had many transactions that this process did not hear of.
        let far = zxid(1, 5 + (CHECKPOINT + SLACK) as u32 + 1_000);
        let last = take(&mut tokens, base, zxid(1, 6), far, CLOCK).unwrap_or(0);
        // Another process, whose clock is behind, is the first after an election.
        let mut other = Tokens::default();
        let next = take(
            &mut other,
            base,
            zxid(2, 1),
            zxid(2, 2),
            CLOCK - 1_000_000_000,
        );
        assert!(next.expect("sound") > last, "{last}");
        // Made anew, it tells where it is.
        let again = take(&mut tokens, base, far, far + 1, CLOCK).expect("sound");
        let base = tokens.base.expect("known");
        assert_eq!(base.written, counter(far + 1));
        let next = take(
            &mut other,
            base,
            zxid(2, 1),
            zxid(2, 2),
            CLOCK - 1_000_000_000,
        );
        assert!(next.expect("sound") > again);
    }

    #[test]
    fn a_base_that_lands_in_the_next_epoch_does_not_hide_where_the_last_one_ended() {
        let base = Base {
            version: 3,
            epoch: 1,
            micros: CLOCK,
            written: 1_000_000,
        };
        let mut holder = Tokens::default();
        let (seen, at) = (zxid(1, 1_000_049), zxid(1, 1_000_050));
        let last = take(&mut holder, base, seen, at, CLOCK).expect("sound");
        // A process that has not heard of the election raises the base, and has to ask anew; also one that heard little.
        for seen in [zxid(1, 1_000_060), zxid(1, 20)] {
            let mut late = Tokens::default();
            let step = late.step("/b", base, seen, CLOCK + 70_000_000);
            let Op::SetData { data, version, .. } = step.op.clone() else {
                panic!("the tokens are behind the clock");
            };
            assert_eq!((late.done(&step, zxid(2, 3)), version), (None, 3));
            let landed = Base::read(&data, 4, zxid(2, 3)).expect("a base");
            let mut next = Tokens::default();
            let clock = CLOCK - 3_600_000_000;
            let token = take(&mut next, landed, zxid(2, 4), zxid(2, 5), clock);
            assert!(token.expect("sound") > last, "{token:?} after {last}");
            // In the epoch that it was written for, it tells the truth.
            let there = Base::read(&data, 4, zxid(1, 1_000_070)).expect("a base");
            assert_eq!(there.written, 1_000_070);
        }
    }

    #[test]
    fn data_that_is_lost_takes_no_token_back() {
        let mut tokens = Tokens::default();
        let base = Base {
            version: 7,
            epoch: 0,
            micros: CLOCK,
            written: 100,
        };
        let before = take(&mut tokens, base, zxid(0, 9_000), zxid(0, 9_001), CLOCK).expect("sound");
        // The servers are as they were long ago, and so is the clock.
        let old = Base {
            version: 2,
            epoch: 0,
            micros: CLOCK - 9_000_000,
            written: 3,
        };
        tokens.base = None;
        let after = take(
            &mut tokens,
            old,
            zxid(0, 20),
            zxid(0, 21),
            CLOCK - 5_000_000,
        )
        .expect("sound");
        assert!(after > before, "{after} {before}");
    }
}
