//! A thread waits at its end for the requests that its guards and acquires have on their way to the store.
//!
//! This is for keepers that are never dropped, as in a `static`, and for `exit`, which on most systems runs the destructors of
//! the calling thread's locals.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::core::Core;
use crate::clock::Moment;

/// The keepers with which this thread has something on its way.
#[derive(Default)]
struct Unfinished(RefCell<Vec<OfOneKeeper>>);

struct OfOneKeeper {
    core: Weak<Core>,
    /// The last of its clean-ups.
    last: u64,
    /// When it last sent something.
    sent: Moment,
}

thread_local!(static UNFINISHED: Unfinished = Unfinished::default());

/// This thread has just begun a clean-up.
pub(super) fn note_clean_up(core: &Arc<Core>) {
    // The keeper's own thread waits for nothing.
    if !core.background.is_here() {
        note(core, core.background.last_clean_up(), Moment::now());
    }
}

/// What this thread has done will begin a clean-up on another.
pub(super) fn expect_clean_up(core: &Arc<Core>) {
    note(core, u64::MAX, Moment::now());
}

/// The store has served a request of this thread, and may still do more for it than it waited for.
pub(super) fn note_request(core: &Arc<Core>, sent: Moment) {
    note(core, 0, sent);
}

fn note(core: &Arc<Core>, last: u64, sent: Moment) {
    core.note_sent(sent);
    // In the destructors of a thread it is too late, except for dropping the last handle.
    let _ = UNFINISHED.try_with(|unfinished| {
        let mut keepers = unfinished.0.borrow_mut();
        let known = |of: &&mut OfOneKeeper| of.core.as_ptr() == Arc::as_ptr(core);
        if let Some(of) = keepers.iter_mut().find(known) {
            if last > 0 {
                of.last = last;
            }
            of.sent = of.sent.max(sent);
            return;
        }
        keepers.retain(|of| of.core.strong_count() > 0);
        keepers.push(OfOneKeeper {
            core: Arc::downgrade(core),
            last,
            sent,
        });
    });
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        for OfOneKeeper { core, last, sent } in self.0.take() {
            match core.upgrade() {
                Some(core) if core.process.is_fork() => std::mem::forget(core),
                Some(core) => core.settle_clean_ups(last, sent),
                None => {}
            }
        }
    }
}
