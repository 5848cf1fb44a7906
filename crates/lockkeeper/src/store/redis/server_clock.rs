//! What the server's clock shows at a moment of ours.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;

/// For how long tokens are proposed after the server's time was seen: it may be set.
const FRESH: Duration = Duration::from_secs(1);
/// An answer that took longer than this says too little for that.
const PROMPT: Duration = Duration::from_millis(50);
/// A proposal is taken in the second that it names, and so for less than this: who may not be that late proposes nothing.
const TAKEN: Duration = Duration::from_secs(2);
/// What scripts take for a proposal: 16 digits, and a number that they count exactly.
const PROPOSALS: Range<u64> = 1_000_000_000_000_000..1 << 53;

/// How far the server's clock is from ours. Every answer that carries the server's time narrows it down: the
/// server read its clock between our sending and our receiving.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// In microseconds.
    offset: Option<i64>,
    /// Until when a token may be proposed.
    fresh_until: Option<Moment>,
}

impl ServerClock {
    /// The server's clock showed `server_micros` at some time from `sent` to `received`.
    pub fn saw(&self, server_micros: u64, sent: Moment, received: Moment) {
        // A server may say anything.
        let server = i64::try_from(server_micros).unwrap_or(i64::MAX);
        let (least, most) = (server - micros(received), server - micros(sent));
        let mut known = self.known();
        // At first the least: a request then counts as late rather too early than too late.
        let offset = known.offset.map(|offset| offset.clamp(least, most));
        known.offset = Some(offset.unwrap_or(least));
        if received.since(sent) < PROMPT {
            known.fresh_until = Some(received + FRESH);
        }
    }

    /// Whether anything is known of the server's clock.
    pub fn is_known(&self) -> bool {
        self.known().offset.is_some()
    }

    /// The server's time at a moment, if that is known well enough to propose it as a token, in a request that counts as
    /// late only long after.
    pub fn proposal(&self, now: Moment, not_after: Moment) -> Option<u64> {
        if now + TAKEN > not_after {
            return None;
        }
        let known = self.known();
        let offset = known.offset.filter(|_| known.fresh_until > Some(now))?;
        let time = u64::try_from(micros(now).saturating_add(offset)).ok()?;
        Some(time).filter(|time| PROPOSALS.contains(time))
    }

    /// The server's time at a moment, in microseconds; 0 for a moment that never comes.
    pub fn at(&self, moment: Moment) -> u64 {
        if moment == Moment::NEVER {
            return 0;
        }
        let offset = self.known().offset;
        offset.map_or(0, |offset| {
            let time = micros(moment).saturating_add(offset);
            time.max(1) as u64
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(moment: Moment) -> i64 {
    (moment.as_nanos() / 1_000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_nanos(micros * 1_000)
    }

    #[test]
    fn the_estimate_follows_the_servers_clock() {
        let clock = ServerClock::default();
        assert_eq!(clock.at(at(50)), 0);
        // Between 100 and 300 of ours it was 1,000 there: the offset is 700 to 900.
        clock.saw(1_000, at(100), at(300));
        assert_eq!(clock.at(at(300)), 1_000);
        // A faster answer: 780 to 790.
        clock.saw(1_190, at(400), at(410));
        assert_eq!(clock.at(at(500)), 1_280);
        // A slow one that agrees changes nothing.
        clock.saw(2_000, at(1_000), at(2_000));
        assert_eq!(clock.at(at(500)), 1_280);
        // The server's clock was set forward, then back.
        clock.saw(9_000, at(3_000), at(3_010));
        assert_eq!(clock.at(at(3_010)), 9_000);
        clock.saw(4_000, at(4_000), at(4_010));
        assert_eq!(clock.at(at(4_000)), 4_000);
        assert_eq!(clock.at(Moment::NEVER), 0);
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
