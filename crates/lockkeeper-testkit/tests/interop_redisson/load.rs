//! Many processes of both sides at once.

use std::time::Duration;

use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::peer::{java, rust};

fn begin(takers: &mut [Taker]) {
    takers.iter().for_each(|taker| drop(taker.expect("ready")));
    for taker in takers {
        taker.tell("go").expect("it listens");
    }
}

/// Four processes a side add to one counter: reading, pausing and writing under the lock.
fn nothing_is_lost(kind: &str, rounds: u64) {
    let server = RedisServer::start();
    let rounds = rounds.to_string();
    let arguments = |pause: &'static str| -> Vec<String> {
        [
            "add", "--kind", kind, "--name", "total", "--rounds", &rounds,
        ]
        .iter()
        .copied()
        .chain(["--counter", "counter", "--pause", pause])
        .map(str::to_owned)
        .collect()
    };
    let start = |run: fn(&RedisServer, &[&str]) -> Taker, arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(&server, &arguments)
    };
    let mut takers = Vec::new();
    for _ in 0..4 {
        takers.push(start(java, arguments("1")));
        takers.push(start(rust, arguments("1ms")));
    }
    begin(&mut takers);
    for taker in &mut takers {
        assert_eq!(added(taker, &server), format!("added {rounds}"));
        assert!(taker.wait().expect("it ends"), "it succeeds");
    }
    let expected = 8 * rounds.parse::<u64>().expect("a number");
    let counted = server.strings(&["GET", "counter"]);
    assert_eq!(counted, [expected.to_string()], "additions were lost");
}

/// What a process says once it has added everything. On a busy machine that takes long; while the counter grows, nobody
/// is stuck.
fn added(taker: &Taker, server: &RedisServer) -> String {
    let mut last = Vec::new();
    loop {
        match taker.line_within(Duration::from_secs(60)) {
            Some(line) if line.starts_with("added") => return line,
            Some(_) => {}
            None => {
                let counted = server.strings(&["GET", "counter"]);
                assert_ne!(counted, last, "the counter stands still");
                last = counted;
            }
        }
    }
}

#[test]
fn a_lock_loses_no_update_of_eight_processes() {
    nothing_is_lost("lock", 300);
}

#[test]
fn a_fair_lock_loses_no_update_of_eight_processes() {
    nothing_is_lost("fair", 100);
}

#[test]
fn a_write_lock_loses_no_update_of_eight_processes() {
    nothing_is_lost("write", 100);
}

/// So many processes a side want one lock all the time.
fn share(each: usize, hold_ms: u32) {
    let server = RedisServer::start();
    let hold = hold_ms.to_string();
    let hold_too = format!("{hold_ms}ms");
    let theirs = [
        "contend", "--name", "busy", "--for", "10000", "--hold", &hold,
    ];
    let ours = [
        "contend", "--name", "busy", "--for", "10s", "--hold", &hold_too,
    ];
    let mut takers: Vec<_> = (0..each).map(|_| java(&server, &theirs)).collect();
    takers.extend((0..each).map(|_| rust(&server, &ours)));
    begin(&mut takers);
    let turns: Vec<u64> = takers
        .iter()
        .map(|taker| taker.expect("turns").parse().expect("a number"))
        .collect();
    let all: u64 = turns.iter().sum();
    let percent = |turns: &[u64]| 100.0 * turns.iter().sum::<u64>() as f64 / all as f64;
    let (java, rust) = (percent(&turns[..each]), percent(&turns[each..]));
    let met = java.min(rust) >= 25.0;
    // `cargo xtask interop redisson` repeats this line in its summary.
    println!(
        "\nfigure: share {}",
        serde_json::json!({
            "hold_ms": hold_ms, "turns_of_redisson": &turns[..each], "turns_of_lockkeeper": &turns[each..],
            "redisson_percent": java.round(), "lockkeeper_percent": rust.round(),
            "target_percent": 25, "met": met,
        })
    );
    for (number, turns) in turns.iter().enumerate() {
        assert!(*turns > 0, "process {number} had no turn at all");
    }
    assert!(java >= 5.0, "Java had {java} %");
    assert!(rust >= 5.0, "Lockkeeper had {rust} %");
}

#[test]
fn neither_side_starves_without_a_pause() {
    share(2, 0);
}

#[test]
fn neither_side_starves_holding_for_a_millisecond() {
    share(2, 1);
}

#[test]
fn one_a_side_do_not_starve_each_other_without_a_pause() {
    share(1, 0);
}

#[test]
fn one_a_side_do_not_starve_each_other_holding_for_a_millisecond() {
    share(1, 1);
}

/// A releaser is back long before the other side has heard of it.
#[test]
fn one_a_side_do_not_starve_each_other_holding_for_longer() {
    share(1, 20);
}
