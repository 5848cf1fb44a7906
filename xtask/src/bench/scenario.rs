//! What is measured, and one run of it: windows of all peers in turn.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::cast::Peer;
use super::figures::Figures;
use super::process::{Answer, Order, Process};
use super::server::{Origin, Server};

/// How long after its window a peer may still let its waiters have their turn.
const DRAINS_WITHIN: Duration = Duration::from_secs(120);
/// From the order to the start, so that every process is ready.
const SOON: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub title: &'static str,
    pub processes: usize,
    /// In each process.
    pub tasks: usize,
    /// Whether every task has a name of its own.
    pub apart: bool,
    pub hold: Duration,
    /// How much longer than others its windows are.
    pub windows: f64,
}

pub const SERIAL: &str = "serial";
pub const PARALLEL: &str = "parallel";
pub const CONTENDED: &str = "contended";
pub const CONTENDED_HELD: &str = "contended-1ms";
pub const PROCESSES: &str = "processes";
pub const PROCESSES_HELD: &str = "processes-1ms";
pub const HANDOFF: &str = "handoff";

const MILLISECOND: Duration = Duration::from_millis(1);

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: SERIAL,
        title: "Serial: 1 task, 1 name",
        processes: 1,
        tasks: 1,
        apart: true,
        hold: Duration::ZERO,
        windows: 1.0,
    },
    Scenario {
        name: PARALLEL,
        title: "Parallel: 64 tasks, 64 names",
        processes: 1,
        tasks: 64,
        apart: true,
        hold: Duration::ZERO,
        windows: 1.0,
    },
    Scenario {
        name: CONTENDED,
        title: "Contended: 64 tasks of one process, 1 name",
        processes: 1,
        tasks: 64,
        apart: false,
        hold: Duration::ZERO,
        windows: 2.0,
    },
    Scenario {
        name: CONTENDED_HELD,
        title: "Contended, held for 1 ms",
        processes: 1,
        tasks: 64,
        apart: false,
        hold: MILLISECOND,
        windows: 2.0,
    },
    Scenario {
        name: PROCESSES,
        title: "Processes: 4 × 16 tasks, 1 name",
        processes: 4,
        tasks: 16,
        apart: false,
        hold: Duration::ZERO,
        windows: 2.0,
    },
    Scenario {
        name: PROCESSES_HELD,
        title: "Processes, held for 1 ms",
        processes: 4,
        tasks: 16,
        apart: false,
        hold: MILLISECOND,
        windows: 2.0,
    },
    Scenario {
        name: HANDOFF,
        title: "Hand-off: 2 processes with 1 task each, 1 name, held for 2 ms",
        processes: 2,
        tasks: 1,
        apart: false,
        hold: Duration::from_millis(2),
        windows: 1.0,
    },
];

/// What became of one peer in one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub peer: &'static str,
    pub median: Option<Figures>,
    pub windows: Vec<Figures>,
    /// Why there are no figures.
    pub failure: Option<String>,
}

/// A peer at work on a scenario.
struct Player {
    peer: Peer,
    processes: Vec<Process>,
    origin: Origin,
    row: Row,
}

impl Scenario {
    /// Lets all peers take turns: in each rotation another one is first.
    pub fn run(
        &self,
        peers: &[Peer],
        server: &Server,
        window: Duration,
        rotations: usize,
        mut version: impl FnMut(&Peer, &str),
    ) -> Result<Vec<Row>, String> {
        server.clear()?;
        let mut players: Vec<Player> = peers.iter().map(|peer| Player::new(*peer)).collect();
        for player in &mut players {
            player.attempt(|player| player.prepare(self, server, window));
            if let Some(process) = player.processes.first() {
                version(&player.peer, &process.version);
            }
        }
        let length = window.mul_f64(self.windows);
        for rotation in 0..rotations {
            let first = rotation * players.len() / rotations;
            for at in 0..players.len() {
                let at = (first + at) % players.len();
                players[at].attempt(|player| {
                    let before = server.calls()?;
                    let answers = player.window(self, length)?;
                    let commands = player.origin.sent_by_clients(&before, &server.calls()?);
                    let figures = Figures::of(&answers, length.as_secs_f64(), commands);
                    player.row.windows.push(figures);
                    Ok(())
                });
            }
        }
        Ok(players.into_iter().map(Player::finish).collect())
    }

    fn names(&self, peer: &Peer) -> Vec<String> {
        let name = |task| match self.apart {
            true => format!("bench:{}:{}:{task}", self.name, peer.name),
            false => format!("bench:{}:{}", self.name, peer.name),
        };
        (0..self.tasks).map(name).collect()
    }
}

impl Player {
    fn new(peer: Peer) -> Player {
        Player {
            peer,
            processes: Vec::new(),
            origin: Origin::default(),
            row: Row {
                peer: peer.name,
                median: None,
                windows: Vec::new(),
                failure: None,
            },
        }
    }

    /// What fails once is not tried again, and does not stop the others.
    fn attempt(&mut self, work: impl FnOnce(&mut Player) -> Result<(), String>) {
        if self.row.failure.is_some() {
            return;
        }
        if let Err(reason) = work(self) {
            println!("    {}: {reason}", self.peer.name);
            self.row.failure = Some(reason);
            self.processes.clear();
        }
    }

    /// Starts the processes, warms them up, and sees which commands they send.
    fn prepare(
        &mut self,
        scenario: &Scenario,
        server: &Server,
        length: Duration,
    ) -> Result<(), String> {
        for _ in 0..scenario.processes {
            self.processes.push(Process::start(&self.peer, server)?);
        }
        for process in &mut self.processes {
            process.ready()?;
        }
        let watch = server.watch()?;
        self.window(scenario, length)?;
        self.origin = watch.end()?;
        Ok(())
    }

    fn window(&mut self, scenario: &Scenario, length: Duration) -> Result<Vec<Answer>, String> {
        let start = now() + SOON.as_nanos() as u64;
        let order = Order {
            names: scenario.names(&self.peer),
            start_ns: start,
            end_ns: start + length.as_nanos() as u64,
            hold_us: scenario.hold.as_micros() as u64,
            notes: scenario.name == HANDOFF,
        };
        for process in &mut self.processes {
            process.order(&order)?;
        }
        let within = SOON + length + DRAINS_WITHIN;
        self.processes
            .iter()
            .map(|process| process.answer(within))
            .collect()
    }

    fn finish(mut self) -> Row {
        if self.row.failure.is_none() && !self.row.windows.is_empty() {
            self.row.median = Some(Figures::median(&self.row.windows));
        }
        self.row
    }
}

/// `CLOCK_MONOTONIC`, which every process here shares.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
