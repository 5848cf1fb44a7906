//! The scenarios of pairs within one process, and those among several.

use anyhow::Result;
use lockkeeper::store::Reach;

use super::Bench;
use super::counting::Counting;
use super::lap::Pair;
use super::progress::Progress;
use super::reference::{Log, Mutex, RawSqlite};
use super::report::{Entry, Figure, Reference, Skipped, Target};
use super::side::{Series, Side, Tasks, Threads, alternate, steps};
use super::target::{Address, Target as Store};
use super::workers::{Processes, Worker};

const TASKS: usize = 64;
const PROCESSES: usize = 4;

const RAW_SQLITE: &str = "raw rusqlite, the same two transactions";
const RAW_WITH_LOG: &str = "raw rusqlite, and SQLite copies its log back";
const MUTEX: &str = "tokio::sync::Mutex";
const MEMORY: &str = "the same on the memory store";
const ONE_PROCESS: &str = "as many tasks in one process";

impl Bench {
    /// One task, a name of its own: once for tasks and once for threads, beside one reference.
    pub fn serial(&self) -> Result<Vec<Entry>> {
        let names = self.names("serial", 1);
        let target = self.open()?;
        let mut tasks = self.tasks(&target, &names)?;
        let mut threads = Threads {
            pairs: target.blocking_locks(&names)?,
            counting: target.counting.clone(),
        };
        let (what, mut reference) = self.raw(1, 1)?;
        let mut with_log = match self.is_sqlite() {
            true => Some(self.raw_sqlite(Log::Within)?),
            false => None,
        };
        let mut sides: Vec<&mut dyn Side> = vec![&mut *reference, &mut tasks, &mut threads];
        if let Some(with_log) = &mut with_log {
            sides.push(with_log);
        }
        let progress = Progress::new("serial", steps(self.rounds, sides.len()));
        let series = alternate(self.rounds, &mut sides, &progress)?;
        let figure = |api, ours: &Series| {
            let mut figure = Figure::of("serial", api, 1, ours, (what, &series[0]));
            let with_log = series.get(3).map(|with_log| (RAW_WITH_LOG, with_log));
            figure.also = with_log.map(|with_log| Reference::of(ours, with_log));
            figure
        };
        let by_tasks = figure("async", &series[1]);
        let mut by_threads = figure("blocking", &series[2]);
        if self.is_sqlite() && self.no_hold() {
            let ratio = by_threads.reference.ratio;
            by_threads.targets = vec![Target::at_least("ratio", 0.7, ratio)];
        }
        target.keeper.close();
        Ok(vec![entry(by_tasks), entry(by_threads)])
    }

    /// Many tasks, each with a name of its own.
    pub fn parallel(&self) -> Result<Vec<Entry>> {
        let names = self.names("parallel", TASKS);
        let target = self.open()?;
        let mut ours = self.side(&target, &names)?;
        let (what, mut reference) = self.raw(TASKS, TASKS)?;
        let series = self.beside("parallel", &mut *reference, &mut *ours)?;
        let figure = Figure::of(
            "parallel",
            self.api(),
            TASKS,
            &series[1],
            (what, &series[0]),
        );
        target.keeper.close();
        Ok(vec![entry(figure)])
    }

    /// Many tasks of one process, one name.
    pub fn contended(&self) -> Result<Vec<Entry>> {
        let names = vec![self.name("contended"); TASKS];
        let target = self.open()?;
        let mut ours = self.side(&target, &names)?;
        let memory = Store::open(&Address::find(Some("memory:"))?, None)?;
        let (what, mut reference): (_, Box<dyn Side + '_>) = if self.is_memory() {
            (MUTEX, self.mutexes(1, TASKS))
        } else {
            (MEMORY, self.side(&memory, &names)?)
        };
        let series = self.beside("contended", &mut *reference, &mut *ours)?;
        let reference = (what, &series[0]);
        let mut figure = Figure::of("contended", self.api(), 1, &series[1], reference);
        if self.is_sqlite() && self.no_hold() {
            let ratio = figure.reference.ratio;
            figure.targets = vec![Target::at_least("ratio", 0.5, ratio)];
        }
        target.keeper.close();
        Ok(vec![entry(figure)])
    }

    /// Several processes with several tasks each, one name.
    pub fn processes(&self) -> Result<Vec<Entry>> {
        if self.capabilities.reach == Reach::Process {
            return Ok(vec![self.one_process_only("processes")]);
        }
        let name = self.name("processes");
        let workers = (0..PROCESSES).map(|_| Worker::start(&self.address));
        let mut ours = Processes {
            workers: workers.collect::<Result<_>>()?,
            name: name.clone(),
            tasks: TASKS / PROCESSES,
            blocking: self.blocking,
        };
        let target = self.open()?;
        let mut reference = self.side(&target, &vec![name; TASKS])?;
        let series = self.beside("processes", &mut *reference, &mut ours)?;
        let reference = (ONE_PROCESS, &series[0]);
        let mut figure = Figure::of("processes", self.api(), 1, &series[1], reference);
        let share = figure.fairness.process_max_min;
        figure.targets = vec![Target::at_most("process_max_min", 2.0, share)];
        target.keeper.close();
        Ok(vec![entry(figure)])
    }

    /// What to say of a scenario among processes when the store holds within one.
    pub fn one_process_only(&self, scenario: &'static str) -> Entry {
        let store = self.capabilities.store;
        Entry::Skipped(Skipped {
            scenario,
            skipped: format!("locks of the {store} store hold within one process"),
        })
    }

    fn beside(
        &self,
        scenario: &str,
        reference: &mut dyn Side,
        ours: &mut dyn Side,
    ) -> Result<Vec<Series>> {
        let progress = Progress::new(scenario, steps(self.rounds, 2));
        alternate(self.rounds, &mut [reference, ours], &progress)
    }

    fn open(&self) -> Result<Store> {
        Store::open(&self.address, None)
    }

    /// Tasks or threads, as asked for.
    fn side<'b>(&'b self, target: &Store, names: &[String]) -> Result<Box<dyn Side + 'b>> {
        Ok(if self.blocking {
            Box::new(Threads {
                pairs: target.blocking_locks(names)?,
                counting: target.counting.clone(),
            })
        } else {
            Box::new(self.tasks(target, names)?)
        })
    }

    fn tasks(&self, target: &Store, names: &[String]) -> Result<Tasks<'_, lockkeeper::Lock>> {
        Ok(self.of_tasks(target.locks(names)?, target.counting.clone()))
    }

    fn of_tasks<P: Pair>(&self, pairs: Vec<P>, counting: Option<Counting>) -> Tasks<'_, P> {
        Tasks {
            runtime: &self.runtime,
            pairs,
            counting,
        }
    }

    /// What the same pairs cost without Lockkeeper.
    fn raw(&self, names: usize, tasks: usize) -> Result<(&'static str, Box<dyn Side + '_>)> {
        if self.is_sqlite() {
            return Ok((RAW_SQLITE, Box::new(self.raw_sqlite(Log::Aside)?)));
        }
        Ok((MUTEX, self.mutexes(names, tasks)))
    }

    fn raw_sqlite(&self, log: Log) -> Result<RawSqlite> {
        let path = self.address.url.path()?;
        RawSqlite::open(&path, &self.unique, self.name("serial:0"), log)
    }

    fn mutexes(&self, names: usize, tasks: usize) -> Box<dyn Side + '_> {
        let mutexes: Vec<Mutex> = (0..names).map(|_| Mutex::default()).collect();
        let pairs = (0..tasks).map(|task| mutexes[task % names].clone());
        Box::new(self.of_tasks(pairs.collect(), None))
    }
}

fn entry(figure: Figure) -> Entry {
    Entry::Figure(Box::new(figure))
}
