//! A `MultiLock` has all of its locks, or none.

use std::collections::BTreeMap;

use super::exclusion::show;
use super::run::{Acquire, Outcome, Run};
use super::{Rule, Violation};

/// Looks for a `MultiLock` of which one acquire was granted and another was not. One that was killed before it could
/// write down all of its answers tells nothing.
pub(super) fn check(run: &Run, found: &mut Vec<Violation>) {
    let mut all: BTreeMap<(&str, u64), Vec<(&str, &Acquire)>> = BTreeMap::new();
    for lock in run.locks.values() {
        for acquire in &lock.acquires {
            if let Some(number) = acquire.together {
                let parts = all.entry((acquire.process.as_str(), number)).or_default();
                parts.push((&lock.name, acquire));
            }
        }
    }
    for parts in all.values() {
        let granted = |part: &&(&str, &Acquire)| part.1.hold().is_some();
        let refused =
            |part: &&(&str, &Acquire)| matches!(part.1.outcome, Outcome::Busy | Outcome::Failed);
        if let (Some((lock, acquire)), Some((other, _))) =
            (parts.iter().find(granted), parts.iter().find(refused))
        {
            found.push(Violation {
                rule: Rule::Together,
                at: (*lock).to_owned(),
                text: format!(
                    "{} asked for it at {} together with {other:?}, and was granted this one alone",
                    acquire.owner,
                    show(acquire.invoked)
                ),
            });
        }
    }
}
