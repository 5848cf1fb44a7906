//! What a thread left on its way to stores, and waits for at its end.
//!
//! That is for keepers that are never dropped, as in a `static`, and for `exit`, which on most systems ends the calling thread
//! in this way.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::core::Core;
use crate::clock::Moment;

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

/// A user left something on its way: the last clean-up that began, or one before.
pub(crate) fn left_behind(core: &Arc<Core>) {
    // What goes on there is not the user's, who has left.
    if !core.background.is_here() {
        note_sent(core, core.background.last_clean_up(), Moment::now());
    }
}

/// A user left something that has yet to become a clean-up.
pub(crate) fn will_leave_behind(core: &Arc<Core>) {
    note_sent(core, u64::MAX, Moment::now());
}

/// The store answered what was sent then, and may have more on its way than what decides.
pub(crate) fn answered(core: &Arc<Core>, sent: Moment) {
    note_sent(core, 0, sent);
}

/// This thread may have left something on its way, and waits for it when it ends.
fn note_sent(core: &Arc<Core>, last: u64, sent: Moment) {
    core.sent_at(sent);
    // A thread at its end waits no more, but where it drops the last handle.
    let _ = LEFT_BEHIND.try_with(|left| {
        let mut keepers = left.0.borrow_mut();
        let known = |left: &&mut Left| left.core.as_ptr() == Arc::as_ptr(core);
        if let Some(left) = keepers.iter_mut().find(known) {
            if last > 0 {
                left.last = last;
            }
            left.sent = left.sent.max(sent);
            return;
        }
        keepers.retain(|left| left.core.strong_count() > 0);
        keepers.push(Left {
            core: Arc::downgrade(core),
            last,
            sent,
        });
    });
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        for Left { core, last, sent } in self.0.take() {
            match core.upgrade() {
                Some(core) if core.process.is_fork() => std::mem::forget(core),
                Some(core) => core.settle_clean_ups(last, sent),
                None => {}
            }
        }
    }
}
