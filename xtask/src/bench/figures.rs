//! What one window, and what all windows of a peer in a scenario, amount to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::process::Answer;

/// The figures of one window, or the medians of several. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub pairs_per_second: f64,
    pub wait_p50: f64,
    /// Of all acquires: few of them are long where one task takes the lock again and again while others starve.
    pub wait_p99: f64,
    pub wait_max: f64,
    /// Most pairs of a task to the fewest; infinite (`null` in JSON) where one got nothing.
    pub task_share: f64,
    pub process_share: f64,
    /// Tasks that got nothing, in the worst window.
    pub without: usize,
    /// Commands that clients sent for one acquired lock.
    pub commands: f64,
    /// How long locks were really held.
    pub held: f64,
    /// From just before the release in one process until acquired by the one that waits for it.
    pub handoff_p50: Option<f64>,
    pub handoff_max: Option<f64>,
    /// How many there were, in all windows.
    pub handoffs: usize,
    /// All of them, in all windows.
    pub errors: u64,
    pub error: Option<String>,
}

impl Figures {
    /// Of the answers of all processes to one order.
    pub fn of(answers: &[Answer], seconds: f64, commands: f64) -> Figures {
        let mut waits = BTreeMap::new();
        for answer in answers {
            for (bucket, count) in &answer.waits {
                *waits.entry(*bucket).or_default() += count;
            }
        }
        let tasks: Vec<u64> = answers
            .iter()
            .flat_map(|answer| answer.pairs.iter().copied())
            .collect();
        let processes: Vec<u64> = answers
            .iter()
            .map(|answer| answer.pairs.iter().sum())
            .collect();
        let all: u64 = answers.iter().map(|answer| answer.all).sum();
        let held: u64 = answers.iter().map(|answer| answer.held_ns).sum();
        let handoffs = handoffs(answers.iter().map(|answer| &answer.notes[..]));
        let handoff = |time| (!handoffs.is_empty()).then_some(time);
        Figures {
            pairs_per_second: tasks.iter().sum::<u64>() as f64 / seconds,
            wait_p50: quantile(&waits, 0.5),
            wait_p99: quantile(&waits, 0.99),
            wait_max: quantile(&waits, 1.0),
            task_share: share(&tasks),
            process_share: share(&processes),
            without: tasks.iter().filter(|pairs| **pairs == 0).count(),
            commands: commands / all.max(1) as f64,
            held: held as f64 / all.max(1) as f64 / 1e3,
            handoff_p50: handoff(median(handoffs.clone())),
            handoff_max: handoff(handoffs.iter().copied().fold(0.0, f64::max)),
            handoffs: handoffs.len(),
            errors: answers.iter().map(|answer| answer.errors).sum(),
            error: answers.iter().find_map(|answer| answer.error.clone()),
        }
    }

    /// Of several windows; there is at least one.
    pub fn median(windows: &[Figures]) -> Figures {
        let of = |field: fn(&Figures) -> f64| median(windows.iter().map(field).collect());
        let handoffs: Vec<f64> = windows.iter().filter_map(|w| w.handoff_p50).collect();
        Figures {
            pairs_per_second: of(|w| w.pairs_per_second),
            wait_p50: of(|w| w.wait_p50),
            wait_p99: of(|w| w.wait_p99),
            wait_max: of(|w| w.wait_max),
            task_share: of(|w| w.task_share),
            process_share: of(|w| w.process_share),
            without: windows.iter().map(|w| w.without).max().unwrap_or(0),
            commands: of(|w| w.commands),
            held: of(|w| w.held),
            handoff_p50: (!handoffs.is_empty()).then(|| median(handoffs)),
            handoff_max: windows
                .iter()
                .filter_map(|w| w.handoff_max)
                .max_by(f64::total_cmp),
            handoffs: windows.iter().map(|w| w.handoffs).sum(),
            errors: windows.iter().map(|w| w.errors).sum(),
            error: windows.iter().find_map(|w| w.error.clone()),
        }
    }
}

fn share(pairs: &[u64]) -> f64 {
    let most = pairs.iter().max().copied().unwrap_or(0);
    let fewest = pairs.iter().min().copied().unwrap_or(0);
    match (most, fewest) {
        (0, _) | (_, 0) => f64::INFINITY,
        (most, fewest) => most as f64 / fewest as f64,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// In microseconds, from buckets of ⌊16 log₂ ns⌋.
fn quantile(waits: &BTreeMap<u32, u64>, q: f64) -> f64 {
    let total: u64 = waits.values().sum();
    let mut left = (total as f64 * q).ceil() as u64;
    for (bucket, count) in waits {
        if left <= *count {
            return ((f64::from(*bucket) + 0.5) / 16.0).exp2() / 1e3;
        }
        left -= count;
    }
    f64::NAN
}

/// From release to acquired, wherever the lock went to another process while that waited.
fn handoffs<'a>(notes: impl Iterator<Item = &'a [[u64; 3]]>) -> Vec<f64> {
    let mut notes: Vec<(usize, [u64; 3])> = notes
        .enumerate()
        .flat_map(|(process, notes)| notes.iter().map(move |note| (process, *note)))
        .collect();
    notes.sort_by_key(|(_, [_, acquired, _])| *acquired);
    notes
        .windows(2)
        .filter_map(|pair| {
            let [(from, [_, _, releasing]), (to, [asked, acquired, _])] = pair else {
                return None;
            };
            let waited = from != to && asked < releasing;
            waited.then(|| acquired.saturating_sub(*releasing) as f64 / 1e3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_the_buckets() {
        // 1 µs is about 2^10 ns: bucket 159; 1 ms about 2^20: bucket 318.
        let waits = BTreeMap::from([(159, 98), (318, 2)]);
        assert!((quantile(&waits, 0.5) - 1.0).abs() < 0.05);
        assert!((quantile(&waits, 0.99) - 1000.0).abs() < 50.0);
    }

    #[test]
    fn a_task_that_got_nothing_makes_the_share_infinite() {
        assert_eq!(share(&[4, 2]), 2.0);
        assert_eq!(share(&[4, 0]), f64::INFINITY);
        assert_eq!(median(vec![1.0, f64::INFINITY, 3.0]), 3.0);
    }

    #[test]
    fn only_a_waiting_process_is_handed_a_lock() {
        let us = |note: [u64; 3]| note.map(|t| t * 1000);
        let one = [us([0, 1, 5]), us([13, 14, 15])]; // the second did not wait
        let two = [us([1, 7, 9]), us([9, 10, 12])]; // the second was the same process again
        assert_eq!(handoffs([&one[..], &two[..]].into_iter()), [2.0]);
    }
}
