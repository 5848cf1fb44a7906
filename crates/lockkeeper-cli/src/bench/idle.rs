//! *idle*: a few busy keepers, alone and beside many that are connected and ask for nothing.

use anyhow::Result;
use lockkeeper::store::Reach;

use super::Bench;
use super::lap::Window;
use super::quorum::times;
use super::report::{Entry, Figure, Target};
use super::scenarios::entry;
use super::side::Side;
use super::tally::Tally;
use super::target::Target as Store;

/// Two of them want each name, so that it changes hands through the store.
const BUSY: usize = 10;
const NAMES: usize = BUSY / 2;
const ALONE: &str = "the same keepers alone";

impl Bench {
    pub fn idle(&self, many: usize) -> Result<Vec<Entry>> {
        if self.capabilities.reach == Reach::Process {
            return Ok(vec![self.one_process_only("idle")]);
        }
        let names = self.names("idle", NAMES);
        let keepers = (0..BUSY).map(|_| self.open());
        let keepers = keepers.collect::<Result<Vec<Store>>>()?;
        let mut locks = Vec::new();
        for (keeper, name) in keepers.iter().zip(names.iter().cycle()) {
            locks.extend(keeper.locks(std::slice::from_ref(name))?);
        }
        let mut alone = self.of_tasks(locks.clone(), None);
        let mut beside = Beside {
            bench: self,
            busy: self.counted(Box::new(self.of_tasks(locks, None)))?,
            many,
        };
        let series = self.beside("idle", &mut alone, &mut beside)?;
        let mut figure = Figure::of("idle", "async", NAMES, &series[1], (ALONE, &series[0]));
        let pairs = figure.reference.ratio;
        let (theirs, ours) = (&series[0].total.wait, &series[1].total.wait);
        figure.reference.wait_p99_us = Some(theirs.quantile(0.99));
        figure.reference.ratio = times(ours, theirs, 0.99);
        if self.no_hold() {
            figure.targets = vec![
                Target::at_most("wait p99 ratio", 2.0, figure.reference.ratio),
                Target::at_least("pairs ratio", 0.8, pairs),
            ];
        }
        for keeper in keepers {
            keeper.keeper.close();
        }
        Ok(vec![entry(figure)])
    }
}

/// What is busy beside so many keepers, which are there for each window alone.
struct Beside<'b> {
    bench: &'b Bench,
    busy: Box<dyn Side + 'b>,
    many: usize,
}

impl Side for Beside<'_> {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let idle = (0..self.many).map(|_| self.bench.open());
        let idle = idle.collect::<Result<Vec<Store>>>()?;
        let tally = self.busy.window(window.anew());
        for keeper in idle {
            keeper.keeper.close();
        }
        tally
    }
}
