//! The engine turns a [`Store`](crate::store::Store) into locks. It is built once over any store, and names no driver.
//!
//! Two levels: the store knows *claims* of processes, the [`arbiter`] knows *tasks*. [`acquire`] is the way from a request to a
//! guard. [`acquisition`] has the only loop that waits for the store, [`watchdog`] the only renewal loop, [`lease`] the only
//! arithmetic about time. Modules import one way; `tests/source_tree.rs` has their order.

pub(crate) mod acquire;
mod acquisition;
pub(crate) mod arbiter;
pub(crate) mod availability;
pub(crate) mod background;
mod budget;
mod clean_ups;
pub(crate) mod core;
pub(crate) mod downgrade;
mod event_order;
pub(crate) mod fork;
mod guard_state;
pub(crate) mod handle;
mod hold;
mod hold_release;
pub(crate) mod lease;
mod local_queue;
mod local_wait;
mod loss;
mod loss_error;
mod observers;
mod process_claim;
pub(crate) mod raw_guard;
mod reaper;
mod registry;
mod release_report;
pub(crate) mod request;
mod shared;
mod sharing;
mod thread_exit;
mod wait_report;
mod watchdog;

use std::sync::Arc;

use self::core::Core;
use crate::Name;
use arbiter::Arbiter;
use handle::Handle;
use registry::Registry;

/// The engine of one keeper. Clones are the same keeper.
#[derive(Clone)]
pub(crate) struct Engine {
    pub core: Handle<Core>,
    arbiters: Arc<Registry<Arbiter>>,
}

impl Engine {
    pub fn new(core: Arc<Core>) -> Engine {
        Engine {
            core: Handle::new(core),
            arbiters: Arc::default(),
        }
    }

    /// The one arbiter of a name.
    pub fn arbiter(&self, name: &Name) -> Arc<Arbiter> {
        Arbiter::of(&self.core, &self.arbiters, name)
    }

    /// The arbiter of a name, if there is one.
    pub fn known_arbiter(&self, name: &Name) -> Option<Arc<Arbiter>> {
        self.arbiters.get(name)
    }

    /// Ends every wait. Nothing is acquired any more.
    pub fn close(&self) {
        self.core.close();
        for arbiter in self.arbiters.all() {
            arbiter.close();
        }
    }
}

impl Drop for Engine {
    /// In a fork the registry is leaked, as the value of a [`Handle`] is.
    fn drop(&mut self) {
        if self.core.process.is_fork() {
            std::mem::forget(self.arbiters.clone());
        }
    }
}
