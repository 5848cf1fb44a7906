//! The working copy of a record on which one verb acts.

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
    /// Entries before this place have left the queue.
    head: usize,
    /// Claims that left the queue from behind the head.
    left: Vec<ClaimId>,
    /// Processes that turned out to be dead. Their entries have left the queue.
    dead: Vec<ProcessId>,
    /// Whether lapsed entries were seen.
    lapsed: bool,
    last_token: u64,
    changes: Vec<Change>,
}

impl<'a> Draft<'a> {
    /// A copy of the record with time applied to it.
    pub fn new(record: &'a Record, now: Now<'a>) -> Result<Draft<'a>, Missing> {
        let mut draft = Draft {
            record,
            now,
            holds: Cow::Borrowed(&record.holds),
            head: 0,
            left: Vec::new(),
            dead: Vec::new(),
            lapsed: false,
            last_token: record.last_token,
            changes: Vec::new(),
        };
        draft.end(|hold| hold.expires <= now.moment);
        draft.settle()?;
        Ok(draft)
    }

    /// Makes the head of the queue a holder for as long as its mode admits it.
    pub fn settle(&mut self) -> Result<(), Missing> {
        // A server that may not grant leaves the queue as it is, and so does a hold beside which nothing can stand.
        let closed = |hold: &Hold| hold.mode.is_exclusive();
        while self.now.may_grant && !self.holds.iter().any(closed) {
            let Some(head) = self.head()? else {
                break;
            };
            if !head.mode.admits(self.holds.iter().map(|hold| hold.mode)) {
                break;
            }
            if !self.lives(head.process)? {
                self.changes.push(Change::LeaveAll(head.process));
                self.dead.push(head.process);
                continue;
            }
            self.leave(head.claim);
            let lease = head.lease.min(GRANT_LEASE);
            self.start(Queued { lease, ..head }, true);
        }
        Ok(())
    }

    /// The first live entry of the queue.
    pub fn head(&mut self) -> Result<Option<Queued>, Missing> {
        while let Some(entry) = self.record.queue.first.get(self.head) {
            let lapsed = entry.until <= self.now.moment;
            self.lapsed |= lapsed;
            let gone = self.left.contains(&entry.claim) || self.dead.contains(&entry.process);
            if !lapsed && !gone {
                return Ok(Some(entry.clone()));
            }
            self.head += 1;
        }
        if self.record.queue.more {
            return Err(Missing::Queue);
        }
        Ok(None)
    }

    fn lives(&self, process: ProcessId) -> Result<bool, Missing> {
        if process == self.now.me {
            return Ok(true);
        }
        (self.now.lives)(process).ok_or(Missing::Alive(process))
    }

    /// Grants to a claim of the process that asks.
    pub fn grant(&mut self, claim: &Claim) -> Grant {
        let entry = self.entry(claim);
        self.start(entry, false)
    }

    /// A claim of the process that asks, as the queue has it.
    fn entry(&self, claim: &Claim) -> Queued {
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

    fn start(&mut self, entry: Queued, direct: bool) -> Grant {
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
        // A claim that is granted by its own request ends the verb, so nothing looks at the holds after it.
        if direct {
            self.holds.to_mut().push(hold.clone());
        }
        self.changes.push(Change::Start { hold, direct });
        grant
    }

    /// Lets a hold go on for at least `lease` from now. Returns its grant.
    pub fn prolong(&mut self, claim: ClaimId, lease: Duration) -> Option<Grant> {
        let place = self.holds.iter().position(|hold| hold.claim == claim)?;
        let hold = &self.holds[place];
        let (mut expires, mut lease) = (self.now.moment + lease, lease);
        if expires <= hold.expires {
            // After the clock was set back, a longer lease may end before the one that runs.
            (expires, lease) = (hold.expires, hold.lease.max(lease));
        }
        if (expires, lease) != (hold.expires, hold.lease) {
            let hold = &mut self.holds.to_mut()[place];
            (hold.expires, hold.lease) = (expires, lease);
            self.changes.push(Change::Prolong {
                claim,
                expires,
                lease,
            });
        }
        Some(self.holds[place].grant)
    }

    /// Ends the holds that match. Returns whether there were any.
    pub fn end(&mut self, ends: impl Fn(&Hold) -> bool) -> bool {
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

    /// Puts a claim at the end of the queue, or keeps its place. The last step of a verb: [`Draft::head`] does not see it.
    pub fn enqueue(&mut self, claim: &Claim) {
        let until = self.now.moment + QUEUE_TTL;
        let mut known = self.record.queue.first.iter().skip(self.head);
        let kept = known.any(|entry| {
            entry.claim == claim.id
                && entry.until > self.now.moment
                && !self.dead.contains(&entry.process)
        });
        if kept {
            let claim = claim.id;
            self.changes.push(Change::Keep { claim, until });
            return;
        }
        let entry = self.entry(claim);
        self.changes.push(Change::Enqueue(entry));
    }

    /// Takes a claim out of the queue.
    pub fn leave(&mut self, claim: ClaimId) {
        let queue = &self.record.queue;
        let is_it = |entry: &Queued| entry.claim == claim;
        if queue.first.get(self.head).is_some_and(is_it) {
            self.head += 1;
        } else if queue.more || queue.first.iter().skip(self.head).any(is_it) {
            self.left.push(claim);
        } else {
            return;
        }
        self.changes.push(Change::Leave(claim));
    }

    /// Moves the fence past every token given out, and remembers why.
    pub fn mark_broken(&mut self, reason: &str) {
        self.last_token = next_run(self.last_token, self.now.wall_micros, 1).0;
        self.changes.push(Change::Break(Broken {
            reason: reason.to_owned(),
            at: wall(break_micros(self.last_token, self.now.wall_micros)),
        }));
    }

    /// The step that this draft has become.
    pub fn done<T>(mut self, answer: T) -> Step<T> {
        if self.lapsed {
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

    /// A clock that was set back leaves a lease that ends later than its length allows, and a store then cuts it to its length.
    #[test]
    fn a_longer_renewal_that_moves_no_end_makes_the_lease_longer() {
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
