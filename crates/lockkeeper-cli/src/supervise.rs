//! Runs the command while the lock is held: forwards signals, passes on every renewal to the guardian, and
//! sees to it that the command has ended when the lock counts as lost.

use std::future::Future;
use std::io;
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use lockkeeper::clock::Moment;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::group;
use crate::guardian::{Guardian, Report};
use crate::plan::{Due, Enforcer, Plan};
use crate::terminal::{self, Terminal};
use lockkeeper_cli::notes::Notes;
use lockkeeper_cli::signals::Signals;
use lockkeeper_cli::words;

/// How long a killed command may take to be gone. One that sleeps in the kernel may take for ever.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// How often the others of a group that does not stop are continued. A pager stops only after it has tidied its screen.
const CONTINUES: u32 = 20;
/// The pause between two of these.
const CONTINUE_PAUSE: Duration = Duration::from_millis(50);

/// A held lock, as far as it matters here.
pub trait Hold {
    /// When the lock is at risk, unless renewed.
    fn at_risk_at(&self) -> Moment;
    /// When the lock counts as lost, unless renewed.
    fn deadline(&self) -> Moment;
    /// Completes when the lock is lost.
    fn lost(&self) -> impl Future<Output = ()>;
}

/// Why nothing was run.
#[derive(Debug)]
pub enum Failure {
    /// The guardian or something else of ours could not be set up.
    Setup(io::Error),
    /// The command could not be started.
    Command(io::Error),
    /// The lock was all but lost before the command could be started.
    TooLate,
}

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(Signal),
    /// Not at all: it was killed and is still there.
    Stuck,
}

/// What became of the command.
#[derive(Debug)]
pub struct Outcome {
    /// Its process id.
    pub pid: Pid,
    /// How it ended.
    pub end: End,
    /// Whether it was made to end, or ran on, because the lock was being lost.
    pub lost: bool,
}

/// Runs a command for as long as the lock holds.
pub async fn supervise(
    command: &mut Command,
    hold: &impl Hold,
    lease: Duration,
    liveness: Option<std::os::fd::OwnedFd>,
    signals: &mut Signals,
    notes: &mut Notes,
) -> Result<Outcome, Failure> {
    let plan = Plan::between(hold.at_risk_at(), hold.deadline());
    // Before anything can end, or its end would go unnoticed.
    let mut ended = signal(SignalKind::child()).map_err(Failure::Setup)?;
    let _ = signals.add(Signal::SIGTSTP);
    terminal::hear_stops();
    let guardian = Guardian::start(plan, liveness, (!notes.are_kept()).then_some(notes.lang()))
        .await
        .map_err(Failure::Setup)?;
    let group = guardian.group();
    let mut terminal = Terminal::open();
    // The guardian's group exists already, so the command finds the terminal lent from its first moment.
    if let Some(terminal) = &mut terminal {
        terminal.lend_for_input(group);
    }
    // We may have been stopped until now.
    let started = if Moment::now() < plan.term_at {
        let child = terminal::as_others(|| command.process_group(group.as_raw()).spawn());
        child.map_err(Failure::Command)
    } else {
        Err(Failure::TooLate)
    };
    let pid = match started {
        Ok(child) => Pid::from_raw(child.id().cast_signed()),
        Err(failure) => {
            take_back(&mut terminal, false);
            guardian.dismiss().await;
            return Err(failure);
        }
    };
    let mut running = Running {
        pid,
        group,
        guardian: Some(guardian),
        enforcer: Enforcer::new(plan),
        asked_to_end: false,
        killed_at: None,
        terminal,
        wants_terminal: false,
        continues: 0,
        continue_at: None,
        notes,
    };
    let tick = (lease / 20).clamp(Duration::from_millis(5), Duration::from_millis(500));
    let mut lost = pin!(hold.lost());
    let mut is_lost = false;
    let end = loop {
        if let Some(end) = running.look() {
            break end;
        }
        let wait = running.enforce().min(tick);
        let continue_at = running.continue_at;
        let until = continue_at.unwrap_or_else(Moment::now).remaining();
        tokio::select! {
            _ = ended.recv() => {}
            signal = signals.next() => running.forward(signal),
            report = report(&mut running.guardian) => running.hear(report),
            () = &mut lost, if !is_lost => {
                is_lost = true;
                running.follow(Plan::at_once(Moment::now(), lease, hold.deadline()));
            }
            () = sleep(until), if continue_at.is_some() => running.continue_group(),
            () = sleep(wait) => {}
        }
        running.lend_terminal();
        if let Some(guardian) = &running.guardian {
            guardian.keep_going();
        }
        if !is_lost {
            running.follow(Plan::between(hold.at_risk_at(), hold.deadline()));
        }
    };
    let too_late = Moment::now() >= running.enforcer.plan().kill_at;
    let by_itself = matches!(end, End::Exited(_));
    take_back(&mut running.terminal, !by_itself);
    if let Some(guardian) = running.guardian.take()
        && guardian.dismiss().await == Some(Report::Term)
    {
        running.asked_to_end = true;
    }
    Ok(Outcome {
        pid,
        end,
        lost: is_lost || running.asked_to_end || too_late,
    })
}

/// What the guardian says next; never, once it is gone.
async fn report(guardian: &mut Option<Guardian>) -> Option<Report> {
    match guardian {
        Some(guardian) => guardian.report().await,
        None => std::future::pending().await,
    }
}

fn take_back(terminal: &mut Option<Terminal>, modes: bool) {
    if let Some(terminal) = terminal {
        terminal.take_back(modes);
    }
}

/// A command that runs.
struct Running<'a> {
    pid: Pid,
    group: Pid,
    /// `None` once it is gone; its duty is ours then.
    guardian: Option<Guardian>,
    enforcer: Enforcer,
    asked_to_end: bool,
    killed_at: Option<Moment>,
    terminal: Option<Terminal>,
    /// It was stopped because it used the terminal from the background.
    wants_terminal: bool,
    /// How many times more to continue what Ctrl-Z has stopped of our own group, as a pager: the shell would wait for us all.
    continues: u32,
    /// When to do so next.
    continue_at: Option<Moment>,
    notes: &'a mut Notes,
}

impl Running<'_> {
    fn follow(&mut self, plan: Plan) {
        if plan != self.enforcer.plan() {
            self.enforcer.follow(plan);
            if let Some(guardian) = &self.guardian {
                guardian.tell(plan);
            }
        }
    }

    /// Does what the plan asks for now, and says how long it may take until it asks again.
    fn enforce(&mut self) -> Duration {
        let now = Moment::now();
        match self.enforcer.due(now) {
            Due::Wait(wait) => wait,
            // The guardian does it; twice could be taken for impatience.
            Due::Term if self.guardian.is_some() => Duration::ZERO,
            Due::Term => {
                self.asked_to_end = true;
                group::term(self.group);
                Duration::ZERO
            }
            // Also beside a guardian, which may itself be stopped. The command's status was not asked for
            // yet, so the group's number is still its own.
            Due::Kill => {
                self.killed_at.get_or_insert(now);
                group::send(self.group, Signal::SIGKILL);
                Duration::MAX
            }
        }
    }

    /// Whether the command has ended. If it was stopped, decides what to do about that.
    fn look(&mut self) -> Option<End> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        loop {
            match waitpid(self.pid, Some(flags)) {
                Ok(WaitStatus::Exited(_, code)) => return Some(End::Exited(code)),
                Ok(WaitStatus::Signaled(_, signal, _)) => return Some(End::Signaled(signal)),
                Ok(WaitStatus::Stopped(_, signal)) => self.stopped(signal),
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return Some(End::Stuck),
                Ok(_) => break,
            }
        }
        let waited = self.killed_at.map(|at| Moment::now().since(at));
        (waited? > KILL_PATIENCE).then_some(End::Stuck)
    }

    fn stopped(&mut self, signal: Signal) {
        match signal {
            // We would have to stop as well to give the shell its prompt, and then nobody renews the lock.
            Signal::SIGTSTP => {
                group::send(self.group, Signal::SIGCONT);
                self.notes.add(&words::CONTINUED);
            }
            Signal::SIGTTIN | Signal::SIGTTOU => {
                self.wants_terminal = true;
                if !self.lend_terminal() {
                    self.notes.add(&words::WAITS_FOR_TERMINAL);
                }
            }
            _ => self.notes.add(&words::STOPPED),
        }
    }

    /// Lends the terminal to a command that waits for it, once we have it: a shell's `fg` gives it to us
    /// without a word.
    fn lend_terminal(&mut self) -> bool {
        if self.wants_terminal && self.terminal.as_mut().is_some_and(|t| t.lend(self.group)) {
            self.wants_terminal = false;
            group::send(self.group, Signal::SIGCONT);
        }
        !self.wants_terminal
    }

    fn continue_group(&mut self) {
        terminal::continue_group();
        self.continues = self.continues.saturating_sub(1);
        self.continue_at = (self.continues > 0).then(|| Moment::now() + CONTINUE_PAUSE);
    }

    fn forward(&mut self, signal: Signal) {
        match signal {
            // For us, after a stop.
            Signal::SIGCONT => {}
            Signal::SIGTSTP => {
                self.notes.add(&words::NOT_STOPPING);
                self.continues = CONTINUES;
                self.continue_at = Some(Moment::now());
            }
            signal => group::send(self.group, signal),
        }
    }

    fn hear(&mut self, report: Option<Report>) {
        match report {
            Some(Report::Term) => {
                self.asked_to_end = true;
                self.notes.add(&words::ASKED_TO_END);
            }
            Some(Report::Ready) => {}
            None => {
                self.guardian = None;
                // Its last act is to kill the group, itself included.
                if Moment::now() < self.enforcer.plan().kill_at {
                    self.notes.warn(&words::GUARDIAN_IS_GONE);
                    // Perhaps it died before it could ask.
                    let plan = self.enforcer.plan();
                    self.enforcer = Enforcer::new(plan);
                }
            }
        }
    }
}
