//! Has the loss of a hold told once, and before its release.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How long a release waits for the loss to be told: an observer may be slow.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Loss {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Told {
    #[default]
    No,
    /// By this thread, which may release the hold while it does: an observer may drop the guard.
    Now(ThreadId),
    Yes,
}

impl Loss {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the caller is to tell the loss, and then to call [`is_told`](Loss::is_told).
    pub fn begin(&self) -> bool {
        let mut told = self.told();
        if *told != Told::No {
            return false;
        }
        *told = Told::Now(std::thread::current().id());
        true
    }

    pub fn is_told(&self) {
        *self.told() = Told::Yes;
        self.changed.notify_all();
    }

    /// Waits until another thread that tells the loss has done so.
    pub fn wait_until_told(&self) {
        let me = std::thread::current().id();
        let by_another = |told: &mut Told| matches!(told, Told::Now(by) if *by != me);
        let told = self.told();
        drop(self.changed.wait_timeout_while(told, PATIENCE, by_another));
    }
}
