//! How much a run has seen: what decides whether it proves anything.

use super::run::{Acquire, LatchTold, Lock, Outcome, Run, Valid};
use super::{FaultKind, Kind, Stats};
use crate::history::{Answer, Fault, LatchAsk, Mode};

impl Run {
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            unknown: self.unknown,
            ..Stats::default()
        };
        for lock in self.locks.values() {
            let holds = lock.valid_holds();
            stats.locks += usize::from(!holds.is_empty());
            stats.grants += holds.len();
            for valid in &holds {
                for kind in kinds(valid) {
                    *stats.kinds.entry(kind).or_default() += 1;
                }
            }
            stats.contended += contended(lock, &holds);
            let expired = expiries(&holds);
            if expired > 0 {
                *stats.faults.entry(FaultKind::HoldExpired).or_default() += expired;
            }
        }
        let steps = self.latches.values().flatten();
        let opened = steps
            .filter(|step| step.ask == LatchAsk::Wait && step.told == Some(LatchTold::Count(0)));
        stats.kinds.insert(Kind::Latch, opened.count());
        let answers = self.writes.values().flatten().map(|write| &write.answer);
        let refused = answers.filter(|a| matches!(a, Some(Answer::Refused { .. })));
        let refused = refused.count();
        if refused > 0 {
            stats.faults.insert(FaultKind::WriteRefused, refused);
        }
        let writes = self.writes.values().flatten();
        let accepted = writes.filter(|w| matches!(w.answer, Some(Answer::Accepted { .. })));
        stats.accepted = accepted.count();
        for (at, fault) in &self.faults {
            if let Some(kind) = self.bitten(*at, fault) {
                *stats.faults.entry(kind).or_default() += 1;
            }
        }
        stats
    }

    /// The kind of a fault, if it hit something.
    fn bitten(&self, at: u64, fault: &Fault) -> Option<FaultKind> {
        match fault {
            Fault::Killed { process } => self
                .any_hold(process, |_, acquire| {
                    acquire.releases.is_empty() && acquire.deadline().is_some_and(|end| end >= at)
                })
                .then_some(FaultKind::HolderKilled),
            Fault::Stopped { process } => self
                .any_hold(process, |lock, acquire| {
                    let start = acquire.hold().map(|hold| hold.ok);
                    start.is_some_and(|ok| ok <= at) && lock.end(acquire) >= Some(at)
                })
                .then_some(FaultKind::HolderStopped),
            other => FaultKind::of(other),
        }
    }

    fn any_hold(&self, process: &str, is: impl Fn(&Lock, &Acquire) -> bool) -> bool {
        let mut locks = self.locks.values();
        locks.any(|lock| {
            let own = lock.acquires.iter().filter(|a| a.process == process);
            own.filter(|a| a.hold().is_some()).any(|a| is(lock, a))
        })
    }
}

/// As what a hold counts.
fn kinds(valid: &Valid<'_>) -> impl Iterator<Item = Kind> {
    let Acquire {
        mode,
        together,
        downgraded,
        ..
    } = valid.acquire;
    let mode = match mode {
        Mode::Exclusive => Kind::Exclusive,
        Mode::Fair => Kind::Fair,
        Mode::Write => Kind::Write,
        Mode::Read => Kind::Read,
        Mode::Permits { .. } => Kind::Permits,
    };
    let more = [
        together.map(|_| Kind::Together),
        downgraded.then_some(Kind::Downgraded),
        (valid.hold.depth > 1).then_some(Kind::Reentered),
    ];
    std::iter::once(mode).chain(more.into_iter().flatten())
}

/// Acquires that were told busy, or waited while another owner held.
fn contended(lock: &Lock, holds: &[Valid<'_>]) -> usize {
    // The latest end among holds that started up to each one, so that one lookup answers.
    let mut latest: Vec<(u64, u64)> = Vec::with_capacity(holds.len());
    for valid in holds {
        let before = latest.last().map_or(0, |(_, end)| *end);
        latest.push((valid.hold.ok, before.max(valid.end)));
    }
    let met = |acquire: &&Acquire| match &acquire.outcome {
        Outcome::Busy => true,
        Outcome::Granted(hold) => {
            let before = latest.partition_point(|(ok, _)| *ok < hold.ok);
            before > 0 && latest[before - 1].1 > acquire.invoked
        }
        _ => false,
    };
    lock.acquires.iter().filter(met).count()
}

/// Holds that nobody released or was killed with, and after which another owner was granted the lock.
fn expiries(holds: &[Valid<'_>]) -> usize {
    let ended = |(index, valid): (usize, &Valid<'_>)| {
        let released = valid.acquire.releases.iter().any(|r| match r.answer {
            Some(Answer::Released | Answer::StillHeld { .. } | Answer::Dropped) => true,
            // In doubt, unless the hold was over before.
            None => r.invoked <= valid.end,
            Some(_) => false,
        });
        let later = &holds[index + 1..];
        !released
            && valid.acquire.killed.is_none()
            && later
                .iter()
                .any(|next| next.acquire.owner != valid.acquire.owner && next.hold.ok >= valid.end)
    };
    holds.iter().enumerate().filter(|pair| ended(*pair)).count()
}
