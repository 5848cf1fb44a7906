//! What the tasks of this process share about one lock.
//!
//! A plain lock is held in the store by one claim of the process, and handed from task to task (*hand-off*). Readers share one hold
//! in the same way. Each of the two has a [`LocalQueue`]. Everything else (fair locks, fixed or unusual leases, labels that are not
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

/// The state of one lock in this process. There is one arbiter for a name.
#[derive(Debug)]
pub(crate) struct Arbiter {
    pub core: Arc<Core>,
    pub name: Name,
    pub(super) owners: Owners,
    in_turn: LocalQueue,
    together: LocalQueue,
    registry: Arc<Registry<Arbiter>>,
}

impl Arbiter {
    /// The arbiter of a name.
    pub fn of(core: &Arc<Core>, registry: &Arc<Registry<Arbiter>>, name: &Name) -> Arc<Arbiter> {
        registry.get_or_make(name, || Arbiter {
            core: core.clone(),
            name: name.clone(),
            owners: Owners::default(),
            in_turn: LocalQueue::new(core.clone(), Sharing::InTurn),
            together: LocalQueue::new(core.clone(), Sharing::Together),
            registry: registry.clone(),
        })
    }

    pub(super) fn queue(&self, sharing: Sharing) -> &LocalQueue {
        match sharing {
            Sharing::InTurn => &self.in_turn,
            Sharing::Together => &self.together,
        }
    }

    /// Ends every wait: the keeper was closed.
    pub fn close(&self) {
        self.in_turn.close();
        self.together.close();
    }

    /// How many guards the holder by this claim has, if it is of this process.
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
        self.registry.forget(&self.name);
    }
}
