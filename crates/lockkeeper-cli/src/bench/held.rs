//! *held*: one keeper holds and renews very many locks.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::clock::Moment;
use lockkeeper::{Error, Guard, HandOff, ReleaseOutcome};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::lap::interrupted;
use super::progress::Progress;
use super::target::{Address, Target};
use super::workers::{Answer, Order, Worker};

/// How many tasks acquire and release.
const TASKS: usize = 64;

/// What to hold, and for how long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldOrder {
    pub prefix: String,
    pub locks: usize,
    pub lease: Duration,
    /// For how many renewals of each lock to watch.
    pub periods: u32,
}

/// What holding came to. Memory and processor time are those of the whole process, store included where it
/// runs in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldCount {
    pub locks: usize,
    pub lease_seconds: f64,
    /// For how long the holds were watched, once all were acquired.
    pub watched_seconds: f64,
    pub acquired_per_second: f64,
    pub released_per_second: f64,
    /// Holds that were not held any more at the end.
    pub lost: usize,
    pub renewals: Option<u64>,
    pub renewals_per_request: Option<f64>,
    pub cpu_seconds: f64,
    /// Processor time of one renewal of one lock.
    pub cpu_micros_per_renewal: Option<f64>,
    /// Of one core, while nothing but renewal goes on.
    pub cpu_share: f64,
    pub memory_bytes_per_lock: Option<f64>,
}

/// Runs the scenario in a process of its own, so that its memory can be told from others'.
pub fn measure(address: &Address, order: HeldOrder) -> Result<HeldCount> {
    let progress = Progress::new("held", 2);
    let mut worker = Worker::start(address, HandOff::default())?;
    progress.step();
    worker.order(&Order::Hold(order))?;
    match worker.answer()? {
        _ if interrupted() => bail!("interrupted"),
        Answer::Held(count) => Ok(count),
        other => bail!("a worker answered {other:?}"),
    }
}

/// What the worker does.
pub fn hold(runtime: &Runtime, address: &Address, order: &HeldOrder) -> Result<HeldCount> {
    let target = Target::open(address, HandOff::default(), Some(order.lease))?;
    let memory = resident();
    let began = Moment::now();
    let guards = acquire(runtime, &target, order)?;
    let acquired = Moment::now();
    let memory = resident()
        .zip(memory)
        .map(|(now, before)| now.saturating_sub(before));

    let (cpu, ops) = (cpu_seconds()?, target.counting.as_ref().map(|c| c.ops()));
    let end = acquired + order.lease / 3 * order.periods;
    while Moment::now() < end && !interrupted() {
        std::thread::sleep(end.remaining().min(Duration::from_millis(100)));
    }
    let watched = Moment::now().since(acquired).as_secs_f64();
    let cpu = cpu_seconds()? - cpu;
    let ops = target
        .counting
        .as_ref()
        .zip(ops)
        .map(|(c, before)| c.ops() - before);

    let lost = guards
        .iter()
        .flatten()
        .filter(|guard| !guard.is_held())
        .count();
    let releasing = Moment::now();
    let lost_late = release(runtime, guards)?;
    let released = Moment::now();
    target.keeper.close();

    let per_second = |d: Duration| order.locks as f64 / d.as_secs_f64();
    Ok(HeldCount {
        locks: order.locks,
        lease_seconds: order.lease.as_secs_f64(),
        watched_seconds: watched,
        acquired_per_second: per_second(acquired.since(began)),
        released_per_second: per_second(released.since(releasing)),
        lost: lost.max(lost_late),
        renewals: ops.map(|ops| ops.renewals),
        renewals_per_request: ops
            .filter(|ops| ops.renew > 0)
            .map(|ops| ops.renewals as f64 / ops.renew as f64),
        cpu_seconds: cpu,
        cpu_micros_per_renewal: ops
            .filter(|ops| ops.renewals > 0)
            .map(|ops| cpu * 1e6 / ops.renewals as f64),
        cpu_share: cpu / watched,
        memory_bytes_per_lock: memory.map(|bytes| bytes as f64 / order.locks as f64),
    })
}

fn acquire(runtime: &Runtime, target: &Target, order: &HeldOrder) -> Result<Vec<Vec<Guard>>> {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let keeper = target.keeper.asynchronous().clone();
            let order = order.clone();
            runtime.spawn(async move {
                let mut guards = Vec::with_capacity(order.locks / TASKS + 1);
                for number in (task..order.locks).step_by(TASKS) {
                    if interrupted() {
                        break;
                    }
                    let lock = keeper.lock(&format!("{}{number}", order.prefix))?;
                    guards.push(lock.acquire().await?);
                }
                anyhow::Ok(guards)
            })
        })
        .collect();
    let all = tasks.into_iter().map(|task| runtime.block_on(task));
    all.map(|guards| guards.context("a task broke off")?)
        .collect()
}

/// Answers how many turned out to be lost.
fn release(runtime: &Runtime, guards: Vec<Vec<Guard>>) -> Result<usize> {
    let tasks: Vec<_> = guards
        .into_iter()
        .map(|guards| {
            runtime.spawn(async move {
                let mut lost = 0;
                for guard in guards {
                    lost += match guard.release().await {
                        Err(Error::Lost { .. }) => 1,
                        released => usize::from(released? != ReleaseOutcome::Released),
                    };
                }
                anyhow::Ok(lost)
            })
        })
        .collect();
    let all = tasks.into_iter().map(|task| runtime.block_on(task));
    all.map(|lost| lost.context("a task broke off")?).sum()
}

fn cpu_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(micros as f64 / 1e6)
}

/// Bytes of memory in use now; `None` where that cannot be told.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
