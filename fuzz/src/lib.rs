//! Runs a fuzz target without libFuzzer: seeds, their mutations, and random pieces.

use std::time::{Duration, Instant};

/// Defines a fuzz target: for cargo-fuzz, and as a plain program that takes a number of seconds.
#[macro_export]
macro_rules! target {
    ($check:path, $seeds:expr) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $check(data));

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::plainly($check, $seeds);
        }
    };
}

/// Tries every seed, then mutations of them until the seconds in the first argument (default 1) are over.
pub fn plainly(check: fn(&[u8]), seeds: &[&str]) {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(1));
    for seed in seeds {
        check(seed.as_bytes());
    }
    let first = std::process::id() as u64 | 1 << 40;
    let mut random = Random(first);
    let mut tried = seeds.len() as u64;
    // A failure can be repeated: inputs depend on this number alone.
    println!("random inputs from {first}");
    let mut input = Vec::new();
    while tried % 1024 != 0 || Instant::now() < end {
        if random.below(4) == 0 {
            input.clear();
        }
        for _ in 0..=random.below(3) {
            mutate(&mut input, &mut random, seeds);
        }
        check(&input);
        tried += 1;
    }
    println!("{tried} inputs tried");
}

fn mutate(input: &mut Vec<u8>, random: &mut Random, seeds: &[&str]) {
    let at = random.below(input.len() + 1);
    match random.below(5) {
        0 => input.truncate(at),
        1 => input.insert(at, random.next() as u8),
        2 if !input.is_empty() => {
            let at = at.min(input.len() - 1);
            input[at] ^= 1 << random.below(8);
        }
        3 if input.len() > 1 => drop(input.remove(at.min(input.len() - 1))),
        _ => {
            let seed = seeds[random.below(seeds.len())].as_bytes();
            let from = random.below(seed.len() + 1);
            input.splice(at..at, seed[from..].iter().copied());
        }
    }
    input.truncate(4096);
}

/// xorshift: enough for tests.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
