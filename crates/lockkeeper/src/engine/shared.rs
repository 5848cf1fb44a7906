//! What the keeper's background work needs, without keeping the keeper alive.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::availability::Availability;
use super::background::Spawner;
use super::observers::Observers;
use crate::store::Store;

/// How many losses a keeper inspects at a time for their cause: a store that lost its data lost every hold at once.
const CAUSE_QUERIES: usize = 32;

#[derive(Debug)]
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub observers: Arc<Observers>,
    pub availability: Availability,
    pub spawner: Spawner,
    /// Bounds how many losses are inspected for their cause at a time.
    pub cause_queries: Semaphore,
}

impl Shared {
    pub fn new(store: Arc<dyn Store>, observers: Observers, spawner: Spawner) -> Shared {
        let observers = Arc::new(observers);
        Shared {
            availability: Availability::new(store.capabilities().store, observers.clone()),
            store,
            observers,
            spawner,
            cause_queries: Semaphore::new(CAUSE_QUERIES),
        }
    }
}
