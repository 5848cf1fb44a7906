//! S1: valid holds of different owners never overlap, as far as their modes exclude each other.

use std::collections::{BTreeMap, BTreeSet};

use super::run::{Lock, Valid};
use super::{Rule, Violation};
use crate::history::Mode;

/// Sweeps the holds of one lock in order of time.
pub(super) fn check(lock: &Lock, found: &mut Vec<Violation>) {
    revivals(lock, found);
    beliefs(lock, found);
    let mut holds = lock.valid_holds();
    holds.retain(|valid| valid.end > valid.hold.from);
    // At one moment ends come before starts: holds that touch do not overlap.
    let mut points: Vec<(u64, bool, usize)> = Vec::with_capacity(holds.len() * 2);
    for (index, valid) in holds.iter().enumerate() {
        points.push((valid.hold.from, true, index));
        points.push((valid.end, false, index));
    }
    points.sort_unstable();
    let mut active = Active::new(&holds);
    for (_, starts, index) in points {
        if starts {
            if let Some(text) = active.conflict(index) {
                found.push(lock.violation(Rule::S1, text));
            }
            active.insert(index);
        } else {
            active.remove(index);
        }
    }
}

/// A hold that reached its deadline, whose holder was told of its loss, or that was broken, is over for good.
fn revivals(lock: &Lock, found: &mut Vec<Violation>) {
    for acquire in &lock.acquires {
        let Some(hold) = acquire.hold() else { continue };
        let mut deadline = hold.deadline;
        for renewal in &acquire.renewals {
            let over = deadline.min(acquire.lost.unwrap_or(u64::MAX));
            let mut breaks = lock.breaks.iter();
            let broken =
                breaks.any(|one| one.sure && one.asked >= hold.ok && one.done < renewal.invoked);
            if renewal.answered > over || broken {
                let text = format!(
                    "the hold of {} with token {} was {} and was renewed at {}",
                    acquire.owner,
                    hold.token,
                    match broken {
                        true => "broken".to_owned(),
                        false => format!("over at {}", show(over)),
                    },
                    show(renewal.answered)
                );
                found.push(lock.violation(Rule::S1, text));
            }
            deadline = deadline.max(renewal.deadline);
        }
    }
}

/// A guard does not say yes after the deadline it tells, nor after its holder was told of the loss.
fn beliefs(lock: &Lock, found: &mut Vec<Violation>) {
    for acquire in &lock.acquires {
        for (asked, deadline) in &acquire.looks {
            let over = (*deadline).min(acquire.lost.unwrap_or(u64::MAX));
            if *asked > over {
                let text = format!(
                    "the hold of {} was over at {} and was believed in at {}",
                    acquire.owner,
                    show(over),
                    show(*asked)
                );
                found.push(lock.violation(Rule::S1, text));
            }
        }
    }
}

/// The holds at one moment.
struct Active<'a> {
    holds: &'a [Valid<'a>],
    alone: BTreeSet<usize>,
    readers: BTreeSet<usize>,
    permits: BTreeSet<usize>,
    taken: u64,
    limits: BTreeMap<u32, usize>,
}

impl<'a> Active<'a> {
    fn new(holds: &'a [Valid<'a>]) -> Active<'a> {
        Active {
            holds,
            alone: BTreeSet::new(),
            readers: BTreeSet::new(),
            permits: BTreeSet::new(),
            taken: 0,
            limits: BTreeMap::new(),
        }
    }

    /// Why a hold must not start now, if so.
    fn conflict(&self, index: usize) -> Option<String> {
        let owner = &self.holds[index].acquire.owner;
        let other = |at: &&usize| self.holds[**at].acquire.owner != *owner;
        let against = match self.holds[index].acquire.mode {
            Mode::Exclusive | Mode::Fair | Mode::Write => {
                let beside = self.alone.iter().chain(&self.readers).find(other);
                beside.or_else(|| self.permits.first())
            }
            Mode::Read => {
                let beside = self.alone.iter().find(other);
                beside.or_else(|| self.permits.first())
            }
            Mode::Permits { limit, count } => {
                let beside = self.alone.first().or_else(|| self.readers.first());
                let smallest = self.limits.keys().next().map_or(limit, |l| limit.min(*l));
                if self.taken + u64::from(count) > u64::from(smallest) && beside.is_none() {
                    return Some(format!(
                        "{} while {} of {smallest} permits were taken",
                        describe(&self.holds[index]),
                        self.taken
                    ));
                }
                beside
            }
        };
        against.map(|at| {
            format!(
                "{} beside {}",
                describe(&self.holds[index]),
                describe(&self.holds[*at])
            )
        })
    }

    fn insert(&mut self, index: usize) {
        match self.holds[index].acquire.mode {
            Mode::Exclusive | Mode::Fair | Mode::Write => drop(self.alone.insert(index)),
            Mode::Read => drop(self.readers.insert(index)),
            Mode::Permits { limit, count } => {
                self.permits.insert(index);
                self.taken += u64::from(count);
                *self.limits.entry(limit).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, index: usize) {
        match self.holds[index].acquire.mode {
            Mode::Exclusive | Mode::Fair | Mode::Write => drop(self.alone.remove(&index)),
            Mode::Read => drop(self.readers.remove(&index)),
            Mode::Permits { limit, count } => {
                self.permits.remove(&index);
                self.taken -= u64::from(count);
                if let Some(uses) = self.limits.get_mut(&limit) {
                    *uses -= 1;
                    if *uses == 0 {
                        self.limits.remove(&limit);
                    }
                }
            }
        }
    }
}

/// A hold as a violation names it.
pub(super) fn describe(valid: &Valid<'_>) -> String {
    format!(
        "{} of {} held {:?} with token {} from {} to {}",
        valid.acquire.owner,
        valid.acquire.process,
        valid.acquire.mode,
        valid.hold.token,
        show(valid.hold.ok),
        show(valid.end)
    )
}

/// A moment as a violation names it.
pub(super) fn show(nanos: u64) -> String {
    format!("{:.6}s", nanos as f64 / 1e9)
}
