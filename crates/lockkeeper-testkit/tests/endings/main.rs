//! Programs that end, in every way in which a program ends by itself: they leave nothing held.

mod last_handle;
mod places;
mod threads;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockkeeper::blocking;
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::postgres::PostgresServer;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use places::{Alone, Place};

/// How many run at a time.
const AT_ONCE: usize = 4;

/// Has so many programs end in this way, and returns how many of their locks are held on 0, 1, … of the servers.
fn left_behind(end: &str, many: usize, place: &impl Place) -> Vec<usize> {
    let (next, url) = (AtomicUsize::new(0), place.store());
    let name = |number: usize| format!("{end}{number}");
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= many {
                        return;
                    }
                    run(end, &url, &name(number));
                }
            });
        }
    });
    let names: Vec<String> = (0..many).map(name).collect();
    let mut left = vec![0; place.servers() + 1];
    for servers in place.held_on(&names) {
        left[servers] += 1;
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
    let ends_well = !matches!(end, "panic" | "abort");
    assert_eq!(output.status.success(), ends_well, "{end}: {said}");
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

/// With only one in so many of the programs.
fn nothing_is_left(place: &impl Place, one_in: usize) {
    let keeper = blocking::Lockkeeper::connect(&place.store()).expect("connects");
    let guard = keeper.lock("seen").expect("a lock").acquire();
    assert_ne!(place.held_on(&["seen".into()]), [0], "what is held is seen");
    drop((keeper, guard.expect("acquires")));
    let mut held = Vec::new();
    for (end, many) in ENDS {
        let many = many / one_in;
        let left = left_behind(end, many, place);
        println!("{end}: held on 0, 1, … servers: {left:?}");
        if left[0] < many {
            held.push((end, left));
        }
    }
    assert!(held.is_empty(), "held on 0, 1, … servers: {held:?}");
}

#[test]
fn a_program_that_ends_leaves_nothing_on_redis() {
    nothing_is_left(&RedisServer::start(), 1);
}

#[test]
fn a_program_that_ends_leaves_nothing_on_a_quorum() {
    nothing_is_left(&Independent::start(3), 1);
}

/// Nothing waits for the release there: it was written before `drop` returned.
#[test]
fn a_release_is_written_before_the_drop_returns() {
    let (server, nodes) = (RedisServer::start(), Independent::start(3));
    // From now on the server knows the script that releases; the nodes are sent it in full.
    assert_eq!(left_behind("release", 1, &server), [1, 0]);
    assert_eq!(left_behind("abort", 100, &server), [100, 0]);
    assert_eq!(left_behind("abort", 100, &nodes), [100, 0, 0, 0]);
}

/// Enough to see that each end works.
const FEW: usize = 50;

#[test]
fn a_program_that_ends_leaves_nothing_on_postgres() {
    nothing_is_left(&PostgresServer::start(), FEW);
}

#[test]
fn a_program_that_ends_leaves_nothing_on_mariadb() {
    nothing_is_left(&MariaDbServer::start(), FEW);
}

#[test]
fn a_program_that_ends_leaves_nothing_on_zookeeper() {
    nothing_is_left(&ZooKeeperServer::start(), FEW);
}

#[test]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
fn many_programs_that_end_leave_nothing_on_postgres() {
    nothing_is_left(&PostgresServer::start(), 1);
}

#[test]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
fn many_programs_that_end_leave_nothing_on_mariadb() {
    nothing_is_left(&MariaDbServer::start(), 1);
}

#[test]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
fn many_programs_that_end_leave_nothing_on_zookeeper() {
    nothing_is_left(&ZooKeeperServer::start(), 1);
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

fn ends_when_the_server_was_killed<S: Alone>() {
    for end in ENDS_BY_A_FAULT {
        let mut server = S::begin();
        let url = server.store();
        let took = ends_after(end, &url, || server.end());
        println!("{end}: {took:?}");
        assert!(took < SOON, "{end}: {took:?}");
    }
}

fn ends_when_the_server_is_silent<S: Alone>() {
    for end in ENDS_BY_A_FAULT {
        let server = S::begin();
        let took = ends_after(end, &server.store(), || server.silence());
        println!("{end}: {took:?}");
        assert!(took < SOON, "{end}: {took:?}");
    }
}

/// The cases of a server alone, each with a server of its own.
macro_rules! on_each {
    ($($case:ident => $test:ident),* $(,)?) => {
        mod on_redis {
            use lockkeeper_testkit::servers::redis::RedisServer;
            $(
                #[test]
                fn $test() {
                    super::$case::<RedisServer>();
                }
            )*
        }
        $crate::on_each!(on_postgres, lockkeeper_testkit::servers::postgres::PostgresServer, $($case => $test),*);
        $crate::on_each!(on_mariadb, lockkeeper_testkit::servers::mariadb::MariaDbServer, $($case => $test),*);
        $crate::on_each!(on_zookeeper, lockkeeper_testkit::servers::zookeeper::ZooKeeperServer, $($case => $test),*);
    };
    ($name:ident, $server:ty, $($case:ident => $test:ident),*) => {
        mod $name {
            $(
                #[test]
                #[ignore = "the server takes long to start: `cargo xtask nightly` runs it"]
                fn $test() {
                    super::$case::<$server>();
                }
            )*
        }
    };
}
pub(crate) use on_each;

on_each!(
    ends_when_the_server_was_killed => a_program_ends_soon_when_the_server_was_killed,
    ends_when_the_server_is_silent => a_program_ends_soon_when_the_server_is_silent,
);

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
