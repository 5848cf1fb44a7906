//! Sends events to the observer and to `tracing`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock::Moment;
use crate::observe::WaitEnd;
use crate::{Error, Event, Observer};

/// How often a warning that concerns many locks at once, as in an outage, is logged.
const LOG_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Observers {
    observer: Option<Arc<dyn Observer>>,
    log: LogLimit,
}

/// Logs a warning, or a debug line if there was a warning within the last second.
macro_rules! warn_seldom {
    ($self:ident, $message:literal, $($field:tt)*) => {
        match $self.log.permit() {
            Some(left_out) => tracing::warn!($($field)*, left_out, $message),
            None => tracing::debug!($($field)*, $message),
        }
    };
}

impl Observers {
    pub fn new(observer: Option<Arc<dyn Observer>>) -> Observers {
        Observers {
            observer,
            log: LogLimit::default(),
        }
    }

    /// The time, if anybody is told durations. Reading the clock is a good part of the cost of an uncontended lock.
    pub fn time(&self) -> Option<Moment> {
        let listens = self.observer.is_some() || tracing::enabled!(tracing::Level::DEBUG);
        listens.then(Moment::now)
    }

    /// Sends an event. The caller has locked no mutex of the engine, since an observer may call back.
    pub fn event(&self, event: &Event<'_>) {
        // A panic of an observer or a subscriber must not end the calling task, which may be the one that renews.
        let _ = catch_unwind(AssertUnwindSafe(|| self.log(event)));
        if let Some(observer) = &self.observer
            && catch_unwind(AssertUnwindSafe(|| observer.event(event))).is_err()
        {
            let _ = catch_unwind(|| tracing::error!("an observer panicked"));
        }
    }

    fn log(&self, event: &Event<'_>) {
        match event {
            Event::Waiting { name, mode } => {
                tracing::debug!(%name, %mode, "waiting for the lock");
            }
            Event::Waited {
                name,
                mode,
                waited,
                end,
            } => match end {
                WaitEnd::Granted => tracing::debug!(%name, %mode, ?waited, "wait granted"),
                WaitEnd::TimedOut => tracing::info!(%name, %mode, ?waited, "wait timed out"),
                WaitEnd::Cancelled => tracing::debug!(%name, %mode, ?waited, "wait cancelled"),
                // The caller of `close` ended it, and every wait of the keeper with it.
                WaitEnd::Failed(Error::Closed) => {
                    tracing::debug!(%name, %mode, ?waited, "wait ended by close");
                }
                WaitEnd::Failed(error) => {
                    warn_seldom!(self, "wait failed", %name, %mode, ?waited, %error);
                }
            },
            Event::Busy { name, mode } => tracing::debug!(%name, %mode, "lock busy"),
            Event::Acquired {
                name,
                token,
                mode,
                waited,
            } => tracing::debug!(%name, %token, %mode, ?waited, "lock acquired"),
            Event::Released {
                name,
                token,
                mode,
                held,
            } => tracing::debug!(%name, %token, %mode, ?held, "lock released"),
            Event::ReleaseFailed {
                name,
                token,
                mode,
                error,
            } => warn_seldom!(self, "lock not released yet", %name, %token, %mode, %error),
            Event::AtRisk {
                name,
                token,
                mode,
                deadline,
            } => {
                warn_seldom!(self, "lock at risk", %name, %token, %mode, left = ?deadline.remaining());
            }
            Event::Lost {
                name,
                token,
                mode,
                cause,
            } => tracing::error!(%name, %token, %mode, %cause, "lock lost"),
            Event::RenewalFailed {
                name,
                token,
                mode,
                error,
                deadline,
            } => {
                let left = deadline.remaining();
                warn_seldom!(self, "lock renewal failed", %name, %token, %mode, ?left, %error);
            }
            Event::StoreAway { store, error } => tracing::warn!(store, %error, "store away"),
            Event::StoreBack { store, away } => tracing::info!(store, ?away, "store back"),
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observers")
    }
}

/// Permits one line a second.
#[derive(Debug, Default)]
struct LogLimit {
    /// When the next line is permitted, in nanoseconds of [`Moment`].
    next: AtomicU64,
    left_out: AtomicU64,
}

impl LogLimit {
    /// Returns how many lines were left out since the last permitted one; `None` if this one is left out too.
    fn permit(&self) -> Option<u64> {
        let (now, next) = (Moment::now(), self.next.load(Relaxed));
        let after = (now + LOG_PAUSE).as_nanos();
        let due = now.as_nanos() >= next;
        if due
            && (self.next)
                .compare_exchange(next, after, Relaxed, Relaxed)
                .is_ok()
        {
            return Some(self.left_out.swap(0, Relaxed));
        }
        self.left_out.fetch_add(1, Relaxed);
        None
    }
}
