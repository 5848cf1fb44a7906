//! Faults by chance, one after the other, on nodes that live through many histories.
//!
//! `LOCKKEEPER_HISTORIES` says how many, `LOCKKEEPER_SEED` repeats a run; `cargo xtask nightly` asks for many.

use std::ops::Range;
use std::time::Duration;

use lockkeeper_testkit::checker::{FaultKind, Verdict};
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::proxy;

use crate::world::{Crew, LEASE, LINGER, Watcher, Way, World, at_once, demands, judged};

/// How many histories one test run makes, unless it is told.
const HISTORIES: u64 = 6;
/// How many faults each has.
const FAULTS: Range<u64> = 3..7;
/// How many sets of nodes work at the same time.
const SETS: usize = 2;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

#[test]
fn every_rule_holds_in_histories_with_faults_by_chance() {
    let histories = number("LOCKKEEPER_HISTORIES").unwrap_or(HISTORIES);
    let seed = number("LOCKKEEPER_SEED");
    let seed = seed.unwrap_or_else(|| lockkeeper::clock::Moment::now().as_nanos());
    println!("{histories} histories; repeat them with LOCKKEEPER_SEED={seed}");
    let sets: [usize; SETS] = std::array::from_fn(|set| set);
    at_once(sets, |set| {
        let mut stage = Stage::new(set);
        for history in (0..histories).filter(|history| *history as usize % SETS == set) {
            let seed = seed.wrapping_add(history);
            println!("history {history} of seed {seed}:");
            stage.history(&mut Random::seeded(seed));
        }
    });
}

/// Nodes, and the way of the load to them.
struct Stage {
    world: World,
    way: Way,
}

/// What can happen. All of it is to be survived, so at most a minority of nodes is ever without its data.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    HolderKilled,
    HolderStopped,
    NodeEmptied,
    MinorityStalled,
    MajorityStalled,
    MinorityFull,
    RepliesLost,
    MinoritySilent,
    OneWay,
    LateRequests,
    LateReplies,
    Slow,
    Cut,
}

const TROUBLES: [Trouble; 13] = [
    Trouble::HolderKilled,
    Trouble::HolderStopped,
    Trouble::NodeEmptied,
    Trouble::MinorityStalled,
    Trouble::MajorityStalled,
    Trouble::MinorityFull,
    Trouble::RepliesLost,
    Trouble::MinoritySilent,
    Trouble::OneWay,
    Trouble::LateRequests,
    Trouble::LateReplies,
    Trouble::Slow,
    Trouble::Cut,
];

impl Trouble {
    /// What a history has to show of it.
    fn seen(self) -> FaultKind {
        match self {
            Trouble::HolderKilled => FaultKind::HolderKilled,
            Trouble::HolderStopped => FaultKind::HolderStopped,
            Trouble::RepliesLost => FaultKind::ReplyLost,
            other => FaultKind::Other(format!("{other:?}")),
        }
    }
}

impl Stage {
    /// One set has three nodes and speaks Redisson's dialect, the other five and the plain one.
    fn new(set: usize) -> Stage {
        let (nodes, query) = match set % 2 {
            0 => (3, ""),
            _ => (5, "&dialect=plain"),
        };
        let world = World::new(nodes, LEASE, query);
        Stage {
            way: world.way(),
            world,
        }
    }

    /// One history, after which all nodes are as at first.
    fn history(&mut self, random: &mut Random) {
        *self.world = Crew::at(&self.way.url());
        let url = self.world.url();
        self.world.tasks = 2;
        self.world.load(3, &url);
        self.world.work(30);
        let mut demands = demands().linger(LINGER + LEASE * 4);
        let count = FAULTS.start + random.below(FAULTS.end - FAULTS.start);
        {
            let watcher = Watcher::new(&self.world.url());
            for _ in 0..count {
                let trouble = TROUBLES[random.below(TROUBLES.len() as u64) as usize];
                self.make(trouble, &watcher, random);
                demands = demands.fault(trouble.seen(), 1);
                self.world.healed();
                self.world.work(10 + random.below(20));
            }
        }
        self.world.work(30);
        let events = self.world.finish();
        let verdict = judged(&events, &demands);
        if let Verdict::Violations(_) = verdict {
            let path = std::env::temp_dir().join(format!("history-{}.json", std::process::id()));
            let text: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            let _ = std::fs::write(&path, text.join("\n"));
            println!("the history is in {}", path.display());
        }
        verdict.expect_valid();
        self.world.nodes.wait_out_quarantine(LEASE);
    }

    fn make(&mut self, trouble: Trouble, watcher: &Watcher, random: &mut Random) {
        let world = &mut self.world;
        let all = self.way.proxies.len();
        let minority = all / 2;
        // Which nodes it hits: as many as it needs, from one on.
        let from = random.below(all as u64) as usize;
        let some = |count: usize| (0..count).map(move |at| (from + at) % all);
        let a_while = random.between(LEASE / 10, LEASE * 3 / 2);
        let stall = |world: &World, count: usize| {
            some(count).for_each(|node| world.nodes.servers()[node].pause());
            std::thread::sleep(a_while);
            some(count).for_each(|node| world.nodes.servers()[node].resume());
        };
        match trouble {
            Trouble::HolderKilled => {
                let holder = world.stop_a_holder(watcher);
                world.kill(holder);
                let url = world.url();
                world.one_more(&url);
            }
            Trouble::HolderStopped => {
                let holder = world.stop_a_holder(watcher);
                world.oversleep(holder, a_while);
            }
            Trouble::NodeEmptied => {
                // Those that sit out already are not to be joined by a majority.
                world.nodes.wait_out_quarantine(LEASE);
                world.nodes.server(from).restart_empty();
            }
            Trouble::MinorityStalled => stall(world, minority),
            Trouble::MajorityStalled => stall(world, minority + 1),
            Trouble::MinorityFull => {
                let set = |node: usize, value| {
                    let node = &world.nodes.servers()[node];
                    node.command(&["CONFIG", "SET", "maxmemory", value]);
                };
                some(minority).for_each(|node| set(node, "1mb"));
                std::thread::sleep(a_while);
                some(minority).for_each(|node| set(node, "0"));
            }
            Trouble::RepliesLost => {
                let count = 1 + random.below(all as u64) as usize;
                let lost = || -> usize { self.way.proxies.iter().map(|p| p.lost_replies()).sum() };
                let before = lost();
                for node in some(count) {
                    self.way.proxies[node].lose_replies("$1\r\na\r\n", 1);
                }
                world.until("a reply is lost", || lost() > before);
                world.driver.fault(Fault::ReplyLost);
                self.way.heal();
            }
            Trouble::MinoritySilent => {
                let before = self.way.stopped();
                some(minority).for_each(|node| self.way.proxies[node].black_hole());
                std::thread::sleep(a_while);
                world.until("something is lost", || self.way.stopped() > before);
                self.way.heal();
                some(minority).for_each(|node| self.way.proxies[node].cut());
            }
            Trouble::OneWay => {
                let requests = random.chance(0.5);
                let before = self.way.stopped();
                for node in some(minority) {
                    match requests {
                        true => self.way.proxies[node].requests(proxy::Way::Dropped),
                        false => self.way.proxies[node].replies(proxy::Way::Dropped),
                    }
                }
                std::thread::sleep(a_while);
                world.until("something is lost", || self.way.stopped() > before);
                self.way.heal();
                some(minority).for_each(|node| self.way.proxies[node].cut());
            }
            // What was sent comes when its sender has given up on it, perhaps long after others were granted the lock.
            Trouble::LateRequests | Trouble::LateReplies => {
                let before = self.way.stopped();
                for node in some(1 + random.below(all as u64) as usize) {
                    match trouble {
                        Trouble::LateRequests => self.way.proxies[node].requests(proxy::Way::Held),
                        _ => self.way.proxies[node].replies(proxy::Way::Held),
                    }
                }
                std::thread::sleep(a_while);
                world.until("something is late", || self.way.stopped() > before);
                self.way.heal();
            }
            Trouble::Slow => {
                for node in 0..all {
                    let longest = Duration::from_millis(80);
                    let slow = proxy::Way::Slow(random.between(Duration::ZERO, longest));
                    self.way.proxies[node].replies(slow);
                }
                std::thread::sleep(a_while);
                self.way.heal();
            }
            Trouble::Cut => self.way.cut(),
        }
        world.bitten(&format!("{trouble:?}"));
    }
}
