//! What the tasks of this process share about one lock.
//!
//! A plain lock is held in the store by one claim of the process, and handed from task to task here (*hand-off*); readers share
//! one hold in the same way. Each has a [`LocalQueue`]. Everything else (fair locks, fixed or unusual leases, labels that are not
//! the keeper's, writers, permits) has a claim of its own in the store.

use std::sync::Arc;

use super::core::Core;
use super::guard_state::Owners;
use super::handle::OfKeeper;
use super::local_queue::LocalQueue;
use super::registry::Registry;
use super::sharing::Sharing;
use crate::Name;
use crate::store::ClaimId;

/// The one place in this process where a lock's tasks meet.
#[derive(Debug)]
pub(crate) struct Arbiter {
    pub core: Arc<Core>,
    pub name: Name,
    pub(super) owners: Owners,
    in_turn: LocalQueue,
    together: LocalQueue,
    /// Where it is registered.
    all: Arc<Registry<Arbiter>>,
}

impl Arbiter {
    /// The arbiter of a name.
    pub fn of(core: &Arc<Core>, all: &Arc<Registry<Arbiter>>, name: &Name) -> Arc<Arbiter> {
        all.get_or_make(name, || Arbiter {
            core: core.clone(),
            name: name.clone(),
            owners: Owners::default(),
            in_turn: LocalQueue::new(core.clone(), Sharing::InTurn),
            together: LocalQueue::new(core.clone(), Sharing::Together),
            all: all.clone(),
        })
    }

    pub(super) fn queue(&self, sharing: Sharing) -> &LocalQueue {
        match sharing {
            Sharing::InTurn => &self.in_turn,
            Sharing::Together => &self.together,
        }
    }

    /// The keeper was closed: nobody waits any longer.
    pub fn close(&self) {
        self.in_turn.close();
        self.together.close();
    }

    /// How many guards the owner of a hold has, if the hold is this process's.
    pub fn depth(&self, claim: ClaimId) -> u32 {
        self.owners.depth(claim)
    }
}

impl OfKeeper for Arbiter {
    fn core(&self) -> &Core {
        &self.core
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        self.all.forget(&self.name);
    }
}
