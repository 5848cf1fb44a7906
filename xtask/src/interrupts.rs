//! A shell has what a script starts in the background ignore Ctrl-C and Ctrl-\, and so would every program that a test
//! interrupts: a shell cannot trap a signal that it was started to ignore.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has us started anew with both heard, if one is ignored and there is a way.
pub fn hear() {
    let env = || {
        let mut env = Command::new("env");
        env.arg("--default-signal=INT,QUIT");
        env
    };
    if !are_ignored() || !env().arg("true").status().is_ok_and(|s| s.success()) {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let error = env().arg(program).args(std::env::args_os().skip(1)).exec();
        eprintln!("Ctrl-C or Ctrl-\\ stays ignored: {error}");
    }
}

fn are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGINT is 2, SIGQUIT 3.
    mask.is_some_and(|mask| mask & 0b110 != 0)
}
