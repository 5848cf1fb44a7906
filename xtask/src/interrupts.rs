//! Programs start with the signals that their parent ignores ignored too, and a shell cannot trap such a signal: a test that
//! sends it would wait for ever. A script has what it starts in the background ignore Ctrl-C and Ctrl-\, `nohup` has it ignore
//! the end of the terminal.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Every signal that a program can ignore, by its bit. Rust itself ignores SIGPIPE in us, and not in what we start; SIGKILL
/// and SIGSTOP cannot be ignored; those from 32 on are the C library's own and nobody's.
const SIGNALS: u64 = 0x7fff_ffff & !bit(13) & !bit(9) & !bit(19);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Starts us anew with every signal heard, if one is ignored and there is a way.
pub fn hear() {
    let env = || {
        let mut env = Command::new("env");
        env.arg("--default-signal");
        env
    };
    if !are_ignored() || !env().arg("true").status().is_ok_and(|s| s.success()) {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let error = env().arg(program).args(std::env::args_os().skip(1)).exec();
        eprintln!("signals that were ignored stay so: {error}");
    }
}

fn are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) & SIGNALS != 0
}

/// What `/proc/PID/status` says that a process ignores, a bit for each signal.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}
