//! [`ReadGuard`] and [`WriteGuard`]: a lock that is held for reading or for writing.

use std::ops::Deref;

use crate::store::Mode;
use crate::{Error, Guard, ReleaseOutcome};

/// A lock that is held for reading. It is a [`Guard`], with all that this has.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:read-guard-example").await?;
/// let reader = keeper.rwlock("prices")?.read().await?;
/// assert!(reader.is_held());
/// reader.run(async { /* read the prices */ }).await?;
/// reader.release().await?;
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// An [`Owner`](crate::Owner) that writes may read as well: its [`mode`](Guard::mode) stays that of its first entry. So as a
/// [`Guard`] it converts back to a [`WriteGuard`], not to a `ReadGuard`.
#[derive(Debug)]
#[must_use = "a lock is released when its guard is dropped"]
pub struct ReadGuard(pub(crate) Guard);

/// A lock that is held for writing. It is a [`Guard`], with all that this has, and can become a [`ReadGuard`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:write-guard-example").await?;
/// let prices = keeper.rwlock("prices")?;
/// let writer = prices.write().await?;
/// println!("write with token {}", writer.token());
///
/// let reader = writer.downgrade().await?;                // nobody else wrote in between
/// assert!(prices.try_read().await?.is_some());
/// assert!(prices.try_write().await?.is_none());
/// reader.release().await?;
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// A reader cannot be downgraded, which the compiler sees:
///
/// ```compile_fail
/// # async fn never(prices: lockkeeper::RwLock) -> Result<(), lockkeeper::Error> {
/// prices.read().await?.downgrade().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a lock is released when its guard is dropped"]
pub struct WriteGuard(pub(crate) Guard);

impl WriteGuard {
    /// Turns a hold for writing into one for reading; nobody else can write in between. The new guard has a
    /// token of its own, and a fixed lease starts anew.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was lost, whether the store is there or not; [`Error::WouldDeadlock`] if its owner has other guards of
    /// it; a store error. The guard is released then.
    ///
    /// # Cancel safety
    /// Dropping the future releases the hold.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        self.0.downgraded().await.map(ReadGuard)
    }
}

/// The methods and conversions of both.
macro_rules! guard {
    ($guard:ident, $mode:ident, $doing:literal) => {
        impl $guard {
            /// As [`Guard::release`].
            ///
            /// # Errors
            /// As there.
            ///
            /// # Cancel safety
            /// As there.
            pub async fn release(self) -> Result<ReleaseOutcome, Error> {
                self.0.release().await
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
