//! What users hold of a keeper, counted apart from what its background work holds.
//!
//! The last handle of a keeper waits for what is on its way to the store: the program may end right after. So does a
//! thread at its end, for the keepers with which it left something on its way. That is for keepers that are never dropped,
//! as in a `static`, and for `exit`, which on most systems ends the calling thread in this way.
//!
//! A process that was forked has copies of its parent's handles and none of its parent's threads. There a handle does
//! nothing when it is dropped, and keeps what it points to: a thread that is not there may have locked a mutex of it.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};

use rustix::process::{Pid, getpid};

use super::Core;
use super::arbiter::Arbiter;
use super::tenure::Tenure;
use crate::Error;
use crate::clock::Moment;

/// The process that a keeper was connected in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(Pid);

impl Home {
    pub fn here() -> Home {
        Home(getpid())
    }

    /// Whether this process is a fork of that one.
    pub fn is_left(self) -> bool {
        getpid() != self.0
    }

    /// Refuses to go on in a fork. Comes before any mutex of the keeper is taken.
    pub fn check(self) -> Result<(), Error> {
        match self.is_left() {
            true => Err(Error::Forked),
            false => Ok(()),
        }
    }
}

/// What users hold a part of.
pub(crate) trait OfKeeper {
    fn core(&self) -> &Core;
}

impl OfKeeper for Core {
    fn core(&self) -> &Core {
        self
    }
}

impl OfKeeper for Arbiter {
    fn core(&self) -> &Core {
        &self.core
    }
}

impl OfKeeper for Tenure {
    fn core(&self) -> &Core {
        &self.arbiter.core
    }
}

/// A user's hold on a keeper, or on a part of it.
pub(crate) struct Handle<T: OfKeeper>(Option<Arc<T>>);

impl<T: OfKeeper> Handle<T> {
    pub fn new(of: Arc<T>) -> Handle<T> {
        of.core().users.fetch_add(1, SeqCst);
        Handle(Some(of))
    }

    /// Drops the handle in a process that is known to be no fork.
    pub fn let_go(mut self) {
        drop(self.end());
    }

    /// As [`let_go`](Handle::let_go), but the last waits without blocking the thread.
    pub async fn let_go_later(mut self) {
        if let Some(last) = self.end() {
            last.0.core().settled().await;
        }
    }

    /// Ends the handle. Returns what waits when it is dropped, if the handle was the last.
    fn end(&mut self) -> Option<Last<T>> {
        let of = self.0.take()?;
        let last = of.core().users.fetch_sub(1, SeqCst) == 1;
        // Made only then, since it waits when it is dropped.
        last.then(|| Last(of))
    }
}

/// The last handle: dropped, it blocks until nothing is on its way any more.
struct Last<T: OfKeeper>(Arc<T>);

impl<T: OfKeeper> Drop for Last<T> {
    fn drop(&mut self) {
        // An async end may be under way when the process is forked.
        match self.0.core().home.is_left() {
            true => std::mem::forget(Arc::clone(&self.0)),
            false => self.0.core().settle(),
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
            Some(of) if of.core().home.is_left() => std::mem::forget(self.0.take()),
            _ => drop(self.end()),
        }
    }
}

impl<T: OfKeeper + fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The keepers with which a thread left something on its way.
#[derive(Default)]
struct LeftBehind(RefCell<Vec<Left>>);

/// What a thread left on its way with a keeper.
struct Left {
    core: Weak<Core>,
    /// The last of its clean-ups.
    last: u64,
    /// When it last sent something.
    sent: Moment,
}

thread_local!(static LEFT_BEHIND: LeftBehind = LeftBehind::default());

impl Core {
    /// A user left something on its way: the last clean-up that began, or one before.
    pub fn left_behind(self: &Arc<Core>) {
        // What goes on there is not the user's, who has left.
        if !self.background.is_here() {
            self.note_sent(self.background.last_clean_up(), Moment::now());
        }
    }

    /// A user left something that has yet to become a clean-up.
    pub fn will_leave_behind(self: &Arc<Core>) {
        self.note_sent(u64::MAX, Moment::now());
    }

    /// The store answered what was sent then, and may have more on its way than what decides.
    pub fn answered(self: &Arc<Core>, sent: Moment) {
        self.note_sent(0, sent);
    }

    /// This thread may have left something on its way, and waits for it when it ends.
    fn note_sent(self: &Arc<Core>, last: u64, sent: Moment) {
        self.newest.fetch_max(sent.as_nanos(), SeqCst);
        // A thread at its end waits no more, but where it drops the last handle.
        let _ = LEFT_BEHIND.try_with(|left| {
            let mut keepers = left.0.borrow_mut();
            let known = |left: &&mut Left| left.core.as_ptr() == Arc::as_ptr(self);
            if let Some(left) = keepers.iter_mut().find(known) {
                if last > 0 {
                    left.last = last;
                }
                left.sent = left.sent.max(sent);
                return;
            }
            keepers.retain(|left| left.core.strong_count() > 0);
            keepers.push(Left {
                core: Arc::downgrade(self),
                last,
                sent,
            });
        });
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        for Left { core, last, sent } in self.0.take() {
            match core.upgrade() {
                Some(core) if core.home.is_left() => std::mem::forget(core),
                Some(core) => core.settle_clean_ups(last, sent),
                None => {}
            }
        }
    }
}
