//! Lends the terminal to the command, so that it can read keys and Ctrl-C reaches it and not us. And Ctrl-Z: a process
//! that is stopped inside a transaction of a SQLite file would keep everybody else from it.

use std::convert::Infallible;
use std::fs::File;
use std::io::{IsTerminal, stdin, stdout};

use lockkeeper::Lockkeeper;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal that we run in.
#[derive(Debug)]
pub struct Terminal {
    tty: File,
    /// The group that has the terminal while it is lent, and its modes of before.
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

    /// Lends the terminal to a group if standard input is a terminal: the command may want to read it. Not if the output goes
    /// into a pipe, perhaps to a pager of our own group, which reads the terminal as well.
    pub fn lend_for_input(&mut self, group: Pid) {
        if stdin().is_terminal() && stdout().is_terminal() {
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

/// Starts a process, which is stopped for using a terminal that it does not have, as others are: it inherits what this thread blocks.
pub fn as_others<T>(start: impl FnOnce() -> T) -> T {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTTOU);
    let _ = set.thread_unblock();
    let started = start();
    let _ = set.thread_block();
    started
}

/// Keeps Ctrl-Z from stopping this thread, and those it starts, until [`stop_when_asked`] or [`hear_stops`] allow it.
pub fn put_stops_off() {
    // Elsewhere nobody can tell that one waits.
    if cfg!(target_os = "linux") {
        let _ = stops().thread_block();
    }
}

/// Continues the others of our process group, which Ctrl-Z has stopped.
pub fn continue_group() {
    let _ = killpg(getpgrp(), Signal::SIGCONT);
}

/// From now on Ctrl-Z is a signal as any other.
pub fn hear_stops() {
    let _ = stops().thread_unblock();
}

fn stops() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTSTP);
    set
}

/// Stops this process when Ctrl-Z asks for it, but not inside a transaction.
#[cfg(target_os = "linux")]
pub async fn stop_when_asked(keeper: &Lockkeeper) -> Infallible {
    use nix::sys::signalfd::{SfdFlags, SignalFd};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let asked = SignalFd::with_flags(&stops(), flags).ok();
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe to call; a SignalFd keeps its descriptor, as that asks for"
    )]
    let asked = asked.and_then(|asked| AsyncFd::with_interest(asked, Interest::READABLE).ok());
    if let Some(asked) = asked {
        while let Ok(mut ready) = asked.readable().await {
            // The signal is left to the kernel, which also knows when there is no shell that could continue us.
            keeper.at_rest(|| {
                let _ = stops().thread_unblock();
                let _ = stops().thread_block();
            });
            ready.clear_ready();
        }
    }
    std::future::pending().await
}

/// Here Ctrl-Z was not put off.
#[cfg(not(target_os = "linux"))]
pub async fn stop_when_asked(_: &Lockkeeper) -> Infallible {
    std::future::pending().await
}
