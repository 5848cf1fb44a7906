//! S2: tokens grow in the order of grants, are unique, and stay the same across re-entry.

use std::collections::HashMap;

use super::exclusion::describe;
use super::run::{Lock, Valid};
use super::{Rule, Violation};
use crate::history::Mode;

/// Compares every grant with the highest token it must exceed.
///
/// Readers of one process share one grant of the store, so shared holds are compared with exclusive ones only.
pub(super) fn check(lock: &Lock, found: &mut Vec<Violation>) {
    let holds = lock.valid_holds();
    let fresh: Vec<Valid<'_>> = holds
        .iter()
        .filter(|v| v.hold.depth <= 1)
        .copied()
        .collect();
    unique(lock, &fresh, found);
    by_invocation(lock, &fresh, found);
    by_hold(lock, &fresh, found);
    same_across_reentry(lock, &holds, found);
}

fn unique(lock: &Lock, fresh: &[Valid<'_>], found: &mut Vec<Violation>) {
    let mut seen: HashMap<u64, &Valid<'_>> = HashMap::new();
    for valid in fresh {
        let alone = valid.acquire.mode == Mode::Alone;
        match seen.get(&valid.hold.token) {
            Some(first) if alone || first.acquire.mode == Mode::Alone => {
                let text = format!("{} and {}", describe(first), describe(valid));
                found.push(lock.violation(Rule::S2, format!("one token twice: {text}")));
            }
            _ => drop(seen.insert(valid.hold.token, valid)),
        }
    }
}

/// The highest token so far, of all grants and of exclusive ones.
#[derive(Default)]
struct Highest<'a> {
    any: Option<Valid<'a>>,
    alone: Option<Valid<'a>>,
}

impl<'a> Highest<'a> {
    fn add(&mut self, valid: Valid<'a>) {
        let raise = |slot: &mut Option<Valid<'a>>| {
            if slot.is_none_or(|high| high.hold.token < valid.hold.token) {
                *slot = Some(valid);
            }
        };
        raise(&mut self.any);
        if valid.acquire.mode == Mode::Alone {
            raise(&mut self.alone);
        }
    }

    /// The earlier grant whose token this one fails to exceed.
    fn exceeded_by(&self, valid: &Valid<'a>) -> Option<Valid<'a>> {
        let high = match valid.acquire.mode {
            Mode::Alone => self.any,
            _ => self.alone,
        };
        // An equal token is the business of `unique`.
        high.filter(|high| high.hold.token > valid.hold.token)
    }
}

/// A grant that was answered before another was asked for has the lower token.
fn by_invocation(lock: &Lock, fresh: &[Valid<'_>], found: &mut Vec<Violation>) {
    let mut asked: Vec<&Valid<'_>> = fresh.iter().collect();
    asked.sort_by_key(|valid| valid.acquire.invoked);
    let mut highest = Highest::default();
    let mut answered = fresh.iter().peekable();
    for valid in asked {
        while let Some(before) = answered.next_if(|b| b.hold.ok < valid.acquire.invoked) {
            highest.add(*before);
        }
        report(lock, highest.exceeded_by(valid), valid, found);
    }
}

/// Exclusive holds follow each other, so the one believed in later was granted later, however long ago it
/// was asked for.
fn by_hold(lock: &Lock, fresh: &[Valid<'_>], found: &mut Vec<Violation>) {
    let mut highest = Highest::default();
    let mut starting: Vec<Valid<'_>> = Vec::new();
    for valid in fresh.iter().filter(|valid| valid.end > valid.hold.ok) {
        // Holds that start at one moment tell nothing about each other.
        if starting
            .first()
            .is_some_and(|first| first.hold.ok < valid.hold.ok)
        {
            starting.drain(..).for_each(|before| highest.add(before));
        }
        starting.push(*valid);
        report(lock, highest.exceeded_by(valid), valid, found);
    }
}

fn report(lock: &Lock, earlier: Option<Valid<'_>>, valid: &Valid<'_>, found: &mut Vec<Violation>) {
    if let Some(earlier) = earlier {
        let text = format!("{} after {}", describe(valid), describe(&earlier));
        found.push(lock.violation(Rule::S2, format!("a lower token later: {text}")));
    }
}

/// While an owner holds alone, whatever else it is granted alone carries the same token.
fn same_across_reentry(lock: &Lock, holds: &[Valid<'_>], found: &mut Vec<Violation>) {
    let mut current: HashMap<&str, &Valid<'_>> = HashMap::new();
    for valid in holds.iter().filter(|v| v.acquire.mode == Mode::Alone) {
        let owner = valid.acquire.owner.as_str();
        match current.get(owner) {
            Some(outer) if outer.end > valid.hold.ok => {
                if outer.hold.token != valid.hold.token {
                    let text = format!("{} within {}", describe(valid), describe(outer));
                    found.push(lock.violation(Rule::S2, format!("the token changed: {text}")));
                }
                if valid.end > outer.end {
                    current.insert(owner, valid);
                }
            }
            _ => drop(current.insert(owner, valid)),
        }
    }
}
