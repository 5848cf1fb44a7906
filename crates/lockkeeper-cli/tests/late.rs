//! Requests that the network keeps back and delivers later: they do nothing by then.

mod common;

use std::process::{Child, Stdio};

use common::{Done, bare, eventually, finish, until};
use lockkeeper_testkit::retries;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::RedisServer;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};

const DIALECTS: [&str; 2] = ["redisson", "plain"];

/// `lockkeeper run x` on this store. Its command, `cat`, ends with its input.
fn run(store: &str, args: &[&str], command: &[&str]) -> Child {
    let mut run = bare(&[&["run"], args, &["x", "--"], command].concat());
    run.env("LOCKKEEPER_STORE", store)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run.spawn().expect("lockkeeper starts")
}

/// Ends the input of a run, and waits for its end.
fn end(mut run: Child) -> Done {
    drop(run.stdin.take());
    Done(run.wait_with_output().expect("it ends"))
}

fn ask(store: &str, args: &[&str]) -> Done {
    finish(bare(args).env("LOCKKEEPER_STORE", store))
}

/// Which claims hold the lock.
fn owners(store: &str) -> Vec<String> {
    let shown = ask(store, &["show", "x", "--json"]).code(0).json();
    let holders = shown["holders"].as_array().expect("a list");
    let owner = |holder: &serde_json::Value| holder["owner"].as_str().map(str::to_owned);
    holders.iter().filter_map(owner).collect()
}

/// How many scripts the server was asked to run by their hash: it runs them in the order in which they come.
fn scripts(server: &RedisServer) -> u64 {
    server.calls_of("evalsha")
}

#[test]
fn a_break_that_comes_late_ends_nobody() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let url = |port: u16| format!("redis://127.0.0.1:{port}?dialect={dialect}");
        let (straight, delayed) = (url(server.port()), url(proxy.port()));
        // What comes late is the hash of a script, which the server has to know by then.
        ask(&straight, &["break", "x", "--reason", "to be sure"]).code(0);
        let first = run(&straight, &[], &["cat"]);
        until("it holds", || owners(&straight).len() == 1);
        let stuck = owners(&straight);
        proxy.hold_after("the first is stuck", 0);
        let broken = ask(&delayed, &["break", "x", "--reason", "the first is stuck"]);
        assert_eq!(proxy.stopped(), 1, "the request is on its way");
        broken.code(69).says("may or may not");
        end(first).code(0);
        let second = run(&straight, &[], &["cat"]);
        until("the next one holds", || owners(&straight).len() == 1);
        let holds = owners(&straight);
        assert_ne!(holds, stuck);
        let before = scripts(&server);
        proxy.heal();
        until("the request has come", || scripts(&server) > before);
        assert_eq!(owners(&straight), holds, "{dialect}");
        end(second).code(0);
        let shown = ask(&straight, &["show", "x"]).code(0).out();
        assert!(!shown.contains("stuck"), "{shown}");
    }
}

/// What became of a holder that died with a renewal on its way.
enum Followed {
    /// In ms: what was left of its lease when the renewal came, and right after.
    Left(i64, i64),
    /// The renewal came when the lease was over, or too early.
    Missed,
}

/// A holder dies while its renewal is on its way, which comes when the holder would have given up.
fn die_with_a_renewal_on_its_way(dialect: &str) -> Followed {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!("redis://127.0.0.1:{}?dialect={dialect}", proxy.port());
    let left = || -> i64 {
        let left = server.strings(&["PTTL", "x"]);
        left[0].parse().expect("a number")
    };
    // What comes late is the hash of a script, which the server has to know by then.
    ask(&url, &["run", "--ttl", "3s", "warm", "--", "sleep", "2"]).code(0);
    let script = "echo $$; exec sleep 600";
    let mut holder = run(&url, &["--ttl", "6s"], &["sh", "-c", script]);
    let command = common::first_line(&mut holder);
    let command = Pid::from_raw(command.trim().parse().expect("a process id"));
    let guardian = getpgid(Some(command)).expect("the command's group");
    // What names the lease from now on is a renewal.
    proxy.hold_after("6000", 0);
    until("a renewal is on its way", || proxy.stopped() == 1);
    kill(Pid::from_raw(holder.id().cast_signed()), Signal::SIGKILL).expect("it is there");
    killpg(guardian, Signal::SIGKILL).expect("they are there");
    holder.wait().expect("it ends");
    // The holder would have given up when a tenth of the lease was left.
    let late = eventually("the lease is nearly over", || {
        let left = left();
        (left < 500).then_some(left)
    });
    let before = scripts(&server);
    proxy.heal();
    until("the renewal has come", || scripts(&server) > before);
    let after = left();
    if late > 100 && after != -2 {
        Followed::Left(late, after)
    } else {
        Followed::Missed
    }
}

#[test]
fn a_renewal_that_comes_late_brings_nobody_back() {
    for dialect in DIALECTS {
        let (late, after) = eventually(
            "a renewal comes between the deadline and the lease's end",
            || match die_with_a_renewal_on_its_way(dialect) {
                Followed::Left(late, after) => Some((late, after)),
                Followed::Missed => {
                    retries::count("a renewal came too early or too late");
                    None
                }
            },
        );
        assert!(
            after <= late,
            "{dialect}: {late} ms were left, now {after} ms"
        );
    }
}
