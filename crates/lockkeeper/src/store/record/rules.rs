//! The verbs of the contract, as rules on a record.

use super::draft::Draft;
use super::{Ended, Hold, Missing, Now, Record, Step};
use crate::store::{
    Attempt, Break, BreakTarget, Claim, ClaimId, Grant, Release, Released, Renewal, Renewed,
    may_stand_beside,
};

impl Record {
    /// One try to hold.
    pub fn try_acquire(&self, claim: &Claim, now: Now<'_>) -> Result<Step<Attempt>, Missing> {
        let mut draft = Draft::new(self, now)?;
        if now.asked > claim.not_after {
            return Ok(draft.into_step(Attempt::TooLate));
        }
        if let Some(grant) = draft.try_grant(claim)? {
            return Ok(draft.into_step(Attempt::Granted(grant)));
        }
        if claim.enqueue && claim.beside.is_none() && can_ever_hold(claim) {
            draft.enqueue(claim);
        }
        let first_end = draft.holds.iter().map(|hold| hold.expires).min();
        let free_in = first_end.map(|end| end.since(now.moment));
        Ok(draft.into_step(Attempt::Busy { free_in }))
    }

    /// Takes a claim back, queued or granted.
    pub fn withdraw(&self, claim: ClaimId, now: Now<'_>) -> Result<Step<()>, Missing> {
        let mut draft = Draft::new(self, now)?;
        draft.dequeue(claim);
        draft.end_holds(|hold| hold.claim == claim);
        draft.grant_queue()?;
        Ok(draft.into_step(()))
    }

    /// Lets a hold go on.
    pub fn renew(&self, renewal: &Renewal, now: Now<'_>) -> Result<Step<Renewed>, Missing> {
        let mut draft = Draft::new(self, now)?;
        let renewed = draft.renew(renewal);
        Ok(draft.into_step(renewed))
    }

    /// Lets several holds of the name go on, in one step.
    pub fn renew_all(
        &self,
        renewals: &[Renewal],
        now: Now<'_>,
    ) -> Result<Step<Vec<Renewed>>, Missing> {
        let mut draft = Draft::new(self, now)?;
        let renewed = renewals.iter().map(|renewal| draft.renew(renewal));
        let renewed = renewed.collect();
        Ok(draft.into_step(renewed))
    }

    /// Ends a hold, and queues the next claim of the same keeper in the same step.
    pub fn release(&self, release: &Release, now: Now<'_>) -> Result<Step<Released>, Missing> {
        let mut draft = Draft::new(self, now)?;
        let was_held = draft.end_holds(|hold| hold.claim == release.claim);
        let next = release
            .requeue
            .as_ref()
            .filter(|next| was_held && now.asked <= next.not_after && can_ever_hold(next));
        draft.grant_queue()?;
        let mut regrant = None;
        if let Some(next) = next {
            regrant = draft.try_grant(next)?;
            if regrant.is_none() {
                draft.enqueue(next);
            }
        }
        Ok(draft.into_step(Released { was_held, regrant }))
    }

    /// Ends the holds that the request names, moves the fence past them and keeps the reason. If there are none, nothing changes.
    pub fn break_lock(&self, request: &Break, now: Now<'_>) -> Result<Step<Ended>, Missing> {
        let mut draft = Draft::new(self, now)?;
        if now.asked > request.not_after {
            return Ok(draft.into_step(Ended::TooLate));
        }
        let is_target = |hold: &Hold| request.target.means(hold.claim, hold.grant);
        let ended: Vec<Hold> = draft
            .holds
            .iter()
            .filter(|hold| is_target(hold))
            .cloned()
            .collect();
        if ended.is_empty() && request.target != BreakTarget::All {
            let holds = draft.holds.to_vec();
            return Ok(draft.into_step(Ended::NotHeld(holds)));
        }
        if draft.end_holds(is_target) {
            draft.mark_broken(&request.reason);
        }
        draft.grant_queue()?;
        Ok(draft.into_step(Ended::These(ended)))
    }

    /// Applies what time has changed, and nothing else.
    pub fn inspect(&self, now: Now<'_>) -> Result<Step<()>, Missing> {
        Ok(Draft::new(self, now)?.into_step(()))
    }
}

impl Draft<'_> {
    fn renew(&mut self, renewal: &Renewal) -> Renewed {
        if self.now.asked > renewal.not_after {
            return Renewed::TooLate;
        }
        match self.prolong(renewal.claim, renewal.lease) {
            Some(_) => Renewed::Renewed,
            None => Renewed::NotHeld,
        }
    }

    /// Grants to the claim of a request, if it fits and no live claim waits before it.
    fn try_grant(&mut self, claim: &Claim) -> Result<Option<Grant>, Missing> {
        // A claim id is granted once: a request that finds itself holding is the same request.
        if let Some(grant) = self.prolong(claim.id, claim.lease) {
            return Ok(Some(grant));
        }
        let beside = self.beside(claim);
        let others = self.holds.iter();
        let others = others.filter(|hold| Some(hold.claim) != beside);
        let fits = self.now.may_grant && claim.mode.admits(others.map(|hold| hold.mode));
        // The queue has been granted what fits, so a head that is left waits and goes before this claim.
        let may_hold = fits && (beside.is_some() || self.head()?.is_none());
        Ok(may_hold.then(|| self.grant(claim)))
    }

    /// The exclusive hold [`beside`](Claim::beside) which this reader may stand, if it is still held.
    fn beside(&self, claim: &Claim) -> Option<ClaimId> {
        claim.beside.filter(|&beside| {
            let hold = self.holds.iter().find(|hold| hold.claim == beside);
            hold.is_some_and(|hold| {
                may_stand_beside((claim.id, claim.mode), (hold.claim, hold.mode))
            })
        })
    }
}

/// Whether a claim could be granted if it were alone. A claim for more permits than there are would block the queue for
/// ever.
fn can_ever_hold(claim: &Claim) -> bool {
    claim.mode.admits([])
}
