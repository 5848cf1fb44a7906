//! A hold of one thread.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::background::block_on;
use crate::store::{ClaimId, Mode};
use crate::{Error, Name, ReleaseOutcome, Token};

/// Keeps a guard on its thread: the thread is its owner.
pub(super) type OnThisThread = PhantomData<*const ()>;

/// [`crate::Guard`] for threads. It stays on its thread.
///
/// ```compile_fail
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:").unwrap();
/// let guard = keeper.lock("x").unwrap().acquire().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard(crate::Guard, OnThisThread);

impl Guard {
    pub(super) fn new(guard: crate::Guard) -> Guard {
        Guard(guard, PhantomData)
    }

    /// The name of the lock.
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// The fencing token.
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// The claim that holds in the store.
    pub fn claim(&self) -> ClaimId {
        self.0.claim()
    }

    /// How many guards this thread has.
    pub fn depth(&self) -> u32 {
        self.0.depth()
    }

    /// When the lock counts as lost unless it is renewed before.
    pub fn deadline(&self) -> Moment {
        self.0.deadline()
    }

    /// When the lock comes to be at risk unless it is renewed before.
    pub fn at_risk_at(&self) -> Moment {
        self.0.at_risk_at()
    }

    /// Whether the lock is held now.
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Whether the lock stays held for at least `time` without renewal. One that was waited for may begin with a lease of a
    /// second, as [`crate::Guard::is_held_for`] says.
    pub fn is_held_for(&self, time: Duration) -> bool {
        self.0.is_held_for(time)
    }

    /// As [`crate::Guard::extend`].
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self, lease: Duration) -> Result<(), Error> {
        block_on(self.0.extend(lease))
    }

    /// Waits until the lock is lost, for as long as that takes.
    pub fn lost(&self) {
        block_on(self.0.lost());
    }

    /// Waits until the lock is lost, at most `timeout`. Returns whether it was.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:blocking-lost-within")?;
    /// let guard = keeper.lock("report")?.acquire()?;
    /// assert!(!guard.lost_within(Duration::from_millis(10)));      // it is renewed
    /// keeper.break_lock("report", "it hangs")?;
    /// assert!(guard.lost_within(Duration::from_secs(60)));
    /// # Ok::<(), lockkeeper::Error>(())
    /// ```
    pub fn lost_within(&self, timeout: Duration) -> bool {
        block_on(self.0.within(timeout, self.0.lost()))
    }

    /// Waits until a renewal is overdue, for as long as that takes.
    pub fn at_risk(&self) {
        block_on(self.0.at_risk());
    }

    /// Waits until a renewal is overdue, at most `timeout`. Returns whether one is.
    pub fn at_risk_within(&self, timeout: Duration) -> bool {
        block_on(self.0.within(timeout, self.0.at_risk()))
    }

    /// Runs a function, and checks that the lock was held until its end. A thread cannot be stopped from
    /// outside: long work should look at [`is_held`](Guard::is_held) itself.
    ///
    /// If the lock is lost meanwhile, the work is done all the same, and what it returned is dropped. Have it write what must not
    /// be lost to a place outside of it.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost before or meanwhile, with the cause.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.check_held()?;
        let done = work();
        self.check_held()?;
        Ok(done)
    }

    fn check_held(&self) -> Result<(), Error> {
        if self.0.is_held_here()? {
            return Ok(());
        }
        Err(block_on(self.0.loss()))
    }

    /// As [`run`](Guard::run), for work that may fail. Its error is also that of a lost lock, so one `?` is enough.
    ///
    /// ```
    /// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:blocking-try-run")?;
    /// fn sell(left: &str) -> Result<u32, Box<dyn std::error::Error>> {
    ///     Ok(left.parse::<u32>()? - 1)
    /// }
    ///
    /// let guard = keeper.lock("stock:42")?.acquire()?;
    /// assert_eq!(guard.try_run(|| sell("8"))?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was lost before or meanwhile, also if the work failed by itself: the loss may be why. Otherwise
    /// the work's own.
    pub fn try_run<T, E: From<Error>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.run(work)?
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<ReleaseOutcome, Error> {
        block_on(self.0.release())
    }
}

/// [`crate::ReadGuard`] for threads. It stays on its thread.
///
/// ```
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:blocking-read-guard")?;
/// let reader = keeper.rwlock("prices")?.read()?;
/// assert!(reader.is_held());
/// reader.release()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a lock is released when its guard is dropped"]
pub struct ReadGuard(pub(super) Guard);

/// [`crate::WriteGuard`] for threads. It stays on its thread.
///
/// ```
/// # let keeper = lockkeeper::blocking::Lockkeeper::connect("memory:blocking-write-guard")?;
/// let writer = keeper.rwlock("prices")?.write()?;
/// let reader = writer.downgrade()?;                      // nobody else wrote in between
/// reader.release()?;
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a lock is released when its guard is dropped"]
pub struct WriteGuard(pub(super) Guard);

impl WriteGuard {
    /// As [`crate::WriteGuard::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<ReadGuard, Error> {
        let reader = block_on(self.0.0.downgraded())?;
        Ok(ReadGuard(Guard::new(reader)))
    }
}

/// The methods and conversions of both.
macro_rules! guard {
    ($guard:ident, $mode:ident, $doing:literal) => {
        impl $guard {
            /// As [`crate::Guard::release`].
            ///
            /// # Errors
            /// As there.
            pub fn release(self) -> Result<ReleaseOutcome, Error> {
                self.0.release()
            }
        }

        impl Deref for $guard {
            type Target = Guard;
            fn deref(&self) -> &Guard {
                &self.0
            }
        }

        /// For code that treats holds of all kinds alike.
        impl From<$guard> for Guard {
            fn from(guard: $guard) -> Guard {
                guard.0
            }
        }

        #[doc = concat!("The way back, by [`mode`](Guard::mode). Returns the guard if it is not held for ", $doing, ".")]
        impl TryFrom<Guard> for $guard {
            type Error = Guard;
            fn try_from(guard: Guard) -> Result<$guard, Guard> {
                match guard.mode() {
                    Mode::$mode => Ok($guard(guard)),
                    _ => Err(guard),
                }
            }
        }
    };
}

guard!(ReadGuard, Read, "reading");
guard!(WriteGuard, Write, "writing");

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
