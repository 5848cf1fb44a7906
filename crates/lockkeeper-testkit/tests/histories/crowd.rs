//! The processes of one history, and what the driver does itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::{Error, Latch, Lockkeeper};
use lockkeeper_testkit::history::{self, Answer, Call, Event, Fault, LatchAsk, Recorder, What};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::retries;

use crate::crew::LEASE;
use crate::place::Place;

/// How many processes there are.
pub const PROCESSES: usize = 3;
/// How many tasks each has.
const TASKS: &str = "4";
/// How many times each counts a latch down.
const COUNT_DOWNS: u32 = 2;
/// How long anything may take that a run waits for.
const PATIENCE: Duration = Duration::from_secs(45);
/// The locks that the processes take.
const NAMES: [&str; 5] = ["a", "b", "f", "m", "s"];
/// The lease of a program that drops its guard and ends.
const LONG: &str = "20s";

pub struct Crowd {
    pub place: Place,
    pub driver: Recorder,
    /// What the processes have in their environments, in turn; nothing if there are none.
    pub environments: Vec<Vec<(String, String)>>,
    takers: Vec<(String, Taker)>,
    started: u64,
    seed: u64,
    broken: Option<&'static str>,
    office: Arc<Office>,
    latches: Vec<String>,
    read: RefCell<HashMap<PathBuf, Tally>>,
}

/// What was read of a history so far.
#[derive(Default)]
struct Tally {
    bytes: u64,
    granted: usize,
    opened: usize,
}

impl Tally {
    fn read_on(&mut self, path: &Path) {
        let Ok(mut file) = File::open(path) else {
            return;
        };
        let mut text = String::new();
        if file.seek(SeekFrom::Start(self.bytes)).is_err()
            || file.read_to_string(&mut text).is_err()
        {
            return;
        }
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.bytes += whole as u64;
        for line in text[..whole].lines() {
            self.granted += usize::from(line.contains("{\"granted\":"));
            self.opened += usize::from(line.contains("{\"count\":0}"));
        }
    }
}

/// The driver's own client of the store, straight to it.
struct Office {
    runtime: tokio::runtime::Runtime,
    keeper: Lockkeeper,
}

/// Breaks of every lock, by the way that the processes go.
pub struct Breaks {
    office: Arc<Office>,
    keeper: Lockkeeper,
    driver: Recorder,
    under_way: Vec<tokio::task::JoinHandle<bool>>,
}

/// Looks at the line of the fair lock, again and again.
pub struct LineWatch {
    stop: Arc<AtomicBool>,
    /// How often at least two waited.
    long: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Nobody yet. The processes go by the place's URL, the driver straight to the store.
    pub fn new(place: Place, straight: &str, seed: u64, broken: Option<&'static str>) -> Crowd {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let keeper = Lockkeeper::builder().url(straight).lease(LEASE);
        let keeper = runtime.block_on(keeper.connect()).expect("connects");
        Crowd {
            place,
            driver: Recorder::in_memory("driver", Clock::real()),
            environments: Vec::new(),
            takers: Vec::new(),
            started: 0,
            seed,
            broken,
            office: Arc::new(Office { runtime, keeper }),
            latches: Vec::new(),
            read: RefCell::default(),
        }
    }

    pub fn start(&mut self) {
        for _ in 0..PROCESSES {
            self.one_more();
        }
    }

    /// Starts one more process.
    pub fn one_more(&mut self) {
        let (process, seed) = self.next();
        let url = self.place.url.clone();
        let mut more = vec!["--tasks", TASKS, "--seed", &seed, "--patience", "1s"];
        more.extend(self.broken.iter().flat_map(|broken| ["--broken", broken]));
        let environment = self.environment();
        let place = &self.place;
        let taker = place.start("mix", &url, &process, "1s", &more, environment);
        self.takers.push((process, taker));
    }

    fn next(&mut self) -> (String, String) {
        self.started += 1;
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(self.started);
        (format!("p{}", self.started), seed.to_string())
    }

    /// What the process that was counted last has in its environment.
    fn environment(&self) -> Vec<(String, String)> {
        let turn = self.started as usize % self.environments.len().max(1);
        self.environments.get(turn).cloned().unwrap_or_default()
    }

    /// How many grants there were so far.
    pub fn granted(&self) -> usize {
        self.tally().0
    }

    /// How many grants there were so far, and how many waited for a latch until it opened.
    fn tally(&self) -> (usize, usize) {
        let mut read = self.read.borrow_mut();
        for path in self.place.histories() {
            let file = read.entry(path.clone()).or_default();
            file.read_on(&path);
        }
        let all = read.values();
        all.fold((0, 0), |sum, file| {
            (sum.0 + file.granted, sum.1 + file.opened)
        })
    }

    /// Waits for so many more grants.
    pub fn work(&self, more: usize) {
        let enough = self.granted() + more;
        self.until("the processes work", || self.granted() >= enough);
    }

    #[track_caller]
    pub fn until(&self, what: &str, is: impl FnMut() -> bool) {
        self.until_within(PATIENCE, what, is);
    }

    #[track_caller]
    pub fn until_within(&self, patience: Duration, what: &str, is: impl FnMut() -> bool) {
        assert!(comes_true(patience, is), "never: {what}");
    }

    pub fn bitten(&self, name: &str) {
        self.driver.fault(Fault::Other(name.into()));
    }

    fn any(&self, random: &mut Random) -> usize {
        random.below(self.takers.len() as u64) as usize
    }

    /// Stops processes until one is stopped of which this is so, and answers which.
    pub fn stop_when(&self, random: &mut Random, is: impl Fn(&str, &Taker) -> bool) -> usize {
        let end = Moment::now() + PATIENCE;
        loop {
            let index = self.any(random);
            let (process, taker) = &self.takers[index];
            taker.stop().expect("is stopped");
            if is(process, taker) {
                return index;
            }
            taker.go_on().expect("goes on");
            assert!(Moment::now() < end, "nobody is caught");
            let pause = random.between(Duration::ZERO, Duration::from_millis(10));
            std::thread::sleep(pause);
        }
    }

    /// Stops a process while it holds something.
    pub fn stop_a_holder(&self, random: &mut Random) -> usize {
        self.stop_when(random, |process, _| {
            holds_something(&self.place.file(&format!("{process}.jsonl")))
        })
    }

    /// Leaves a stopped process so for a while.
    pub fn oversleep(&self, index: usize, time: Duration) {
        let (process, taker) = &self.takers[index];
        let process = process.clone();
        self.driver.fault(Fault::Stopped { process });
        std::thread::sleep(time);
        taker.go_on().expect("goes on");
    }

    /// Kills a process; another comes for it.
    pub fn kill(&mut self, index: usize) {
        let (process, mut taker) = self.takers.remove(index);
        self.driver.fault(Fault::Killed { process });
        taker.kill().expect("is killed");
        self.one_more();
    }

    pub fn kill_anyone(&mut self, random: &mut Random) {
        self.kill(self.any(random));
    }

    /// A process ends right after it dropped a guard; another comes for it.
    pub fn exit_after_drop(&mut self, random: &mut Random) {
        let (process, mut taker) = self.takers.remove(self.any(random));
        taker.tell("exit").expect("listens");
        self.until("it exits", || taker.has_ended().expect("is known"));
        assert!(taker.wait().expect("ends"), "{process} fails");
        self.one_more();
    }

    /// A program with a long lease takes something, drops its guard and ends. Nothing stays held.
    pub fn visitor(&mut self) {
        let (process, seed) = self.next();
        let url = self.place.url.clone();
        let more = ["--seed", &seed, "--patience", "5s"];
        let mut taker = self
            .place
            .start("visit", &url, &process, LONG, &more, self.environment());
        let pid = taker.pid();
        assert!(taker.wait().expect("ends"), "{process} fails");
        let Office { runtime, keeper } = &*self.office;
        let holds = || -> Result<bool, Error> {
            let all = runtime.block_on(keeper.list(""))?;
            let mut holders = all.iter().flat_map(|info| &info.holders);
            Ok(holders.any(|holder| holder.process.pid == pid))
        };
        // As long as nothing but its lease could end it, and no longer than a release may take.
        let end = Moment::now() + LEASE * 5;
        let mut left = holds();
        while !matches!(left, Ok(false)) && Moment::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            left = holds();
        }
        if !matches!(left, Ok(false)) {
            let what = format!("what {process} held when it dropped its guard and ended");
            self.driver.record(What::Left { what });
        }
    }

    /// Breaks one lock or another, until that has ended somebody's hold.
    pub fn break_a_hold(&self, random: &mut Random) {
        let Office { runtime, keeper } = &*self.office;
        self.until("a hold is broken", || {
            let name = NAMES[random.below(NAMES.len() as u64) as usize];
            runtime.block_on(break_one(keeper, &self.driver, name))
        });
        self.driver.fault(Fault::Broken);
    }

    /// Makes ready to break all locks by the way that the processes go.
    pub fn breaks_on_the_way(&self) -> Breaks {
        let keeper = Lockkeeper::builder().url(&self.place.url).lease(LEASE);
        let keeper = self.office.runtime.block_on(keeper.connect());
        Breaks {
            office: self.office.clone(),
            keeper: keeper.expect("connects"),
            driver: self.driver.clone(),
            under_way: Vec::new(),
        }
    }

    /// Closes a latch that all processes count down and wait for.
    pub fn latch(&mut self) {
        self.latch_that_lacks(0);
    }

    /// Closes a latch that stays closed by so many counts when all processes have counted down.
    pub fn latch_that_lacks(&mut self, missing: u32) {
        let Office { runtime, keeper } = &*self.office;
        let name = format!("latch{}", self.latches.len() + 1);
        let Ok(latch) = keeper.latch(&name) else {
            return;
        };
        let count = COUNT_DOWNS * self.takers.len() as u32 + missing;
        // Whatever becomes of the request: it may have been done, and what it set is to be opened in the end.
        self.latches.push(name.clone());
        let set = self.ask(&name, LatchAsk::Set(count));
        match runtime.block_on(latch.set(count)) {
            Ok(changed) => self.driver.ok(set, Answer::Changed(changed)),
            // Nobody knows what it is set to, so nobody uses it.
            Err(error) => return self.driver.error(set, &error),
        }
        for (_, taker) in &mut self.takers {
            // One that is about to exit may not listen.
            let _ = taker.tell(&format!("latch {name} {COUNT_DOWNS}"));
        }
    }

    /// Closes latches until a process was let through by one.
    ///
    /// A process waits for a latch for a few seconds. On a busy machine another may count down later than that, and then the
    /// latch opens for nobody.
    pub fn latch_opens(&mut self) {
        if !self.office.keeper.capabilities().latches {
            return;
        }
        for last in [false, false, true] {
            self.latch();
            if comes_true(PATIENCE / 3, || self.tally().1 > 0) {
                return;
            }
            self.tell_of_the_last_latch();
            assert!(!last, "never: a latch opens");
            retries::count("a latch opened too late for those that waited");
        }
    }

    /// Prints what is known of the last latch, so that a slow machine can be told from a fault.
    fn tell_of_the_last_latch(&self) {
        let Some(latch) = self.latches.last() else {
            return;
        };
        let handle = self.office.keeper.latch(latch).expect("latches are known");
        let count = self.office.runtime.block_on(handle.count());
        println!("{latch} lacks {count:?}; what the processes did with latches:");
        for path in self.place.histories() {
            let events = history::read(&path).unwrap_or_default();
            let mut asked = std::collections::BTreeSet::new();
            for event in events {
                let of_a_latch = match &event.what {
                    What::Invoke {
                        op,
                        call: Call::Latch { .. },
                    } => asked.insert(*op),
                    What::Ok { op, .. } | What::Fail { op, .. } | What::Unknown { op, .. } => {
                        asked.contains(op)
                    }
                    _ => false,
                };
                if of_a_latch {
                    println!("{event:?}");
                }
            }
        }
    }

    fn ask(&self, latch: &str, ask: LatchAsk) -> u64 {
        let latch = latch.to_owned();
        self.driver.invoke(Call::Latch { latch, ask })
    }

    /// Reads every latch and opens it, when all count-downs are over.
    fn open_latches(&self) {
        let Office { runtime, keeper } = &*self.office;
        for name in &self.latches {
            let latch: Latch = keeper.latch(name).expect("latches are known");
            let read = self.ask(name, LatchAsk::Read);
            match runtime.block_on(latch.count()) {
                Ok(count) => self.driver.ok(read, Answer::Count(count)),
                Err(error) => self.driver.error(read, &error),
            }
            self.until("the latch is opened", || {
                let open = self.ask(name, LatchAsk::Open);
                let opened = runtime.block_on(latch.open());
                match &opened {
                    Ok(changed) => self.driver.ok(open, Answer::Changed(*changed)),
                    // It may be closed still.
                    Err(error) => self.driver.error(open, error),
                }
                opened.is_ok()
            });
        }
    }

    /// Watches the line of the fair lock, where there is one.
    pub fn watch_line(&self) -> Option<LineWatch> {
        let office = self.office.clone();
        office.keeper.capabilities().fair.then(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let long = Arc::new(AtomicUsize::new(0));
            let (told, driver, seen) = (stop.clone(), self.driver.clone(), long.clone());
            let watch = move || {
                while !told.load(SeqCst) {
                    let op = driver.invoke(Call::Inspect { lock: "f".into() });
                    match office.runtime.block_on(office.keeper.inspect("f")) {
                        Ok(info) => {
                            let waiting = info.map_or(0, |info| info.waiters);
                            driver.ok(op, Answer::Waiting(waiting));
                            seen.fetch_add(usize::from(waiting > 1), SeqCst);
                        }
                        Err(error) => driver.error(op, &error),
                    }
                    std::thread::sleep(Duration::from_millis(8));
                }
            };
            LineWatch {
                stop,
                long,
                thread: Some(std::thread::spawn(watch)),
            }
        })
    }

    /// Whether the last process that was started works, once it has had time to.
    pub fn newest_works(&self) -> bool {
        let Some((process, _)) = self.takers.last() else {
            return false;
        };
        let path = self.place.file(&format!("{process}.jsonl"));
        let end = Moment::now() + Duration::from_secs(15);
        while Moment::now() < end {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.contains("\"granted\"") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Ends all processes, and collects every history.
    pub fn finish(mut self, leftovers: impl Fn() -> Vec<String>) -> Vec<Event> {
        for (_, taker) in &mut self.takers {
            taker.tell("stop").expect("listens");
        }
        for (process, mut taker) in self.takers.drain(..) {
            taker.expect("done");
            assert!(taker.wait().expect("ends"), "{process} fails");
        }
        self.open_latches();
        let Crowd {
            place,
            driver,
            office,
            ..
        } = self;
        if let Ok(Office { runtime, keeper }) = Arc::try_unwrap(office).map_err(drop) {
            runtime.block_on(keeper.close());
            drop(keeper);
            runtime.shutdown_background();
        }
        let end = Moment::now() + Duration::from_secs(20);
        let mut left = leftovers();
        while !left.is_empty() && Moment::now() < end {
            std::thread::sleep(Duration::from_millis(50));
            left = leftovers();
        }
        for what in left {
            driver.record(What::Left { what });
        }
        history::merge([place.history(), driver.events()])
    }

    /// What was recorded so far, while the processes go on.
    ///
    /// One file is read after the other. So what happened since the first was opened is left out, or a hold could be there whose
    /// release is not.
    pub fn so_far(&self) -> Vec<Event> {
        let now = Moment::now().as_nanos();
        let mut events = history::merge([self.place.history(), self.driver.events()]);
        events.retain(|event| event.at <= now);
        events
    }

    /// Ends without a word: for locks that are broken.
    pub fn abandon(self) -> Vec<Event> {
        for (process, mut taker) in self.takers {
            self.driver.fault(Fault::Killed { process });
            taker.kill().expect("is killed");
        }
        history::merge([self.place.history(), self.driver.events()])
    }
}

impl Breaks {
    pub fn start(mut self) -> Breaks {
        for name in NAMES {
            let (keeper, driver) = (self.keeper.clone(), self.driver.clone());
            let one = async move { break_one(&keeper, &driver, name).await };
            self.under_way.push(self.office.runtime.spawn(one));
        }
        self
    }

    /// Waits until all are over.
    pub fn end(self) {
        self.office.runtime.block_on(async {
            for one in self.under_way {
                one.await.expect("is told an outcome");
            }
            self.keeper.close().await;
        });
    }
}

/// Breaks a lock. Answers whether that ended a hold.
async fn break_one(keeper: &Lockkeeper, driver: &Recorder, name: &str) -> bool {
    let op = driver.invoke(Call::Break { lock: name.into() });
    match keeper.break_lock(name, "to see what becomes of it").await {
        Ok(ended) => {
            driver.ok(op, Answer::Broken);
            !ended.is_empty()
        }
        Err(error) => {
            driver.error(op, &error);
            false
        }
    }
}

impl LineWatch {
    /// How often a line of two or more was seen.
    pub fn long_lines(&self) -> usize {
        self.long.load(SeqCst)
    }
}

impl Drop for LineWatch {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether a process that is stopped believes to hold something for a while yet, by its own history.
fn holds_something(path: &Path) -> bool {
    let events = history::read(path).unwrap_or_default();
    let soon = (Moment::now() + Duration::from_millis(200)).as_nanos();
    let mut held = std::collections::BTreeMap::new();
    for event in &events {
        match &event.what {
            What::Ok {
                op,
                answer: Answer::Granted { deadline, .. },
            } => drop(held.insert(*op, *deadline)),
            What::Invoke {
                call: Call::Release { hold, .. } | Call::Downgrade { hold },
                ..
            } => drop(held.remove(hold)),
            _ => {}
        }
    }
    held.values().any(|deadline| *deadline > soon)
}

/// Whether this is so within a time.
fn comes_true(patience: Duration, mut is: impl FnMut() -> bool) -> bool {
    let end = Moment::now() + patience;
    while !is() {
        if Moment::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    true
}
