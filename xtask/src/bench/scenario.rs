//! What is measured, and one run of it: windows of all peers in turn.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::cast::Peer;
use super::figures::Figures;
use super::process::{Answer, Order, Process};
use super::redis::{Origin, Watch};
use super::server::{Server, Stopped};

/// How long after its window a peer may still let its waiters have their turn.
const DRAINS_WITHIN: Duration = Duration::from_secs(120);
/// From the order to the start, so that every process is ready.
const SOON: Duration = Duration::from_millis(100);

/// In the hand-off: between the one's asking and the other's, how long the lock is held at least, and how much longer at
/// most.
const ASK_EVERY: Duration = Duration::from_millis(20);
const HELD: Duration = Duration::from_millis(60);
const HELD_MORE: Duration = Duration::from_millis(100);

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
    /// Over how many independent servers.
    pub nodes: usize,
    /// How many of them stand still in the windows that count (SIGSTOP).
    pub stalled: usize,
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
pub const QUORUM: &str = "quorum";
pub const QUORUM_STALLED: &str = "quorum-stalled";
pub const QUORUM_CONTENDED: &str = "quorum-contended";

/// How many servers a quorum has.
pub const NODES: usize = 5;

const MILLISECOND: Duration = Duration::from_millis(1);

/// One task with a name of its own, on one server.
const ONE_TASK: Scenario = Scenario {
    name: "",
    title: "",
    processes: 1,
    tasks: 1,
    apart: true,
    hold: Duration::ZERO,
    nodes: 1,
    stalled: 0,
    windows: 1.0,
};

/// Many tasks of one process that want one name.
const A_CROWD: Scenario = Scenario {
    tasks: 64,
    apart: false,
    windows: 2.0,
    ..ONE_TASK
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: SERIAL,
        title: "Serial: 1 task, 1 name",
        ..ONE_TASK
    },
    Scenario {
        name: PARALLEL,
        title: "Parallel: 64 tasks, 64 names",
        tasks: 64,
        ..ONE_TASK
    },
    Scenario {
        name: CONTENDED,
        title: "Contended: 64 tasks of one process, 1 name",
        ..A_CROWD
    },
    Scenario {
        name: CONTENDED_HELD,
        title: "Contended, held for 1 ms",
        hold: MILLISECOND,
        ..A_CROWD
    },
    Scenario {
        name: PROCESSES,
        title: "Processes: 4 × 16 tasks, 1 name",
        processes: 4,
        tasks: 16,
        ..A_CROWD
    },
    Scenario {
        name: PROCESSES_HELD,
        title: "Processes, held for 1 ms",
        processes: 4,
        tasks: 16,
        hold: MILLISECOND,
        ..A_CROWD
    },
    Scenario {
        name: HANDOFF,
        title: "Hand-off: from the release in one process to the waiter in another",
        processes: 2,
        tasks: 1,
        ..A_CROWD
    },
    Scenario {
        name: QUORUM,
        title: "Quorum: 5 servers, 1 task, 1 name",
        nodes: NODES,
        ..ONE_TASK
    },
    Scenario {
        name: QUORUM_STALLED,
        title: "Quorum, 2 of the 5 servers stopped: 1 task, 1 name",
        nodes: NODES,
        stalled: NODES / 2,
        windows: 2.0,
        ..ONE_TASK
    },
    Scenario {
        name: QUORUM_CONTENDED,
        title: "Quorum, contended: 5 servers, 64 tasks of one process, 1 name",
        nodes: NODES,
        ..A_CROWD
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
        servers: &[Box<dyn Server>],
        window: Duration,
        rotations: usize,
        mut version: impl FnMut(&Peer, &str),
    ) -> Result<Vec<Row>, String> {
        let servers = &servers[..self.nodes];
        // Of a quorum, the commands that one server was sent.
        let server = &servers[0];
        servers.iter().try_for_each(|server| server.clear())?;
        let peers = peers.iter().filter(|peer| self.nodes == 1 || peer.quorum);
        let mut players: Vec<Player> = peers.map(|peer| Player::new(*peer)).collect();
        for player in &mut players {
            player.attempt(|player| player.prepare(self, servers, window));
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
                    let stopped = Stopped::stop(&servers[servers.len() - self.stalled..])?;
                    let answers = player.play(self, length)?;
                    drop(stopped);
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
        let name = |task| {
            if self.apart {
                format!("bench:{}:{}:{task}", self.name, peer.name)
            } else {
                format!("bench:{}:{}", self.name, peer.name)
            }
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
        servers: &[Box<dyn Server>],
        length: Duration,
    ) -> Result<(), String> {
        let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
        for _ in 0..scenario.processes {
            let process = Process::start(&self.peer, &urls.join(","));
            self.processes.push(process?);
        }
        for process in &mut self.processes {
            process.ready()?;
        }
        let watch = servers[0].watch()?;
        self.play(scenario, length)?;
        self.origin = watch.map(Watch::end).transpose()?.unwrap_or_default();
        Ok(())
    }

    fn play(&mut self, scenario: &Scenario, length: Duration) -> Result<Vec<Answer>, String> {
        match scenario.name {
            HANDOFF => self.hand_over(scenario, length),
            _ => self.window(scenario, length),
        }
    }

    fn window(&mut self, scenario: &Scenario, length: Duration) -> Result<Vec<Answer>, String> {
        let start = now() + nanos(SOON);
        let order = Order {
            names: scenario.names(&self.peer),
            start_ns: start,
            end_ns: start + nanos(length),
            hold_us: scenario.hold.as_micros() as u64,
            notes: false,
        };
        for process in &mut self.processes {
            process.order(&order)?;
        }
        self.answers(length)
    }

    /// Again and again, one process takes the lock, the other asks for it, and the first lets go for good: what a
    /// waiter gets when nobody takes the lock away from it.
    fn hand_over(&mut self, scenario: &Scenario, length: Duration) -> Result<Vec<Answer>, String> {
        let end = now() + nanos(length);
        let mut all = vec![Answer::default(); self.processes.len()];
        let mut first = 0;
        while now() < end {
            // Not always as long, or a waiter that looks at fixed times would always look as late.
            let hold = HELD + Duration::from_nanos(now() % nanos(HELD_MORE));
            let start = now() + nanos(ASK_EVERY);
            for (number, process) in self.processes.iter_mut().enumerate() {
                let is_first = number == first;
                let start = start + if is_first { 0 } else { nanos(ASK_EVERY) };
                process.order(&Order {
                    names: scenario.names(&self.peer),
                    start_ns: start,
                    // Over before it is released: each asks once.
                    end_ns: start + nanos(ASK_EVERY),
                    hold_us: if is_first { hold.as_micros() as u64 } else { 0 },
                    notes: true,
                })?;
            }
            for (all, answer) in all.iter_mut().zip(self.answers(hold)?) {
                all.add(answer);
            }
            first = (first + 1) % self.processes.len();
        }
        Ok(all)
    }

    fn answers(&self, length: Duration) -> Result<Vec<Answer>, String> {
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

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// `CLOCK_MONOTONIC`, which every process here shares.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
