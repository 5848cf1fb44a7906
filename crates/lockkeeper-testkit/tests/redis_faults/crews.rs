//! Several crews at once on servers that replace each other, each with promises of its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{Demands, FaultKind, Rule};
use lockkeeper_testkit::history::{Event, Fault};
use lockkeeper_testkit::process::Taker;

use crate::crew::{Crew, LEASE, LINGER, Watcher, demands, grants, judged};

/// What a crew's URL asks for, and its keys begin with.
#[derive(Clone, Copy)]
pub struct Kind {
    prefix: &'static str,
    plain: bool,
    /// Replicas have to confirm what it is granted.
    strict: bool,
}

/// Two that trust the master alone, one of each dialect.
pub const TRUSTING: [Kind; 2] = [
    Kind {
        prefix: "r:",
        plain: false,
        strict: false,
    },
    Kind {
        prefix: "p:",
        plain: true,
        strict: false,
    },
];

/// The same, and two whose grants are on every replica.
const KINDS: [Kind; 4] = [
    TRUSTING[0],
    TRUSTING[1],
    Kind {
        prefix: "strict-r:",
        ..TRUSTING[0].strict()
    },
    Kind {
        prefix: "strict-p:",
        ..TRUSTING[1].strict()
    },
];

impl Kind {
    /// The same, with replicas that confirm.
    pub const fn strict(self) -> Kind {
        Kind {
            strict: true,
            ..self
        }
    }

    /// A URL with this kind's options. `tag` puts all kinds into one slot of a cluster.
    pub fn url(&self, url: &str, tag: &str, replicas: usize) -> String {
        let mut url = format!("{url}?prefix={tag}{}&response_timeout=600ms", self.prefix);
        if self.plain {
            url += "&dialect=plain";
        }
        if self.strict {
            url += &format!("&replicas={replicas}&replicas_timeout=400ms");
        }
        url
    }
}

pub struct Crews {
    all: Vec<(&'static Kind, Crew)>,
    faults: BTreeSet<FaultKind>,
    /// Since when nobody is granted anything, and for how long that was.
    down: Option<Instant>,
    outage: Duration,
}

impl Crews {
    /// Two processes of each kind, which have done half of their work when this returns.
    pub fn start(url: &str, tag: &str, replicas: usize) -> Crews {
        let crew = |kind: &'static Kind| {
            let mut crew = Crew::at(&kind.url(url, tag, replicas));
            crew.tasks = 2;
            let url = crew.url();
            crew.load(2, &url);
            (kind, crew)
        };
        let crews = Crews {
            all: KINDS.iter().map(crew).collect(),
            faults: BTreeSet::new(),
            down: None,
            outage: Duration::ZERO,
        };
        crews.work(50);
        crews
    }

    /// Waits until each has done so much more.
    pub fn work(&self, more: u64) {
        let before: Vec<u64> = self.all.iter().map(|(_, crew)| crew.written()).collect();
        for ((_, crew), before) in self.all.iter().zip(before) {
            crew.until("the load works", || crew.written() >= before + more);
        }
    }

    /// Those that trust the master alone work: nothing else is needed.
    pub fn trusting_work(&self, more: u64) {
        for (_, crew) in self.all.iter().filter(|(kind, _)| !kind.strict) {
            crew.healed();
            crew.work(more);
        }
    }

    /// Makes sure that nobody is granted anything: the fault bites.
    pub fn bites(&mut self, name: &str) {
        self.down = Some(Instant::now());
        // What was granted before may still be written.
        std::thread::sleep(LEASE);
        let written = |crews: &Crews| -> Vec<u64> {
            crews.all.iter().map(|(_, crew)| crew.written()).collect()
        };
        let before = written(self);
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(written(self), before, "{name} lets work go on");
        self.bitten(name);
    }

    /// Kills a holder of each, and stops another for longer than its lease.
    pub fn lose_holders(&mut self) {
        std::thread::scope(|scope| {
            for (_, crew) in &mut self.all {
                scope.spawn(|| lose_holders_of(crew));
            }
        });
        let faults = [
            FaultKind::HolderKilled,
            FaultKind::HolderStopped,
            FaultKind::HoldExpired,
        ];
        self.faults.extend(faults);
    }

    /// Records that a fault was seen to bite.
    pub fn bitten(&mut self, name: &str) {
        for (_, crew) in &self.all {
            crew.driver.fault(Fault::Other(name.into()));
        }
        self.expect(name);
    }

    /// A run without this fault proves nothing.
    pub fn expect(&mut self, name: &str) {
        self.faults.insert(FaultKind::Other(name.to_owned()));
    }

    pub fn healed(&mut self) {
        self.outage += self
            .down
            .take()
            .map_or(Duration::ZERO, |down| down.elapsed());
        for (_, crew) in &self.all {
            crew.healed();
        }
    }

    /// Ends all, and holds them to every rule; those that trust the master alone only to these: `lost` says whether
    /// it may have taken grants with it that no replica had.
    pub fn finish(mut self, lost: bool, leftovers: impl Fn() -> Vec<String>) {
        for (_, crew) in &mut self.all {
            crew.stop();
        }
        // While there are too few servers a lock is free, and granted to nobody all the same.
        let mut demands = demands().linger(LINGER + self.outage);
        for fault in &self.faults {
            demands = demands.fault(fault.clone(), 1);
        }
        for (kind, crew) in &mut self.all {
            let events = crew.finish(&leftovers);
            print!("{:<10}", kind.prefix);
            match lost && !kind.strict {
                true => safe_or_fenced(&events, &demands),
                false => drop(judged(&events, &demands).expect_valid()),
            }
        }
    }
}

fn lose_holders_of(crew: &mut Crew) {
    let url = crew.url();
    let watcher = Watcher::new(&url);
    let holder = crew.stop_a_holder(&watcher);
    crew.kill(holder);
    crew.healed();
    crew.one_more(&url);
    crew.work(10);
    let holder = crew.stop_a_holder(&watcher);
    crew.oversleep(holder, LEASE * 3 / 2);
    crew.healed();
    crew.work(10);
}

/// Two may have held at the same time, if a grant died with its master; but tokens grow, no update is lost, and work
/// goes on.
pub fn safe_or_fenced(events: &[Event], demands: &Demands) {
    assert!(grants(events) >= 100, "{} grants", grants(events));
    let verdict = judged(events, demands);
    let rules = verdict.rules();
    if rules.is_empty() {
        verdict.expect_valid();
        return;
    }
    // That it was gone before its deadline is the same thing, seen by its holder. While two hold, the lost hold may go
    // from task to task of its process with tokens that were reserved for it: lower ones, which the fence refuses.
    let expected = match verdict.breaks(Rule::S1) {
        true => [Rule::S1, Rule::S2, Rule::S4].into(),
        false => [Rule::S4].into(),
    };
    assert!(rules.is_subset(&expected), "{verdict}");
}

/// A process that holds for long, and has read the resource.
///
/// It believes for two thirds of its lease at least, which is time enough for others to work on a busy machine; and it asks
/// again, and is told, within a third.
pub fn victim(crew: &Crew, url: &str) -> Taker {
    let mut victim = crew.holder("victim", url, "120s", &[]);
    victim.expect("held");
    // A direct grant is a short one, until its first renewal.
    crew.until("it has the whole lease", || {
        victim.tell("deadline").expect("listens");
        let deadline = victim.expect("deadline").parse().expect("a moment");
        Moment::from_nanos(deadline).remaining() > Duration::from_secs(60)
    });
    victim.tell("read").expect("listens");
    victim.expect("read");
    victim
}

/// The others are granted the lock that the victim believes to hold, and only the fence keeps it out. False if the victim
/// has heard of the new master before that.
pub fn believes_in_vain(crew: &Crew, victim: &mut Taker) -> bool {
    crew.driver.fault(Fault::Other("fail-over".into()));
    crew.healed();
    crew.work(3);
    victim.tell("is-held").expect("listens");
    if victim.expect("is-held") != "true" {
        return false;
    }
    victim.tell("write").expect("listens");
    victim.expect("refused");
    true
}

/// The victims learn it, and the checker has seen two holders, but neither tokens that go back nor a lost update.
pub fn shown_unsafe(mut scenes: [(Crew, Taker); 2], leftovers: impl Fn() -> Vec<String>) {
    for (crew, victim) in &mut scenes {
        victim.expect("lost");
        victim.tell("release").expect("listens");
        let said = victim.expect_one(&["not-held", "release-unknown", "released"]);
        assert!(!said.starts_with("released"), "{said}");
        assert!(victim.wait().expect("ends"));
        crew.healed();
        crew.work(30);
        crew.stop();
    }
    for (mut crew, _) in scenes {
        let events = crew.finish(&leftovers);
        assert!(grants(&events) >= 100, "{} grants", grants(&events));
        let verdict = judged(&events, &demands());
        assert!(verdict.breaks(Rule::S1), "it was safe: {verdict}");
        let expected = [Rule::S1, Rule::S4].into();
        assert!(verdict.rules().is_subset(&expected), "{verdict}");
    }
}
