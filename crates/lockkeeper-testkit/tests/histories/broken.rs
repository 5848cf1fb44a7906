//! Locks with a mistake in each of the modes: the checker that passes ours catches them.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{Demands, Rule, check};
use lockkeeper_testkit::wrappers::SABOTAGES;

use crate::crowd::Crowd;
use crate::place::Place;

/// How long a claim may linger: the processes' lease, and as long again.
const LINGER: Duration = Duration::from_secs(2);

/// How long it may take until a lock is caught, on a busy machine too.
const SOON: Duration = Duration::from_secs(120);

/// What a process of the load does wrong by itself.
const CLUMSY: &[(&str, Rule)] = &[
    ("reentry-off-by-one", Rule::S1),
    ("multi-keeps-a-part", Rule::L1),
];

#[test]
fn every_broken_lock_is_caught() {
    let stores = SABOTAGES.iter().map(|(_, name, rule)| (*name, *rule));
    let all: Vec<(&str, Rule)> = stores.chain(CLUMSY.iter().copied()).collect();
    std::thread::scope(|scope| {
        for (name, rule) in all {
            scope.spawn(move || caught(name, rule));
        }
    });
}

/// Judged in the same way, again and again, while its processes go on.
#[test]
fn a_right_lock_is_not_caught() {
    let place = Place::new();
    let url = place.url.clone();
    let mut crowd = Crowd::new(place, &url, 1, None);
    let demands = Demands::none().linger(LINGER + LINGER);
    crowd.start();
    for _ in 0..10 {
        crowd.work(20);
        check(&crowd.so_far(), &demands).expect_valid();
    }
    check(&crowd.abandon(), &demands).expect_valid();
}

/// No fault is needed: the processes alone show it, sooner or later.
fn caught(name: &'static str, rule: Rule) {
    let place = Place::new();
    let url = place.url.clone();
    let mut crowd = Crowd::new(place, &url, 1, Some(name));
    let demands = Demands::none().linger(LINGER);
    let began = Moment::now();
    crowd.start();
    while Moment::now().since(began) < SOON {
        if rule == Rule::Latch {
            // Each opens all the same, if the processes come to it in time.
            crowd.latch_that_lacks(1);
        }
        std::thread::sleep(Duration::from_secs(1));
        if check(&crowd.so_far(), &demands).breaks(rule) {
            break;
        }
    }
    let verdict = check(&crowd.abandon(), &demands);
    assert!(verdict.breaks(rule), "{name} was not caught: {verdict}");
    let took = Moment::now().since(began).as_secs_f64();
    println!("{name}: caught by {rule:?} after {took:.1} s");
}
