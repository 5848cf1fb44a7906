//! What has to be true of one step, and of the record after it.
//!
//! The checks say the rules a second time, in other words than `rules` and `draft`: by what a step may change.

use std::time::Duration;

use super::{Outcome, Verb, saved};
use crate::clock::Moment;
use crate::store::record::{Change, Ended, Hold, Now, Queued, Record, Step};
use crate::store::{
    Attempt, BreakTarget, Claim, ClaimId, GRANT_LEASE, Mode, QUEUE_TTL, Released, Renewed,
};
use crate::token::MAX_LEAD_MICROS;

pub(super) fn check(
    before: &Record,
    verb: &Verb,
    step: &Step<Outcome>,
    after: &Record,
    now: Now<'_>,
) {
    let inspected = before.inspect(now).expect("all of it is loaded");
    // The record with time applied to it: leases ended, and the queue granted what fits.
    let settled = saved(before, inspected.changes, now);
    check_order(before, verb, step, now);
    check_queue(before, verb, step, after, now);
    check_holds(&settled, verb, after, now);
    check_grants(before, verb, after, now);
    check_answer(&settled, verb, &step.answer, after, now);
}

/// Grants keep the order of the queue, and tokens grow.
fn check_order(before: &Record, verb: &Verb, step: &Step<Outcome>, now: Now<'_>) {
    let mut last = before.last_token;
    let mut queue: Vec<Queued> = live(before, now).cloned().collect();
    // The head that left the queue last.
    let mut head = None;
    for change in &step.changes {
        match change {
            Change::Enqueue(entry) => queue.push(entry.clone()),
            Change::Leave(claim) => {
                let place = queue.iter().position(|entry| entry.claim == *claim);
                head = place.filter(|&place| place == 0).map(|_| *claim);
                queue.retain(|entry| entry.claim != *claim);
            }
            Change::LeaveAll(process) => {
                let lives = (now.lives)(*process);
                assert_eq!(lives, Some(false), "{verb:?} removed a live process");
                queue.retain(|entry| entry.process != *process);
            }
            Change::Start { hold, direct } => {
                assert!(now.may_grant, "{verb:?} granted while the server may not");
                let (first, tokens) = (hold.grant.token.get(), u64::from(hold.grant.tokens));
                assert!(first > last, "{verb:?}: a token not above the last");
                assert!(
                    first >= now.wall_micros,
                    "{verb:?}: a token below the clock"
                );
                last = first + tokens - 1;
                let ahead = last.saturating_sub(now.wall_micros);
                assert!(
                    tokens == 1 || ahead < MAX_LEAD_MICROS,
                    "{verb:?}: tokens far ahead of the clock"
                );
                if *direct {
                    assert_eq!(head, Some(hold.claim), "{verb:?} passed over a waiter");
                    let lives = hold.process == now.me || (now.lives)(hold.process) == Some(true);
                    assert!(lives, "{verb:?} granted to the dead");
                }
            }
            Change::Fence(token) => last = *token,
            _ => {}
        }
    }
    assert!(last >= before.last_token, "{verb:?} moved the fence back");
}

/// A waiter keeps its position, and a new one is put at the end. No waiter leaves the queue without a reason.
fn check_queue(before: &Record, verb: &Verb, step: &Step<Outcome>, after: &Record, now: Now<'_>) {
    let newcomer = newcomer(verb);
    let mut old = live(before, now);
    let waiting: Vec<&Queued> = live(after, now).collect();
    for (place, entry) in waiting.iter().enumerate() {
        if let Some(was) = old.find(|was| was.claim == entry.claim) {
            let asked = matches!(verb, Verb::Try(claim) if claim.id == entry.claim);
            let until = if asked && entry.until != was.until {
                now.moment + QUEUE_TTL
            } else {
                was.until
            };
            let kept = Queued {
                until,
                ..(*was).clone()
            };
            assert_eq!(**entry, kept, "{verb:?} changed a waiter");
            continue;
        }
        assert_eq!(
            place,
            waiting.len() - 1,
            "{verb:?} put a claim before others"
        );
        let claim = newcomer.expect("only those that ask join the queue");
        let joined = Queued {
            claim: claim.id,
            process: now.me,
            mode: claim.mode,
            lease: claim.lease,
            reserve: claim.reserve,
            label: claim.label.clone(),
            since_micros: now.wall_micros,
            until: now.moment + QUEUE_TTL,
        };
        assert_eq!(**entry, joined, "{verb:?}");
        assert!(
            claim.mode.admits([]),
            "{verb:?} queued a claim that is never granted"
        );
        let once = !live(before, now).any(|was| was.claim == entry.claim);
        assert!(once, "{verb:?} lost its position");
    }
    for gone in live(before, now) {
        let starts = |change: &Change| matches!(change, Change::Start { hold, .. } if hold.claim == gone.claim);
        let left = matches!(verb, Verb::Withdraw(claim) if *claim == gone.claim);
        let dead = (now.lives)(gone.process) == Some(false) && gone.process != now.me;
        assert!(
            waits(after, gone.claim, now) || left || dead || step.changes.iter().any(starts),
            "{verb:?} dropped {gone:?}"
        );
    }
}

/// A hold that the verb does not name goes on as it was.
fn check_holds(settled: &Record, verb: &Verb, after: &Record, now: Now<'_>) {
    for hold in &after.holds {
        let Some(was) = find(settled, hold.claim) else {
            continue;
        };
        let (mut expires, mut lease) = (was.expires, was.lease);
        if let Some(more) = wanted(verb, hold.claim, now) {
            (expires, lease) = if now.moment + more > expires {
                (now.moment + more, more)
            } else {
                (expires, lease.max(more))
            };
        }
        let goes_on = Hold {
            expires,
            lease,
            ..was.clone()
        };
        assert_eq!(*hold, goes_on, "{verb:?}");
    }
    for hold in &settled.holds {
        let ends = match verb {
            Verb::Withdraw(claim) => *claim == hold.claim,
            Verb::Release(release) => release.claim == hold.claim,
            Verb::Break(request) => request.target.means(hold.claim, hold.grant),
            _ => false,
        };
        let goes_on = find(after, hold.claim).is_some();
        assert!(ends || goes_on, "{verb:?} ended {hold:?}");
    }
}

/// A hold that began in this step is as its claim asked for, which waited or came with the verb.
fn check_grants(before: &Record, verb: &Verb, after: &Record, now: Now<'_>) {
    let held = |claim| find(before, claim).is_some_and(|hold| hold.expires > now.moment);
    for hold in after.holds.iter().filter(|hold| !held(hold.claim)) {
        let waited = live(before, now).find(|entry| entry.claim == hold.claim);
        let asked = newcomer(verb).filter(|claim| claim.id == hold.claim);
        let (process, mode, label, reserve) = match (waited, asked) {
            (Some(entry), _) => (entry.process, entry.mode, &entry.label, entry.reserve),
            (None, Some(claim)) => (now.me, claim.mode, &claim.label, claim.reserve),
            (None, None) => panic!("{verb:?} granted to {hold:?}, which did not ask"),
        };
        assert_eq!((hold.process, hold.mode), (process, mode), "{verb:?}");
        assert_eq!(hold.label, *label, "{verb:?}");
        assert_eq!(hold.since_micros, now.wall_micros, "{verb:?}");
        assert!((1..=reserve).contains(&hold.grant.tokens), "{verb:?}");
        // A direct grant is short until it is confirmed.
        let short = waited.map(|entry| entry.lease.min(GRANT_LEASE));
        let lease = short.max(wanted(verb, hold.claim, now));
        let lease = lease.expect("a waiter, or a verb in time");
        assert_eq!(hold.lease, lease, "{verb:?}");
        assert_eq!(hold.expires, now.moment + lease, "{verb:?}");
    }
}

/// The answer is true. A verb that reports that it did nothing has only applied time.
fn check_answer(settled: &Record, verb: &Verb, answer: &Outcome, after: &Record, now: Now<'_>) {
    let late = |not_after: Moment| now.asked > not_after;
    let did = match (verb, answer) {
        (Verb::Try(claim), Outcome::Tried(attempt)) => {
            assert_eq!(*attempt == Attempt::TooLate, late(claim.not_after));
            check_try(settled, claim, attempt, after, now);
            *attempt != Attempt::TooLate
        }
        (Verb::Withdraw(claim), Outcome::Withdrawn) => {
            let held = find(settled, *claim).is_some() || waits(settled, *claim, now);
            let holds = find(after, *claim).is_some() || waits(after, *claim, now);
            assert!(!holds, "{verb:?} has no effect");
            held
        }
        (Verb::Renew(one), Outcome::Renewed(renewed)) => {
            let want = match find(settled, one.claim) {
                _ if late(one.not_after) => Renewed::TooLate,
                Some(_) => Renewed::Renewed,
                None => Renewed::NotHeld,
            };
            assert_eq!(*renewed, want, "{verb:?}");
            want == Renewed::Renewed
        }
        (Verb::Release(release), Outcome::Released(Released { was_held, regrant })) => {
            assert_eq!(
                *was_held,
                find(settled, release.claim).is_some(),
                "{verb:?}"
            );
            assert!(
                find(after, release.claim).is_none(),
                "{verb:?} has no effect"
            );
            let next = release.requeue.as_ref();
            if let Some(next) = next.filter(|_| *was_held) {
                let may = !late(next.not_after) && next.mode.admits([]);
                let holds = find(after, next.id).map(|hold| hold.grant);
                assert_eq!(*regrant, holds, "{verb:?}");
                assert_eq!(
                    regrant.is_some() || waits(after, next.id, now),
                    may,
                    "{verb:?}"
                );
            } else {
                assert_eq!(*regrant, None, "{verb:?}");
            }
            *was_held
        }
        (Verb::Break(request), Outcome::Broke(ended)) => {
            let meant = |hold: &&Hold| request.target.means(hold.claim, hold.grant);
            let meant: Vec<Hold> = settled.holds.iter().filter(meant).cloned().collect();
            let there = request.target == BreakTarget::All || !meant.is_empty();
            match ended {
                Ended::TooLate => assert!(late(request.not_after)),
                Ended::NotHeld(holds) => {
                    assert!(!there && !late(request.not_after), "{verb:?}");
                    assert_eq!(*holds, settled.holds, "{verb:?}");
                }
                Ended::These(these) => {
                    assert!(there && !late(request.not_after), "{verb:?}");
                    assert_eq!(*these, meant, "{verb:?}");
                    if !these.is_empty() {
                        let held = these.iter().any(|hold| find(after, hold.claim).is_some());
                        assert!(after.last_token > settled.last_token, "{verb:?}: no fence");
                        assert!(!held && after.broken.is_some(), "{verb:?} has no effect");
                    }
                }
            }
            matches!(ended, Ended::These(these) if !these.is_empty())
        }
        (Verb::Inspect, Outcome::Inspected) => false,
        _ => panic!("{answer:?} to {verb:?}"),
    };
    if !did {
        let (after, settled) = (without_lapsed(after, now), without_lapsed(settled, now));
        assert_eq!(after, settled, "{verb:?} did something");
    }
}

/// A try is granted exactly if it fits and no claim waits before it. A busy one is queued exactly if it asks for that and may be.
fn check_try(settled: &Record, claim: &Claim, attempt: &Attempt, after: &Record, now: Now<'_>) {
    let beside = claim.beside.and_then(|beside| find(settled, beside));
    let beside = beside.filter(|hold| {
        let own = hold.claim.keeper == claim.id.keeper;
        own && hold.mode.is_exclusive() && claim.mode == Mode::Read
    });
    let others = settled.holds.iter();
    let others = others.filter(|hold| beside.is_none_or(|beside| beside.claim != hold.claim));
    let first = beside.is_some() || live(settled, now).next().is_none();
    let fits = now.may_grant && first && claim.mode.admits(others.map(|hold| hold.mode));
    let held = find(settled, claim.id);
    match attempt {
        Attempt::Granted(grant) => {
            let hold = find(after, claim.id).expect("a granted claim holds");
            assert_eq!(hold.grant, *grant, "{claim:?}");
            assert!(
                held.is_some() || fits,
                "{claim:?} was granted before others"
            );
            assert!(hold.expires >= now.moment + claim.lease, "{claim:?}");
        }
        Attempt::Busy { free_in } => {
            assert!(
                held.is_none() && !fits,
                "{claim:?} was busy without a reason"
            );
            let first_end = settled.holds.iter().map(|hold| hold.expires).min();
            assert_eq!(*free_in, first_end.map(|end| end.since(now.moment)));
            let waited = waits(settled, claim.id, now);
            let joins = claim.enqueue && claim.beside.is_none() && claim.mode.admits([]);
            assert_eq!(waits(after, claim.id, now), waited || joins, "{claim:?}");
            let until = live(after, now).find(|entry| entry.claim == claim.id);
            assert!(!joins || until.is_some_and(|entry| entry.until == now.moment + QUEUE_TTL));
        }
        Attempt::TooLate => {}
    }
}

/// All holds fit together, a head that fits holds, and no claim has two positions.
pub(super) fn check_after(after: &Record, now: Now<'_>) {
    for (at, hold) in after.holds.iter().enumerate() {
        assert!(hold.expires > now.moment, "a hold whose lease is over");
        assert!(!waits(after, hold.claim, now), "{hold:?} waits as well");
        let others = after.holds[..at].iter();
        let mut same = others.clone().map(|other| other.claim);
        assert!(!same.any(|claim| claim == hold.claim), "{hold:?} twice");
        // A reader may stand beside the exclusive hold of its own keeper.
        let others = others.filter(|other| {
            let own = other.claim.keeper == hold.claim.keeper;
            !(own && other.mode.is_exclusive() && hold.mode == Mode::Read)
        });
        let others = others.map(|other| other.mode);
        assert!(hold.mode.admits(others), "overlap: {:?}", after.holds);
    }
    for (place, entry) in live(after, now).enumerate() {
        let mut before = live(after, now).take(place);
        assert!(
            !before.any(|one| one.claim == entry.claim),
            "{entry:?} twice"
        );
    }
    if let Some(head) = live(after, now).next().filter(|_| now.may_grant) {
        let holds = after.holds.iter().map(|hold| hold.mode);
        assert!(
            !head.mode.admits(holds),
            "the head fits and waits: {after:?}"
        );
    }
}

fn live<'a>(record: &'a Record, now: Now<'_>) -> impl Iterator<Item = &'a Queued> {
    let entries = record.queue.first.iter();
    entries.filter(move |entry| entry.until > now.moment)
}

/// Entries that lapsed count as absent, whether they are still there or not.
fn without_lapsed(record: &Record, now: Now<'_>) -> Record {
    let mut record = record.clone();
    let queue = &mut record.queue.first;
    queue.retain(|entry| entry.until > now.moment);
    record
}

fn waits(record: &Record, claim: ClaimId, now: Now<'_>) -> bool {
    live(record, now).any(|entry| entry.claim == claim)
}

fn find(record: &Record, claim: ClaimId) -> Option<&Hold> {
    record.holds.iter().find(|hold| hold.claim == claim)
}

/// The lease that a verb asks for a claim, unless it is late.
fn wanted(verb: &Verb, claim: ClaimId, now: Now<'_>) -> Option<Duration> {
    let (of, lease, not_after) = match verb {
        Verb::Renew(one) => (one.claim, one.lease, one.not_after),
        verb => newcomer(verb).map(|claim| (claim.id, claim.lease, claim.not_after))?,
    };
    (of == claim && now.asked <= not_after).then_some(lease)
}

/// The claim that a verb may grant or queue.
fn newcomer(verb: &Verb) -> Option<&Claim> {
    match verb {
        Verb::Try(claim) => Some(claim),
        Verb::Release(release) => release.requeue.as_ref(),
        _ => None,
    }
}
