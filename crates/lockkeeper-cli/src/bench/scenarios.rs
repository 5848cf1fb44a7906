//! The scenarios of pairs within one process, and those among several.

use anyhow::Result;
use lockkeeper::HandOff;
use lockkeeper::store::Reach;

use super::Bench;
use super::counting::Counting;
use super::lap::Pair;
use super::network::{self, Network};
use super::progress::Progress;
use super::quorum::ALONE;
use super::redis::{Counted, Dialect, Server};
use super::reference::{Log, Mutex, RawSqlite};
use super::report::{Entry, Figure, Reference, Skipped, Target};
use super::side::{Series, Side, Tasks, Threads, alternate, steps};
use super::target::{Address, Target as Store};
use super::workers::{Processes, Worker};

const TASKS: usize = 64;
const PROCESSES: usize = 4;

const RAW_SQLITE: &str = "raw rusqlite, the same two transactions";
const RAW_WITH_LOG: &str = "raw rusqlite, and SQLite copies its log back";
const RAW_REDIS: &str = "the dialect's smallest lock and unlock calls, raw";
const RAW_COMMITS: &str = "two bare UPDATE commits, over a connection a task";
const RAW_NODES: &str = "create and delete of a node, raw";
const SESSION: &str = "a lock of the session: no lease, no token, no disk";
const LEASE_TABLE: &str = "a lease table that is polled every 10 ms, a connection a task";
const NO_HAND_OFF: &str = "the same without hand-off in a process";
const MUTEX: &str = "tokio::sync::Mutex";
const MEMORY: &str = "the same on the memory store";
const ONE_PROCESS: &str = "as many tasks in one process";

impl Bench {
    /// One task, a name of its own: once for tasks and once for threads, beside one reference.
    pub fn serial(&self) -> Result<Vec<Entry>> {
        if let Some(nodes) = &self.nodes {
            return self.serial_on(nodes);
        }
        let names = self.names("serial", 1);
        let target = self.open()?;
        let mut tasks = self.counted(Box::new(self.tasks(&target, &names)?))?;
        let mut threads = self.counted(Box::new(Threads {
            pairs: target.blocking_locks(&names)?,
            counting: target.counting.clone(),
        }))?;
        let (what, mut reference) = self.raw("serial", 1)?;
        let mut with_log = if self.is_sqlite() {
            Some(self.raw_sqlite(Log::Within)?)
        } else {
            None
        };
        let mut session = self.session_locks("serial", 1)?;
        let mut sides: Vec<&mut dyn Side> = vec![&mut *reference, &mut *tasks, &mut *threads];
        if let Some(with_log) = &mut with_log {
            sides.push(with_log);
        }
        if let Some(session) = &mut session {
            sides.push(&mut **session);
        }
        let fourth = if self.is_sqlite() {
            RAW_WITH_LOG
        } else {
            SESSION
        };
        let progress = Progress::new("serial", steps(self.rounds, sides.len()));
        let series = alternate(self.rounds, &mut sides, &progress)?;
        let figure = |api, ours: &Series| {
            let mut figure = Figure::of("serial", api, 1, ours, (what, &series[0]));
            let also = series.get(3).map(|also| (fourth, also));
            figure.also = also.map(|also| Reference::of(ours, also));
            figure
        };
        let mut by_tasks = figure("async", &series[1]);
        let mut by_threads = figure("blocking", &series[2]);
        if self.is_sqlite() && self.no_hold() {
            let ratio = by_threads.reference.ratio;
            by_threads.targets = vec![Target::at_least("ratio", 0.7, ratio)];
        }
        if self.redis.is_some() && self.no_hold() {
            let ratio = by_tasks.reference.ratio;
            by_tasks.targets = vec![Target::at_least("ratio", 0.9, ratio)];
        }
        if let (Some(network), true) = (&self.network, self.no_hold()) {
            let (aim, ratio) = (network.aims().serial, by_tasks.reference.ratio);
            by_tasks.targets = vec![Target::at_least("ratio", aim, ratio)];
        }
        target.keeper.close();
        Ok(vec![entry(by_tasks), entry(by_threads)])
    }

    /// Many tasks, each with a name of its own.
    pub fn parallel(&self) -> Result<Vec<Entry>> {
        let names = self.names("parallel", TASKS);
        let target = self.open()?;
        let mut ours = self.counted(self.side(&target, &names)?)?;
        let (what, mut reference) = self.raw("parallel", TASKS)?;
        let series = self.beside("parallel", &mut *reference, &mut *ours)?;
        let mut figure = Figure::of(
            "parallel",
            self.api(),
            TASKS,
            &series[1],
            (what, &series[0]),
        );
        if let (Some(server), true) = (&self.redis, self.no_hold()) {
            let limit = match server.dialect {
                Dialect::Redisson => 0.7,
                Dialect::Plain => 0.85,
            };
            figure.targets = vec![Target::at_least("ratio", limit, figure.reference.ratio)];
        }
        if let (Some(network), true) = (&self.network, self.no_hold()) {
            let (aim, ratio) = (network.aims().parallel, figure.reference.ratio);
            figure.targets = vec![Target::at_least("ratio", aim, ratio)];
        }
        target.keeper.close();
        Ok(vec![entry(figure)])
    }

    /// Many tasks of one process, one name.
    pub fn contended(&self) -> Result<Vec<Entry>> {
        let names = vec![self.name("contended"); TASKS];
        let target = self.open()?;
        let mut ours = self.counted(self.side(&target, &names)?)?;
        let memory = Address::find(Some("memory:"))?;
        let memory = Store::open(&memory, self.hand_off, None)?;
        let (what, mut reference): (_, Box<dyn Side + '_>) = if self.is_memory() {
            (MUTEX, self.mutexes(1, TASKS))
        } else if let Some(Network::Sql(server)) = &self.network {
            let leases = server.lease_table(&vec![self.name("contended:raw"); TASKS])?;
            (LEASE_TABLE, Box::new(self.of_tasks(leases, None)))
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
        if let Some(nodes) = &self.nodes {
            self.also_alone(nodes, &mut figure, &names)?;
        }
        if self.network.is_some() {
            figure.targets = self.few_commands(&figure);
        }
        if let (Some(Network::Sql(_)), true) = (&self.network, self.no_hold()) {
            let ratio = figure.reference.ratio;
            figure.targets.push(Target::at_least("ratio", 100.0, ratio));
        }
        if self.redis.is_some() || self.nodes.is_some() {
            figure.targets = self.few_commands(&figure);
            if self.hand_off != HandOff::OFF && self.no_hold() {
                let wait = Some(figure.wait_us.p99);
                figure
                    .targets
                    .push(Target::at_most("wait_us.p99", 2_000.0, wait));
            }
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
        let ours = self.contending(&name, self.hand_off)?;
        if self.redis.is_some() && !self.no_hold() && self.hand_off != HandOff::OFF {
            return self.held_among_processes(&name, ours);
        }
        let mut ours = self.counted(Box::new(ours))?;
        let target = self.open()?;
        let mut reference = self.side(&target, &vec![name; TASKS])?;
        let series = self.beside("processes", &mut *reference, &mut *ours)?;
        let reference = (ONE_PROCESS, &series[0]);
        let mut figure = Figure::of("processes", self.api(), 1, &series[1], reference);
        let share = figure.fairness.process_max_min;
        figure.targets = match self.redis {
            Some(_) => self.few_commands(&figure),
            None if self.network.is_some() => {
                vec![Target::at_most("process_max_min", 1.5, share)]
            }
            None => vec![Target::at_most("process_max_min", 2.0, share)],
        };
        if self.redis.is_some() && self.no_hold() {
            let wait = Some(figure.wait_us.p99);
            if self.hand_off != HandOff::OFF {
                figure.targets = vec![Target::at_most("wait_us.p99", 5_000.0, wait)];
            }
            figure
                .targets
                .push(Target::at_most("process_max_min", 1.5, share));
        }
        target.keeper.close();
        Ok(vec![entry(figure)])
    }

    /// The same while every pair holds the lock for a while, beside what it is without hand-off: passing the lock
    /// on within a process must not make the others wait.
    fn held_among_processes(&self, name: &str, ours: Processes) -> Result<Vec<Entry>> {
        let mut ours = self.counted(Box::new(ours))?;
        let mut without = self.contending(name, HandOff::OFF)?;
        let series = self.beside("processes", &mut without, &mut *ours)?;
        let reference = (NO_HAND_OFF, &series[0]);
        let mut figure = Figure::of("processes", self.api(), 1, &series[1], reference);
        let theirs = series[0].total.wait.quantile(0.99);
        figure.reference.wait_p99_us = Some(theirs);
        figure.reference.ratio = (theirs > 0.0).then(|| figure.wait_us.p99 / theirs);
        let fairness = &figure.fairness;
        figure.targets = vec![
            Target::at_most("ratio", 1.3, figure.reference.ratio),
            Target::at_most("task_max_min", 2.0, fairness.task_max_min),
        ];
        Ok(vec![entry(figure)])
    }

    fn contending(&self, name: &str, hand_off: HandOff) -> Result<Processes> {
        let workers = (0..PROCESSES).map(|_| Worker::start(&self.address, hand_off));
        Ok(Processes {
            workers: workers.collect::<Result<_>>()?,
            name: name.to_owned(),
            tasks: TASKS / PROCESSES,
            blocking: self.blocking,
        })
    }

    /// How many commands an acquisition may take.
    fn few_commands(&self, figure: &Figure) -> Vec<Target> {
        // Of a quorum, that many on each node.
        let nodes = self.nodes.as_ref().map_or(1, |nodes| nodes.len()) as f64;
        let limit = nodes
            * match (self.hand_off == HandOff::OFF, self.no_hold()) {
                (true, _) => 3.0,
                (false, true) => 0.1,
                (false, false) => return Vec::new(),
            };
        let ops = figure.ops_per_acquisition;
        vec![Target::at_most("ops_per_acquisition", limit, ops)]
    }

    /// Lets the server count what a side sends, where there is one.
    pub fn counted<'b>(&'b self, side: Box<dyn Side + 'b>) -> Result<Box<dyn Side + 'b>> {
        if let Some(server) = &self.network {
            return Ok(Box::new(network::Counted { side, server }));
        }
        let servers = match (&self.redis, &self.nodes) {
            (Some(server), _) => vec![server.commands()?],
            (None, Some(nodes)) => {
                let servers = nodes.servers()?;
                servers
                    .iter()
                    .map(Server::commands)
                    .collect::<Result<_>>()?
            }
            (None, None) => return Ok(side),
        };
        Ok(Box::new(Counted { side, servers }))
    }

    /// What to say of a scenario among processes when the store holds within one.
    pub fn one_process_only(&self, scenario: &'static str) -> Entry {
        let store = self.capabilities.store;
        Entry::Skipped(Skipped {
            scenario,
            skipped: format!("locks of the {store} store hold within one process"),
        })
    }

    pub fn beside(
        &self,
        scenario: &str,
        reference: &mut dyn Side,
        ours: &mut dyn Side,
    ) -> Result<Vec<Series>> {
        let progress = Progress::new(scenario, steps(self.rounds, 2));
        alternate(self.rounds, &mut [reference, ours], &progress)
    }

    pub fn open(&self) -> Result<Store> {
        Store::open(&self.address, self.hand_off, None)
    }

    /// Tasks or threads, as asked for.
    pub fn side<'b>(&'b self, target: &Store, names: &[String]) -> Result<Box<dyn Side + 'b>> {
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

    pub fn of_tasks<P: Pair>(&self, pairs: Vec<P>, counting: Option<Counting>) -> Tasks<'_, P> {
        Tasks {
            runtime: &self.runtime,
            pairs,
            counting,
        }
    }

    /// What the same pairs cost without Lockkeeper.
    fn raw(&self, scenario: &str, tasks: usize) -> Result<(&'static str, Box<dyn Side + '_>)> {
        if let Some(server) = &self.redis {
            let names = self.names(&format!("{scenario}:raw"), tasks);
            let pairs = server.pairs(&self.runtime, names)?;
            return Ok((RAW_REDIS, Box::new(self.of_tasks(pairs, None))));
        }
        if let Some(nodes) = &self.nodes {
            let names = self.names(&format!("{scenario}:alone"), tasks);
            return Ok((ALONE, self.side(&self.alone(nodes)?, &names)?));
        }
        match &self.network {
            Some(Network::Sql(server)) => {
                let names = self.names(&format!("{scenario}:raw"), tasks);
                let pairs = server.commits(&names)?;
                return Ok((RAW_COMMITS, Box::new(self.of_tasks(pairs, None))));
            }
            Some(Network::ZooKeeper(server)) => {
                let pairs = server.pairs(tasks);
                return Ok((RAW_NODES, Box::new(self.of_tasks(pairs, None))));
            }
            None => {}
        }
        if self.is_sqlite() {
            return Ok((RAW_SQLITE, Box::new(self.raw_sqlite(Log::Aside)?)));
        }
        Ok((MUTEX, self.mutexes(tasks, tasks)))
    }

    /// Locks of a session, where the server has such.
    fn session_locks(&self, scenario: &str, tasks: usize) -> Result<Option<Box<dyn Side + '_>>> {
        let Some(Network::Sql(server)) = &self.network else {
            return Ok(None);
        };
        let pairs = server.session_locks(&self.names(&format!("{scenario}:session"), tasks))?;
        Ok(Some(Box::new(self.of_tasks(pairs, None))))
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

pub fn entry(figure: Figure) -> Entry {
    Entry::Figure(Box::new(figure))
}
