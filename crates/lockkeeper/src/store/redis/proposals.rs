//! Tokens that a client proposes: the server's time, as far as it is known here.

use std::ops::Range;
use std::time::Duration;

use crate::clock::Moment;
use crate::store::common::ServerClock;

/// A proposal is taken in the second that it names, and so for less than this. A request that may not be that late
/// proposes nothing.
const TAKEN: Duration = Duration::from_secs(2);
/// What scripts take for a proposal: 16 digits, and a number that they count exactly.
const PROPOSALS: Range<u64> = 1_000_000_000_000_000..1 << 53;

/// What a clock of a server is asked for a token.
pub(super) trait Propose {
    /// The server's time at a moment, if that is known well enough to propose it as a token, in a request that counts as
    /// late only long after.
    fn proposal(&self, now: Moment, not_after: Moment) -> Option<u64>;
}

impl Propose for ServerClock {
    fn proposal(&self, now: Moment, not_after: Moment) -> Option<u64> {
        if now + TAKEN > not_after {
            return None;
        }
        let time = self.estimate(now)?;
        Some(time).filter(|time| PROPOSALS.contains(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_nanos(micros * 1_000)
    }

    #[test]
    fn a_token_is_proposed_only_while_the_time_is_known() {
        const T: u64 = 1_700_000_000_000_000;
        let clock = ServerClock::default();
        let proposal = |micros| clock.proposal(at(micros), Moment::NEVER);
        assert_eq!(proposal(10), None);
        clock.saw(T, at(100), at(100));
        assert_eq!(proposal(250), Some(T + 150));
        assert_eq!(proposal(1_000_099), Some(T + 999_999));
        assert_eq!(proposal(1_000_100), None);
        // A slow answer tells the time, but not well enough.
        clock.saw(T + 2_000_000, at(2_000_000), at(2_200_000));
        assert_eq!(proposal(2_200_001), None);
        clock.saw(T + 2_500_000, at(2_500_000), at(2_500_100));
        assert!(proposal(2_500_200).is_some());
        // Nor in a request that may soon be late.
        let soon = at(2_500_200) + TAKEN;
        assert!(clock.proposal(at(2_500_200), soon).is_some());
        assert_eq!(clock.proposal(at(2_500_201), soon), None);
    }

    #[test]
    fn a_server_may_say_any_time() {
        for time in [0, 1, i64::MAX as u64, u64::MAX] {
            let clock = ServerClock::default();
            clock.saw(time, at(100), at(300));
            clock.saw(u64::MAX - time, at(400), at(500));
            for moment in [at(0), at(600), Moment::from_nanos(u64::MAX / 2 - 1)] {
                assert!(clock.at(moment) > 0, "{time}");
                assert_eq!(clock.proposal(moment, Moment::NEVER), None, "{time}");
            }
        }
    }

    #[test]
    fn a_time_that_a_script_would_take_for_a_number_of_tokens_is_not_proposed() {
        // A server without a clock of its own, as it starts in 1970; and one that is centuries ahead.
        for time in [
            1_000_000,
            999_999_999_999_998,
            1 << 53,
            10_000_000_000_000_000,
        ] {
            let clock = ServerClock::default();
            clock.saw(time, at(100), at(100));
            assert_eq!(clock.proposal(at(101), Moment::NEVER), None, "{time}");
        }
    }
}
