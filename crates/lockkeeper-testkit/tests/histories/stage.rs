//! One history: the processes work, one trouble follows the other, and all is judged.

use std::ops::Range;
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{Demands, Kind, Verdict};
use lockkeeper_testkit::history::{Event, What};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::retries;
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::crew::{LEASE, LINGER, judged};
use crate::crowd::Crowd;
use crate::place::Place;
use crate::trouble::Trouble;

/// How many troubles a history has.
const TROUBLES: Range<u64> = 2..5;

/// A store that can be troubled.
pub trait Stage {
    /// What can happen to it.
    fn menu(&self) -> Vec<Trouble>;
    /// What happens in every history, before something else comes by chance.
    fn always(&self) -> &'static [Trouble] {
        &[]
    }
    /// Where the processes of a new history are.
    fn place(&mut self) -> Place;
    /// The clocks that its processes have, in turn; none if they have the right time.
    fn clocks(&self) -> &[WallClock] {
        &[]
    }
    /// The URL that goes straight to the store.
    fn straight(&self, place: &Place) -> String;
    /// Makes a trouble of its own, for about so long, and records that it bit.
    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, random: &mut Random);
    /// What is left in the store when all have gone.
    fn leftovers(&self) -> Vec<String>;
    /// The kinds of hold that it has.
    fn kinds(&self) -> &'static [Kind];
    /// Makes the store as it was at first.
    fn calm_down(&mut self) {}
    /// For how long a lock may be free and nobody be granted it.
    fn linger(&self) -> Duration {
        LINGER + LEASE * 4
    }
}

/// All kinds of hold.
pub const ALL_KINDS: &[Kind] = &[
    Kind::Exclusive,
    Kind::Fair,
    Kind::Read,
    Kind::Write,
    Kind::Permits,
    Kind::Together,
    Kind::Reentered,
    Kind::Downgraded,
    Kind::Latch,
];

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Plays as many histories as are asked for on so many stages at the same time.
pub fn play<S: Stage>(store: &str, stages: usize, usual: u64, stage: impl Fn(usize) -> S + Sync) {
    let histories = number("LOCKKEEPER_HISTORIES").unwrap_or(usual);
    let seed = number("LOCKKEEPER_SEED").unwrap_or_else(|| Moment::now().as_nanos() % 1_000_000);
    println!("{store}: {histories} histories; repeat them with LOCKKEEPER_SEED={seed}");
    let stage = &stage;
    let began = Moment::now();
    std::thread::scope(|scope| {
        let lanes = (0..stages.min(histories as usize)).map(|lane| {
            scope.spawn(move || {
                let mut own = stage(lane);
                let mine = (lane as u64..histories).step_by(stages);
                for history in mine {
                    let seed = seed.wrapping_add(history);
                    one(&mut own, store, seed);
                }
            })
        });
        let lanes: Vec<_> = lanes.collect();
        let ended = lanes.into_iter().map(|lane| lane.join().is_ok());
        let failed = ended.filter(|well| !well).count();
        assert_eq!(failed, 0, "{store}: histories failed, see above");
    });
    let took = Moment::now().since(began).as_secs_f64();
    println!("figure: {store}: {histories} histories valid in {took:.0} s");
}

/// One history. On a busy machine a run may prove too little: it is then made once more, with the same seed.
fn one(stage: &mut impl Stage, store: &str, seed: u64) {
    for last in [false, true] {
        let (verdict, made, path) = attempt(stage, store, seed);
        let name = format!("{store}, LOCKKEEPER_SEED={seed}, {made:?}");
        match verdict {
            Verdict::Valid(stats) => return println!("{name}: {stats}"),
            Verdict::Invalid(reason) if !last => {
                println!("{name}: {reason}; once more");
                retries::count("a history proved nothing");
            }
            verdict => panic!("{name}: {verdict}\nthe history is in {path}"),
        }
    }
}

fn attempt(stage: &mut impl Stage, store: &str, seed: u64) -> (Verdict, Vec<Trouble>, String) {
    let mut random = Random::seeded(seed);
    let menu = stage.menu();
    let place = stage.place();
    let straight = stage.straight(&place);
    let mut crowd = Crowd::new(place, &straight, seed, None);
    crowd.environments = stage.clocks().iter().map(WallClock::environment).collect();
    let mut demands = demands(stage.kinds()).linger(stage.linger());
    let count = TROUBLES.start + random.below(TROUBLES.end - TROUBLES.start);
    let mut made = Vec::new();
    crowd.start();
    {
        let watch = crowd.watch_line();
        crowd.work(60);
        if let Some(watch) = &watch {
            // While nobody is disturbed, or the order of the line could not be judged.
            crowd.until("a line is seen", || watch.long_lines() >= 8);
            crowd.work(60);
        }
        crowd.latch_opens();
        let always = stage.always().iter().copied();
        let by_chance: Vec<Trouble> = (0..count)
            .map(|_| menu[random.below(menu.len() as u64) as usize])
            .collect();
        for trouble in always.chain(by_chance) {
            made.push(trouble);
            crowd.latch();
            crowd.driver.record(What::Trouble);
            trouble_comes(stage, trouble, &mut crowd, &mut random);
            crowd.driver.record(What::Healed);
            demands = demands.fault(trouble.seen(), 1);
            crowd.work(20 + random.below(30) as usize);
        }
        crowd.work(150);
    }
    let mut events = crowd.finish(|| stage.leftovers());
    events.extend(stumbles(&events));
    let verdict = judged(&events, &demands);
    let mut path = String::new();
    if !matches!(verdict, Verdict::Valid(_)) {
        let file = std::env::temp_dir().join(format!("history-{store}-{seed}.jsonl"));
        let lines = events
            .iter()
            .map(|e| serde_json::to_string(e).expect("is plain data"));
        let _ = std::fs::write(&file, lines.collect::<Vec<_>>().join("\n"));
        path = file.display().to_string();
    }
    stage.calm_down();
    (verdict, made, path)
}

/// Errors that no fault explains: a script of the store that died half-way. Each counts as something left behind.
fn stumbles(events: &[Event]) -> Vec<Event> {
    let stumbled = events.iter().filter_map(|event| match &event.what {
        What::Fail { reason, .. } | What::Unknown { reason, .. } => {
            reason.contains("WRONGTYPE").then(|| Event {
                what: What::Left {
                    what: format!("by a script: {reason}"),
                },
                ..event.clone()
            })
        }
        _ => None,
    });
    stumbled.collect()
}

fn demands(kinds: &[Kind]) -> Demands {
    let demands = Demands {
        grants: 250,
        contention: 20,
        ordered: usize::from(kinds.contains(&Kind::Fair)),
        ..Demands::default()
    };
    let demands = demands
        .recovery(Duration::from_secs(15))
        .notice(Duration::from_secs(5));
    kinds.iter().fold(demands, |demands, kind| {
        let least = match kind {
            Kind::Latch | Kind::Downgraded => 1,
            _ => 5,
        };
        demands.kind(*kind, least)
    })
}

fn trouble_comes(stage: &mut impl Stage, trouble: Trouble, crowd: &mut Crowd, random: &mut Random) {
    let time = random.between(LEASE / 10, LEASE * 3 / 2);
    match trouble {
        Trouble::HolderKilled => {
            let holder = crowd.stop_a_holder(random);
            crowd.kill(holder);
        }
        Trouble::HolderStopped => {
            let holder = crowd.stop_a_holder(random);
            crowd.oversleep(holder, LEASE / 2 + time);
        }
        Trouble::AnyoneKilled => {
            crowd.kill_anyone(random);
            crowd.bitten(&format!("{trouble:?}"));
        }
        Trouble::ExitAfterDrop => {
            crowd.exit_after_drop(random);
            crowd.bitten(&format!("{trouble:?}"));
        }
        Trouble::Visitor => {
            crowd.visitor();
            crowd.bitten(&format!("{trouble:?}"));
        }
        Trouble::Broken => crowd.break_a_hold(random),
        other => stage.make(other, crowd, time, random),
    }
}
