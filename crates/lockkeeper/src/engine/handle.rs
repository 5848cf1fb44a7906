//! The references that users have to a keeper, counted apart from those of its background work.
//!
//! The last handle of a keeper waits for the requests that are on their way to the store: the program may end right after.
//!
//! In a fork, a handle that is dropped does nothing, and leaks its value: a thread that exists only in the parent may have locked
//! a mutex of it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::core::Core;

/// A keeper, or a part of one.
pub(crate) trait OfKeeper {
    fn core(&self) -> &Core;
}

impl OfKeeper for Core {
    fn core(&self) -> &Core {
        self
    }
}

/// A user's reference to a keeper, or to a part of it.
pub(crate) struct Handle<T: OfKeeper>(Option<Arc<T>>);

impl<T: OfKeeper> Handle<T> {
    pub fn new(of: Arc<T>) -> Handle<T> {
        of.core().add_user();
        Handle(Some(of))
    }

    /// Drops the handle in a process that is known to be no fork.
    pub fn end(mut self) {
        drop(self.take_last());
    }

    /// As [`end`](Handle::end), but the last waits without blocking the thread.
    pub async fn end_async(mut self) {
        if let Some(last) = self.take_last() {
            last.0.core().settled().await;
        }
    }

    /// Ends the handle. Returns what waits when it is dropped, if the handle was the last.
    fn take_last(&mut self) -> Option<Last<T>> {
        let of = self.0.take()?;
        // Made only then, since it waits when it is dropped.
        of.core().remove_user().then(|| Last(of))
    }
}

/// The last handle: dropped, it blocks until nothing is on its way any more.
struct Last<T: OfKeeper>(Arc<T>);

impl<T: OfKeeper> Drop for Last<T> {
    fn drop(&mut self) {
        // An async end may be under way when the process is forked.
        if self.0.core().process.is_fork() {
            std::mem::forget(Arc::clone(&self.0));
        } else {
            self.0.core().settle();
        }
    }
}

impl<T: OfKeeper> Deref for Handle<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        match &self.0 {
            Some(of) => of,
            None => unreachable!("taken only by what consumes the handle"),
        }
    }
}

impl<T: OfKeeper> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        Handle::new(Arc::clone(self))
    }
}

impl<T: OfKeeper> Drop for Handle<T> {
    fn drop(&mut self) {
        match &self.0 {
            Some(of) if of.core().process.is_fork() => std::mem::forget(self.0.take()),
            _ => drop(self.take_last()),
        }
    }
}

impl<T: OfKeeper + fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
