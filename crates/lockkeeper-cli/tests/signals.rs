//! Signals to `lockkeeper run`: forwarded while the command runs, obeyed while it waits.

mod common;

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use common::{Done, Place, for_ever, until, until_in};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn signals_reach_the_command() {
    let place = Place::new();
    let traps = "for s in INT TERM HUP QUIT USR1 USR2; do trap \"echo $s >> got\" $s; done; \
                 trap 'exit 7' ALRM; echo ready >> got";
    let holder = place.hold(&[], "x", &for_ever(traps));
    let got = place.path("got");
    until_in(&got, "ready");
    for (signal, name) in [
        (Signal::SIGINT, "INT"),
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
    ] {
        holder.signal(signal);
        until_in(&got, name);
    }
    holder.signal(Signal::SIGALRM);
    let done = holder.done().code(7);
    // The shell remarks on its own children; lockkeeper and the guardian have nothing to say.
    assert!(!done.err().contains("lockkeeper"), "{done:?}");
}

#[test]
fn signals_reach_the_whole_group() {
    let place = Place::new();
    // The shell does not pass it on: its child has to get it from us.
    let inner = for_ever("trap \"echo inner >> got; exit\" TERM; echo ready >> got");
    let script = format!("sh -c '{inner}' & trap 'wait; exit 0' TERM; wait; exit 9");
    let holder = place.hold(&[], "x", &script);
    until_in(&place.path("got"), "ready");
    holder.signal(Signal::SIGTERM);
    until_in(&place.path("got"), "inner");
    holder.done();
}

#[test]
fn a_waiter_that_is_interrupted_leaves_nothing_behind() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
    ] {
        let waiter = place
            .lockkeeper(&["run", "x", "--", "touch", "ran"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        until("it waits", || place.show("x")["waiters"] == 1);
        kill(Pid::from_raw(waiter.id().cast_signed()), signal).expect("there");
        Done(waiter.wait_with_output().expect("ends")).code(code);
        assert_eq!(place.show("x")["waiters"], 0);
    }
    holder.signal(Signal::SIGTERM);
    holder.done().code(143);
    assert_eq!(place.show("x")["held"], false);
    assert!(!place.path("ran").exists());
}

#[test]
fn a_stopped_command_is_continued_or_keeps_the_lock() {
    let place = Place::new();
    let holder = place.hold(
        &["--json"],
        "x",
        "while [ ! -e go ]; do sleep 0.1; done; exit 6",
    );
    kill(holder.command, Signal::SIGTSTP).expect("there");
    std::fs::write(place.path("go"), "").expect("writes");
    let done = holder.done().code(6);
    assert!(done.err().contains("continued it"), "{done:?}");

    let holder = place.hold(&["--json", "--lease", "2s"], "y", "exec sleep 600");
    kill(holder.command, Signal::SIGSTOP).expect("there");
    // Longer than a lease: it is renewed.
    std::thread::sleep(std::time::Duration::from_secs(3));
    place
        .done(&["run", "--no-wait", "y", "--", "true"])
        .code(75);
    holder.signal(Signal::SIGTERM);
    kill(holder.command, Signal::SIGCONT).expect("there");
    let done = holder.done().code(143);
    assert!(done.err().contains("keeps the lock"), "{done:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn what_the_caller_ignores_stays_ignored() {
    let place = Place::new();
    let script = "grep SigIgn /proc/self/status";
    let run = place.lockkeeper(&["run", "x", "--", "sh", "-c", script]);
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(run.get_program()).args(run.get_args());
    nohup.env("LOCKKEEPER_STORE", place.url()).process_group(0);
    let done = common::finish(&mut nohup).code(0);
    let out = done.out();
    let mask = out.split_whitespace().last().expect("a mask");
    let mask = u64::from_str_radix(mask, 16).expect("hexadecimal");
    assert_eq!(mask & 1, 1, "HUP is ignored: {out}");
    assert_eq!(mask & (1 << 12), 0, "PIPE is not: {out}");
}
