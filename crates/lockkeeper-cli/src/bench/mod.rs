//! `lockkeeper bench`: how fast and how fair locks on a store are, beside what the same costs without them.
//!
//! # Layout
//! [`scenarios`], [`handoff`], [`waiters`], [`idle`], [`held`] and [`quorum`] are what is measured. [`lap`] is one pair and the tasks
//! that repeat it, [`side`] lets ours and a [`reference`] ([`redis`], [`sql`] and [`zookeeper`] have that of their servers, [`network`] chooses) take turns, [`workers`] are other processes, [`counting`] counts what
//! is asked of the store, [`tally`] adds up, [`report`] and [`table`] tell.

mod counting;
mod handoff;
mod held;
mod idle;
mod lap;
mod network;
mod progress;
mod quorum;
mod redis;
mod reference;
mod report;
mod scenarios;
mod side;
mod sql;
mod table;
mod tally;
mod target;
mod waiters;
mod workers;
mod zookeeper;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use lockkeeper::HandOff;
use lockkeeper::store::{Capabilities, KeeperId};
use lockkeeper::url::StoreUrl;
use tokio::runtime::Runtime;

use held::HeldOrder;
use lockkeeper_cli::exit::{Failure, INTERNAL};
use lockkeeper_cli::output::{print, print_json};
use lockkeeper_cli::store::StoreArgs;
use network::Network;
use report::{Entry, HeldEntry, Report, Target};
use side::Rounds;
use target::Address;
use workers::Worker;

pub use workers::SUBCOMMAND as WORKER_VERB;

const ROUNDS: u32 = 5;
/// For how many renewals *held* watches each lock.
const PERIODS: u32 = 3;

/// Measures a store: how many locks a second, how long waiters wait, how fair it is
///
/// Every figure stands beside a reference, measured in turn with it. A pair is one acquire and one release.
/// The names of a run are its own, so other locks on the store are not disturbed, and nothing stays
/// held or waited for. (On Redis their token keys stay, for as long as token keys do.)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to measure; may be repeated [default: all]
    #[arg(long, value_name = "NAME", value_enum)]
    scenario: Vec<Scenario>,
    /// How long each pair holds the lock, such as 1ms, by a timer
    #[arg(long, value_name = "D", value_parser = lockkeeper::duration::parse)]
    hold: Option<Duration>,
    /// For how long to measure each figure; its reference takes as long again
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    seconds: f64,
    /// Use threads and the blocking API
    #[arg(long)]
    blocking: bool,
    /// Do not let tasks of one process hand a lock to each other: every release goes to the store
    #[arg(long = "no-handoff")]
    no_hand_off: bool,
    /// For the scenario waiters: how many in all
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    waiters: usize,
    /// For the scenario idle: how many idle keepers
    #[arg(long, value_name = "N", default_value_t = 100)]
    idle: usize,
    /// For the scenario held: how many locks
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    locks: usize,
    /// For the scenario held: their lease, such as 10s
    #[arg(long, value_name = "D", default_value = "10s", value_parser = lockkeeper::duration::parse)]
    lease: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// 1 task, a name of its own
    Serial,
    /// 64 tasks, 64 names
    Parallel,
    /// 64 tasks, 1 name, one process
    Contended,
    /// 4 processes with 16 tasks each, 1 name
    Processes,
    /// From the release in one process to the acquire in another
    Handoff,
    /// Very many tasks of 4 processes wait for 1 name
    Waiters,
    /// Very many locks held and renewed by one keeper
    Held,
    /// 10 busy keepers beside many idle ones, each with its connection: only when asked for
    Idle,
    /// 1 task on a quorum while a minority of its nodes is stopped (SIGSTOP): only when asked for, and on this machine
    Stalled,
}

/// One run.
struct Bench {
    address: Address,
    capabilities: Capabilities,
    /// Makes the names of this run its own.
    unique: String,
    rounds: Rounds,
    blocking: bool,
    hand_off: HandOff,
    /// The server of a store that has one.
    redis: Option<redis::Server>,
    /// The server of a SQL store or of ZooKeeper.
    network: Option<Network>,
    /// The nodes of a quorum.
    nodes: Option<quorum::Nodes>,
    /// Last, so that what the servers have of us is cleaned up before it ends.
    runtime: Runtime,
}

/// Runs `lockkeeper bench`.
pub fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    if let Some(url) = &store.store {
        lockkeeper_cli::store::check(url)?;
    }
    measure(args, store).map_err(|error| {
        if lap::interrupted() {
            return Failure::new(130, "interrupted");
        }
        match error.downcast::<lockkeeper::Error>() {
            Ok(error) => error.into(),
            Err(error) => Failure::new(INTERNAL, format!("{error:#}")),
        }
    })
}

/// Runs as another process of a bench.
pub fn worker() -> ExitCode {
    let obey = || {
        // The program that started us decides when to stop, also on Ctrl-C: to leave nothing behind.
        signal_hook::flag::register(signal_hook::consts::SIGINT, &lap::INTERRUPTED)?;
        workers::obey(&runtime()?)
    };
    match obey() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard output is for answers, and the one who reads them will miss them.
            eprintln!("lockkeeper {WORKER_VERB}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
}

fn measure(args: &Args, store: &StoreArgs) -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, &lap::INTERRUPTED)?;
    }
    let address = Address::find(store.store.as_deref())?;
    let hand_off = if args.no_hand_off {
        HandOff::OFF
    } else {
        HandOff::default()
    };
    let witness = target::Target::open(&address, hand_off, None)?;
    let capabilities = witness.keeper.capabilities();
    let redis = match capabilities.store {
        "redis" => Some(redis::Server::find(&address.text)?),
        _ => None,
    };
    let nodes = quorum::Nodes::find(&address.text);
    let runtime = runtime()?;
    // As long as names usually are: ours goes out twice with a request, the reference's once.
    let unique = format!("{:08x}", KeeperId::new().to_bits() as u32);
    let url = StoreUrl::parse(&address.text)?;
    let handle = runtime.handle().clone();
    let network = Network::find(capabilities.store, &url, &unique, handle)?;
    let bench = Bench {
        runtime,
        address,
        capabilities,
        unique,
        rounds: Rounds {
            count: ROUNDS,
            length: Duration::try_from_secs_f64(args.seconds / f64::from(ROUNDS))?
                .max(Duration::from_millis(5)),
            hold: args.hold.unwrap_or_default(),
        },
        blocking: args.blocking,
        hand_off,
        redis,
        network,
        nodes,
    };
    let mut scenarios = Vec::new();
    for scenario in Scenario::value_variants() {
        // Nobody wants servers to be stopped, or their connections to be used up, without having said so.
        let asked_for = [Scenario::Idle, Scenario::Stalled].contains(scenario);
        let all = args.scenario.is_empty() && !asked_for;
        if all || args.scenario.contains(scenario) {
            scenarios.extend(bench.scenario(*scenario, args)?);
        }
    }
    let left = witness.keeper.list(&bench.prefix())?;
    let report = bench.report(scenarios, left.len());
    if store.json {
        print_json(&report)?
    } else {
        print(&table::text(&report))?
    }
    Ok(())
}

impl Bench {
    fn scenario(&self, scenario: Scenario, args: &Args) -> Result<Vec<Entry>> {
        match scenario {
            Scenario::Serial => self.serial(),
            Scenario::Parallel => self.parallel(),
            Scenario::Contended => self.contended(),
            Scenario::Processes => self.processes(),
            Scenario::Handoff => self.handoff(),
            Scenario::Waiters => self.waiters(args.waiters),
            Scenario::Held => self.held(args),
            Scenario::Idle => self.idle(args.idle),
            Scenario::Stalled => self.stalled(),
        }
    }

    fn held(&self, args: &Args) -> Result<Vec<Entry>> {
        let order = HeldOrder {
            prefix: self.name("held:"),
            locks: args.locks,
            lease: args.lease,
            periods: PERIODS,
        };
        let count = held::measure(&self.address, order)?;
        let targets = vec![Target::at_most("lost", 0.0, Some(count.lost as f64))];
        Ok(vec![Entry::Held(HeldEntry {
            scenario: "held",
            count,
            targets,
        })])
    }

    fn report(&self, scenarios: Vec<Entry>, left_behind: usize) -> Report {
        Report {
            version: env!("CARGO_PKG_VERSION"),
            store: self.capabilities.store,
            url: self.address.url.to_string(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            debug_build: cfg!(debug_assertions),
            rounds: self.rounds.count,
            window_ms: self.rounds.length.as_secs_f64() * 1e3,
            hold_ms: self.rounds.hold.as_secs_f64() * 1e3,
            hand_off: self.hand_off != HandOff::OFF,
            scenarios,
            left_behind,
        }
    }

    fn prefix(&self) -> String {
        format!("bench:{}:", self.unique)
    }

    fn name(&self, scenario: &str) -> String {
        format!("{}{scenario}", self.prefix())
    }

    fn names(&self, scenario: &str, count: usize) -> Vec<String> {
        let name = self.name(scenario);
        (0..count)
            .map(|number| format!("{name}:{number}"))
            .collect()
    }

    fn api(&self) -> &'static str {
        if self.blocking { "blocking" } else { "async" }
    }

    /// Another process on the same store.
    fn worker(&self) -> Result<Worker> {
        Worker::start(&self.address, self.hand_off)
    }

    fn is_sqlite(&self) -> bool {
        self.capabilities.store == "sqlite"
    }

    fn is_memory(&self) -> bool {
        self.capabilities.store == "memory"
    }

    fn no_hold(&self) -> bool {
        self.rounds.hold.is_zero()
    }
}
