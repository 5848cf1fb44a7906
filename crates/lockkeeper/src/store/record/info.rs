//! What people see of a record: [`LockInfo`], [`Holder`] and [`Waiter`].

use super::{Hold, ProcessId, Queued, Record, wall};
use crate::clock::Moment;
use crate::store::{Holder, LockInfo, MAX_LISTED, Process, Waiter};
use crate::{Name, Token};

impl Record {
    /// How many live claims wait, among those that are loaded.
    pub fn waiters(&self, now: Moment) -> usize {
        self.live(now).count()
    }

    fn live(&self, now: Moment) -> impl Iterator<Item = &Queued> {
        let entries = self.queue.first.iter();
        entries.filter(move |entry| entry.until > now)
    }

    /// The record as [`inspect`](crate::store::Store::inspect) returns it. `process` names the process of a number.
    pub fn info(
        &self,
        name: &Name,
        now: Moment,
        process: impl Fn(ProcessId) -> Process,
    ) -> LockInfo {
        let holders = self.holds.iter();
        let queue = self.live(now).take(MAX_LISTED);
        LockInfo {
            name: name.clone(),
            holders: holders
                .map(|hold| hold.holder(now, process(hold.process)))
                .collect(),
            waiters: self.waiters(now),
            queue: queue
                .map(|entry| entry.waiter(process(entry.process)))
                .collect(),
            last_token: (self.last_token > 0).then(|| Token::new(self.last_token)),
            broken: self.broken.clone(),
            free_permits: None,
        }
    }
}

impl Hold {
    /// The hold as others see it.
    pub fn holder(&self, now: Moment, process: Process) -> Holder {
        Holder {
            claim: self.claim,
            process,
            mode: self.mode,
            token: Some(self.grant.token),
            since: Some(wall(self.since_micros)),
            remaining: Some(self.expires.since(now)),
            lease: Some(self.lease),
            label: self.label.clone(),
            depth: None,
        }
    }
}

impl Queued {
    /// The entry as others see it.
    pub fn waiter(&self, process: Process) -> Waiter {
        Waiter {
            claim: self.claim,
            process,
            mode: self.mode,
            label: self.label.clone(),
            since: Some(wall(self.since_micros)),
        }
    }
}
