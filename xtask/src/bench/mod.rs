//! `cargo xtask bench peers`: Lockkeeper on Redis and on ZooKeeper beside other libraries, each in one run on one server, on Redis
//! on five, too.
//!
//! # Layout
//! [`group`] is on what is measured, [`cast`] who, [`scenario`] what, in which order; [`process`] talks to the programs of
//! `bench/peers`, a [`server`] is a [`redis`] or a [`zookeeper`] and counts commands, [`figures`] adds up, [`targets`] judges,
//! [`page`] and [`plot`] tell.

mod cast;
mod figures;
mod group;
mod machine;
mod page;
mod plot;
mod process;
mod redis;
mod scenario;
mod server;
mod targets;
mod zookeeper;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::peers::{self, Need};
use crate::tools::root;
use cast::{Kit, Peer};
use group::{GROUPS, Group};
use machine::Machine;
use scenario::Row;
use server::Server;
use targets::Target;

/// A peer as the report names it.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    ours: bool,
    version: Option<String>,
    settings: &'static str,
    /// Why it is not measured.
    left_out: Option<String>,
}

/// All that a run found.
#[derive(Debug, Serialize)]
struct Report {
    group: &'static Group,
    machine: Machine,
    rotations: usize,
    window_s: f64,
    peers: Vec<Entry>,
    scenarios: BTreeMap<&'static str, Vec<Row>>,
    targets: Vec<Target>,
}

/// Measures on the servers that are named, or on all. Writes the pages and the plots to `docs/benchmarks`, and the data below
/// `target`. A quick run is not worth keeping: all of it goes below `target`.
pub fn run(on: Option<&str>, quick: bool) -> Result<(), String> {
    let groups = GROUPS
        .iter()
        .filter(|group| on.is_none_or(|on| on == group.name));
    let groups: Vec<&Group> = groups.collect();
    if groups.is_empty() {
        let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
        let asked = on.unwrap_or_default();
        return Err(format!(
            "{asked:?} is no kind of server; there are: {}",
            names.join(", ")
        ));
    }
    let needs: Vec<Need> = groups
        .iter()
        .flat_map(|group| group.needs)
        .copied()
        .collect();
    peers::check(&needs)?;
    groups
        .into_iter()
        .try_for_each(|group| measure(group, quick))
}

fn measure(group: &'static Group, quick: bool) -> Result<(), String> {
    let started = Instant::now();
    let (window, rotations) = if quick {
        (Duration::from_millis(50), 1)
    } else {
        (Duration::from_millis(1250), 3)
    };
    let left_out = build(group.peers)?;
    let present: Vec<Peer> = group
        .peers
        .iter()
        .filter(|peer| !left_out.contains_key(peer.name))
        .copied()
        .collect();
    let folder = root().join("target/bench/servers").join(group.name);
    let servers: Vec<Box<dyn Server>> = (0..group.nodes)
        .map(|number| (group.start)(&folder.join(number.to_string())))
        .collect::<Result<_, _>>()?;
    let server = &servers[0];
    let ping = server.ping()?.map(|ping| ping.as_secs_f64() * 1e6);
    let machine = Machine::look(server.version()?, ping);
    let mut versions = BTreeMap::new();
    let mut scenarios = BTreeMap::new();
    for scenario in group.scenarios() {
        let elapsed = started.elapsed().as_secs();
        println!("==> {}, {} (after {elapsed} s)", group.on, scenario.title);
        let note = |peer: &Peer, version: &str| {
            versions.insert(peer.name, version.to_owned());
        };
        let rows = scenario.run(&present, &servers, window, rotations, note)?;
        for row in &rows {
            if let Some(median) = &row.median {
                let (rate, wait) = (median.pairs_per_second, page::time(median.wait_p99));
                let handoff = median.handoff_p50.map(page::time);
                let seen = match handoff {
                    Some(handoff) => format!("hand-off p50 {handoff}"),
                    None => format!("{rate:>9.0} pairs/s, wait p99 {wait}"),
                };
                println!("    {:32} {seen}", row.peer);
            }
        }
        scenarios.insert(scenario.name, rows);
    }
    let peers = group.peers.iter().map(|peer| Entry {
        name: peer.name,
        ours: peer.is_ours(),
        version: versions.get(peer.name).cloned(),
        settings: peer.settings,
        left_out: left_out.get(peer.name).cloned(),
    });
    let report = Report {
        group,
        machine,
        rotations,
        window_s: window.as_secs_f64(),
        peers: peers.collect(),
        targets: (group.judge)(&scenarios),
        scenarios,
    };
    write(&report, quick)?;
    println!("in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Builds every program. Answers which peers have to be left out, and why; ours must be there.
fn build(peers: &[Peer]) -> Result<BTreeMap<&'static str, String>, String> {
    let mut left_out = BTreeMap::new();
    for kit in Kit::of(peers) {
        println!("==> build {kit:?}");
        let Err(reason) = kit.build() else {
            continue;
        };
        if kit == Kit::Lockkeeper {
            return Err(reason);
        }
        println!("left out: {reason}");
        let peers = peers.iter().filter(|peer| peer.kit == kit);
        // Only the program's own folders are named in what others read.
        let reason = reason.replace(&root().display().to_string(), ".");
        left_out.extend(peers.map(|peer| (peer.name, reason.clone())));
    }
    Ok(left_out)
}

fn write(report: &Report, quick: bool) -> Result<(), String> {
    let (data, pages) = if quick {
        ("target/bench/quick", "target/bench/quick")
    } else {
        ("target/bench", "docs/benchmarks")
    };
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    for (folder, kind, text) in [
        (data, "json", json + "\n"),
        (pages, "md", page::text(report)),
        (pages, "svg", plot::text(report)),
    ] {
        let folder = root().join(folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
        let path = folder.join(format!("{}.{kind}", report.group.file));
        fs::write(&path, text).map_err(|error| format!("{path:?}: {error}"))?;
        println!("{}", path.display());
    }
    for target in &report.targets {
        println!("{}", target.text());
    }
    Ok(())
}
