//! L1: a lock that nobody can hold any more is granted in time.

use std::time::Duration;

use super::exclusion::show;
use super::run::{Acquire, Lock, Outcome};
use super::{Rule, Violation};
use crate::history::Answer;

/// Looks for answers that came although the lock had been free for longer than `linger`: a busy one, or a
/// grant to someone who had been waiting all that time.
///
/// A hold counts until it was released, until its deadline or until its process was killed, and from `linger` before its
/// holder knew of it; an acquire that failed may have held meanwhile as well, and a `MultiLock` that was granted may have
/// had this lock for as long as it waited for the others.
///
/// Where many acquires fail, one that fails after the other could hide a lock that is stuck. So for a longer time they do
/// not count.
pub(super) fn check(lock: &Lock, linger: Duration, found: &mut Vec<Violation>) {
    let linger = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
    let all = lock.acquires.iter();
    let presence: Vec<Presence<'_>> = all.filter_map(|a| presence(a, linger)).collect();
    sweep(lock, &presence, linger, found);
    let sure = |one: &Presence<'_>| !matches!(one.acquire.outcome, Outcome::Failed);
    let sure: Vec<Presence<'_>> = presence.into_iter().filter(sure).collect();
    sweep(lock, &sure, linger.saturating_mul(STUCK), found);
}

/// How many times as long as a claim may linger nobody may be granted a lock.
const STUCK: u64 = 3;

fn sweep(lock: &Lock, presence: &[Presence<'_>], linger: u64, found: &mut Vec<Violation>) {
    let last = LastSign::new(presence);
    // Before anybody asked, nobody could see it free.
    let began = lock.acquires.first().map_or(0, |first| first.invoked);
    for acquire in &lock.acquires {
        let Some(completed) = acquire.completed else {
            continue;
        };
        let asked = match acquire.outcome {
            // Another of its locks may have been the busy one.
            Outcome::Busy if acquire.together.is_some() => continue,
            // It says how things were at one moment, perhaps right after it was asked.
            Outcome::Busy => acquire.invoked,
            Outcome::Granted(_) => completed,
            _ => continue,
        };
        let since = match last.before(completed, acquire) {
            Sign::Now => continue,
            Sign::At(at) if matches!(acquire.outcome, Outcome::Busy) => at,
            Sign::At(at) => at.max(acquire.invoked),
        }
        .max(began);
        if asked > since && asked - since > linger {
            let what = match acquire.outcome {
                Outcome::Busy => "was told busy",
                _ => "was granted only",
            };
            let text = format!(
                "{} {what} at {}, and nobody had held since {}",
                acquire.owner,
                show(completed),
                show(since)
            );
            found.push(lock.violation(Rule::L1, text));
        }
    }
}

/// When an acquire may have kept others out.
struct Presence<'a> {
    acquire: &'a Acquire,
    from: u64,
    to: u64,
}

fn presence(acquire: &Acquire, linger: u64) -> Option<Presence<'_>> {
    let known = acquire.hold().map_or(0, |hold| hold.ok);
    let to = match acquire.outcome {
        Outcome::Busy => return None,
        Outcome::Failed => acquire.completed?,
        Outcome::Unknown => acquire.completed.or(acquire.killed).unwrap_or(u64::MAX),
        Outcome::Granted(_) => match acquire
            .released()
            .or_else(|| acquire.release_told(&Answer::Dropped))
        {
            Some(release) => release.completed.unwrap_or(release.invoked),
            None => acquire.deadline()?.min(acquire.killed.unwrap_or(u64::MAX)),
        },
    };
    Some(Presence {
        acquire,
        from: match acquire.together {
            Some(_) => acquire.invoked,
            None => acquire.invoked.max(known.saturating_sub(linger)),
        },
        to,
    })
}

enum Sign {
    /// Someone else may be holding.
    Now,
    /// Nobody is, and this is when the last one may have.
    At(u64),
}

/// Answers when somebody else was last there.
struct LastSign<'a> {
    by_start: Vec<&'a Presence<'a>>,
    /// The two latest ends, of different acquires, among those that started up to each one.
    latest: Vec<[Option<&'a Presence<'a>>; 2]>,
}

impl<'a> LastSign<'a> {
    fn new(presence: &'a [Presence<'a>]) -> LastSign<'a> {
        let mut by_start: Vec<&Presence<'_>> = presence.iter().collect();
        by_start.sort_by_key(|one| one.from);
        let mut latest = Vec::with_capacity(by_start.len());
        let mut top: [Option<&Presence<'_>>; 2] = [None, None];
        for one in &by_start {
            if top[0].is_none_or(|first| one.to > first.to) {
                top = [Some(one), top[0]];
            } else if top[1].is_none_or(|second| one.to > second.to) {
                top[1] = Some(one);
            }
            latest.push(top);
        }
        LastSign { by_start, latest }
    }

    fn before(&self, moment: u64, own: &Acquire) -> Sign {
        let count = self.by_start.partition_point(|one| one.from <= moment);
        let Some(top) = count.checked_sub(1).map(|index| self.latest[index]) else {
            return Sign::At(0);
        };
        let other = top
            .into_iter()
            .flatten()
            .find(|one| !std::ptr::eq(one.acquire, own));
        match other {
            Some(one) if one.to >= moment => Sign::Now,
            Some(one) => Sign::At(one.to),
            None => Sign::At(0),
        }
    }
}
