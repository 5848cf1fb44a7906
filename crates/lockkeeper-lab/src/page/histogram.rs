//! How long things took, by order of magnitude.

use std::time::Duration;

use serde::Serialize;

/// Where the bars end, in milliseconds; the last bar has no end. Looks are too rare for finer ones.
const ENDS: [u64; 10] = [
    500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 7_200_000,
];

/// One bar an order of magnitude.
#[derive(Clone, Debug, Serialize)]
pub struct Histogram {
    ends_ms: [u64; ENDS.len()],
    counts: [u64; ENDS.len() + 1],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            ends_ms: ENDS,
            counts: [0; ENDS.len() + 1],
        }
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let ms = took.as_millis();
        let bar = ENDS.partition_point(|end| u128::from(*end) <= ms);
        self.counts[bar] += 1;
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_start_and_not_its_end() {
        let mut histogram = Histogram::default();
        for ms in [0, 499, 500, 999, 1_000, 7_200_000, u64::MAX] {
            histogram.add(Duration::from_millis(ms));
        }
        assert_eq!(histogram.counts, [2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    }
}
