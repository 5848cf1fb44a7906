//! Converts a moment of this machine into the time on the server's clock.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Moment;

/// The offset between the server's clock and the clock of this machine.
///
/// Every response that carries the server's time narrows it down: the server read its clock after the request was sent and
/// before the response was received. So a request can say in the server's time when it is [too late](ServerClock::at), and no
/// clock of a client has to be right.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::{clock::Moment, store::common::ServerClock};
///
/// let clock = ServerClock::default();
/// let sent = Moment::now();
/// let server_micros = 1_800_000_000_000_000;      // in a response to what was sent
/// clock.saw(server_micros, sent, Moment::now());
/// // Never later than five seconds on the server: a request may count as late too early, but never too late.
/// assert!(clock.at(sent + Duration::from_secs(5)) <= server_micros + 5_000_000);
/// ```
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<Option<i64>>);

impl ServerClock {
    /// The server's clock showed `server_micros` at some time from `sent` to `received`.
    pub fn saw(&self, server_micros: u64, sent: Moment, received: Moment) {
        // A server may send any number.
        let server = i64::try_from(server_micros).unwrap_or(i64::MAX);
        let (least, most) = (server - micros(received), server - micros(sent));
        let mut offset = self.offset();
        // At first the least offset: a request may then count as late too early, but never too late.
        *offset = Some(offset.map_or(least, |offset| offset.clamp(least, most)));
    }

    /// Whether a response has carried the server's time.
    pub fn is_known(&self) -> bool {
        self.offset().is_some()
    }

    /// The server's time at a moment, in microseconds: for a request's `not_after`, the time past which it is too late. 0 for a
    /// moment that never comes, and while nothing is known of the server's clock.
    pub fn at(&self, moment: Moment) -> u64 {
        if moment == Moment::NEVER {
            return 0;
        }
        self.offset().map_or(0, |offset| {
            let time = micros(moment).saturating_add(offset);
            time.max(1) as u64
        })
    }

    /// In microseconds.
    fn offset(&self) -> MutexGuard<'_, Option<i64>> {
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
    fn the_time_follows_the_servers_clock() {
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
    fn any_time_of_a_server_is_accepted() {
        for time in [0, 1, i64::MAX as u64, u64::MAX] {
            let clock = ServerClock::default();
            clock.saw(time, at(100), at(300));
            clock.saw(u64::MAX - time, at(400), at(500));
            for moment in [at(0), at(600), Moment::from_nanos(u64::MAX / 2 - 1)] {
                assert!(clock.at(moment) > 0, "{time}");
            }
        }
    }
}
