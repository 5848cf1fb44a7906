//! Waiting costs next to nothing.
#![cfg(target_os = "linux")]

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{Place, until};

/// Processor time a process has used so far, in clock ticks, all its threads together.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |at: usize| fields[at].parse::<u64>().expect("a number");
    number(11) + number(12)
}

/// Processor time, not wall-clock time: a busy machine makes a waiter slower, not hungrier.
#[test]
fn an_idle_waiter_uses_less_than_a_hundredth_of_a_core() {
    let place = Place::new();
    let _holder = place.hold(&[], "x", "exec sleep 600");
    let mut waiter = place
        .lockkeeper(&["run", "x", "--", "true"])
        .stdin(Stdio::null())
        .spawn()
        .expect("starts");
    until("it waits", || place.show("x")["waiters"] == 1);
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    let per_second = per_second.ok().flatten().expect("known on Linux") as u64;
    let before = ticks(waiter.id());
    let seconds = 8;
    std::thread::sleep(Duration::from_secs(seconds));
    let used = ticks(waiter.id()) - before;
    let still_waits = waiter.try_wait().expect("a child").is_none();
    let _ = waiter.kill();
    let _ = waiter.wait();
    assert!(still_waits);
    let allowed = seconds * per_second / 100;
    assert!(used < allowed, "{used} of {allowed} ticks");
}
