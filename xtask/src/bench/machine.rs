//! The machine that a run is made on.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::packages::on_path;
use crate::tools::root;

/// How many cores everything together runs on, so that runs on different machines are alike.
const CORES: usize = 2;

/// Where and when a run was made.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub date: String,
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    pub server: String,
    /// The round trip of a PING, where there is such a thing.
    pub ping_us: Option<f64>,
    /// Which state of Lockkeeper.
    pub revision: String,
    /// How much of the processor others used just before.
    pub busy: f64,
}

impl Machine {
    pub fn look(server: String, ping_us: Option<f64>) -> Machine {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let processor = processor.and_then(|line| line.split_once(": "));
        Machine {
            date: says("date", &["-u", "+%Y-%m-%d"]),
            processor: processor.map_or("unknown", |(_, name)| name).to_owned(),
            cores: cores().min(CORES),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            server,
            ping_us,
            revision: says("git", &["describe", "--always", "--dirty"]),
            busy: busy(),
        }
    }
}

impl Machine {
    /// Whether something else runs, which makes figures worth little.
    pub fn is_busy(&self) -> bool {
        self.busy > 0.1
    }
}

/// The share of processor time that is used while we use none.
fn busy() -> f64 {
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    let after = ticks();
    let passed = |at: usize| after.get(at).unwrap_or(&0) - before.get(at).unwrap_or(&0);
    let all: u64 = (0..after.len()).map(passed).sum();
    // The fourth and fifth are idle, and waiting for a disk.
    1.0 - (passed(3) + passed(4)) as f64 / all.max(1) as f64
}

/// What all cores together have spent on what, from the first line of /proc/stat.
fn ticks() -> Vec<u64> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    // The ninth and tenth, guests, are counted before already.
    let numbers = line.split_whitespace().skip(1).take(8);
    numbers.flat_map(str::parse).collect()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A command that runs on the first cores only.
pub fn pinned(program: impl AsRef<OsStr>) -> Command {
    if cores() <= CORES || !on_path("taskset") {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", &format!("0-{}", CORES - 1)]);
    command.arg(program);
    command
}

fn says(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command)
        .args(arguments)
        .current_dir(root())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().trim().to_owned()
}
