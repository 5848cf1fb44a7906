//! How a run ended: its exit code, and what is told of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Error, Event, LossCause, Observer, ReleaseOutcome};
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::supervise::{End, Outcome};
use lockkeeper_cli::exit::{self, Failure};
use lockkeeper_cli::lang::Text;
use lockkeeper_cli::notes::Notes;
use lockkeeper_cli::words;

/// What `--json` prints at the end, on standard error: standard output belongs to the command.
#[derive(Default, Serialize)]
pub struct Report<'a> {
    pub name: &'a str,
    /// Without a password.
    pub store: Option<String>,
    #[serde(skip)]
    pub lease: Duration,
    pub outcome: &'static str,
    pub exit_code: u8,
    pub token: Option<u64>,
    pub owner: Option<String>,
    pub waited_ms: Option<u64>,
    pub held_ms: Option<u64>,
    pub command: Option<CommandReport>,
    pub error: Option<String>,
    pub notes: Vec<String>,
}

/// How the command ended; neither when it did not.
#[derive(Serialize)]
pub struct CommandReport {
    pub pid: i32,
    pub exited: Option<i32>,
    pub signal: Option<&'static str>,
}

/// What is the matter with the store.
#[derive(Debug)]
pub struct Trouble {
    /// Why the lock could not be renewed, and since when.
    renewal: Mutex<Option<(Moment, String)>>,
    /// Tells why the lock cannot be granted now.
    waiting: UnboundedSender<String>,
}

impl Trouble {
    /// The second hears why we wait for the store instead of the lock.
    pub fn new() -> (Trouble, UnboundedReceiver<String>) {
        let (waiting, why) = unbounded_channel();
        let renewal = Mutex::default();
        (Trouble { renewal, waiting }, why)
    }

    /// What went wrong with renewals within this time. It is told once for an outage, when that begins.
    pub fn within(&self, time: Duration) -> Option<String> {
        let (since, error) = self.renewal().take()?;
        (Moment::now().since(since) <= time).then_some(error)
    }

    fn renewal(&self) -> MutexGuard<'_, Option<(Moment, String)>> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Trouble {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::RenewalFailed { error, .. } => {
                *self.renewal() = Some((Moment::now(), error.to_string()));
            }
            Event::StoreAway { error, .. } => {
                // Nobody listens any more once we hold.
                let _ = self.waiting.send(error.to_string());
            }
            _ => {}
        }
    }
}

/// Decides how the run ended, once the command has ended and the lock was given back.
pub fn finish(
    name: &str,
    outcome: &Outcome,
    released: Result<ReleaseOutcome, Error>,
    trouble: Option<String>,
    report: &mut Report<'_>,
    notes: &mut Notes,
) -> Result<u8, Failure> {
    let (exited, signal) = match outcome.end {
        End::Exited(code) => (Some(code), None),
        End::Signaled(signal) => (None, Some(signal)),
        End::Stuck => (None, None),
    };
    report.command = Some(CommandReport {
        pid: outcome.pid.as_raw(),
        exited,
        signal: signal.map(|signal| signal.as_str()),
    });
    let cause = match &released {
        Err(Error::Lost { cause, .. }) => Some(cause),
        _ => None,
    };
    if outcome.lost || cause.is_some() {
        report.outcome = "lost";
        let why = match (cause, trouble, &released) {
            (Some(broken @ LossCause::Broken(_)), ..) => Some(words::cause(broken)),
            (_, Some(error), _) => Some(Text::from(error)),
            (Some(cause), None, _) => Some(words::cause(cause)),
            (None, None, Err(error)) => Some(Text::from(error.to_string())),
            (None, None, Ok(_)) => None,
        };
        let is_stuck = matches!(outcome.end, End::Stuck);
        let message = words::lost(name, why.as_ref(), is_stuck);
        return Err(Failure::new(exit::LOST, message));
    }
    if let Err(error) = released {
        let is_known = !matches!(error, Error::OutcomeUnknown { .. });
        notes.warn(&words::not_released(is_known, report.lease, &error));
    }
    report.outcome = "finished";
    Ok(match (exited, signal) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => exit::signaled(signal),
        (None, None) => exit::INTERNAL,
    })
}
