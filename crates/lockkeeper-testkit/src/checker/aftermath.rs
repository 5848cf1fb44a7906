//! L2: once faults are over there is progress. L3: a holder is told of its loss. L4: nothing is left behind.

use std::time::Duration;

use super::exclusion::show;
use super::run::{Acquire, Lock, Run};
use super::{Demands, Rule, Violation};
use crate::history::Fault;

/// Checks what the demands name, and whatever was found left behind.
pub(super) fn check(run: &Run, demands: &Demands, found: &mut Vec<Violation>) {
    if let Some(recovery) = demands.recovery {
        recovered(run, recovery, found);
    }
    if let Some(notice) = demands.notice {
        for lock in run.locks.values() {
            told(run, lock, notice, found);
        }
    }
    found.extend(run.left.iter().map(|what| Violation {
        rule: Rule::L4,
        at: "the store".into(),
        text: format!("left behind: {what}"),
    }));
}

fn recovered(run: &Run, recovery: Duration, found: &mut Vec<Violation>) {
    let acquires = run.locks.values().flat_map(|lock| &lock.acquires);
    let mut grants: Vec<u64> = acquires
        .filter_map(|acquire| Some(acquire.hold()?.ok))
        .collect();
    grants.sort_unstable();
    for healed in &run.healed {
        let next = grants.partition_point(|at| at <= healed);
        let took = grants.get(next).map(|at| at - healed);
        if took.is_none_or(|took| u128::from(took) > recovery.as_nanos()) {
            let took = took.map_or("never".into(), |took| format!("after {}", show(took)));
            found.push(Violation {
                rule: Rule::L2,
                at: "the store".into(),
                text: format!("healed at {}, the next grant came {took}", show(*healed)),
            });
        }
    }
}

/// A holder that still holds at its deadline has to be told. A process that was stopped is told when it goes on.
fn told(run: &Run, lock: &Lock, notice: Duration, found: &mut Vec<Violation>) {
    let stopped = |acquire: &Acquire| {
        let mut faults = run.faults.iter();
        faults.any(
            |(_, fault)| matches!(fault, Fault::Stopped { process } if *process == acquire.process),
        )
    };
    let end = run.end();
    for acquire in &lock.acquires {
        let Some(deadline) = acquire.deadline() else {
            continue;
        };
        let latest = deadline.saturating_add(notice.as_nanos() as u64);
        let ended = [acquire.release_invoked(), acquire.lost, acquire.killed];
        let in_time = ended.into_iter().flatten().any(|at| at <= latest);
        let broken = lock.broken(acquire).is_some();
        if !in_time && !broken && latest < end && !stopped(acquire) {
            let text = format!(
                "{} held until {} and was told of its loss {}",
                acquire.owner,
                show(deadline),
                acquire.lost.map_or("never".into(), show)
            );
            found.push(lock.violation(Rule::L3, text));
        }
    }
}
