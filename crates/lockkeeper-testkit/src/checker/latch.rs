//! A latch counts each count-down once, never more nor less, and opens when none is left.
//!
//! A latch of a history is set once, before anybody else uses it. A count-down of unknown outcome may have counted, once,
//! whenever that was.

use std::collections::HashMap;

use super::exclusion::show;
use super::run::{LatchStep, LatchTold, Run};
use super::{Demands, Rule, Violation};
use crate::history::LatchAsk;

pub(super) fn check(run: &Run, demands: &Demands, found: &mut Vec<Violation>) {
    for (name, steps) in &run.latches {
        // Nobody knows what it was set to, if that.
        let Some(latch) = Latch::of(steps) else {
            continue;
        };
        let mut told = |text: String| {
            found.push(Violation {
                rule: Rule::Latch,
                at: name.clone(),
                text,
            });
        };
        latch.counts(&mut told);
        latch.count_downs(&mut told);
        if let Some(linger) = demands.linger {
            latch.waits(linger.as_nanos() as u64, &mut told);
        }
    }
}

struct Latch<'a> {
    steps: &'a [LatchStep],
    set: u32,
    /// When it was to be opened whatever its count, if ever.
    opened: u64,
}

impl<'a> Latch<'a> {
    fn of(steps: &'a [LatchStep]) -> Option<Latch<'a>> {
        let mut sets = steps
            .iter()
            .filter(|step| matches!(step.ask, LatchAsk::Set(_)));
        let (first, None) = (sets.next()?, sets.next()) else {
            return None;
        };
        let LatchAsk::Set(set) = first.ask else {
            return None;
        };
        let opened = steps.iter().filter(|step| step.ask == LatchAsk::Open);
        (first.told == Some(LatchTold::Changed(true))).then(|| Latch {
            steps,
            set,
            opened: opened.map(|step| step.invoked).min().unwrap_or(u64::MAX),
        })
    }

    fn count_down(&self) -> impl Iterator<Item = &LatchStep> {
        let steps = self.steps.iter();
        steps.filter(|step| step.ask == LatchAsk::CountDown)
    }

    /// Every count that was told lies between what has certainly been counted and what may have been.
    fn counts(&self, told: &mut impl FnMut(String)) {
        for step in self.steps {
            let (Some(LatchTold::Count(count)), Some(completed)) = (step.told, step.completed)
            else {
                continue;
            };
            let may = self.count_down();
            let may = may.filter(|one| !one.failed && one.invoked < completed);
            let lowest = match self.opened < completed {
                true => 0,
                false => u64::from(self.set).saturating_sub(may.count() as u64),
            };
            let sure = self.count_down().filter(|one| {
                let itself = std::ptr::eq(*one, step);
                let before = one.completed.is_some_and(|at| at < step.invoked);
                one.told.is_some() && (before || itself)
            });
            let highest = u64::from(self.set).saturating_sub(sure.count() as u64);
            // A wait that gave up says that it is not open, and no more.
            let range = match step.ask {
                LatchAsk::Wait if count > 0 => continue,
                _ => lowest..=highest,
            };
            if step.ask == LatchAsk::Wait && lowest == 0 {
                continue;
            }
            if !range.contains(&u64::from(count)) {
                told(format!(
                    "set to {}, and {:?} was told {count} at {}, where {lowest} to {highest} were possible",
                    self.set,
                    step.ask,
                    show(completed)
                ));
            }
        }
    }

    /// No two count-downs leave the same, but for nothing.
    fn count_downs(&self, told: &mut impl FnMut(String)) {
        let mut seen: HashMap<u32, u64> = HashMap::new();
        for step in self.count_down() {
            let (Some(LatchTold::Count(count @ 1..)), Some(at)) = (step.told, step.completed)
            else {
                continue;
            };
            if let Some(first) = seen.insert(count, at) {
                told(format!(
                    "count-downs at {} and at {} both left {count}",
                    show(first),
                    show(at)
                ));
            }
        }
    }

    /// Nobody waits on for a latch that is open.
    fn waits(&self, linger: u64, told: &mut impl FnMut(String)) {
        let ends = self.count_down().filter(|step| step.told.is_some());
        let mut ends: Vec<u64> = ends.filter_map(|step| step.completed).collect();
        ends.sort_unstable();
        let Some(open) = ends.get((self.set as usize).saturating_sub(1)) else {
            return;
        };
        for step in self.steps.iter().filter(|step| step.ask == LatchAsk::Wait) {
            let (Some(LatchTold::Count(count)), Some(completed)) = (step.told, step.completed)
            else {
                continue;
            };
            let since = (*open).max(step.invoked);
            let late = completed.saturating_sub(since) > linger;
            if late || count > 0 && step.invoked > *open {
                told(format!(
                    "it was open at {}, and a wait ended at {} with {count} left",
                    show(*open),
                    show(completed)
                ));
            }
        }
    }
}
