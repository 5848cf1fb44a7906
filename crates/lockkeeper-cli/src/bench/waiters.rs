//! *waiters*: very many tasks of several processes wait for one name, and each gets it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Result, bail};
use lockkeeper::clock::Moment;
use lockkeeper::store::Reach;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::Bench;
use super::lap::interrupted;
use super::progress::Progress;
use super::report::{Crowd, Entry, Skipped, Target, WaitersEntry};
use super::target::Target as Store;
use super::workers::{Answer, Order, Worker};

const PROCESSES: usize = 4;
/// What a crowd is compared with.
const FEW: usize = 100;
/// A waiter that did not get the lock by then is without.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the commands of a release may differ by chance: connections are looked after meanwhile.
const CHANCE: f64 = 1.1;

impl Bench {
    pub fn waiters(&self, many: usize) -> Result<Vec<Entry>> {
        if self.capabilities.reach == Reach::Process {
            return Ok(vec![self.one_process_only("waiters")]);
        }
        let mut count: Box<dyn FnMut() -> Result<u64> + '_> = match (&self.redis, &self.network) {
            (Some(server), _) => {
                let mut commands = server.commands()?;
                Box::new(move || commands.count())
            }
            (None, Some(server)) => Box::new(|| server.requests()),
            (None, None) => {
                return Ok(vec![Entry::Skipped(Skipped {
                    scenario: "waiters",
                    skipped: "the store has no server that counts commands".into(),
                })]);
            }
        };
        let progress = Progress::new("waiters", 2);
        let mut crowds = Vec::new();
        for waiters in [FEW, many] {
            crowds.push(self.crowd(waiters, &mut *count)?);
            progress.step();
        }
        let unfinished: usize = crowds.iter().map(|c| c.waiters - c.finished).sum();
        let growth = crowds[1].commands_per_release / crowds[0].commands_per_release;
        Ok(vec![Entry::Waiters(WaitersEntry {
            scenario: "waiters",
            processes: PROCESSES,
            targets: vec![
                Target::at_most("unfinished", 0.0, Some(unfinished as f64)),
                Target::at_most("growth of commands a release", CHANCE, Some(growth)),
            ],
            crowds,
        })])
    }

    fn crowd(&self, waiters: usize, count: &mut dyn FnMut() -> Result<u64>) -> Result<Crowd> {
        let name = self.name(&format!("waiters:{waiters}"));
        let mut workers = Vec::new();
        for _ in 0..PROCESSES {
            workers.push(self.worker()?);
        }
        let holder = Store::open(&self.address, self.hand_off, None)?;
        let held = holder.keeper.lock(&name)?.acquire()?;
        for (at, worker) in workers.iter_mut().enumerate() {
            let tasks = waiters / PROCESSES + usize::from(at < waiters % PROCESSES);
            let name = name.clone();
            worker.order(&Order::Crowd { name, tasks })?;
        }
        for worker in &mut workers {
            let Answer::Waiting = worker.answer()? else {
                bail!("a worker answered something else");
            };
        }
        let before = count()?;
        let began = Moment::now();
        held.release()?;
        let finished = disperse(&mut workers)?;
        if interrupted() {
            bail!("interrupted");
        }
        let seconds = Moment::now().since(began).as_secs_f64();
        let commands = count()?.saturating_sub(before);
        holder.keeper.close();
        Ok(Crowd {
            waiters,
            finished,
            seconds,
            commands,
            commands_per_release: commands as f64 / finished as f64,
        })
    }
}

fn disperse(workers: &mut [Worker]) -> Result<usize> {
    let mut finished = 0;
    for worker in workers.iter_mut() {
        worker.order(&Order::Disperse)?;
    }
    for worker in workers {
        match worker.answer()? {
            Answer::Dispersed(count) => finished += count,
            other => bail!("a worker answered {other:?}"),
        }
    }
    Ok(finished)
}

/// The tasks of one process.
#[derive(Default)]
pub struct Crowding(Vec<JoinHandle<Result<(), lockkeeper::Error>>>);

impl Crowding {
    /// Returns when all of them wait.
    pub fn gather(
        &mut self,
        runtime: &Runtime,
        target: &Store,
        name: &str,
        tasks: usize,
    ) -> Result<()> {
        let asked = Arc::new(AtomicUsize::new(0));
        let lock = target.keeper.asynchronous().lock(name)?;
        for _ in 0..tasks {
            let (lock, asked) = (lock.clone(), asked.clone());
            self.0.push(runtime.spawn(async move {
                asked.fetch_add(1, SeqCst);
                lock.acquire().await?.release().await.map(|_| ())
            }));
        }
        while asked.load(SeqCst) < tasks && !interrupted() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // They asked; a moment later the last of them stands in line, and the first in the store's.
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    }

    /// Answers how many got it and let go.
    pub fn disperse(&mut self, runtime: &Runtime) -> usize {
        let end = tokio::time::Instant::now() + PATIENCE;
        let tasks = self.0.drain(..);
        let done = tasks.map(|task| {
            // Within the runtime, which has the timer.
            runtime.block_on(async { tokio::time::timeout_at(end, task).await })
        });
        done.filter(|done| matches!(done, Ok(Ok(Ok(()))))).count()
    }
}
