//! Turns what the rules have changed into what has to be saved.

use std::time::Duration;

use uuid::Uuid;

use super::engine::{Loaded, Save, Wake, micros, moment};
use crate::Name;
use crate::clock::Moment;
use crate::store::record::{Change, Hold, Record};
use crate::store::{ClaimId, QUEUE_TTL};

/// Times this far ahead of what they can be are the work of a clock that was set back.
const SLACK: Duration = Duration::from_secs(1);

/// What [`Plan::new`] corrected.
#[derive(Debug, Default)]
struct Corrected {
    holds: Vec<ClaimId>,
    queue: Vec<(ClaimId, Moment)>,
}

/// A name as it was loaded, with its times as they can be.
#[derive(Debug)]
pub(super) struct Plan {
    pub loaded: Loaded,
    corrected: Corrected,
}

impl Plan {
    /// Looks at what was loaded. A lease that ends later than its length allows, since the server's clock was set back, ends
    /// when it can: otherwise its lock would be stuck for as long as the clock went back.
    pub fn new(mut loaded: Loaded) -> Plan {
        let now = moment(loaded.now);
        let mut corrected = Corrected::default();
        // Tokens grow, so this is the order of the grants.
        let record = &mut loaded.record;
        record.holds.sort_by_key(|hold| hold.grant.token);
        for hold in &mut record.holds {
            if hold.expires > now + hold.lease + SLACK {
                hold.expires = now + hold.lease;
                corrected.holds.push(hold.claim);
            }
        }
        for entry in &mut record.queue.first {
            if entry.until > now + QUEUE_TTL + SLACK {
                entry.until = now + QUEUE_TTL;
                corrected.queue.push((entry.claim, entry.until));
            }
        }
        Plan { loaded, corrected }
    }

    /// Has grants to waiters last this much longer, but no longer than they asked for.
    pub fn lengthen(&self, changes: &mut [Change], by: Duration) {
        for change in changes {
            let Change::Start { hold, direct: true } = change else {
                continue;
            };
            let mut queue = self.loaded.record.queue.first.iter();
            let Some(entry) = queue.find(|entry| entry.claim == hold.claim) else {
                continue;
            };
            let lease = entry.lease.min(hold.lease + by);
            hold.expires = hold.expires + lease.saturating_sub(hold.lease);
            hold.lease = lease;
        }
    }

    /// The record after these changes, and what has to be saved. `always`: also if nothing has changed.
    pub fn save(
        &self,
        name: &Name,
        changes: Vec<Change>,
        not_after: u64,
        always: bool,
    ) -> (Record, Option<Save>) {
        let before = &self.loaded.record;
        let mut after = before.clone();
        let nothing = changes.is_empty()
            && self.corrected.holds.is_empty()
            && self.corrected.queue.is_empty();
        if nothing && !(always && self.loaded.seen.is_some()) {
            return (after, None);
        }
        after.commit(changes.clone());
        let exclusive = after.holds.iter().find(|hold| hold.mode.is_exclusive());
        let mut save = Save {
            name: name.clone(),
            seen: self.loaded.seen,
            same_tail: false,
            grants: false,
            not_after,
            durable: false,
            version: version(),
            token: after.last_token,
            exclusive: exclusive.cloned(),
            shared: after.holds.len() - usize::from(exclusive.is_some()),
            waited: after.queue.more || !after.queue.first.is_empty(),
            broken: after.broken.clone(),
            ended: Vec::new(),
            holds: Vec::new(),
            lapse: None,
            leave: Vec::new(),
            keep: self.corrected.queue.clone(),
            enqueue: None,
            wake: Vec::new(),
        };
        let is_broken = changes.iter().any(|one| matches!(one, Change::Break(_)));
        let mut touched = self.corrected.holds.clone();
        let mut holders_change = false;
        for change in changes {
            match change {
                Change::Start { hold, direct } => {
                    holders_change = true;
                    save.grants = true;
                    save.durable |= !direct || !self.outlives(&hold, &after);
                    touched.push(hold.claim);
                    if direct {
                        // Later it would be over, and the waiter would have lost its turn.
                        save.not_after = earlier(save.not_after, micros(hold.expires));
                        save.wake.push(Wake::Granted {
                            claim: hold.claim,
                            grant: hold.grant,
                            lease: hold.lease,
                        });
                    }
                }
                Change::Prolong { claim, .. } => {
                    save.durable = true;
                    touched.push(claim);
                }
                Change::End(claim) => {
                    holders_change = true;
                    let shared = |hold: &&Hold| hold.claim == claim && !hold.mode.is_exclusive();
                    if before.holds.iter().any(|hold| shared(&hold)) {
                        save.ended.push(claim);
                    }
                    if is_broken {
                        save.wake.push(Wake::Broken(claim.keeper));
                    }
                }
                Change::Enqueue(entry) => save.enqueue = Some(entry),
                Change::Keep { claim, until } => save.keep.push((claim, until)),
                Change::Leave(claim) => save.leave.push(claim),
                Change::Lapse(now) => save.lapse = Some(now),
                Change::Break(_) => save.durable = true,
                // Nobody tells processes apart here; the token is in the row.
                Change::LeaveAll(_) | Change::Fence(_) => {}
            }
        }
        let shared = after.holds.iter().filter(|hold| !hold.mode.is_exclusive());
        let shared = shared.filter(|hold| touched.contains(&hold.claim));
        save.holds = shared.cloned().collect();
        // A claim that has just joined the queue would have been let in. It can join only beside an exclusive hold.
        save.same_tail = holders_change && save.exclusive.is_none();
        (after, Some(save))
    }

    /// Whether an exclusive hold that ends now would outlast this one. If a crash undoes the save, that one is in its place.
    fn outlives(&self, hold: &Hold, after: &Record) -> bool {
        let now = moment(self.loaded.now);
        let ended = self.loaded.record.holds.iter();
        let mut ended = ended.filter(|old| !after.holds.iter().any(|is| is.claim == old.claim));
        ended.any(|old| old.mode.is_exclusive() && old.expires > now && old.expires >= hold.expires)
    }
}

/// The earlier of two times, where 0 is none.
fn earlier(one: u64, other: u64) -> u64 {
    if one == 0 { other } else { one.min(other) }
}

/// A version that no row has had, with room to count on from it.
pub(in crate::store) fn version() -> i64 {
    (Uuid::new_v4().as_u128() as u64 >> 2) as i64 + 1
}
