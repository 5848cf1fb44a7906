//! What a run reports. The fields are part of the command's interface.

use serde::Serialize;

use super::counting::Ops;
use super::held::HeldCount;
use super::side::Series;
use super::tally::{Tally, Times};

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    /// The kind of store.
    pub store: &'static str,
    /// Where it is, without a password.
    pub url: String,
    pub cores: usize,
    pub system: String,
    /// Whether this program was built without optimization: then no figure means much.
    pub debug_build: bool,
    pub rounds: u32,
    pub window_ms: f64,
    /// How long each pair holds the lock, by a timer.
    pub hold_ms: f64,
    /// Whether tasks of one process hand a lock to each other.
    pub hand_off: bool,
    pub scenarios: Vec<Entry>,
    /// Names of this run that were still held or waited for at its end.
    pub left_behind: usize,
}

/// One scenario's outcome.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Entry {
    Figure(Box<Figure>),
    Held(HeldEntry),
    Waiters(WaitersEntry),
    Skipped(Skipped),
}

/// A scenario that this store cannot be in.
#[derive(Debug, Serialize)]
pub struct Skipped {
    pub scenario: &'static str,
    pub skipped: String,
}

#[derive(Debug, Serialize)]
pub struct HeldEntry {
    pub scenario: &'static str,
    #[serde(flatten)]
    pub count: HeldCount,
    pub targets: Vec<Target>,
}

/// Very many waiters on one name.
#[derive(Debug, Serialize)]
pub struct WaitersEntry {
    pub scenario: &'static str,
    pub processes: usize,
    pub crowds: Vec<Crowd>,
    pub targets: Vec<Target>,
}

/// So many waiters, each of whom acquires and releases once.
#[derive(Clone, Debug, Serialize)]
pub struct Crowd {
    pub waiters: usize,
    pub finished: usize,
    pub seconds: f64,
    pub commands: u64,
    pub commands_per_release: f64,
}

/// A scenario of pairs.
#[derive(Debug, Serialize)]
pub struct Figure {
    pub scenario: &'static str,
    /// `async` or `blocking`.
    pub api: &'static str,
    pub processes: usize,
    /// In all processes together.
    pub tasks: usize,
    pub names: usize,
    pub pairs: u64,
    /// The median of the windows.
    pub pairs_per_second: f64,
    /// How long acquiring took.
    pub wait_us: Quantiles,
    /// How long releasing took.
    pub release_us: Quantiles,
    /// From asking until released; includes the hold.
    pub pair_us: Quantiles,
    /// From just before the release in one process until acquired in another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_us: Option<Quantiles>,
    /// Requests to the store: commands where a server counts them.
    pub ops_per_acquisition: Option<f64>,
    pub ops: Option<Ops>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<u64>,
    pub fairness: Fairness,
    pub reference: Reference,
    /// A second one, where it tells more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also: Option<Reference>,
    pub targets: Vec<Target>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Quantiles {
    pub fn of(times: &Times) -> Quantiles {
        Quantiles {
            p50: times.quantile(0.5),
            p99: times.quantile(0.99),
            p999: times.quantile(0.999),
            max: times.max(),
        }
    }
}

/// How much each task and process got, over all windows.
#[derive(Clone, Debug, Serialize)]
pub struct Fairness {
    /// The most pairs of a task over the least; `None` if one got nothing.
    pub task_max_min: Option<f64>,
    pub tasks_with_nothing: usize,
    pub process_max_min: Option<f64>,
    pub processes_with_nothing: usize,
    pub pairs_per_process: Vec<u64>,
}

impl Fairness {
    pub fn of(tally: &Tally) -> Fairness {
        let nothing = |shares: &[u64]| shares.iter().filter(|share| **share == 0).count();
        Fairness {
            task_max_min: max_min(&tally.tasks),
            tasks_with_nothing: nothing(&tally.tasks),
            process_max_min: max_min(&tally.processes),
            processes_with_nothing: nothing(&tally.processes),
            pairs_per_process: tally.processes.clone(),
        }
    }
}

fn max_min(shares: &[u64]) -> Option<f64> {
    let (max, min) = (shares.iter().max()?, shares.iter().min()?);
    (*min > 0).then(|| *max as f64 / *min as f64)
}

/// What the figure stands beside.
#[derive(Clone, Debug, Serialize)]
pub struct Reference {
    pub what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// How long acquiring took there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_p99_us: Option<f64>,
    /// Ours over the reference: of pairs a second the more the better, of times the less.
    pub ratio: Option<f64>,
}

impl Reference {
    /// One that does pairs as well.
    pub fn of(ours: &Series, (what, reference): (&'static str, &Series)) -> Reference {
        Reference {
            what,
            pairs_per_second: Some(reference.rate()),
            p50_us: None,
            wait_p50_us: None,
            wait_p99_us: None,
            ratio: ours.ratio_to(reference),
        }
    }
}

/// What a figure should reach.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    pub value: Option<f64>,
    pub met: bool,
}

impl Target {
    pub fn at_least(what: &'static str, limit: f64, value: Option<f64>) -> Target {
        Target {
            what,
            at_least: Some(limit),
            at_most: None,
            value,
            met: value.is_some_and(|value| value >= limit),
        }
    }

    pub fn at_most(what: &'static str, limit: f64, value: Option<f64>) -> Target {
        Target {
            what,
            at_least: None,
            at_most: Some(limit),
            value,
            met: value.is_some_and(|value| value <= limit),
        }
    }
}

impl Figure {
    /// A figure beside a reference that does pairs as well.
    pub fn of(
        scenario: &'static str,
        api: &'static str,
        names: usize,
        ours: &Series,
        reference: (&'static str, &Series),
    ) -> Figure {
        let total = &ours.total;
        let pairs = total.pairs();
        let requests = total.commands.or(total.ops.as_ref().map(Ops::requests));
        // Requests are counted until the last pair is over.
        let all = pairs + total.late;
        let per_pair = |requests| requests as f64 / all as f64;
        Figure {
            scenario,
            api,
            processes: total.processes.len(),
            tasks: total.tasks.len(),
            names,
            pairs,
            pairs_per_second: ours.rate(),
            wait_us: Quantiles::of(&total.wait),
            release_us: Quantiles::of(&total.release),
            pair_us: Quantiles::of(&total.pair),
            handoff_us: None,
            ops_per_acquisition: requests.filter(|_| all > 0).map(per_pair),
            ops: total.ops,
            commands: total.commands,
            fairness: Fairness::of(total),
            reference: Reference::of(ours, reference),
            also: None,
            targets: Vec::new(),
        }
    }
}
