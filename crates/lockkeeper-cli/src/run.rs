//! `lockkeeper run`: takes a lock, runs a command, lets go.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockkeeper::clock::Moment;
use lockkeeper::store::Reach;
use lockkeeper::url::{STORE_VARIABLE, StoreUrl};
use lockkeeper::{Error, Guard, Label, Lockkeeper};
use tokio::time::timeout;

use crate::ending::{Report, Trouble, finish};
use crate::label::{self, LabelArg};
use crate::supervise::{self, Hold, supervise};
use crate::{terminal, waiting};
use lockkeeper_cli::exit::{self, Failure};
use lockkeeper_cli::lang::Text;
use lockkeeper_cli::nested::{self, Manner};
use lockkeeper_cli::notes::{self, Notes};
use lockkeeper_cli::output::{json, millis, unix_ms};
use lockkeeper_cli::signals::Signals;
use lockkeeper_cli::store::{self, StoreArgs};
use lockkeeper_cli::{warnings, words};

/// How long to wait for what is given back to the store when we leave.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Takes a lock, runs a command while holding it, and lets go
///
/// The command finds LOCKKEEPER_NAME, LOCKKEEPER_TOKEN (the fencing token), LOCKKEEPER_OWNER and
/// LOCKKEEPER_DEADLINE_MS (Unix time at which the lock would be lost if it were never renewed) in its
/// environment, and in LOCKKEEPER_STORE the store's URL, unless that holds a password.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIMITS)]
pub struct Args {
    /// For how long the lock outlives a machine that went away, from 100ms to 24h; renewed all the time
    /// [default: 30s, or the longest that the store grants]
    #[arg(long, visible_alias = "ttl", value_name = "DURATION", value_parser = duration)]
    lease: Option<Duration>,
    /// Wait at most this long for the lock, and for a store that is not up yet, such as 500ms, 30s or 1h30m; a plain number is
    /// in seconds [default: for ever, for a store that is up]
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = wait, conflicts_with = "no_wait", allow_hyphen_values = true)]
    wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(short = 'n', long, aliases = ["nonblock", "nb"])]
    no_wait: bool,
    /// Hold the lock together with others that share it
    #[arg(short = 's', long, conflicts_with = "permits")]
    shared: bool,
    /// Hold the lock alone, as without this option
    #[arg(short = 'x', visible_short_alias = 'e', long, conflicts_with_all = ["shared", "permits"])]
    exclusive: bool,
    /// Take one of N permits instead of a lock; all must name the same N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// What others see beside this process, where they look at who holds the lock or waits: up to 256 bytes, nothing for
    /// none [default: the command; on a store that other machines use, the program without its arguments]
    #[arg(long, value_name = "TEXT", value_parser = label::parse)]
    label: Option<LabelArg>,
    /// Give the command, joined by spaces, to a shell; `NAME -c 'LINE'` is understood as well
    #[arg(short = 'c', long)]
    shell: bool,
    /// Say nothing when the lock was not acquired in time, nor of how the store is set up; errors and a lost lock are told
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// Exit with this code when the lock was not acquired in time
    #[arg(short = 'E', long, alias = "conflict-exit-code", value_name = "CODE", default_value_t = exit::BUSY)]
    busy_code: u8,
    /// The lock
    pub name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const LIMITS: &str = "\
Exit codes:
  the command's own; 128+n if signal n ended it
  2    wrong usage
  69   the store is unavailable or cannot be used
  71   the guardian process could not be started
  75   the lock was not acquired in time (see -E)
  76   the lock was lost while the command ran, which was ended, or before it could start
  126  the command could not be run
  127  the command was not found
  129, 130, 131, 143  ended by HUP, INT, QUIT or TERM while waiting

If the lock is being lost, the command and its process group get TERM, then KILL when the lock counts as \
lost, before anyone else can have it. A guardian process sees to that even if lockkeeper itself is killed or \
stopped. Not covered: processes that left the group (setsid) or run as another user, sleep that nothing \
interrupts, and both lockkeeper and its guardian being killed or stopped. Let the resource check LOCKKEEPER_TOKEN where \
that matters.";

fn duration(text: &str) -> Result<Duration, Error> {
    lockkeeper::duration::parse(text)
}

/// For how long to wait: as flock(1) has it, a number without a unit is in seconds.
fn wait(text: &str) -> Result<Duration, Error> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && text.contains(|c: char| c.is_ascii_digit());
    if is_number && let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| {
            Error::invalid_argument("duration", format!("{text} seconds are too many"))
        });
    }
    duration(text)
}

impl Args {
    /// For how long to wait for the lock at most.
    pub fn limit(&self) -> Option<Duration> {
        if self.no_wait {
            Some(Duration::ZERO)
        } else {
            self.wait
        }
    }

    /// How the lock is wanted.
    pub fn manner(&self) -> Manner {
        match (self.permits, self.shared) {
            (Some(permits), _) => Manner::Permit(permits),
            (None, true) => Manner::Shared,
            (None, false) => Manner::Alone,
        }
    }
}

impl Hold for Guard {
    fn at_risk_at(&self) -> Moment {
        Guard::at_risk_at(self)
    }
    fn deadline(&self) -> Moment {
        Guard::deadline(self)
    }
    fn lost(&self) -> impl Future<Output = ()> {
        Guard::lost(self)
    }
}

/// Runs the verb and answers the exit code.
pub async fn run(args: &Args, store: &StoreArgs) -> Result<u8, Failure> {
    let mut report = Report {
        name: &args.name,
        ..Report::default()
    };
    let mut notes = Notes::new(store.json, args.quiet, store.lang());
    match hold_and_run(args, store, &mut report, &mut notes).await {
        Ok(code) => report.exit_code = code,
        Err(failure) => {
            report.exit_code = failure.code;
            if let Some(message) = failure.message {
                notes.conclude(&message);
                report.error = Some(message.en.into_owned());
            }
        }
    }
    if store.json {
        report.notes = warnings::told();
        report.notes.extend(notes.take());
        notes::write_line(&json(&report)?);
    }
    Ok(report.exit_code)
}

async fn hold_and_run(
    args: &Args,
    store: &StoreArgs,
    report: &mut Report<'_>,
    notes: &mut Notes,
) -> Result<u8, Failure> {
    report.outcome = "failed";
    let mut signals = Signals::listen()?;
    let start = Moment::now();
    let (trouble, mut why) = Trouble::new();
    let trouble = Arc::new(trouble);
    let url = store::url(store)?;
    let store_of_command = nested::handed_down(&url)?;
    let (keeper, limit) = tokio::select! {
        connected = waiting::connect(args, &url, trouble.clone(), notes) => connected?,
        signal = signals.next_fatal() => {
            report.outcome = "interrupted";
            return Ok(exit::signaled(signal));
        }
    };
    // Not before it was understood: what is written wrongly may show a password.
    report.store = Some(url.to_string());
    let reach = keeper.capabilities().reach;
    if reach == Reach::Process {
        notes.warn(&words::ONLY_ONE_PROCESS);
    }
    let lease = args.lease.unwrap_or(keeper.lease());
    report.lease = lease;
    let label = label::of_run(args.label.as_ref(), &args.command, args.shell, reach);
    let wanted = Wanted {
        args,
        limit,
        lease,
        label,
    };
    let mut answered = None;
    let acquired = tokio::select! {
        acquired = acquire_or_say_why(&keeper, &wanted, &url, &mut answered) => acquired,
        endless = waiting::say_why_it_takes_long(&keeper, args, &url, &mut why, notes) => {
            close(&keeper).await;
            return Err(endless);
        }
        never = terminal::stop_when_asked(&keeper) => match never {},
        // The dropped future leaves the queue; closing waits for that.
        signal = signals.next_fatal() => {
            report.outcome = "interrupted";
            close(&keeper).await;
            return Ok(exit::signaled(signal));
        }
    };
    let waited = answered.unwrap_or_else(Moment::now).since(start);
    report.waited_ms = Some(millis(waited));
    let guard = match acquired {
        Ok(Ok(guard)) => guard,
        Ok(Err(busy)) => {
            report.outcome = "not acquired";
            close(&keeper).await;
            return Err(Failure {
                code: args.busy_code,
                message: (!args.quiet || store.json).then_some(busy),
            });
        }
        Err(error) => {
            close(&keeper).await;
            return Err(error.into());
        }
    };
    report.token = Some(guard.token().get());
    report.owner = Some(guard.claim().to_string());
    let held = Moment::now();
    let mut command = command(args, &guard, store_of_command);
    let liveness = keeper.liveness();
    let result = supervise(&mut command, &guard, lease, liveness, &mut signals, notes).await;
    // Before the release, which may take longer than a lease while the store is away.
    let trouble = trouble.within(lease);
    let released = guard.release().await;
    report.held_ms = Some(millis(Moment::now().since(held)));
    close(&keeper).await;
    match result {
        Ok(outcome) => {
            // A renewal that is still on its way has not failed yet, and the store may know why.
            let trouble = match trouble {
                None if outcome.lost => obstacle(&keeper),
                trouble => trouble,
            };
            finish(&args.name, &outcome, released, trouble, report, notes)
        }
        Err(failure) => Err(could_not_run(args, failure)),
    }
}

async fn close(keeper: &Lockkeeper) {
    let _ = timeout(CLOSE_PATIENCE, keeper.close()).await;
}

/// The lock, or why it could not be had in time; and when that was known, as asking who has it may take a while.
async fn acquire_or_say_why(
    keeper: &Lockkeeper,
    wanted: &Wanted<'_>,
    url: &StoreUrl,
    answered: &mut Option<Moment>,
) -> Result<Result<Guard, Text>, Error> {
    let acquired = acquire(keeper, wanted).await?;
    *answered = Some(Moment::now());
    Ok(match acquired {
        Some(guard) => Ok(guard),
        None => Err(waiting::busy(keeper, wanted.args, url).await),
    })
}

/// What to hold the lock with.
struct Wanted<'a> {
    args: &'a Args,
    limit: Option<Duration>,
    lease: Duration,
    label: Option<Label>,
}

/// `None` when it could not be had in time.
async fn acquire(keeper: &Lockkeeper, wanted: &Wanted<'_>) -> Result<Option<Guard>, Error> {
    let Wanted { args, label, .. } = wanted;
    let (name, lease, wait) = (&args.name, wanted.lease, wanted.limit);
    if let Some(permits) = args.permits {
        let mut semaphore = keeper.semaphore(name, permits)?.with_lease(lease)?;
        if let Some(label) = label {
            semaphore = semaphore.label(label.as_str())?;
        }
        return match wait {
            None => semaphore.acquire(1).await.map(Some),
            Some(Duration::ZERO) => semaphore.try_acquire(1).await,
            Some(wait) => semaphore.acquire_within(1, wait).await,
        };
    }
    if args.shared {
        let mut lock = keeper.rwlock(name)?.with_lease(lease)?;
        if let Some(label) = label {
            lock = lock.label(label.as_str())?;
        }
        return match wait {
            None => lock.read().await.map(|guard| Some(guard.into())),
            Some(Duration::ZERO) => Ok(lock.try_read().await?.map(Guard::from)),
            Some(wait) => Ok(lock.read_within(wait).await?.map(Guard::from)),
        };
    }
    let mut lock = keeper.lock(name)?.with_lease(lease)?;
    if let Some(label) = label {
        lock = lock.label(label.as_str())?;
    }
    let guard = match wait {
        None => Some(lock.acquire().await?),
        Some(Duration::ZERO) => lock.try_acquire().await?,
        Some(wait) => lock.acquire_within(wait).await?,
    };
    // The releaser may have granted it for a moment only. The command begins with the whole lease, or at least
    // not before the first renewal was tried.
    if let Some(guard) = &guard
        && !guard.is_held_for(lease / 2)
    {
        let _ = guard.extend(lease).await;
    }
    Ok(guard)
}

/// What keeps the store from answering, as an error tells it.
fn obstacle(keeper: &Lockkeeper) -> Option<String> {
    let store = keeper.capabilities().store;
    let reason = keeper.obstacle()?;
    Some(Error::unavailable(store, reason).to_string())
}

/// The command to run, with what it may know about the lock.
fn command(args: &Args, guard: &Guard, store: Option<String>) -> Command {
    let mut command = if args.shell {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(args.command.join(OsStr::new(" ")));
        shell
    } else {
        let mut command = Command::new(&args.command[0]);
        command.args(&args.command[1..]);
        command
    };
    let deadline = SystemTime::now() + guard.deadline().remaining();
    command
        .env(nested::NAME_VARIABLE, &args.name)
        .env("LOCKKEEPER_TOKEN", guard.token().get().to_string())
        .env(nested::OWNER_VARIABLE, guard.claim().to_string())
        .env("LOCKKEEPER_DEADLINE_MS", unix_ms(deadline).to_string())
        .env_remove(STORE_VARIABLE)
        .envs(store.map(|url| (STORE_VARIABLE, url)));
    command
}

fn could_not_run(args: &Args, failure: supervise::Failure) -> Failure {
    match failure {
        supervise::Failure::Setup(error) => {
            Failure::new(exit::INTERNAL, words::no_guardian(&error))
        }
        supervise::Failure::TooLate => Failure::new(exit::LOST, words::LOST_BEFORE_THE_START),
        supervise::Failure::Command(error) => {
            let code = match error.kind() {
                io::ErrorKind::NotFound => exit::NOT_FOUND,
                _ => exit::CANNOT_RUN,
            };
            let program = if args.shell {
                "sh"
            } else {
                &args.command[0].to_string_lossy()
            };
            let one_word = args.command.len() == 1 && program.contains(char::is_whitespace);
            let is_shell = code == exit::NOT_FOUND && one_word && !args.shell;
            Failure::new(code, words::cannot_run(program, &error, is_shell))
        }
    }
}
