//! The time of leases: a clock that cannot be set, and that goes on while the machine sleeps.
//!
//! [`std::time::Instant`] stops during suspend on Linux, so a lease that is measured by it would end later here than on
//! the server. [`Moment`] reads `CLOCK_BOOTTIME` there (`CLOCK_MONOTONIC`, which does not stop, on macOS).

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time since this machine booted. It only grows, also while the machine sleeps, and means
/// nothing on another machine or after a reboot.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::clock::Moment;
/// let deadline = Moment::now() + Duration::from_secs(30);
/// assert!(deadline.remaining() > Duration::from_secs(20));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The earliest moment: when the machine booted.
    pub const BOOT: Moment = Moment(0);
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(i64::MAX as u64);

    /// This moment.
    pub fn now() -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let t = rustix::time::clock_gettime(CLOCK);
        Moment(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// The moment this many nanoseconds after boot; inverse of [`Moment::as_nanos`].
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long from now until this moment; zero once it has come.
    pub fn remaining(self) -> Duration {
        self.since(Moment::now())
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, d: Duration) -> Moment {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos).min(Moment::NEVER.0))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, d: Duration) -> Moment {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Moment({:?})", Duration::from_nanos(self.0))
    }
}

/// Where a store reads the time. Real unless a test simulates it.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::clock::Clock;
/// let clock = Clock::simulated();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().since(before), Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Simulated>>);

#[derive(Debug)]
struct Simulated {
    since_boot: AtomicU64,
    unix_micros: AtomicU64,
    boots: AtomicU64,
}

impl Clock {
    /// The machine's own clock.
    pub fn real() -> Clock {
        Clock(None)
    }

    /// A clock that moves only by [`Clock::advance`]. Clones share it.
    pub fn simulated() -> Clock {
        Clock(Some(Arc::new(Simulated {
            since_boot: AtomicU64::new(1_000_000_000),
            unix_micros: AtomicU64::new(1_800_000_000_000_000),
            boots: AtomicU64::new(0),
        })))
    }

    /// This moment.
    pub fn now(&self) -> Moment {
        match &self.0 {
            None => Moment::now(),
            Some(s) => Moment(s.since_boot.load(SeqCst)),
        }
    }

    /// Wall-clock time in microseconds since 1970. It may jump; only fencing tokens and displays use it.
    pub fn unix_micros(&self) -> u64 {
        match &self.0 {
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |d| d.as_micros() as u64),
            Some(s) => s.unix_micros.load(SeqCst),
        }
    }

    /// Names the current boot of this machine: moments of different boots cannot be compared.
    pub fn boot_id(&self) -> String {
        match &self.0 {
            None => real_boot_id().to_owned(),
            Some(s) => format!("simulated-{}", s.boots.load(SeqCst)),
        }
    }

    /// Whether the current boot has this id.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    pub(crate) fn is_boot(&self, id: &str) -> bool {
        match &self.0 {
            None => real_boot_id() == id,
            Some(_) => self.boot_id() == id,
        }
    }

    /// Moves a simulated clock forward. Panics on a real one.
    pub fn advance(&self, d: Duration) {
        let s = self.simulation();
        s.since_boot.fetch_add(d.as_nanos() as u64, SeqCst);
        s.unix_micros.fetch_add(d.as_micros() as u64, SeqCst);
    }

    /// Sets a simulated wall clock, forward or back, as an administrator or NTP might.
    pub fn set_unix_micros(&self, micros: u64) {
        self.simulation().unix_micros.store(micros, SeqCst);
    }

    /// Reboots a simulated machine: a new boot id, and moments start over.
    pub fn reboot(&self) {
        let s = self.simulation();
        s.boots.fetch_add(1, SeqCst);
        s.since_boot.store(1_000_000_000, SeqCst);
    }

    fn simulation(&self) -> &Simulated {
        self.0
            .as_deref()
            .expect("only a simulated clock can be moved")
    }
}

fn real_boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Ok(id) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            return id.trim().to_owned();
        }
        // The kernel gives no id, so the minute of the boot has to do. If the wall clock is set by minutes, earlier leases
        // seem to be of another boot. They are freed early then, but only if no process that has the store open lives.
        let since_boot = Moment::now().as_nanos() / 1_000_000_000;
        let unix = Clock::real().unix_micros() / 1_000_000;
        format!("boot-{}", unix.saturating_sub(since_boot) / 60)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_grow_and_saturate() {
        let a = Moment::now();
        let b = Moment::now();
        assert!(b >= a);
        assert_eq!(a.since(b + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(Moment::BOOT - Duration::from_secs(1), Moment::BOOT);
        assert_eq!(Moment::now() + Duration::MAX, Moment::NEVER);
    }

    #[test]
    fn a_simulated_clock_moves_only_by_advance() {
        let clock = Clock::simulated();
        let (t, wall) = (clock.now(), clock.unix_micros());
        assert_eq!(clock.now(), t);
        clock.advance(Duration::from_millis(5));
        assert_eq!(clock.now().since(t), Duration::from_millis(5));
        assert_eq!(clock.unix_micros(), wall + 5_000);
        let boot = clock.boot_id();
        clock.reboot();
        assert_ne!(clock.boot_id(), boot);
    }
}
