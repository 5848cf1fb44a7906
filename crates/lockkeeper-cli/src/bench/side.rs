//! What is measured in a window: ours or a reference. Sides take turns, so that noise hits both.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime::Runtime;

use super::counting::{Counting, Ops};
use super::lap::{BlockingPair, Pair, Window, interrupted, repeat, repeat_blocking};
use super::progress::Progress;
use super::tally::{Tally, median};

/// Pairs shorter than this are timed only now and then.
const SHORT_PAIR_MICROS: f64 = 10.0;
const STRIDE: u32 = 16;

/// One thing that is measured.
pub trait Side {
    fn window(&mut self, window: Window) -> Result<Tally>;
}

/// How windows go: so many rounds, in each of which every side has one.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub count: u32,
    pub length: Duration,
    pub hold: Duration,
}

/// What one side did in all its windows.
#[derive(Debug)]
pub struct Series {
    pub rates: Vec<f64>,
    pub total: Tally,
}

impl Series {
    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// The median of the rounds' ratios: what disturbs a round disturbs both its windows.
    pub fn ratio_to(&self, reference: &Series) -> Option<f64> {
        let rounds = self.rates.iter().zip(&reference.rates);
        let ratios: Vec<f64> = rounds
            .filter(|(_, reference)| **reference > 0.0)
            .map(|(ours, reference)| ours / reference)
            .collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }
}

/// Lets the sides take turns, after a window each that does not count.
pub fn alternate(
    rounds: Rounds,
    sides: &mut [&mut dyn Side],
    progress: &Progress,
) -> Result<Vec<Series>> {
    let mut strides = Vec::new();
    for side in sides.iter_mut() {
        let length = rounds.length.min(Duration::from_millis(200));
        let warm = side.window(Window::soon(length, rounds.hold, 1))?;
        let short = warm.pair.count() > 0 && warm.pair.quantile(0.5) < SHORT_PAIR_MICROS;
        strides.push(if short { STRIDE } else { 1 });
        progress.step();
    }
    let mut tallies: Vec<Vec<Tally>> = vec![Vec::new(); sides.len()];
    for round in 0..rounds.count {
        let mut order: Vec<usize> = (0..sides.len()).collect();
        // Neither always goes first.
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let window = Window::soon(rounds.length, rounds.hold, strides[at]);
            tallies[at].push(sides[at].window(window)?);
            if interrupted() {
                bail!("interrupted");
            }
            progress.step();
        }
    }
    tallies.into_iter().map(series).collect()
}

/// How many windows [`alternate`] runs.
pub fn steps(rounds: Rounds, sides: usize) -> u64 {
    u64::from(rounds.count + 1) * sides as u64
}

fn series(tallies: Vec<Tally>) -> Result<Series> {
    let rates = tallies.iter().map(Tally::rate).collect();
    let mut tallies = tallies.into_iter();
    let mut total = tallies.next().context("there was no round")?;
    tallies.for_each(|tally| total.then(&tally));
    Ok(Series { rates, total })
}

/// Tasks, each with its pair.
pub struct Tasks<'r, P> {
    pub runtime: &'r Runtime,
    pub pairs: Vec<P>,
    pub counting: Option<Counting>,
}

impl<P: Pair + Clone> Side for Tasks<'_, P> {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let before = self.counting.as_ref().map(Counting::ops);
        let tasks: Vec<_> = self
            .pairs
            .iter()
            .map(|pair| self.runtime.spawn(repeat(pair.clone(), window)))
            .collect();
        let mut counted = Vec::new();
        for task in tasks {
            counted.push(self.runtime.block_on(task).context("a task broke off")??);
        }
        let ops = ops_since(self.counting.as_ref(), before);
        Ok(Tally::of(counted, window.length(), ops))
    }
}

/// Threads, each with its pair.
pub struct Threads<P> {
    pub pairs: Vec<P>,
    pub counting: Option<Counting>,
}

impl<P: BlockingPair + Clone + Send> Side for Threads<P> {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let before = self.counting.as_ref().map(Counting::ops);
        let counted = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .pairs
                .iter()
                .cloned()
                .map(|pair| scope.spawn(move || repeat_blocking(pair, window)))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|counted| counted.unwrap_or_else(|_| bail!("a thread broke off")))
                .collect::<Result<Vec<_>>>()
        })?;
        let ops = ops_since(self.counting.as_ref(), before);
        Ok(Tally::of(counted, window.length(), ops))
    }
}

fn ops_since(counting: Option<&Counting>, before: Option<Ops>) -> Option<Ops> {
    counting.zip(before).map(|(now, before)| now.ops() - before)
}
