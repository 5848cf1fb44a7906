//! The working copy of a record on which one verb acts. It reads as the record will be after the verb, and collects the
//! [`Change`]s that make it so.

use std::borrow::Cow;
use std::time::Duration;

use super::{Change, Hold, Missing, Now, ProcessId, Queued, Record, Step, wall};
use crate::Token;
use crate::store::{Broken, Claim, ClaimId, GRANT_LEASE, Grant, QUEUE_TTL};
use crate::token::{break_micros, next_run};

/// A record and what one verb has changed about it so far.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    record: &'a Record,
    pub now: Now<'a>,
    /// The holds as they are now. Copied only once they differ from the record: most verbs change one or none.
    pub holds: Cow<'a, [Hold]>,
    /// The queue entries before this index have left the queue.
    front: usize,
    /// Claims that left the queue from behind `front`.
    removed: Vec<ClaimId>,
    /// Processes that turned out to be dead. Their entries have left the queue.
    dead: Vec<ProcessId>,
    /// Whether an entry that was seen has lapsed.
    has_lapsed: bool,
    last_token: u64,
    changes: Vec<Change>,
}

impl<'a> Draft<'a> {
    /// A copy of the record with time applied to it: leases that are over have ended, and the queue has been granted what
    /// fits.
    pub fn new(record: &'a Record, now: Now<'a>) -> Result<Draft<'a>, Missing> {
        let mut draft = Draft {
            record,
            now,
            holds: Cow::Borrowed(&record.holds),
            front: 0,
            removed: Vec::new(),
            dead: Vec::new(),
            has_lapsed: false,
            last_token: record.last_token,
            changes: Vec::new(),
        };
        draft.end_holds(|hold| hold.expires <= now.moment);
        draft.grant_queue()?;
        Ok(draft)
    }

    /// Makes the head of the queue a holder, and then the next head, for as long as their modes fit.
    pub fn grant_queue(&mut self) -> Result<(), Missing> {
        // The queue may not be loaded, so it is read only if a claim of it may be granted.
        let is_exclusive = |hold: &Hold| hold.mode.is_exclusive();
        while self.now.may_grant && !self.holds.iter().any(is_exclusive) {
            let Some(head) = self.head()? else {
                break;
            };
            if !head.mode.admits(self.holds.iter().map(|hold| hold.mode)) {
                break;
            }
            if !self.is_alive(head.process)? {
                self.changes.push(Change::LeaveAll(head.process));
                self.dead.push(head.process);
                continue;
            }
            self.dequeue(head.claim);
            let lease = head.lease.min(GRANT_LEASE);
            self.start_hold(Queued { lease, ..head }, true);
        }
        Ok(())
    }

    /// The first live entry of the queue.
    pub fn head(&mut self) -> Result<Option<Queued>, Missing> {
        while let Some(entry) = self.record.queue.first.get(self.front) {
            let lapsed = entry.until <= self.now.moment;
            self.has_lapsed |= lapsed;
            let gone = self.removed.contains(&entry.claim) || self.dead.contains(&entry.process);
            if !lapsed && !gone {
                return Ok(Some(entry.clone()));
            }
            self.front += 1;
        }
        if self.record.queue.more {
            return Err(Missing::Queue);
        }
        Ok(None)
    }

    fn is_alive(&self, process: ProcessId) -> Result<bool, Missing> {
        if process == self.now.me {
            return Ok(true);
        }
        (self.now.lives)(process).ok_or(Missing::Alive(process))
    }

    /// Grants to the claim of a request. The last step of a verb: the draft's holds do not have it.
    pub fn grant(&mut self, claim: &Claim) -> Grant {
        let entry = self.queue_entry(claim);
        self.start_hold(entry, false)
    }

    /// The queue entry for the claim of a request.
    fn queue_entry(&self, claim: &Claim) -> Queued {
        Queued {
            claim: claim.id,
            process: self.now.me,
            mode: claim.mode,
            lease: claim.lease,
            reserve: claim.reserve,
            label: claim.label.clone(),
            since_micros: self.now.wall_micros,
            until: self.now.moment + QUEUE_TTL,
        }
    }

    fn start_hold(&mut self, entry: Queued, direct: bool) -> Grant {
        let (token, tokens) = next_run(self.last_token, self.now.wall_micros, entry.reserve);
        self.last_token = token + u64::from(tokens) - 1;
        let grant = Grant {
            token: Token::new(token),
            tokens,
        };
        let hold = Hold {
            claim: entry.claim,
            process: entry.process,
            mode: entry.mode,
            grant,
            lease: entry.lease,
            expires: self.now.moment + entry.lease,
            since_micros: self.now.wall_micros,
            label: entry.label,
        };
        // After a grant by its own request the verb ends, and nothing reads the holds.
        if direct {
            self.holds.to_mut().push(hold.clone());
        }
        self.changes.push(Change::Start { hold, direct });
        grant
    }

    /// Lets a hold go on for at least `lease` from now. Returns its grant; `None` if the claim does not hold.
    pub fn prolong(&mut self, claim: ClaimId, lease: Duration) -> Option<Grant> {
        let index = self.holds.iter().position(|hold| hold.claim == claim)?;
        let hold = &self.holds[index];
        let (mut expires, mut lease) = (self.now.moment + lease, lease);
        if expires <= hold.expires {
            // After the clock was set back, a longer lease may end before the one that runs.
            (expires, lease) = (hold.expires, hold.lease.max(lease));
        }
        if (expires, lease) != (hold.expires, hold.lease) {
            let hold = &mut self.holds.to_mut()[index];
            (hold.expires, hold.lease) = (expires, lease);
            self.changes.push(Change::Prolong {
                claim,
                expires,
                lease,
            });
        }
        Some(self.holds[index].grant)
    }

    /// Ends the holds that match. Returns whether there were any.
    pub fn end_holds(&mut self, ends: impl Fn(&Hold) -> bool) -> bool {
        let ended = self.holds.iter().filter(|hold| ends(hold));
        let before = self.changes.len();
        self.changes
            .extend(ended.map(|hold| Change::End(hold.claim)));
        let any = self.changes.len() > before;
        if any {
            let stay = self.holds.iter().filter(|hold| !ends(hold));
            self.holds = Cow::Owned(stay.cloned().collect());
        }
        any
    }

    /// Puts a claim at the end of the queue, or keeps its position. The last step of a verb: [`Draft::head`] does not see it.
    pub fn enqueue(&mut self, claim: &Claim) {
        let until = self.now.moment + QUEUE_TTL;
        let mut waiting = self.record.queue.first.iter().skip(self.front);
        let waits = waiting.any(|entry| {
            entry.claim == claim.id
                && entry.until > self.now.moment
                && !self.dead.contains(&entry.process)
        });
        if waits {
            let claim = claim.id;
            self.changes.push(Change::Keep { claim, until });
            return;
        }
        let entry = self.queue_entry(claim);
        self.changes.push(Change::Enqueue(entry));
    }

    /// Takes a claim out of the queue.
    pub fn dequeue(&mut self, claim: ClaimId) {
        let queue = &self.record.queue;
        let is_it = |entry: &Queued| entry.claim == claim;
        if queue.first.get(self.front).is_some_and(is_it) {
            self.front += 1;
        } else if queue.more || queue.first.iter().skip(self.front).any(is_it) {
            self.removed.push(claim);
        } else {
            return;
        }
        self.changes.push(Change::Leave(claim));
    }

    /// Moves the fence past every token given out, and keeps the reason.
    pub fn mark_broken(&mut self, reason: &str) {
        self.last_token = next_run(self.last_token, self.now.wall_micros, 1).0;
        self.changes.push(Change::Break(Broken {
            reason: reason.to_owned(),
            at: wall(break_micros(self.last_token, self.now.wall_micros)),
        }));
    }

    /// The step with this answer and the changes so far.
    pub fn into_step<T>(mut self, answer: T) -> Step<T> {
        if self.has_lapsed {
            self.changes.insert(0, Change::Lapse(self.now.moment));
        }
        if self.last_token != self.record.last_token {
            self.changes.push(Change::Fence(self.last_token));
        }
        Step {
            answer,
            changes: self.changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::clock::Moment;
    use crate::store::{KeeperId, Mode, Renewal, Renewed};

    /// A clock that was set back leaves a lease that ends later than its length allows. A store then cuts it to its length.
    #[test]
    fn a_renewal_that_is_longer_and_ends_earlier_makes_the_lease_longer() {
        let claim = ClaimId {
            keeper: KeeperId::from_bits(1),
            number: 1,
        };
        let seconds = Duration::from_secs;
        let now = Now {
            moment: Moment::from_nanos(1_000),
            asked: Moment::from_nanos(0),
            wall_micros: 1,
            may_grant: true,
            me: 0,
            lives: &|_| Some(true),
        };
        let ahead = now.moment + seconds(3_600);
        let mut record = Record::default();
        record.holds.push(Hold {
            claim,
            process: 0,
            mode: Mode::Exclusive,
            grant: Grant {
                token: Token::new(1),
                tokens: 1,
            },
            lease: seconds(5),
            expires: ahead,
            since_micros: 1,
            label: None,
        });
        let name = Name::new("x").expect("a name");
        for (asked, longest) in [(30, 30), (10, 30), (0, 30), (60, 60)] {
            let renewal = Renewal::new(name.clone(), claim, seconds(asked), Moment::NEVER);
            let step = record.renew(&renewal, now).expect("all of it is loaded");
            assert_eq!(step.answer, Renewed::Renewed);
            record.commit(step.changes);
            let hold = &record.holds[0];
            assert_eq!((hold.lease, hold.expires), (seconds(longest), ahead));
        }
    }
}
