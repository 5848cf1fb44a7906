//! Programs that end, in every way in which a program ends by itself: they leave nothing held.

mod last_handle;
mod threads;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

/// How many run at a time.
const AT_ONCE: usize = 4;

/// Has so many programs end in this way, and returns how many of their locks are held on 0, 1, … of the nodes.
fn left_behind(end: &str, many: usize, url: &str, nodes: &Independent) -> Vec<usize> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= many {
                        return;
                    }
                    run(end, url, &format!("{end}{number}"));
                }
            });
        }
    });
    let mut left = vec![0; nodes.servers().len() + 1];
    for number in 0..many {
        left[nodes.count_key(&format!("{end}{number}"))] += 1;
    }
    left
}

fn run(end: &str, url: &str, name: &str) {
    let program = env!("CARGO_BIN_EXE_short-lived");
    let mut command = Command::new(program);
    command.args([end, url, name]).stdin(Stdio::null());
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.starts_with(b"held"), "{end}: {said}");
    // A panic is how that one ends.
    assert_eq!(output.status.success(), end != "panic", "{end}: {said}");
}

/// How a program may end, and how many are started that end so.
const ENDS: [(&str, usize); 10] = [
    ("return", 200),
    ("return-single", 200),
    ("panic", 200),
    ("blocking", 200),
    ("close", 200),
    ("release", 100),
    ("busy", 100),
    ("task", 100),
    ("static", 100),
    ("exit", 100),
];

fn nothing_is_left(url: &str, nodes: &Independent) {
    let mut held = Vec::new();
    for (end, many) in ENDS {
        let left = left_behind(end, many, url, nodes);
        println!("{end}: held on 0, 1, … nodes: {left:?}");
        if left[0] < many {
            held.push((end, left));
        }
    }
    assert!(held.is_empty(), "held on 0, 1, … nodes: {held:?}");
}

#[test]
fn a_program_that_ends_leaves_nothing_on_redis() {
    let server = Independent::start(1);
    nothing_is_left(&server.servers()[0].url(), &server);
}

#[test]
fn a_program_that_ends_leaves_nothing_on_a_quorum() {
    let nodes = Independent::start(3);
    nothing_is_left(&nodes.url_at_once("30s"), &nodes);
}

/// Has a program end once `fault` has happened, with its lock still held, and returns how long it took to end.
fn ends_after(end: &str, url: &str, fault: impl FnOnce()) -> Duration {
    let mut program = Taker::start(env!("CARGO_BIN_EXE_short-lived"), &[end, url, "x"]);
    let program = program.as_mut().expect("starts");
    program.expect("held");
    fault();
    let began = Instant::now();
    assert_eq!(program.wait().expect("ends"), end != "panic", "{end}");
    began.elapsed()
}

/// Far less than the lease, for which the release is tried again, and far more than the second that is waited for.
const SOON: Duration = Duration::from_secs(10);

const ENDS_BY_A_FAULT: [&str; 6] = [
    "return",
    "return-single",
    "panic",
    "blocking",
    "static",
    "exit",
];

#[test]
fn a_program_ends_soon_when_the_server_was_killed() {
    for end in ENDS_BY_A_FAULT {
        let mut server = RedisServer::start();
        let url = server.url();
        let took = ends_after(end, &url, || server.kill());
        println!("{end}: {took:?}");
        assert!(took < SOON, "{end}: {took:?}");
    }
}

#[test]
fn a_program_ends_soon_when_the_server_is_silent() {
    for end in ENDS_BY_A_FAULT {
        let server = RedisServer::start();
        let took = ends_after(end, &server.url(), || server.pause());
        println!("{end}: {took:?}");
        assert!(took < SOON, "{end}: {took:?}");
    }
}

#[test]
fn a_program_ends_soon_when_nodes_are_silent() {
    for silent in [1, 2] {
        for end in ENDS_BY_A_FAULT {
            let nodes = Independent::start(3);
            let pause = || {
                nodes.servers()[..silent]
                    .iter()
                    .for_each(RedisServer::pause)
            };
            let took = ends_after(end, &nodes.url_at_once("30s"), pause);
            println!("{end}, {silent} of 3: {took:?}");
            assert!(took < SOON, "{end}: {took:?}");
        }
    }
}
