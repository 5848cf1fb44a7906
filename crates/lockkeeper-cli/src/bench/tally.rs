//! What was counted in a window, for one task, for one process, or for all.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::counting::Ops;
use super::lap::Lap;
use lockkeeper::clock::Moment;

/// Longer waits are counted as this long.
const LONGEST: u64 = 600_000_000_000;

/// Durations in nanoseconds, to two digits.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Times {
    pub fn new() -> Times {
        match Histogram::new_with_bounds(1, LONGEST, 2) {
            Ok(times) => Times(times),
            Err(error) => unreachable!("the bounds are fine: {error}"),
        }
    }

    pub fn record(&mut self, d: Duration) {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.max(1));
    }

    pub fn add(&mut self, other: &Times) {
        // Same bounds: nothing to refuse.
        let _ = self.0.add(&other.0);
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds.
    pub fn quantile(&self, q: f64) -> f64 {
        self.0.value_at_quantile(q) as f64 / 1000.0
    }

    /// In microseconds.
    pub fn max(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }
}

// A child sends its histogram as the values that occur, each with its count.
impl Serialize for Times {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let recorded = self.0.iter_recorded();
        serializer.collect_seq(recorded.map(|v| (v.value_iterated_to(), v.count_at_value())))
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Times, D::Error> {
        let mut times = Times::new();
        for (value, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            times.0.saturating_record_n(value, count);
        }
        Ok(times)
    }
}

/// What one task did in a window.
#[derive(Clone, Debug)]
pub struct Counted {
    pub pairs: u64,
    /// Pairs that ended past the window.
    pub late: u64,
    pub wait: Times,
    pub release: Times,
    pub pair: Times,
}

impl Counted {
    pub fn new() -> Counted {
        Counted {
            pairs: 0,
            late: 0,
            wait: Times::new(),
            release: Times::new(),
            pair: Times::new(),
        }
    }

    /// A timed pair is over. One that ended past the window tells how long it took, but is none of the
    /// window's pairs: else even a task that starved would have one.
    pub fn record(&mut self, lap: &Lap, done: Moment, end: Moment) {
        self.wait.record(lap.waited());
        self.release.record(done.since(lap.releasing()));
        self.pair.record(done.since(lap.asked));
        self.pairs += u64::from(done <= end);
        self.late += u64::from(done > end);
    }
}

/// What everyone did in a window, or in several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// How long the windows were, together.
    pub seconds: f64,
    /// Pairs of each task.
    pub tasks: Vec<u64>,
    /// Pairs of each process.
    pub processes: Vec<u64>,
    /// Pairs that ended past a window. They are nobody's, but what they asked for is counted.
    pub late: u64,
    pub wait: Times,
    pub release: Times,
    pub pair: Times,
    /// What was asked of the store; `None` where it cannot be counted.
    pub ops: Option<Ops>,
    /// Commands that a server was sent; `None` where no server counts them.
    pub commands: Option<u64>,
}

impl Tally {
    /// The tasks of one process in one window.
    pub fn of(counted: Vec<Counted>, window: Duration, ops: Option<Ops>) -> Tally {
        let mut tally = Tally {
            seconds: window.as_secs_f64(),
            tasks: counted.iter().map(|task| task.pairs).collect(),
            processes: vec![counted.iter().map(|task| task.pairs).sum()],
            late: counted.iter().map(|task| task.late).sum(),
            wait: Times::new(),
            release: Times::new(),
            pair: Times::new(),
            ops,
            commands: None,
        };
        for task in &counted {
            tally.wait.add(&task.wait);
            tally.release.add(&task.release);
            tally.pair.add(&task.pair);
        }
        tally
    }

    pub fn pairs(&self) -> u64 {
        self.processes.iter().sum()
    }

    pub fn rate(&self) -> f64 {
        self.pairs() as f64 / self.seconds
    }

    /// Another process in the same window.
    pub fn beside(&mut self, other: Tally) {
        self.tasks.extend(&other.tasks);
        self.processes.extend(&other.processes);
        self.add_times(&other);
    }

    /// The same tasks in another window.
    pub fn then(&mut self, other: &Tally) {
        let add = |to: &mut Vec<u64>, from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        self.seconds += other.seconds;
        add(&mut self.tasks, &other.tasks);
        add(&mut self.processes, &other.processes);
        self.add_times(other);
    }

    fn add_times(&mut self, other: &Tally) {
        self.late += other.late;
        self.wait.add(&other.wait);
        self.release.add(&other.release);
        self.pair.add(&other.pair);
        self.ops = self.ops.zip(other.ops).map(|(a, b)| a + b);
        self.commands = self.commands.zip(other.commands).map(|(a, b)| a + b);
    }
}

/// The middle of some numbers; 0 of none.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn times_survive_the_way_from_a_child() {
        let mut times = Times::new();
        for micros in [1, 5, 5, 1_000_000] {
            times.record(Duration::from_micros(micros));
        }
        let text = serde_json::to_string(&times).expect("writes");
        let back: Times = serde_json::from_str(&text).expect("reads back");
        assert_eq!(back.count(), 4);
        assert_eq!(back.quantile(0.5), times.quantile(0.5));
    }

    #[test]
    fn windows_add_up_and_processes_stand_beside_each_other() {
        let task = |pairs| Counted {
            pairs,
            ..Counted::new()
        };
        let second = Duration::from_secs(1);
        let mut tally = Tally::of(vec![task(1), task(2)], second, None);
        tally.then(&Tally::of(vec![task(3), task(4)], second, None));
        tally.beside(Tally::of(vec![task(9)], second, None));
        assert_eq!(tally.tasks, [4, 6, 9]);
        assert_eq!(tally.processes, [10, 9]);
        assert_eq!(tally.rate(), 9.5);
    }
}
