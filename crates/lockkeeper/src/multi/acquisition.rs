//! How several locks are acquired: in an order that all keepers keep, and without waiting for ever for clients that do not.
//!
//! Keepers that acquire locks in one order never wait for each other. A client of another project may hold the lock that a keeper
//! waits for, and wait for one that this keeper has. So a keeper that waits for a foreign holder releases its other locks after a
//! while, and goes on with the lock it waits for, in its place in the queue. It waits longer each time before it does so again, so
//! that it gets all of the locks even if foreign clients come and go at each of them.
//!
//! Locks of one name on two stores of one kind are ordered by the stores' addresses alone. Keepers may not agree on that: one writes
//! `localhost` where another writes `127.0.0.1`. A keeper that has one of two such locks and waits for the other gives way as well,
//! whichever client holds it. That resolves every deadlock between keepers: kind and name never decrease from one lock to the
//! next along it, so they are the same for all of its locks.

use std::pin::pin;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Moment;
use crate::engine::request::WaitLimit;
use crate::{Error, Guard, Lock};

/// How long an acquire that has some of its locks waits for the next before it gives way for the first time, and every time
/// while it holds locks out of order.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// Several locks on the way to being held.
pub(super) struct MultiAcquisition<'l> {
    locks: &'l [Lock],
    /// In the order of the locks.
    held: Vec<Option<Guard>>,
    /// How long to wait for a lock before giving way. Doubles each time.
    wait: Duration,
}

impl<'l> MultiAcquisition<'l> {
    pub fn new(locks: &'l [Lock]) -> MultiAcquisition<'l> {
        MultiAcquisition {
            locks,
            held: locks.iter().map(|_| None).collect(),
            wait: FIRST_WAIT,
        }
    }

    /// Acquires all of them, or none.
    pub async fn all(mut self, limit: WaitLimit) -> Result<Option<Vec<Guard>>, Error> {
        while let Some(next) = self.held.iter().position(Option::is_none) {
            let Some(guard) = self.acquire(next, limit).await? else {
                return Ok(None);
            };
            self.held[next] = Some(guard);
        }
        Ok(Some(self.held.into_iter().flatten().collect()))
    }

    /// Acquires the first lock that is missing. It may release the others for that.
    async fn acquire(&mut self, next: usize, limit: WaitLimit) -> Result<Option<Guard>, Error> {
        let lock = &self.locks[next];
        if self.held.iter().all(Option::is_none) {
            return lock.attempt(limit).await;
        }
        // A free lock sets no timer. An error is found again below.
        if limit == WaitLimit::Forever
            && let Ok(Some(guard)) = lock.attempt(WaitLimit::NoWait).await
        {
            return Ok(Some(guard));
        }
        let mut acquiring = pin!(lock.attempt(limit));
        let in_order = self.held[next..].iter().all(Option::is_none);
        let mut held = self.locks.iter().zip(&self.held);
        let order_unsure =
            held.any(|(other, held)| held.is_some() && differ_by_store_only(lock, other));
        tokio::select! {
            biased;
            acquired = &mut acquiring => return acquired,
            () = until_give_way(lock, in_order, order_unsure, &mut self.wait) => {}
        }
        self.held.fill_with(|| None);
        acquiring.await
    }
}

/// Whether the order of two locks is that of their stores' addresses.
fn differ_by_store_only(one: &Lock, other: &Lock) -> bool {
    let kind = |lock: &Lock| lock.core().store().capabilities().store;
    one.name() == other.name() && kind(one) == kind(other)
}

/// Ends when a foreign client holds the lock, or when another keeper could wait for a lock that is held out of order.
async fn until_give_way(lock: &Lock, in_order: bool, order_unsure: bool, wait: &mut Duration) {
    let core = lock.core();
    loop {
        let mut pause = if in_order { *wait } else { FIRST_WAIT };
        if order_unsure {
            // Two keepers that give way at the same moment would only change places.
            let jitter = Uuid::new_v4().as_u128() % pause.as_nanos().max(1);
            pause += Duration::from_nanos(u64::try_from(jitter).unwrap_or(0));
        }
        core.background.sleep_until(Moment::now() + pause).await;
        if !in_order {
            return;
        }
        *wait = wait.saturating_mul(2);
        if order_unsure {
            return;
        }
        let info = core.bounded(core.store().inspect(lock.name())).await;
        // A keeper that cannot tell goes on waiting.
        let holders = info.ok().flatten().map_or(Vec::new(), |info| info.holders);
        if holders.iter().any(|holder| holder.is_foreign()) {
            return;
        }
    }
}
