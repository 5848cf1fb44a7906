//! The guardian: a small process that ends the command when `lockkeeper` itself no longer can.
//!
//! It is this program, started again before the command, and leads the process group that the command joins:
//! so the group is known from the start, and its number cannot pass to others while the guardian lives.
//! A socket connects the two. `lockkeeper` sends the latest [`Plan`] after each renewal; when no newer one
//! comes in time, because `lockkeeper` is stopped, hangs or cannot renew, the guardian follows the last one.
//! When the socket closes without `done`, `lockkeeper` was killed: the command is asked to end at once.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lockkeeper::clock::Moment;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, getpid};
use signal_hook::consts as sig;

use crate::group;
use crate::plan::{Due, Enforcer, Plan};
use lockkeeper_cli::lang::{Lang, Text};
use lockkeeper_cli::{notes, words};

/// The hidden verb by which the program starts itself as the guardian. The name of a language follows, or [`QUIET`].
pub const VERB: &str = "__guardian";
/// Has the guardian say nothing.
const QUIET: &str = "--quiet";

/// Timers stand still while the machine sleeps, the clock does not: look at it at least this often.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// How long a guardian may take to start on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// How long a guardian may take to leave: the lock is released only then. One that is stopped never would.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// What the guardian tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// It watches.
    Ready,
    /// It asked the command to end.
    Term,
}

/// The guardian, as `lockkeeper` sees it.
#[derive(Debug)]
pub struct Guardian {
    process: Child,
    /// Never blocks: a guardian that is stopped must not stop us.
    to: UnixStream,
    from: tokio::net::UnixStream,
    said: Lines,
}

impl Guardian {
    /// Starts a guardian and waits until it watches. `liveness` stays open for as long as it lives. It speaks a language, or not at
    /// all.
    pub async fn start(
        plan: Plan,
        liveness: Option<OwnedFd>,
        lang: Option<Lang>,
    ) -> io::Result<Guardian> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = myself()
            .arg(VERB)
            .arg(lang.map_or(QUIET, Lang::name))
            .env_remove(lockkeeper::url::STORE_VARIABLE)
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(liveness.map_or_else(Stdio::null, Stdio::from))
            .spawn()?;
        let mut guardian = Guardian {
            process,
            to: ours.try_clone()?,
            from: tokio::net::UnixStream::from_std(ours)?,
            said: Lines::default(),
        };
        guardian.tell(plan);
        let ready = tokio::time::timeout(START_PATIENCE, guardian.report()).await;
        if let Ok(Some(Report::Ready)) = ready {
            return Ok(guardian);
        }
        guardian.end().await;
        Err(io::Error::other("it did not answer"))
    }

    /// The process group that it leads, and the command joins.
    pub fn group(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// Continues it if it was stopped together with its group: the command may be paused, its guardian may not.
    pub fn keep_going(&self) {
        let _ = kill(self.group(), Signal::SIGCONT);
    }

    /// Hands over the latest plan. A guardian that is gone shows in [`Guardian::report`].
    pub fn tell(&self, plan: Plan) {
        let _ = (&self.to).write_all(plan.to_line().as_bytes());
    }

    /// What it says next; `None` when it is gone. Cancel safe.
    pub async fn report(&mut self) -> Option<Report> {
        loop {
            match self.said.next().as_deref() {
                Some("ready") => return Some(Report::Ready),
                Some("term") => return Some(Report::Term),
                Some(_) => continue,
                None => {}
            }
            self.from.readable().await.ok()?;
            let mut buffer = [0; 256];
            match self.from.try_read(&mut buffer) {
                Ok(0) => return None,
                Ok(n) => self.said.add(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends it away: the command has ended. What the command left running in its group stays untouched.
    pub async fn dismiss(mut self) -> Option<Report> {
        let _ = (&self.to).write_all(b"done\n");
        let mut last = None;
        let leaving = async {
            while let Some(report) = self.report().await {
                last = Some(report);
            }
        };
        let _ = tokio::time::timeout(LEAVE_PATIENCE, leaving).await;
        self.end().await;
        last
    }

    /// Leaves no process behind, not even a dead one.
    async fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// This very program, also when its file was replaced or deleted since.
fn myself() -> Command {
    let own = std::path::Path::new("/proc/self/exe");
    let mut command = match std::env::current_exe() {
        Ok(path) if !own.exists() => Command::new(path),
        _ => Command::new(own),
    };
    command.arg0("lockkeeper");
    command
}

/// The life of a guardian; the argument is what follows [`VERB`].
pub fn main(argument: Option<&OsStr>) -> ExitCode {
    let lang = argument.filter(|argument| *argument != QUIET);
    let lang = lang.map(Lang::named);
    // Otherwise process lists that show no arguments would call it "exe".
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(c"lk-guardian");
    // Signals to the group are for the command.
    for signal in [
        sig::SIGINT,
        sig::SIGTERM,
        sig::SIGHUP,
        sig::SIGQUIT,
        sig::SIGTSTP,
        sig::SIGTTIN,
        sig::SIGTTOU,
        sig::SIGUSR1,
        sig::SIGUSR2,
        sig::SIGALRM,
    ] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let Ok(link) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    guard(&UnixStream::from(link), lang);
    ExitCode::SUCCESS
}

fn guard(mut link: &UnixStream, lang: Option<Lang>) {
    let note = |text: &Text| {
        if let Some(lang) = lang {
            notes::say(text.get(lang));
        }
    };
    // Neither a lockkeeper that is stopped nor one that says nothing may hold us up.
    let _ = link.set_nonblocking(true);
    let (group, me) = (getpgrp(), getpid());
    let mut enforcer: Option<Enforcer> = None;
    let mut heard = Lines::default();
    let mut orphaned = false;
    // A member that forks and leaves while we look may hide its child, so look twice.
    let mut seen_alone = false;
    loop {
        // Before anything is done: if we were stopped, newer plans wait behind the one that we know.
        let is_open = orphaned || heard.read_from(link);
        while let Some(line) = heard.next() {
            match (Plan::from_line(&line), &mut enforcer) {
                (Some(plan), Some(enforcer)) => enforcer.follow(plan),
                (Some(plan), none) => {
                    *none = Some(Enforcer::new(plan));
                    let _ = link.write_all(b"ready\n");
                }
                (None, _) if line == "done" => return,
                (None, _) => {}
            }
        }
        if !is_open {
            let Some(enforcer) = &mut enforcer else {
                return;
            };
            orphaned = true;
            let kill_at = enforcer.plan().kill_at;
            enforcer.follow(Plan {
                term_at: Moment::now().min(kill_at),
                kill_at,
            });
            note(&words::LOCKKEEPER_IS_GONE);
        }
        let wait = match &mut enforcer {
            None => LONGEST_SLEEP,
            Some(enforcer) => match enforcer.due(Moment::now()) {
                Due::Wait(wait) => wait.min(LONGEST_SLEEP),
                Due::Term => {
                    group::term(group);
                    let _ = link.write_all(b"term\n");
                    continue;
                }
                Due::Kill => {
                    note(&words::KILLED);
                    group::send(group, Signal::SIGKILL);
                    return;
                }
            },
        };
        if orphaned {
            let alone = group::has_others(group, me) == Some(false);
            if alone && seen_alone {
                return;
            }
            seen_alone = alone;
            std::thread::sleep(wait.min(Duration::from_millis(20)));
            continue;
        }
        let mut input = [PollFd::new(link.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut input, wait);
    }
}

/// Cuts what arrives in pieces into lines.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Adds all that has arrived, without waiting for more. Answers whether more can come.
    fn read_from(&mut self, mut link: impl Read) -> bool {
        let mut buffer = [0; 1024];
        loop {
            match link.read(&mut buffer) {
                Ok(n) if n > 0 => self.add(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                answer => return answer.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock),
            }
        }
    }

    fn next(&mut self) -> Option<String> {
        let end = self.0.iter().position(|&b| b == b'\n')?;
        let line: Vec<u8> = self.0.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole() {
        let mut lines = Lines::default();
        lines.add(b"plan 1");
        assert_eq!(lines.next(), None);
        lines.add(b" 2\ndone\n");
        assert_eq!(lines.next().as_deref(), Some("plan 1 2"));
        assert_eq!(lines.next().as_deref(), Some("done"));
        assert_eq!(lines.next(), None);
    }
}
