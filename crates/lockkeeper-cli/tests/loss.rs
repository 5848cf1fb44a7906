//! `lockkeeper run` when the lock is lost, or lockkeeper itself is: the command ends in time.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Done, Holder, Place, alive, eventually, for_ever, until, until_in};
use nix::sys::signal::{Signal, kill, killpg};

/// Long enough to be renewed in time on a busy machine.
const LEASE: &str = "10s";
/// Longer than that.
const LONG: Duration = Duration::from_secs(12);

/// Does not end when asked to, but writes it down.
fn hold_stubborn(place: &Place, args: &[&str]) -> Holder {
    let script = for_ever("trap 'echo asked >> asked' TERM; echo > ready");
    let holder = place.hold(args, "x", &script);
    until("it has set its trap", || place.path("ready").exists());
    holder
}

/// Starts another run that waits for the lock and tells in which state it finds a process.
fn contender(place: &Place, name: &str, pid: nix::unistd::Pid) -> std::process::Child {
    let script = format!("ps -o stat= -p {pid} || echo gone");
    place
        .lockkeeper(&["run", "--wait", "5m", "-c", name, "--", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// Checks that a contender got the lock and found nobody running.
fn found_nobody(contender: std::process::Child) {
    let done = Done(contender.wait_with_output().expect("ends")).code(0);
    let out = done.out();
    // Dead but not yet buried, because lockkeeper is stopped, is dead.
    assert!(
        out.contains("gone") || out.trim().starts_with('Z'),
        "{out:?}"
    );
}

#[test]
fn a_killed_lockkeeper_takes_its_command_along_and_frees_the_lock_at_once() {
    let place = Place::new();
    // Far longer than the test: it is not the lease that frees the lock.
    let holder = place.hold(&["--lease", "1h"], "x", "exec sleep 600");
    let (command, guardian) = (holder.command, holder.guardian);
    let contender = contender(&place, "x", command);
    until("it waits", || place.show("x")["waiters"] == 1);
    holder.signal(Signal::SIGKILL);
    found_nobody(contender);
    until("the command is gone", || !alive(command));
    until("the guardian is gone", || !alive(guardian));
}

#[test]
fn a_killed_lockkeepers_stubborn_command_is_killed_before_the_lease_ends() {
    let place = Place::new();
    let holder = hold_stubborn(&place, &["--lease", LEASE]);
    let (command, guardian) = (holder.command, holder.guardian);
    let contender = contender(&place, "x", command);
    holder.signal(Signal::SIGKILL);
    until_in(&place.path("asked"), "asked");
    found_nobody(contender);
    until("the command is gone", || !alive(command));
    until("the guardian is gone", || !alive(guardian));
}

#[test]
fn a_stopped_lockkeepers_command_is_gone_before_anyone_else_gets_the_lock() {
    let place = Place::new();
    let holder = hold_stubborn(&place, &["--lease", LEASE]);
    let contender = contender(&place, "x", holder.command);
    until("it waits", || place.show("x")["waiters"] == 1);
    holder.signal(Signal::SIGSTOP);
    found_nobody(contender);
    until_in(&place.path("asked"), "asked");
    holder.signal(Signal::SIGCONT);
    let done = holder.done().code(76);
    assert!(done.err().contains("was lost"), "{done:?}");
}

#[test]
fn a_command_is_ended_when_its_lock_is_broken() {
    let place = Place::new();
    let holder = place.hold(&["--lease", LEASE], "x", "exec sleep 600");
    let told = place
        .done(&["break", "x", "--reason", "maintenance"])
        .code(0);
    assert!(told.out().contains("took x from lockkeeper["), "{told:?}");
    let done = holder.done().code(76);
    assert!(done.err().contains("maintenance"), "{done:?}");
}

#[test]
fn a_stubborn_command_is_killed_when_its_lock_is_broken() {
    let place = Place::new();
    let holder = hold_stubborn(&place, &["--lease", LEASE, "--json"]);
    let command = holder.command;
    place
        .done(&["break", "x", "--reason", "maintenance", "--json"])
        .code(0);
    let done = holder.done().code(76);
    assert!(!alive(command));
    // The shell may have remarked on its own children before.
    let err = done.err();
    let report = err.lines().last().expect("a report");
    let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
    assert_eq!(report["outcome"], "lost");
    assert_eq!(report["command"]["signal"], "SIGKILL");
}

#[test]
fn a_store_that_stops_answering_ends_the_command() {
    let place = Place::new();
    let holder = hold_stubborn(&place, &["--lease", LEASE]);
    let command = holder.command;
    let blocker = rusqlite::Connection::open(place.path("locks.db")).expect("opens");
    blocker
        .busy_timeout(std::time::Duration::from_secs(10))
        .expect("sets");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("blocks");
    until("the command is gone", || !alive(command));
    until_in(&place.path("asked"), "asked");
    blocker.execute_batch("ROLLBACK").expect("lets go");
    let done = holder.done().code(76);
    assert!(done.err().contains("was lost"), "{done:?}");
}

#[test]
fn why_the_lock_was_lost_is_told() {
    let place = Place::new();
    let holder = place.hold(&["--lease", LEASE], "x", "exec sleep 600");
    std::fs::remove_file(place.path("locks.db")).expect("deletes");
    let done = holder.done().code(76);
    assert!(done.err().contains("deleted or replaced"), "{done:?}");
}

#[test]
fn why_the_lock_was_lost_is_told_however_long_the_release_takes() {
    let place = Place::new();
    let lease = Duration::from_secs(3);
    let holder = place.hold(&["--lease", "3s"], "x", "exec sleep 600");
    let command = holder.command;
    let blocker = rusqlite::Connection::open(place.path("locks.db")).expect("opens");
    blocker.busy_timeout(Duration::from_secs(10)).expect("sets");
    blocker.execute_batch("BEGIN IMMEDIATE").expect("blocks");
    until("the command is gone", || !alive(command));
    std::thread::sleep(lease * 2);
    blocker.execute_batch("ROLLBACK").expect("lets go");
    let done = holder.done().code(76);
    assert!(done.err().contains("was lost ("), "{done:?}");
}

#[test]
fn without_its_guardian_lockkeeper_does_the_duty_itself() {
    let place = Place::new();
    let holder = hold_stubborn(&place, &["--lease", LEASE]);
    let command = holder.command;
    kill(holder.guardian, Signal::SIGKILL).expect("there");
    place
        .done(&["break", "x", "--reason", "maintenance"])
        .code(0);
    until_in(&place.path("asked"), "asked");
    let done = holder.done().code(76);
    assert!(done.err().contains("guardian is gone"), "{done:?}");
    assert!(!alive(command));
}

#[test]
fn without_its_guardian_an_ordinary_end_stays_one() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "while [ ! -e go ]; do sleep 0.1; done; exit 5");
    kill(holder.guardian, Signal::SIGKILL).expect("there");
    std::fs::write(place.path("go"), "").expect("writes");
    let done = holder.done().code(5);
    assert!(done.err().contains("guardian is gone"), "{done:?}");
    assert_eq!(place.show("x")["held"], false);
}

#[test]
fn a_stopped_guardian_does_not_stop_lockkeeper() {
    let place = Place::new();
    let holder = hold_stubborn(&place, &["--lease", LEASE]);
    let (command, guardian) = (holder.command, holder.guardian);
    kill(guardian, Signal::SIGSTOP).expect("there");
    place
        .done(&["break", "x", "--reason", "maintenance"])
        .code(0);
    holder.done().code(76);
    assert!(!alive(command));
    until("the guardian is gone", || !alive(guardian));
}

/// Whether a process is stopped.
fn is_stopped(pid: nix::unistd::Pid) -> bool {
    state(pid).starts_with('T')
}

fn state(pid: nix::unistd::Pid) -> String {
    let ps = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .expect("ps");
    String::from_utf8_lossy(&ps.stdout).trim().to_owned()
}

#[test]
fn a_group_that_was_stopped_for_long_goes_on() {
    let place = Place::new();
    let script = "while [ ! -e go ]; do sleep 0.1; done; exit 5";
    let holder = place.hold(&["--lease", LEASE], "x", script);
    let (command, guardian) = (holder.command, holder.guardian);
    killpg(guardian, Signal::SIGSTOP).expect("there");
    until("the guardian goes on alone", || {
        is_stopped(command) && !is_stopped(guardian)
    });
    std::thread::sleep(LONG);
    assert!(is_stopped(command), "it stays as it is");
    killpg(guardian, Signal::SIGCONT).expect("there");
    std::fs::write(place.path("go"), "").expect("writes");
    holder.done().code(5);
}

#[test]
fn a_stopped_group_does_not_outlive_a_killed_lockkeeper() {
    let place = Place::new();
    let holder = place.hold(&["--lease", "1h"], "x", "exec sleep 600");
    let (command, guardian) = (holder.command, holder.guardian);
    killpg(guardian, Signal::SIGSTOP).expect("there");
    until("the guardian goes on alone", || {
        is_stopped(command) && !is_stopped(guardian)
    });
    holder.signal(Signal::SIGKILL);
    until("the command is gone", || !alive(command));
    until("the guardian is gone", || !alive(guardian));
}

#[test]
fn a_reader_that_stopped_reading_keeps_no_command_alive() {
    let place = Place::new();
    // Nobody reads standard error, and this is more than any pipe holds.
    let script =
        "head -c 10000000 /dev/zero >&2 & echo $! > new; mv new writer; trap '' TERM; sleep 600";
    let holder = place.hold(&["--lease", LEASE], "x", script);
    let (command, guardian) = (holder.command, holder.guardian);
    let writer = eventually("the writer is known", || {
        let pid = std::fs::read_to_string(place.path("writer")).ok()?;
        pid.trim().parse().ok().map(nix::unistd::Pid::from_raw)
    });
    // It sleeps only while the pipe is full.
    until("the pipe is full", || state(writer).starts_with('S'));
    holder.signal(Signal::SIGKILL);
    until("the command is gone", || !alive(command));
    until("the guardian is gone", || !alive(guardian));
}

#[test]
fn renewals_reach_the_guardian() {
    let place = Place::new();
    // A guardian that knew of no renewal would end it.
    let script = format!("sleep {}; exit 5", LONG.as_secs());
    let holder = place.hold(&["--lease", LEASE], "x", &script);
    let guardian = holder.guardian;
    let done = holder.done().code(5);
    assert_eq!(done.err(), "");
    assert!(!alive(guardian), "it leaves with lockkeeper");
}

#[test]
fn what_the_command_leaves_behind_is_not_touched() {
    let place = Place::new();
    let script = "sleep 600 > /dev/null 2>&1 & echo $! > left";
    place.done(&["run", "-c", "x", "--", script]).code(0);
    let left = std::fs::read_to_string(place.path("left")).expect("reads");
    let left = nix::unistd::Pid::from_raw(left.trim().parse().expect("a process id"));
    assert!(alive(left));
    kill(left, Signal::SIGKILL).expect("there");
    place.done(&["run", "--no-wait", "x", "--", "true"]).code(0);
}
