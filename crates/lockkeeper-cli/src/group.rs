//! Signals to the command's process group, and who is still in it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Sends a signal to every member. One that is gone, or belongs to another user, is passed over.
pub fn send(group: Pid, signal: Signal) {
    let _ = killpg(group, signal);
}

/// Asks every member to end. A stopped one could not hear it, so it is continued.
pub fn term(group: Pid) {
    send(group, Signal::SIGTERM);
    send(group, Signal::SIGCONT);
}

/// Whether the group has a living member besides `me`; `None` when this system does not tell.
pub fn has_others(group: Pid, me: Pid) -> Option<bool> {
    // Where processes of other users are hidden, an empty answer would mean nothing.
    std::fs::read("/proc/1/stat").ok()?;
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(pids.any(|pid: i32| {
        pid != me.as_raw()
            && std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| lives_in(&stat, group))
    }))
}

/// Whether a line of `/proc/PID/stat` is of a living member of the group.
fn lives_in(stat: &str, group: Pid) -> bool {
    // The program's name stands in parentheses and may itself have spaces and parentheses.
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return false;
    };
    let mut fields = fields.split(' ');
    let (state, pgrp) = (fields.next(), fields.nth(1));
    // A dead process may wait long for its parent to ask for its status.
    !matches!(state, Some("Z" | "X")) && pgrp.is_some_and(|p| p.parse() == Ok(group.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_from_stat() {
        let group = Pid::from_raw(77);
        assert!(lives_in("80 (a) b) S 1 77 5 0", group));
        assert!(!lives_in("80 (a) S 1 78 77 0", group));
        assert!(!lives_in("80 (a) Z 1 77 5 0", group));
        assert!(!lives_in("", group));
    }
}
