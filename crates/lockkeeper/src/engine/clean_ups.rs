//! Releases and withdrawals that no caller waits for, by the name of the lock.
//!
//! A task that dropped a guard and then tries the lock would find its own hold. So a try that finds the lock busy waits
//! for the clean-ups that were under way when it began, and tries once more.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::Name;

/// The clean-ups of one keeper that are under way, by the name of the lock.
#[derive(Debug, Default)]
pub(crate) struct CleanUps {
    numbers: Mutex<Numbers>,
    /// One of them has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Numbers {
    begun: u64,
    /// Only names that have a clean-up under way.
    under_way: HashMap<Name, BTreeSet<u64>>,
}

/// A clean-up that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct CleanUp {
    all: Arc<CleanUps>,
    name: Name,
    number: u64,
}

impl CleanUps {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(self: &Arc<Self>, name: &Name) -> CleanUp {
        let mut numbers = self.numbers();
        numbers.begun += 1;
        let number = numbers.begun;
        let of_name = numbers.under_way.entry(name.clone()).or_default();
        of_name.insert(number);
        CleanUp {
            all: self.clone(),
            name: name.clone(),
            number,
        }
    }

    /// The number of the newest clean-up of a name, if any is under way.
    pub fn newest(&self, name: &Name) -> Option<u64> {
        self.numbers().under_way.get(name)?.last().copied()
    }

    /// Waits until no clean-up of a name is under way that is as old as this number.
    pub async fn have_ended(&self, name: &Name, newest: u64) {
        loop {
            let ended = self.ended.notified();
            let oldest = self.oldest(name);
            if oldest.is_none_or(|oldest| oldest > newest) {
                return;
            }
            ended.await;
        }
    }

    fn oldest(&self, name: &Name) -> Option<u64> {
        self.numbers().under_way.get(name)?.first().copied()
    }
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        let mut numbers = self.all.numbers();
        if let Some(of_name) = numbers.under_way.get_mut(&self.name) {
            of_name.remove(&self.number);
            if of_name.is_empty() {
                numbers.under_way.remove(&self.name);
            }
        }
        drop(numbers);
        self.all.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::CleanUps;
    use crate::Name;

    #[test]
    fn a_wait_ends_with_the_clean_ups_that_began_before_it() {
        let (all, name) = (
            Arc::new(CleanUps::default()),
            Name::new("a").expect("a name"),
        );
        assert_eq!(all.newest(&name), None);
        let (first, second) = (all.begin(&name), all.begin(&name));
        let other = all.begin(&Name::new("b").expect("a name"));
        let newest = all.newest(&name).expect("two are under way");

        let mut wait = pin!(all.have_ended(&name, newest));
        let mut context = Context::from_waker(Waker::noop());
        let later = all.begin(&name);
        drop(second);
        assert!(wait.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(wait.as_mut().poll(&mut context).is_ready());
        drop((later, other));
        assert_eq!(all.newest(&name), None);
    }
}
