//! Real processes on one SQLite file: killed, stopped, and many of them.

#[path = "support/place.rs"]
mod place;

use std::time::{Duration, Instant};

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{Demands, Rule, check};
use lockkeeper_testkit::process::Taker;
use place::Place;

fn token(held: &str) -> u64 {
    let token = held.split_whitespace().next();
    token.and_then(|token| token.parse().ok()).expect("a token")
}

#[test]
fn a_killed_holder_is_followed_at_once() {
    let place = Place::new();
    let mut first = place.holder("1h");
    let before = token(&first.expect("held"));
    let second = place.holder("1h");
    assert_eq!(second.line_within(Duration::from_millis(500)), None);
    first.kill().expect("is killed");
    let killed = Instant::now();
    let after = token(&second.expect("held"));
    // Its lease runs for an hour; a minute is already "at once", and what `expect` allows.
    println!("followed after {:?}", killed.elapsed());
    assert!(after > before);
}

#[test]
fn a_released_lock_goes_to_the_waiting_process() {
    let place = Place::new();
    let mut first = place.holder("1h");
    first.expect("held");
    let second = place.holder("1h");
    assert_eq!(second.line_within(Duration::from_millis(200)), None);
    first.tell("release").expect("listens");
    first.expect("released");
    second.expect("held");
    assert!(first.wait().expect("ends"));
}

/// Both processes of a take-over: the first was stopped after it read, the second has written.
fn taken_over(place: &Place) -> (Taker, Taker) {
    let mut first = place.holder("1s");
    first.expect("held");
    first.tell("read").expect("listens");
    first.expect("read 0");
    first.stop().expect("is stopped");
    let mut second = place.holder("1s");
    second.expect("held");
    second.tell("read").expect("listens");
    second.expect("read 0");
    second.tell("write").expect("listens");
    second.expect("accepted 1");
    (first, second)
}

#[test]
fn a_stopped_holder_never_believes_again_and_its_late_write_is_refused() {
    let place = Place::new();
    let (mut first, mut second) = taken_over(&place);
    let resumed = Moment::now();
    first.go_on().expect("goes on");
    first.expect("lost");
    first.tell("is-held").expect("listens");
    first.expect("is-held false");
    first.tell("write").expect("listens");
    first.expect("refused");
    // It looks thousands of times a second. None of the looks that came after it resumed said yes.
    std::thread::sleep(Duration::from_millis(50));
    first.tell("last-held").expect("listens");
    let last: u64 = first.expect("last-held").parse().expect("a moment");
    assert!(last > 0 && last < resumed.as_nanos());
    first.tell("release").expect("listens");
    first.expect("not-held");
    second.tell("is-held").expect("listens");
    second.expect("is-held true");
    check(&place.history(), &Demands::none()).expect_valid();
}

/// The harness can go red: without the fence the same sleeper loses an update, and the checker says so.
#[test]
fn without_a_fence_the_stopped_holder_loses_an_update() {
    let place = Place::new();
    let (mut first, _second) = taken_over(&place);
    first.go_on().expect("goes on");
    first.tell("write-unfenced").expect("listens");
    first.expect("accepted 2");
    let verdict = check(&place.history(), &Demands::none());
    assert!(verdict.breaks(Rule::S3), "{verdict}");
}

/// The harness can go red: processes that only believe they hold a lock are caught.
#[test]
fn without_a_lock_the_counters_are_caught() {
    let place = Place::new();
    let start = |number: usize| {
        let more = ["--tasks", "2", "--rounds", "30", "--broken", "no-lock"];
        place.counter(&format!("p{number}"), "30s", &more)
    };
    let _made = place.store();
    let takers: Vec<_> = (0..3).map(start).collect();
    for mut taker in takers {
        taker.expect("done");
        assert!(taker.wait().expect("ends"));
    }
    let verdict = check(&place.history(), &Demands::default());
    assert!(verdict.breaks(Rule::S1), "{verdict}");
}

#[test]
fn twenty_processes_on_one_name() {
    const EACH: u64 = 8;
    let place = Place::new();
    let _made = place.store();
    let mut takers = Vec::new();
    for number in 0..20 {
        let (rounds, seed) = (EACH.to_string(), number.to_string());
        let more = ["--tasks", "1", "--rounds", &rounds, "--seed", &seed];
        takers.push(place.counter(&format!("p{number}"), "30s", &more));
    }
    for taker in &mut takers {
        taker.expect("done");
        assert!(taker.wait().expect("ends"));
    }
    let stats = check(&place.history(), &Demands::default()).expect_valid();
    println!("{stats}");
    let value = place.resource.state().expect("reads").value;
    assert_eq!(value, 20 * EACH);
}

#[test]
fn twenty_processes_make_one_file() {
    for _ in 0..5 {
        let place = Place::new();
        let start = |number: usize| {
            let more = ["--tasks", "1", "--rounds", "1"];
            place.counter(&format!("p{number}"), "30s", &more)
        };
        let takers: Vec<_> = (0..20).map(start).collect();
        for mut taker in takers {
            taker.expect("done");
            assert!(taker.wait().expect("ends"));
        }
    }
}
