//! What two looks at a store tell together: which holds have ended, who has stopped to wait, and after how long.
//!
//! Time is an argument. Of those who wait only the number is used, as long queues are not listed whole: the first to come
//! is taken for the first to get the lock.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use lockkeeper::clock::Moment;
use lockkeeper::store::{ClaimId, LockInfo};

use super::histogram::Histogram;

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Seen {
    locks: BTreeMap<String, Lock>,
    /// Whether there was a look before.
    looked: bool,
    /// How long holds lasted.
    pub held: Histogram,
    /// How long those waited who then held.
    pub waited: Histogram,
}

#[derive(Debug, Default)]
struct Lock {
    /// Since when, by our clock.
    holds: BTreeMap<ClaimId, Moment>,
    /// When each of those who wait was first seen, the first in front.
    waits: VecDeque<Moment>,
}

impl Seen {
    /// Takes note of a look.
    pub fn look(&mut self, locks: &[LockInfo], now: Moment, wall: SystemTime) {
        let mut before = std::mem::take(&mut self.locks);
        for info in locks {
            let old = before.remove(info.name.as_str()).unwrap_or_default();
            let lock = self.changed(old, info, now, wall);
            self.locks.insert(info.name.to_string(), lock);
        }
        // What is not listed any more is free, and nobody waits for it.
        for gone in before.into_values() {
            self.ended(gone.holds.into_values(), now);
        }
        self.looked = true;
    }

    /// Nobody looks for a while. What is counted stays.
    pub fn rest(&mut self) {
        self.locks.clear();
        self.looked = false;
    }

    fn ended(&mut self, since: impl Iterator<Item = Moment>, now: Moment) {
        since.for_each(|since| self.held.add(now.since(since)));
    }

    fn changed(&mut self, mut old: Lock, info: &LockInfo, now: Moment, wall: SystemTime) -> Lock {
        let mut lock = Lock::default();
        let mut new = 0;
        for holder in &info.holders {
            let since = old.holds.remove(&holder.claim).unwrap_or_else(|| {
                new += 1;
                // Only a hold that is older than our looking needs the store's word, and its clock, for its start.
                let began = holder.since.filter(|_| !self.looked);
                let age = began.map(|began| wall.duration_since(began).unwrap_or_default());
                earlier(now, age.unwrap_or_default())
            });
            lock.holds.insert(holder.claim, since);
        }
        self.ended(old.holds.into_values(), now);
        lock.waits = old.waits;
        if self.looked {
            let granted = new.min(lock.waits.len());
            for since in lock.waits.drain(..granted) {
                self.waited.add(now.since(since));
            }
        }
        // Others gave up, the last first, or came.
        lock.waits.resize(info.waiters, now);
        lock
    }
}

fn earlier(now: Moment, age: Duration) -> Moment {
    let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    Moment::from_nanos(now.as_nanos().saturating_sub(age))
}

#[cfg(test)]
mod tests {
    use lockkeeper::store::{Holder, KeeperId, Mode, Process};
    use lockkeeper::{Name, Token};

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos((1_000_000 + ms) * 1_000_000)
    }

    fn wall(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(5_000_000 + ms)
    }

    /// A lock that is held by these claims, the numbers being also when they began.
    fn lock(holders: &[u64], waiters: usize) -> LockInfo {
        let holder = |&number: &u64| {
            Holder::new(
                ClaimId {
                    keeper: KeeperId::from_bits(7),
                    number,
                },
                Process::new("host", 1, "program"),
                Mode::Exclusive,
                Token::new(number),
                wall(number),
                Duration::from_secs(1),
            )
        };
        LockInfo::new(Name::new("a").expect("a name"))
            .with_holders(holders.iter().map(holder).collect())
            .with_waiters(waiters)
    }

    fn counts(seen: &Seen) -> (u64, u64) {
        (seen.held.count(), seen.waited.count())
    }

    #[test]
    fn a_hold_counts_when_it_has_ended() {
        let mut seen = Seen::default();
        seen.look(&[lock(&[0], 0)], at(20_000), wall(20_000));
        assert_eq!(counts(&seen), (0, 0));
        seen.look(&[lock(&[9], 0)], at(20_500), wall(20_500));
        assert_eq!(counts(&seen), (1, 0));
        seen.look(&[], at(21_200), wall(21_200));
        assert_eq!(counts(&seen), (2, 0));
        // The first had lasted 20.5 s, also before anybody looked; the second 0.7 s.
        let mut expected = Histogram::default();
        expected.add(Duration::from_millis(20_500));
        expected.add(Duration::from_millis(700));
        assert_eq!(format!("{:?}", seen.held), format!("{expected:?}"));
    }

    #[test]
    fn a_wait_counts_when_it_led_to_a_hold() {
        let mut seen = Seen::default();
        seen.look(&[lock(&[1], 0)], at(0), wall(0));
        seen.look(&[lock(&[1], 1)], at(1_000), wall(1_000));
        seen.look(&[lock(&[1], 2)], at(2_000), wall(2_000));
        // One gives up.
        seen.look(&[lock(&[1], 1)], at(3_000), wall(3_000));
        assert_eq!(counts(&seen), (0, 0));
        // The other has its turn, and somebody comes at the same time.
        seen.look(&[lock(&[2], 1)], at(8_000), wall(8_000));
        assert_eq!(counts(&seen), (1, 1));
        let mut expected = Histogram::default();
        expected.add(Duration::from_millis(7_000));
        assert_eq!(format!("{:?}", seen.waited), format!("{expected:?}"));
    }

    #[test]
    fn what_happens_while_nobody_looks_is_not_counted() {
        let mut seen = Seen::default();
        seen.look(&[lock(&[1], 3)], at(0), wall(0));
        seen.rest();
        seen.look(&[lock(&[2], 2)], at(9_000), wall(9_000));
        assert_eq!(counts(&seen), (0, 0));
    }
}
