//! S2: tokens grow in the order of grants, are unique, and stay the same across re-entry.

use std::collections::HashMap;

use super::exclusion::describe;
use super::run::{Acquire, Lock, Valid};
use super::{Rule, Violation};
use crate::history::Mode;

/// Compares every grant with the highest token it must exceed.
pub(super) fn check(lock: &Lock, found: &mut Vec<Violation>) {
    let holds = lock.valid_holds();
    let fresh = grants(&holds);
    unique(lock, &fresh, found);
    by_invocation(lock, &fresh, found);
    by_hold(lock, &fresh, found);
    same_across_reentry(lock, &holds, found);
}

/// One grant of the store. Readers of one process may share it, and its token.
#[derive(Clone, Copy)]
struct Fresh<'a> {
    valid: Valid<'a>,
    /// When the first of those who share it asked, and when the first was told.
    invoked: u64,
    ok: u64,
}

/// The grants of the store, in order of their answers.
fn grants<'a>(holds: &[Valid<'a>]) -> Vec<Fresh<'a>> {
    let mut shared: HashMap<(&str, u64), usize> = HashMap::new();
    let mut fresh: Vec<Fresh<'a>> = Vec::with_capacity(holds.len());
    for valid in holds.iter().filter(|valid| valid.hold.depth <= 1) {
        let Acquire { invoked, .. } = *valid.acquire;
        if valid.acquire.mode == Mode::Read {
            let key = (valid.acquire.process.as_str(), valid.hold.token);
            if let Some(first) = shared.get(&key) {
                let first = &mut fresh[*first];
                first.invoked = first.invoked.min(invoked);
                continue;
            }
            shared.insert(key, fresh.len());
        }
        fresh.push(Fresh {
            valid: *valid,
            invoked,
            ok: valid.hold.ok,
        });
    }
    fresh
}

fn unique(lock: &Lock, fresh: &[Fresh<'_>], found: &mut Vec<Violation>) {
    let mut seen: HashMap<u64, &Valid<'_>> = HashMap::new();
    for Fresh { valid, .. } in fresh {
        if let Some(first) = seen.insert(valid.hold.token, valid) {
            let text = format!("{} and {}", describe(first), describe(valid));
            found.push(lock.violation(Rule::S2, format!("one token twice: {text}")));
        }
    }
}

/// A grant that was answered before another was asked for has the lower token. A reader may share a grant that was asked for
/// before it came, by a task of its process that has gone; so readers are not compared with each other.
fn by_invocation(lock: &Lock, fresh: &[Fresh<'_>], found: &mut Vec<Violation>) {
    let mut asked: Vec<&Fresh<'_>> = fresh.iter().collect();
    asked.sort_by_key(|one| one.invoked);
    let (mut any, mut excluding) = (None, None);
    let mut answered = fresh.iter().peekable();
    for one in asked {
        let acquire = one.valid.acquire;
        if acquire.since < acquire.invoked && lock.broken(acquire).is_some_and(|at| at < one.ok) {
            // Handed on by one that did not know of the break: its token is out of date.
            continue;
        }
        while let Some(before) = answered.next_if(|before| before.ok < one.invoked) {
            raise(&mut any, before.valid);
            if before.valid.acquire.mode != Mode::Read {
                raise(&mut excluding, before.valid);
            }
        }
        let high = match one.valid.acquire.mode {
            Mode::Read => excluding,
            _ => any,
        };
        report(lock, high, &one.valid, found);
    }
}

/// Holds that exclude each other follow each other, so the one believed in later was granted later, however long ago
/// it was asked for.
fn by_hold(lock: &Lock, fresh: &[Fresh<'_>], found: &mut Vec<Violation>) {
    let (mut any, mut alone) = (None, None);
    let mut starting: Vec<Valid<'_>> = Vec::new();
    let valid = fresh.iter().map(|one| one.valid);
    for valid in valid.filter(|valid| valid.end > valid.hold.ok && !valid.acquire.downgraded) {
        // Holds that start at one moment tell nothing about each other.
        if starting
            .first()
            .is_some_and(|first| first.hold.ok < valid.hold.ok)
        {
            for before in starting.drain(..) {
                raise(&mut any, before);
                if before.acquire.mode.is_alone() {
                    raise(&mut alone, before);
                }
            }
        }
        starting.push(valid);
        let high = match valid.acquire.mode.is_alone() {
            true => any,
            false => alone,
        };
        report(lock, high, &valid, found);
    }
}

fn raise<'a>(highest: &mut Option<Valid<'a>>, valid: Valid<'a>) {
    if highest.is_none_or(|high| high.hold.token < valid.hold.token) {
        *highest = Some(valid);
    }
}

fn report(lock: &Lock, earlier: Option<Valid<'_>>, valid: &Valid<'_>, found: &mut Vec<Violation>) {
    // An equal token is the business of `unique`.
    if let Some(earlier) = earlier.filter(|high| high.hold.token > valid.hold.token) {
        let text = format!("{} after {}", describe(valid), describe(&earlier));
        found.push(lock.violation(Rule::S2, format!("a lower token later: {text}")));
    }
}

/// What an owner enters again while it holds carries the same token.
fn same_across_reentry(lock: &Lock, holds: &[Valid<'_>], found: &mut Vec<Violation>) {
    let mut current: HashMap<&str, &Valid<'_>> = HashMap::new();
    let entered = |v: &&Valid<'_>| !matches!(v.acquire.mode, Mode::Permits { .. });
    for valid in holds.iter().filter(entered) {
        let owner = valid.acquire.owner.as_str();
        match current.get(owner) {
            Some(outer) if outer.end > valid.hold.ok => {
                let alone = valid.acquire.mode.is_alone() && outer.acquire.mode.is_alone();
                // A writer may hold for reading as well, on its way to be a reader.
                let again = valid.hold.depth > 1 || alone;
                if again && outer.hold.token != valid.hold.token {
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
