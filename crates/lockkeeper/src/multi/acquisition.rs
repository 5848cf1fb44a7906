//! How several locks are taken: in their order, and yet without waiting for ever for those who keep no order.
//!
//! Keepers that take locks in one order never wait for each other. Clients of other projects may: one holds what a keeper
//! waits for, and waits for what that keeper has. So a keeper that waits for a stranger lets go of what it has after a while,
//! and goes on with the lock it waits for, in its place in line. With every time it insists for longer: where strangers
//! come and go at all of the locks, it gets them in the end.
//!
//! Locks of one name on two stores of one kind have no order that all keepers share: it is that of their addresses, and
//! one keeper may write `localhost` where another writes `127.0.0.1`. A keeper that has one of them and waits for the
//! other gives way as well, no matter which client holds it. Every keeper of a circle does: along a circle kinds and names only grow,
//! so they are all the same.

use std::pin::pin;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Moment;
use crate::engine::request::WaitLimit;
use crate::{Error, Guard, Lock};

/// For how long one that has some of its locks waits for the next, before it gives way for the first time; and each
/// time where it holds out of order.
const INSISTS: Duration = Duration::from_millis(50);

/// Locks on the way to being held.
pub(super) struct Taking<'l> {
    locks: &'l [Lock],
    /// In the order of the locks.
    held: Vec<Option<Guard>>,
    insists: Duration,
}

impl<'l> Taking<'l> {
    pub fn new(locks: &'l [Lock]) -> Taking<'l> {
        Taking {
            locks,
            held: locks.iter().map(|_| None).collect(),
            insists: INSISTS,
        }
    }

    /// Takes all of them, or none.
    pub async fn all(mut self, wait_limit: WaitLimit) -> Result<Option<Vec<Guard>>, Error> {
        while let Some(next) = self.held.iter().position(Option::is_none) {
            let Some(guard) = self.take(next, wait_limit).await? else {
                return Ok(None);
            };
            self.held[next] = Some(guard);
        }
        Ok(Some(self.held.into_iter().flatten().collect()))
    }

    /// Takes the first that is missing; the others may be let go of for it.
    async fn take(&mut self, next: usize, wait_limit: WaitLimit) -> Result<Option<Guard>, Error> {
        let lock = &self.locks[next];
        if self.held.iter().all(Option::is_none) {
            return lock.attempt(wait_limit).await;
        }
        // A lock that is free sets no timer. If that fails, so does what follows.
        if wait_limit == WaitLimit::Forever
            && let Ok(Some(guard)) = lock.attempt(WaitLimit::NoWait).await
        {
            return Ok(Some(guard));
        }
        let mut wait = pin!(lock.attempt(wait_limit));
        let ordered = self.held[next..].iter().all(Option::is_none);
        let is_alike =
            |(other, held): (&Lock, &Option<Guard>)| held.is_some() && are_alike(lock, other);
        let alike = self.locks.iter().zip(&self.held).any(is_alike);
        tokio::select! {
            biased;
            answer = &mut wait => return answer,
            () = has_to_give_way(lock, ordered, alike, &mut self.insists) => {}
        }
        self.held.fill_with(|| None);
        wait.await
    }
}

/// Whether only where their stores are puts the two in order.
fn are_alike(one: &Lock, two: &Lock) -> bool {
    let kind = |lock: &Lock| lock.core().store().capabilities().store;
    one.name() == two.name() && kind(one) == kind(two)
}

/// Ends when a stranger is in the way, or somebody could wait for what is held out of order.
async fn has_to_give_way(lock: &Lock, ordered: bool, alike: bool, insists: &mut Duration) {
    let core = lock.core();
    loop {
        let mut pause = if ordered { *insists } else { INSISTS };
        if alike {
            // Two that give way at the same moment only change places.
            let more = Uuid::new_v4().as_u128() % pause.as_nanos().max(1);
            pause += Duration::from_nanos(u64::try_from(more).unwrap_or(0));
        }
        core.background.sleep_until(Moment::now() + pause).await;
        if !ordered {
            return;
        }
        *insists = insists.saturating_mul(2);
        if alike {
            return;
        }
        let info = core.answer(core.store().inspect(lock.name())).await;
        // A keeper that cannot tell goes on waiting.
        let holders = info.ok().flatten().map_or(Vec::new(), |info| info.holders);
        if holders.iter().any(|holder| holder.is_foreign()) {
            return;
        }
    }
}
