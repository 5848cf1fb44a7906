//! On whose runtime a verb is asked for.

use std::cell::Cell;

use tokio::runtime::Handle;

thread_local!(static APART: Cell<bool> = const { Cell::new(false) });

/// Polls something of ours on a thread that will not come back to its runtime for it: it blocks, or leaves the rest to
/// the keeper's thread.
pub(crate) fn apart<T>(poll: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            APART.set(self.0);
        }
    }
    let _back = Back(APART.replace(true));
    poll()
}

/// The runtime whose task asks, and goes on when there is an answer.
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub(crate) fn runtime() -> Option<Handle> {
    match APART.get() {
        true => None,
        false => Handle::try_current().ok(),
    }
}
