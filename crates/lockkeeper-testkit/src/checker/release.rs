//! S4: a release that says so freed the lock, once, and any other changed nothing. S5: re-entry is counted.

use std::collections::BTreeMap;

use super::exclusion::{describe, show};
use super::run::{Acquire, Lock, Valid};
use super::{Rule, Violation};
use crate::history::{Answer, Mode};

/// Checks every release of one lock, and the depths that were told.
pub(super) fn check(lock: &Lock, found: &mut Vec<Violation>) {
    for acquire in lock.acquires.iter().filter(|a| !a.releases.is_empty()) {
        by_others(lock, acquire, found);
        twice(lock, acquire, found);
        too_early(lock, acquire, found);
    }
    forged(lock, found);
    depths(lock, found);
}

/// Only the owner can let go.
fn by_others(lock: &Lock, acquire: &Acquire, found: &mut Vec<Violation>) {
    for release in acquire.releases.iter().filter(|r| r.owner != acquire.owner) {
        if matches!(
            release.answer,
            Some(Answer::Released | Answer::StillHeld { .. })
        ) {
            let text = format!(
                "{} let go of the hold of {} at {}",
                release.owner,
                acquire.owner,
                show(release.invoked)
            );
            found.push(lock.violation(Rule::S4, text));
        }
    }
}

fn twice(lock: &Lock, acquire: &Acquire, found: &mut Vec<Violation>) {
    let released = acquire.releases.iter();
    let released = released.filter(|r| r.answer == Some(Answer::Released));
    if released.count() > 1 {
        let text = format!("a hold of {} was released twice", acquire.owner);
        found.push(lock.violation(Rule::S4, text));
    }
}

/// Before its deadline a hold is there, unless it was released or broken.
fn too_early(lock: &Lock, acquire: &Acquire, found: &mut Vec<Violation>) {
    let (Some(hold), Some(deadline)) = (acquire.hold(), acquire.deadline()) else {
        return;
    };
    let Some(first) = acquire.releases.first() else {
        return;
    };
    let gone = first.answer == Some(Answer::NotHeld);
    let in_time = first.completed.is_some_and(|at| at < deadline);
    let broken = lock.broken(acquire);
    let unbroken = broken.is_none_or(|at| first.completed.is_some_and(|done| at > done));
    if gone && in_time && unbroken && hold.depth <= 1 && acquire.lost.is_none() {
        let text = format!(
            "the hold of {} with token {} was gone at {}, before its deadline at {}",
            acquire.owner,
            hold.token,
            first.completed.map_or_else(String::new, show),
            show(deadline)
        );
        found.push(lock.violation(Rule::S4, text));
    }
}

/// A hold that someone else's exclusive grant came between was over, so its release cannot have freed it.
fn forged(lock: &Lock, found: &mut Vec<Violation>) {
    let mut between: Vec<Valid<'_>> = lock.valid_holds();
    between.retain(|valid| valid.acquire.mode.is_alone() && valid.hold.depth <= 1);
    for acquire in &lock.acquires {
        let (Some(hold), Some(release)) = (acquire.hold(), acquire.released()) else {
            continue;
        };
        // Letting go of what is handed on or shared asks no store, which alone knows that it was broken.
        let local = matches!(acquire.mode, Mode::Exclusive | Mode::Read);
        let broken = lock.broken(acquire).is_some_and(|at| at < release.invoked);
        if local && broken {
            continue;
        }
        let from = between.partition_point(|valid| valid.hold.ok <= hold.ok);
        let to = between.partition_point(|valid| valid.hold.ok < release.invoked);
        // Whatever was granted in time is S1's business as well; one witness is enough.
        let witness = between[from.min(to)..to]
            .iter()
            .find(|valid| valid.acquire.invoked > hold.ok && valid.acquire.owner != acquire.owner);
        if let Some(witness) = witness {
            let text = format!(
                "the release of token {} by {} at {} said it freed the lock, after {}",
                hold.token,
                acquire.owner,
                show(release.invoked),
                describe(witness)
            );
            found.push(lock.violation(Rule::S4, text));
        }
    }
}

/// Counts each owner in and out, token by token.
fn depths(lock: &Lock, found: &mut Vec<Violation>) {
    for steps in steps(lock).values() {
        let mut depth = 0u32;
        for step in steps {
            let before = depth;
            let right = match step.told {
                Told::In(told) => {
                    depth += 1;
                    told == depth
                }
                Told::Out(told) => {
                    depth = depth.saturating_sub(1);
                    before > 0 && told == depth
                }
            };
            if !right {
                let text = format!(
                    "{} was {before} deep and was told {:?} at {}",
                    step.owner,
                    step.told,
                    show(step.at)
                );
                found.push(lock.violation(Rule::S5, text));
                break;
            }
        }
    }
}

struct Step<'a> {
    at: u64,
    owner: &'a str,
    told: Told,
}

/// A depth that an owner was told.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// On the way in, with this acquire.
    In(u32),
    /// On the way out, after this release; 0 is free.
    Out(u32),
}

/// What each owner was told under each token, in order. Permits are not entered again.
fn steps(lock: &Lock) -> BTreeMap<(&str, u64), Vec<Step<'_>>> {
    let mut steps: BTreeMap<(&str, u64), Vec<Step<'_>>> = BTreeMap::new();
    for acquire in &lock.acquires {
        let Some(hold) = acquire.hold() else { continue };
        if let Mode::Permits { .. } = acquire.mode {
            continue;
        }
        let owner = acquire.owner.as_str();
        let list = steps.entry((owner, hold.token)).or_default();
        list.push(Step {
            at: hold.ok,
            owner,
            told: Told::In(hold.depth),
        });
        for release in acquire.releases.iter().filter(|r| r.owner == owner) {
            let told = match release.answer {
                Some(Answer::Released) => Told::Out(0),
                Some(Answer::StillHeld { depth }) => Told::Out(depth),
                _ => continue,
            };
            list.push(Step {
                at: release.completed.unwrap_or(release.invoked),
                owner,
                told,
            });
        }
    }
    for list in steps.values_mut() {
        list.sort_by_key(|step| step.at);
    }
    steps
}
