//! Fair locks are granted in the order of the line, as far as the line can be seen from outside.
//!
//! A store tells how many claims wait. When that is as many as there are acquires under way, each of these is in line, and
//! whatever is asked for after the look comes behind them.

use super::exclusion::show;
use super::run::{Acquire, Lock, Outcome, Run, Seen};
use super::{Demands, Rule, Violation};
use crate::history::Mode;

/// How long a claim that was given up may still be leaving the line, while nothing is broken.
const LEAVING: u64 = 1_000_000_000;

/// Compares the fair acquires of each full line with those that came later. Answers how many pairs there were.
pub(super) fn check(
    run: &Run,
    lock: &Lock,
    demands: &Demands,
    found: &mut Vec<Violation>,
) -> usize {
    let linger = demands.linger.map_or(0, |linger| linger.as_nanos() as u64);
    let mut fair: Vec<&Acquire> = lock.acquires.iter().collect();
    fair.retain(|acquire| acquire.mode == Mode::Fair);
    let mut pairs = 0;
    for (seen, completed) in lock.lines.iter().filter_map(|s| Some((s, s.completed?))) {
        if !is_whole(lock, seen, completed) {
            continue;
        }
        let in_line = fair
            .iter()
            .filter(|a| a.invoked < seen.invoked && a.completed.is_none_or(|at| at > completed));
        let in_line: Vec<(&Acquire, u64)> = in_line
            .filter_map(|acquire| Some((*acquire, acquire.hold()?.ok)))
            .collect();
        let later = fair.iter().filter(|acquire| acquire.invoked > completed);
        // Not what its owner had already, and entered again.
        let later = later.filter_map(|next| Some((next, next.hold()?)));
        for (next, ok) in later.filter(|(_, h)| h.depth <= 1).map(|(n, h)| (n, h.ok)) {
            for (first, first_ok) in &in_line {
                let until = ok.max(*first_ok);
                // A process that was cut off or stopped may have lost its place.
                if disturbed(run, first.invoked, until, linger) {
                    continue;
                }
                pairs += 1;
                if ok < *first_ok {
                    let text = format!(
                        "{} asked at {} and was granted at {}, before {}, which was in line at {} and was granted at {}",
                        next.owner,
                        show(next.invoked),
                        show(ok),
                        first.owner,
                        show(completed),
                        show(*first_ok)
                    );
                    found.push(lock.violation(Rule::Order, text));
                }
            }
        }
    }
    pairs
}

/// Whether as many claims waited as acquires were under way. One that ended a while ago may still be leaving the line.
fn is_whole(lock: &Lock, seen: &Seen, completed: u64) -> bool {
    let under_way = lock.acquires.iter().filter(|acquire| {
        let waits_until = match (&acquire.outcome, acquire.completed) {
            (Outcome::Granted(_), Some(at)) => at,
            (_, Some(at)) => at.saturating_add(LEAVING),
            (_, None) => u64::MAX,
        };
        acquire.invoked < completed && waits_until > seen.invoked
    });
    seen.waiting.is_some_and(|waiting| waiting > 0) && seen.waiting == Some(under_way.count())
}

fn disturbed(run: &Run, from: u64, until: u64, linger: u64) -> bool {
    let mut troubles = run.troubles.iter();
    troubles.any(|(start, end)| *start < until && end.saturating_add(linger) > from)
}
