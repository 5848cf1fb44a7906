//! A quorum beside one of its nodes alone, and beside itself with a minority of its nodes stalled.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Bench;
use super::lap::Window;
use super::progress::Progress;
use super::redis::{Counted, Server};
use super::report::{Entry, Figure, Reference, Skipped, Target};
use super::scenarios::entry;
use super::side::{Side, alternate, steps};
use super::tally::{Tally, Times};
use super::target::{Address, Target as Store};

pub const ALONE: &str = "the same on its first node alone";
const ALL_UP: &str = "the same with all nodes up";

/// How long nodes that go on are left to themselves: they have what was sent to them meanwhile to do.
const BREATH: Duration = Duration::from_millis(300);

/// The nodes of a quorum, each as a server of its own.
pub struct Nodes {
    /// Each as a URL, in the quorum's dialect.
    urls: Vec<String>,
}

impl Nodes {
    /// The nodes that a Lockkeeper URL names; `None` if it names no quorum.
    pub fn find(url: &str) -> Option<Nodes> {
        let rest = url.strip_prefix("redlock://")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options: HashMap<&str, &str> = query
            .split('&')
            .filter_map(|option| option.split_once('='))
            .collect();
        let scheme = match options.get("tls") {
            Some(&"yes") => "rediss",
            _ => "redis",
        };
        let (place, db) = place.split_once('/').unwrap_or((place, "0"));
        let (who, hosts) = match place.rsplit_once('@') {
            Some((who, hosts)) => (format!("{who}@"), hosts),
            None => (String::new(), place),
        };
        let kept = ["dialect", "prefix", "password_file", "ca"];
        let kept = kept
            .iter()
            .filter_map(|name| Some((name, options.get(name)?)));
        let kept: Vec<String> = kept
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let node = |host: &str| {
            let db = if db.is_empty() { "0" } else { db };
            format!("{scheme}://{who}{host}/{db}?{}", kept.join("&"))
        };
        Some(Nodes {
            urls: hosts.split(',').map(node).collect(),
        })
    }

    /// Each, spoken to without Lockkeeper.
    pub fn servers(&self) -> Result<Vec<Server>> {
        self.urls.iter().map(|url| Server::find(url)).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.urls.len()
    }

    fn first(&self) -> Result<Address> {
        Address::find(self.urls.first().map(String::as_str))
    }

    /// The processes of the last nodes, as many as a quorum can miss.
    fn minority(&self) -> Result<Vec<Pid>> {
        let servers = self.servers()?;
        let from = servers.len() - (servers.len() - 1) / 2;
        servers[from..].iter().map(process).collect()
    }
}

/// The process of a server on this machine.
fn process(server: &Server) -> Result<Pid> {
    let pid = server.process_id()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if !server.is_local() || !name.contains("redis") && !name.contains("valkey") {
        bail!(
            "process {pid} of {} is not a server on this machine",
            server.address()
        );
    }
    Ok(Pid::from_raw(pid))
}

/// Processes that stand still for as long as this lives.
struct Stopped<'p>(&'p [Pid]);

impl Stopped<'_> {
    fn stop(processes: &[Pid]) -> Result<Stopped<'_>> {
        let stopped = Stopped(processes);
        for pid in processes {
            kill(*pid, Signal::SIGSTOP).with_context(|| format!("process {pid}"))?;
        }
        Ok(stopped)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for pid in self.0 {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// A side whose windows pass while some nodes are stopped.
struct Stalled<'b> {
    side: Box<dyn Side + 'b>,
    processes: Vec<Pid>,
}

impl Side for Stalled<'_> {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let tally = {
            let _stopped = Stopped::stop(&self.processes)?;
            self.side.window(window)?
        };
        std::thread::sleep(BREATH);
        Ok(tally)
    }
}

/// How many times as long this quantile is.
pub fn times(ours: &Times, theirs: &Times, quantile: f64) -> Option<f64> {
    let (ours, theirs) = (ours.quantile(quantile), theirs.quantile(quantile));
    (theirs > 0.0).then(|| ours / theirs)
}

impl Bench {
    /// One task, a name of its own, beside the same on one node.
    pub fn serial_on(&self, nodes: &Nodes) -> Result<Vec<Entry>> {
        let names = self.names("serial", 1);
        let (target, alone) = (self.open()?, self.alone(nodes)?);
        let mut ours = self.counted(self.side(&target, &names)?)?;
        let mut one = self.side(&alone, &self.names("serial:alone", 1))?;
        let series = self.beside("serial", &mut *one, &mut *ours)?;
        let (theirs, ours) = (&series[0].total, &series[1].total);
        let mut figure = Figure::of("serial", self.api(), 1, &series[1], (ALONE, &series[0]));
        figure.reference.wait_p50_us = Some(theirs.wait.quantile(0.5));
        figure.reference.ratio = times(&ours.wait, &theirs.wait, 0.5);
        if self.no_hold() {
            let ratio = figure.reference.ratio;
            figure.targets = vec![Target::at_most("wait p50 ratio", 1.6, ratio)];
        }
        target.keeper.close();
        alone.keeper.close();
        Ok(vec![entry(figure)])
    }

    /// The same on one node, for a scenario of many tasks.
    pub fn also_alone(&self, nodes: &Nodes, figure: &mut Figure, names: &[String]) -> Result<()> {
        let (target, alone) = (self.open()?, self.alone(nodes)?);
        let mut ours = self.side(&target, names)?;
        let mut one = self.side(&alone, names)?;
        let series = self.beside(figure.scenario, &mut *one, &mut *ours)?;
        figure.also = Some(Reference::of(&series[1], (ALONE, &series[0])));
        target.keeper.close();
        alone.keeper.close();
        Ok(())
    }

    pub fn alone(&self, nodes: &Nodes) -> Result<Store> {
        Store::open(&nodes.first()?, self.hand_off, None)
    }

    /// One task, a name of its own, while as many nodes as can be missed stand still (SIGSTOP).
    pub fn stalled(&self) -> Result<Vec<Entry>> {
        let skipped = |skipped: String| {
            let scenario = "stalled";
            Ok(vec![Entry::Skipped(Skipped { scenario, skipped })])
        };
        let Some(nodes) = &self.nodes else {
            return skipped("it is about the nodes of a quorum".into());
        };
        let processes = match nodes.minority() {
            Ok(processes) => processes,
            Err(error) => return skipped(format!("nodes cannot be stopped: {error:#}")),
        };
        let names = self.names("stalled", 1);
        let (up, down) = (self.open()?, self.open()?);
        let mut all_up = self.side(&up, &names)?;
        // Those that stand still cannot be asked.
        let servers = nodes.servers()?;
        let counting = servers[..servers.len() - processes.len()].iter();
        let mut stalled = Stalled {
            side: Box::new(Counted {
                side: self.side(&down, &names)?,
                servers: counting.map(Server::commands).collect::<Result<_>>()?,
            }),
            processes,
        };
        let progress = Progress::new("stalled", steps(self.rounds, 2));
        let mut sides: [&mut dyn Side; 2] = [&mut *all_up, &mut stalled];
        let series = alternate(self.rounds, &mut sides, &progress)?;
        let (theirs, ours) = (&series[0].total, &series[1].total);
        let mut figure = Figure::of("stalled", self.api(), 1, &series[1], (ALL_UP, &series[0]));
        figure.reference.wait_p99_us = Some(theirs.wait.quantile(0.99));
        figure.reference.ratio = times(&ours.wait, &theirs.wait, 0.99);
        if self.no_hold() {
            let release = times(&ours.release, &theirs.release, 0.99);
            figure.targets = vec![
                Target::at_most("wait p99 ratio", 2.0, figure.reference.ratio),
                Target::at_most("release p99 ratio", 2.0, release),
            ];
        }
        up.keeper.close();
        down.keeper.close();
        Ok(vec![entry(figure)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_a_server() {
        let nodes = Nodes::find("redlock://me:pw@a:1,b:2/3?max_lease=5s&dialect=plain&tls=yes");
        assert_eq!(
            nodes.expect("a quorum").urls,
            [
                "rediss://me:pw@a:1/3?dialect=plain",
                "rediss://me:pw@b:2/3?dialect=plain"
            ]
        );
        let nodes = Nodes::find("redlock://a:1,b:2").expect("a quorum");
        assert_eq!(nodes.urls[1], "redis://b:2/0?");
        assert!(Nodes::find("redis://a:1").is_none());
    }
}
