//! Eight processes of eight tasks on one lock in a SQLite file, while holders are killed and stopped: no
//! update is lost, and the history keeps every rule.

#[path = "support/place.rs"]
mod place;

use std::time::Duration;

use lockkeeper::Name;
use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::Store;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper_testkit::checker::{Demands, FaultKind, check};
use lockkeeper_testkit::history::{Fault, Recorder, merge};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::random::Random;
use place::Place;

const PROCESSES: usize = 8;
const LEASE: Duration = Duration::from_millis(700);
const TIME: Duration = Duration::from_secs(20);

/// One of the eight, through all its lives.
struct Slot {
    number: usize,
    lives: usize,
    taker: Taker,
    stopped_until: Option<Moment>,
}

impl Slot {
    fn start(number: usize, lives: usize, place: &Place, end: Moment, seed: u64) -> Slot {
        let left = format!("{}ms", end.remaining().as_millis());
        let seed = (seed + (number + 100 * lives) as u64 * 1_000).to_string();
        let more = ["--tasks", "8", "--for", &left, "--seed", &seed];
        let lease = format!("{}ms", LEASE.as_millis());
        Slot {
            number,
            lives,
            taker: place.counter(&format!("p{number}.{lives}"), &lease, &more),
            stopped_until: None,
        }
    }

    fn process(&self) -> String {
        format!("p{}.{}", self.number, self.lives)
    }

    fn stop(&mut self, time: Duration, recorder: &Recorder) {
        self.taker.stop().expect("is stopped");
        let process = self.process();
        recorder.fault(Fault::Stopped { process });
        self.stopped_until = Some(Moment::now() + time);
    }

    fn go_on_if_due(&mut self, now: Moment) {
        if self.stopped_until.is_some_and(|until| now >= until) {
            self.taker.go_on().expect("goes on");
            self.stopped_until = None;
        }
    }
}

/// Which of them holds the lock just now.
fn holder(store: &SqliteStore, slots: &[Slot]) -> Option<usize> {
    let name = Name::new("a").expect("a name");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let info = runtime.block_on(store.inspect(&name)).ok()??;
    let pid = info.holders.first()?.process.pid;
    slots.iter().position(|slot| slot.taker.pid() == pid)
}

#[test]
fn no_update_is_lost_while_holders_are_killed_and_stopped() {
    let seed = Clock::real().unix_micros();
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let place = Place::new();
    let store = place.store();
    let recorder = Recorder::in_memory("driver", Clock::real());
    let end = Moment::now() + TIME;
    let mut slots: Vec<Slot> = (0..PROCESSES)
        .map(|number| Slot::start(number, 1, &place, end, seed))
        .collect();
    let mut faults = 0;
    let mut next_fault = Moment::now() + Duration::from_secs(1);
    while Moment::now() < end - Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
        let now = Moment::now();
        slots.iter_mut().for_each(|slot| slot.go_on_if_due(now));
        if now < next_fault {
            continue;
        }
        let Some(index) = holder(&store, &slots) else {
            continue;
        };
        if slots[index].stopped_until.is_some() {
            continue;
        }
        next_fault = now + random.between(Duration::from_millis(100), Duration::from_millis(600));
        faults += 1;
        if faults % 2 == 0 {
            let time = random.between(LEASE, LEASE * 2);
            slots[index].stop(time, &recorder);
        } else {
            let process = slots[index].process();
            recorder.fault(Fault::Killed { process });
            slots[index].taker.kill().expect("is killed");
            let (number, lives) = (slots[index].number, slots[index].lives + 1);
            slots[index] = Slot::start(number, lives, &place, end, seed);
        }
    }
    // All of them first: one that was stopped within a transaction keeps the others waiting.
    for slot in &mut slots {
        slot.taker.go_on().expect("goes on");
    }
    for slot in &mut slots {
        slot.taker.expect("done");
        assert!(slot.taker.wait().expect("ends"), "{} fails", slot.process());
    }
    let events = merge([place.history(), recorder.events()]);
    let demands = Demands::default()
        .linger(Duration::from_secs(15))
        .fault(FaultKind::HolderKilled, 1)
        .fault(FaultKind::HolderStopped, 1)
        .fault(FaultKind::HoldExpired, 1);
    let stats = check(&events, &demands).expect_valid();
    println!("{stats}");
    let state = place.resource.state().expect("reads");
    assert_eq!(state.value, state.seq, "each accepted write adds one");
    assert!(state.value >= stats.accepted as u64);
}
