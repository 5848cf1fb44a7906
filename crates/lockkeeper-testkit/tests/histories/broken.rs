//! Locks with a mistake in each of the modes: the checker that passes ours catches them.

use std::time::Duration;

use lockkeeper_testkit::checker::{Demands, Rule, check};
use lockkeeper_testkit::wrappers::SABOTAGES;

use crate::crowd::Crowd;
use crate::place::Place;

/// How long a claim may linger: the processes' lease, and as long again.
const LINGER: Duration = Duration::from_secs(2);

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

/// No fault is needed: the processes alone show it.
fn caught(name: &'static str, rule: Rule) {
    let place = Place::new();
    let url = place.url.clone();
    let mut crowd = Crowd::new(place, &url, 1, Some(name));
    crowd.start();
    crowd.work(100);
    match rule {
        // It opens all the same, however late the processes look.
        Rule::Latch => {
            crowd.latch_that_lacks(1);
            crowd.latch_opens();
        }
        // It is granted to nobody for longer than it may be.
        Rule::L1 => std::thread::sleep(LINGER * 5),
        _ => crowd.work(300),
    }
    let demands = Demands::none().linger(LINGER);
    let verdict = check(&crowd.abandon(), &demands);
    assert!(verdict.breaks(rule), "{name} was not caught: {verdict}");
    println!("{name}: caught by {rule:?}");
}
