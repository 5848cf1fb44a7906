//! Lends the terminal to the command, so that it can read keys and Ctrl-C reaches it and not us.

use std::fs::File;
use std::io::{IsTerminal, stdin};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal that we run in.
#[derive(Debug)]
pub struct Terminal {
    tty: File,
    /// Who has the terminal while it is lent, and its modes of before.
    lent: Option<(Pid, Option<Termios>)>,
}

impl Terminal {
    /// The terminal, if there is one.
    pub fn open() -> Option<Terminal> {
        let tty = File::options().read(true).write(true).open("/dev/tty");
        Some(Terminal {
            tty: tty.ok()?,
            lent: None,
        })
    }

    /// Lends the terminal to a group if standard input is a terminal: the command may want to read it.
    pub fn lend_for_input(&mut self, group: Pid) {
        if stdin().is_terminal() {
            self.lend(group);
        }
    }

    /// Lends the terminal to a group, unless we are in the background and do not have it ourselves.
    pub fn lend(&mut self, group: Pid) -> bool {
        if tcgetpgrp(&self.tty) != Ok(getpgrp()) {
            return false;
        }
        let modes = tcgetattr(&self.tty).ok();
        if tcsetpgrp(&self.tty, group).is_err() {
            return false;
        }
        self.lent = Some((group, modes));
        true
    }

    /// Takes the terminal back, unless someone else has it by now. With `modes`, also sets it back to how it was:
    /// a command that was ended had no chance to.
    pub fn take_back(&mut self, modes: bool) {
        let Some((group, before)) = self.lent.take() else {
            return;
        };
        // A command that is a shell lends it on to groups of its own and may have died before these.
        let ours = |has: Pid| has == group || killpg(has, None) == Err(Errno::ESRCH);
        if !tcgetpgrp(&self.tty).is_ok_and(ours) || tcsetpgrp(&self.tty, getpgrp()).is_err() {
            return;
        }
        if let Some(before) = before.filter(|_| modes) {
            let _ = tcsetattr(&self.tty, SetArg::TCSANOW, &before);
        }
    }
}

/// Keeps this thread, and those it starts, from being stopped for using a terminal that is lent.
pub fn use_from_background() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTTOU);
    let _ = set.thread_block();
}
