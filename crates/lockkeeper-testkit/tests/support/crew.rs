//! Processes that take one lock, whatever store it is on, and what they and their driver recorded.

use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::{Error, Guard, Lockkeeper};
use lockkeeper_testkit::checker::{Demands, Verdict, check};
use lockkeeper_testkit::history::{Answer, Event, Fault, Recorder, What, merge};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::place::Place;

/// The lease of the load.
pub const LEASE: Duration = Duration::from_secs(1);
/// How long after its end a hold may keep others out: the lease and a quarter second, on a busy machine.
pub const LINGER: Duration = Duration::from_secs(4);
/// What [`Demands`] a run under load is held to, without its faults.
pub fn demands() -> Demands {
    Demands::default()
        .linger(LINGER)
        .recovery(Duration::from_secs(15))
        .notice(Duration::from_secs(2))
}

/// How long anything may take that a run waits for.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Crew {
    pub place: Place,
    pub driver: Recorder,
    /// `ours`, or a naive lock.
    pub lock: String,
    /// How many tasks each process of the load has.
    pub tasks: usize,
    /// How long each of them waits for the lock before it asks again.
    pub patience: &'static str,
    load: Vec<(String, Taker)>,
    started: usize,
}

impl Crew {
    pub fn at(url: &str) -> Crew {
        Crew {
            place: Place::at(url),
            driver: Recorder::in_memory("driver", Clock::real()),
            lock: "ours".into(),
            tasks: 3,
            patience: "1s",
            load: Vec::new(),
            started: 0,
        }
    }

    /// The URL of its store.
    pub fn url(&self) -> String {
        self.place.url.clone()
    }

    /// Starts processes that count.
    pub fn load(&mut self, processes: usize, url: &str) {
        for _ in 0..processes {
            self.one_more(url);
        }
    }

    /// Load straight to its store, which has written so much already.
    pub fn busy(&mut self, processes: usize, written: u64) {
        let url = self.url();
        self.load(processes, &url);
        self.work(written);
    }

    pub fn one_more(&mut self, url: &str) {
        self.one_more_in(url, Vec::new());
    }

    pub fn one_more_in(&mut self, url: &str, environment: Vec<(String, String)>) {
        self.started += 1;
        let process = format!("load{}", self.started);
        let seed = self.started.to_string();
        let tasks = self.tasks.to_string();
        let patience = self.patience;
        let more = ["--tasks", &tasks, "--seed", &seed, "--patience", patience];
        let more = [&more[..], &["--lock", &self.lock]].concat();
        let taker = self
            .place
            .start("count", url, &process, "1s", &more, environment);
        self.load.push((process, taker));
    }

    /// Starts a process that holds when it can, and does as it is told.
    pub fn holder(&self, process: &str, url: &str, lease: &str, more: &[&str]) -> Taker {
        self.holder_in(process, url, lease, more, Vec::new())
    }

    pub fn holder_in(
        &self,
        process: &str,
        url: &str,
        lease: &str,
        more: &[&str],
        environment: Vec<(String, String)>,
    ) -> Taker {
        let more = [more, &["--lock", &self.lock]].concat();
        let place = &self.place;
        place.start("hold", url, process, lease, &more, environment)
    }

    /// How many writes were accepted so far.
    pub fn written(&self) -> u64 {
        self.place.resource.state().expect("reads").seq
    }

    /// Waits until the load has written so much more; `LOCKKEEPER_LOAD=N` makes it N times as much.
    pub fn work(&self, more: u64) {
        let times = std::env::var("LOCKKEEPER_LOAD").ok();
        let times = times.map_or(1, |times| {
            times.parse().expect("LOCKKEEPER_LOAD is a number")
        });
        let enough = self.written() + more * times;
        self.until("the load works", || self.written() >= enough);
    }

    pub fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let end = Moment::now() + PATIENCE;
        while !is() {
            assert!(Moment::now() < end, "never: {what}");
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Makes sure that nothing is granted for a while: the fault bites. It is recorded if so.
    pub fn bites(&self, name: &str, time: Duration) {
        // But for the one that held when it began, and was slow.
        let written = self.written_meanwhile(time);
        assert!(written <= 1, "{name} lets work go on: {written} writes");
        self.bitten(name);
    }

    /// How much is written in this time, but for its first part: what was granted before may still be written.
    pub fn written_meanwhile(&self, time: Duration) -> u64 {
        std::thread::sleep(LEASE);
        let before = self.written();
        std::thread::sleep(time.saturating_sub(LEASE));
        self.written() - before
    }

    /// Records that a fault was made that bites.
    pub fn bitten(&self, name: &str) {
        self.driver.fault(Fault::Other(name.into()));
    }

    pub fn healed(&self) {
        self.driver.record(What::Healed);
    }

    /// Stops a load process in the middle of a hold, and answers which. Whatever is done to it then hits a holder.
    pub fn stop_a_holder(&mut self, watcher: &Watcher) -> usize {
        let (end, before) = (Moment::now() + PATIENCE, self.written());
        loop {
            let pid = watcher.holder();
            let found = self.load.iter().position(|(_, t)| Some(t.pid()) == pid);
            if let Some(index) = found {
                let (process, taker) = &self.load[index];
                taker.stop().expect("is stopped");
                if self.place.holds(process) {
                    return index;
                }
                // It was between two holds.
                taker.go_on().expect("goes on");
            }
            let (written, seen) = (self.written() - before, || watcher.sees());
            assert!(
                Moment::now() < end,
                "no holder is caught, {written} writes later; {}",
                seen()
            );
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// Kills a load process.
    pub fn kill(&mut self, index: usize) {
        let (process, mut taker) = self.load.remove(index);
        self.driver.fault(Fault::Killed { process });
        taker.kill().expect("is killed");
    }

    /// Lets a stopped load process sleep for a while.
    pub fn oversleep(&mut self, index: usize, time: Duration) {
        let (process, taker) = &self.load[index];
        let process = process.clone();
        self.driver.fault(Fault::Stopped { process });
        std::thread::sleep(time);
        taker.go_on().expect("goes on");
    }

    /// Kills three holders, one after the other. Another process comes for each.
    pub fn kill_holders(&mut self) {
        let url = self.url();
        let watcher = Watcher::new(&url);
        for _ in 0..3 {
            let holder = self.stop_a_holder(&watcher);
            self.kill(holder);
            self.healed();
            self.one_more(&url);
            self.work(25);
        }
    }

    /// Stops three holders, one after the other, for longer than a lease.
    pub fn stop_holders(&mut self) {
        let watcher = Watcher::new(&self.url());
        for _ in 0..3 {
            let holder = self.stop_a_holder(&watcher);
            self.oversleep(holder, LEASE * 3 / 2);
            self.healed();
            self.work(25);
        }
    }

    /// Load by processes whose clocks are hours off, and are set the other way.
    pub fn set_clocks_wrong(&mut self) {
        let url = self.url();
        let (early, late) = (WallClock::new(), WallClock::new());
        early.behind(Duration::from_secs(3600));
        late.ahead(Duration::from_secs(3600));
        self.load(1, &url);
        self.one_more_in(&url, early.environment());
        self.one_more_in(&url, late.environment());
        self.work(60);
        early.ahead(Duration::from_secs(7200));
        late.behind(Duration::from_secs(7200));
        self.bitten("clocks");
        self.healed();
        self.work(60);
    }

    /// A load process, by its place in the order of starts.
    pub fn taker(&mut self, index: usize) -> &mut Taker {
        &mut self.load[index].1
    }

    /// Ends the load.
    pub fn stop(&mut self) {
        for (_, taker) in &mut self.load {
            taker.tell("stop").expect("listens");
        }
        for (process, mut taker) in self.load.drain(..) {
            taker.expect("done");
            assert!(taker.wait().expect("ends"), "{process} fails");
        }
    }

    /// Ends the load, records what is left behind, and collects every history.
    pub fn finish(&mut self, leftovers: impl Fn() -> Vec<String>) -> Vec<Event> {
        self.stop();
        self.look_for(leftovers);
        merge([self.place.history(), self.driver.events()])
    }

    /// Whatever is still there after every lease and every line has ended is recorded as left behind.
    fn look_for(&self, leftovers: impl Fn() -> Vec<String>) {
        // A lock with a mistake is not worth the wait.
        let right = ["ours", "right", "wait-heeded"].contains(&self.lock.as_str());
        let patience = Duration::from_secs(if right { 20 } else { 0 });
        let end = Moment::now() + patience;
        let mut left = leftovers();
        while !left.is_empty() && Moment::now() < end {
            std::thread::sleep(Duration::from_millis(50));
            left = leftovers();
        }
        for what in left {
            self.driver.record(What::Left { what });
        }
    }
}

/// Whether a key stays by design: docs/redis.md says why.
fn stays(key: &str) -> bool {
    let kept = [
        "redisson_lock_token:",
        "lockkeeper_token:",
        "lockkeeper_broken:",
    ];
    let fence = kept.iter().any(|prefix| key.starts_with(prefix)) || key.ends_with(":token");
    fence || key == "lockkeeper_quorum"
}

/// What is on a server that should not be, once everybody has gone.
pub fn left_on(server: &RedisServer) -> Vec<String> {
    let keys = server.keys().into_iter().filter(|key| !stays(key));
    let mut left: Vec<String> = keys.map(|key| format!("key {key}")).collect();
    for kind in ["CHANNELS", "SHARDCHANNELS"] {
        let mut channels = server.strings(&["PUBSUB", kind]);
        channels.retain(|channel| channel != "__sentinel__:hello");
        left.extend(channels.iter().map(|channel| format!("channel {channel}")));
    }
    if server.strings(&["PUBSUB", "NUMPAT"]) != ["0"] {
        left.push("a pattern".into());
    }
    left.extend(connections(server));
    left
}

/// Connections to a server or a Sentinel, but for those of other servers and the one that asks.
pub fn connections(server: &RedisServer) -> Vec<String> {
    let theirs = [
        " flags=M ",
        " flags=S ",
        " name=sentinel-",
        " cmd=restore",
        " cmd=client|list",
    ];
    let clients = server.command(&["CLIENT", "LIST"]);
    let clients = clients.lines().filter(|line| line.contains(" addr="));
    let clients = clients.filter(|line| !theirs.iter().any(|sign| line.contains(sign)));
    clients
        .map(|client| format!("connection {client}"))
        .collect()
}

/// Judges a run, and prints what it has seen.
pub fn judged(events: &[Event], demands: &Demands) -> Verdict {
    let verdict = check(events, demands);
    println!("{} grants; {verdict}", grants(events));
    verdict
}

/// How often a lock was granted, whatever the verdict.
pub fn grants(events: &[Event]) -> usize {
    let granted = |event: &&Event| {
        matches!(
            event.what,
            What::Ok {
                answer: Answer::Granted { .. },
                ..
            }
        )
    };
    events.iter().filter(granted).count()
}

/// Runs a scene for several things at the same time, and fails if one does.
pub fn at_once<T: Send + Copy + std::fmt::Debug, const N: usize>(
    all: [T; N],
    scene: impl Fn(T) + Sync,
) {
    let scene = &scene;
    std::thread::scope(|scope| {
        let running = all.map(|one| (one, scope.spawn(move || scene(one))));
        for (one, run) in running {
            assert!(run.join().is_ok(), "failed with {one:?}: see above");
        }
    });
}

/// A client of the driver's own, to see who holds.
pub struct Watcher {
    runtime: tokio::runtime::Runtime,
    keeper: Lockkeeper,
}

impl Watcher {
    pub fn new(url: &str) -> Watcher {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let keeper = Lockkeeper::builder().url(url).lease(LEASE);
        let keeper = runtime.block_on(keeper.connect());
        Watcher {
            keeper: keeper.expect("connects"),
            runtime,
        }
    }

    /// Tries to take a lock that nobody has.
    pub fn take(&self, name: &str) -> Result<Option<Guard>, Error> {
        let lock = self.keeper.lock(name)?.fixed_lease(LEASE)?;
        self.runtime.block_on(lock.try_acquire())
    }

    /// What is known of the lock, and of the store.
    fn sees(&self) -> String {
        let info = self.runtime.block_on(self.keeper.inspect("a"));
        format!("{info:?}; {:?}", self.keeper.nodes())
    }

    /// The process that holds the lock.
    pub fn holder(&self) -> Option<u32> {
        let info = self.runtime.block_on(self.keeper.inspect("a")).ok()??;
        Some(info.holders.first()?.process.pid)
    }
}
