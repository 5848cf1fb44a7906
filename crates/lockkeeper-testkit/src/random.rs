//! Chance that can be repeated: the same seed, the same run.

use std::time::Duration;

/// A stream of numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub const fn seeded(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 when that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        match limit {
            0 => 0,
            limit => self.next_u64() % limit,
        }
    }

    /// A duration from `low` up to `high`.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = high.saturating_sub(low).as_nanos() as u64;
        low + Duration::from_nanos(self.below(span + 1))
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= probability && probability > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_chances_are_about_right() {
        let draw = |seed| {
            let mut random = Random::seeded(seed);
            (0..1_000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut random = Random::seeded(1);
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2_200..2_800).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| !random.chance(0.0)));
        assert!((0..1_000).all(|_| random.chance(1.0)));
    }
}
