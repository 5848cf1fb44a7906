//! `lockkeeper run`: takes a lock, runs a command, lets go.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockkeeper::clock::Moment;
use lockkeeper::store::{NodeState, Reach};
use lockkeeper::{Error, Guard, Label, Lockkeeper};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::ending::{Report, Trouble, finish};
use crate::label::{self, LabelArg};
use crate::supervise::{self, Hold, supervise};
use crate::terminal;
use lockkeeper_cli::exit::{self, Failure};
use lockkeeper_cli::notes::{self, Notes};
use lockkeeper_cli::output::{ago, human, json, millis, plain, unix_ms, who};
use lockkeeper_cli::signals::Signals;
use lockkeeper_cli::store::{self, StoreArgs};
use lockkeeper_cli::warnings;

/// How long to wait for what is given back to the store when we leave.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// How long it may take to say who has what could not be had.
const LOOK_PATIENCE: Duration = Duration::from_millis(200);
/// How long to wait before saying so.
const QUIET: Duration = Duration::from_secs(1);

/// Takes a lock, runs a command while holding it, and lets go
///
/// The command finds LOCKKEEPER_NAME, LOCKKEEPER_TOKEN (the fencing token), LOCKKEEPER_OWNER and
/// LOCKKEEPER_DEADLINE_MS (Unix time at which the lock would be lost if it were never renewed) in its
/// environment, and not the store's URL.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIMITS)]
pub struct Args {
    /// For how long the lock outlives a machine that went away, from 100ms to 24h; renewed all the time
    /// [default: 30s, or the longest that the store grants]
    #[arg(long, visible_alias = "ttl", value_name = "DURATION", value_parser = duration)]
    lease: Option<Duration>,
    /// Wait for the lock at most this long, such as 500ms, 30s or 1h30m [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait", allow_hyphen_values = true)]
    wait: Option<Duration>,
    /// Do not wait for the lock
    #[arg(long)]
    no_wait: bool,
    /// Hold the lock together with others that share it
    #[arg(long, conflicts_with = "permits")]
    shared: bool,
    /// Take one of N permits instead of a lock; all must name the same N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// What others see beside this process, where they look at who holds the lock or waits: up to 256 bytes, nothing for
    /// none [default: the command; on a store that other machines use, the program without its arguments]
    #[arg(long, value_name = "TEXT", value_parser = label::parse)]
    label: Option<LabelArg>,
    /// Give the command, joined by spaces, to a shell
    #[arg(short = 'c', long)]
    shell: bool,
    /// Exit with this code when the lock was not acquired in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::BUSY)]
    busy_code: u8,
    /// The lock
    name: String,
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

/// `held by … for …`, if that can be known.
async fn who_holds(keeper: &Lockkeeper, args: &Args) -> Option<String> {
    let info = keeper.inspect(&args.name).await.ok().flatten()?;
    let holder = info.holders.first()?;
    let others = match info.holders.len() - 1 {
        0 => String::new(),
        others => format!(", and by {others} more"),
    };
    Some(format!(
        "held by {} for {}{others}",
        who(&holder.process, holder.label.as_ref()),
        human(ago(holder.since)),
    ))
}

/// Tells why nothing happens: a person at a terminal, once, who is in the way; everyone that the store is.
async fn say_why_it_takes_long(
    keeper: &Lockkeeper,
    args: &Args,
    why: &mut UnboundedReceiver<String>,
    notes: &mut Notes,
) -> Infallible {
    let quiet = Moment::now() + QUIET;
    let mut watched = io::stderr().is_terminal() && !notes.are_kept();
    loop {
        tokio::select! {
            Some(why) = why.recv() => {
                notes.add(&format!("still waiting for {}: {why}", plain(&args.name)));
                // That says it all.
                watched = false;
            }
            () = tokio::time::sleep(quiet.remaining()), if watched => {
                notes.add(&who_is_in_the_way(keeper, args).await);
                watched = false;
            }
            else => std::future::pending().await,
        }
    }
}

async fn who_is_in_the_way(keeper: &Lockkeeper, args: &Args) -> String {
    let mut text = format!("waiting for {}", plain(&args.name));
    // The holder could not be asked for then.
    if let Some(obstacle) = keeper.obstacle() {
        return format!("{text}: {obstacle}");
    }
    if let Some(held) = who_holds(keeper, args).await {
        return format!("{text}, {held}");
    }
    // Nobody holds it, but too few nodes of a quorum may be there to say so.
    for status in keeper.nodes() {
        if status.state != NodeState::Up {
            let state = plain(&status.state.to_string());
            text += &format!("; {} {state}", status.node);
        }
    }
    text
}

/// Runs the verb and answers the exit code.
pub async fn run(args: &Args, store: &StoreArgs) -> Result<u8, Failure> {
    let mut report = Report {
        name: &args.name,
        ..Report::default()
    };
    let mut notes = Notes::new(store.json);
    match hold_and_run(args, store, &mut report, &mut notes).await {
        Ok(code) => report.exit_code = code,
        Err(failure) => {
            report.exit_code = failure.code;
            if let Some(message) = failure.message {
                notes.conclude(&message);
                report.error = Some(message);
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
    let keeper = tokio::select! {
        keeper = store::builder(store)?.observer(trouble.clone()).connect() => keeper?,
        signal = signals.next_fatal() => {
            report.outcome = "interrupted";
            return Ok(exit::signaled(signal));
        }
    };
    let reach = keeper.capabilities().reach;
    if reach == Reach::Process {
        notes.add("this store's locks hold within one process only: nobody else is kept out");
    }
    let lease = args.lease.unwrap_or(keeper.lease());
    report.lease = lease;
    let label = label::of_run(args.label.as_ref(), &args.command, args.shell, reach);
    let wanted = Wanted { args, lease, label };
    let mut answered = None;
    let acquired = tokio::select! {
        acquired = acquire_or_say_why(&keeper, &wanted, &mut answered) => acquired,
        never = say_why_it_takes_long(&keeper, args, &mut why, notes) => match never {},
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
            return Err(Failure::new(args.busy_code, busy));
        }
        Err(error) => {
            close(&keeper).await;
            return Err(error.into());
        }
    };
    report.token = Some(guard.token().get());
    report.owner = Some(guard.claim().to_string());
    let held = Moment::now();
    let mut command = command(args, &guard);
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
    answered: &mut Option<Moment>,
) -> Result<Result<Guard, String>, Error> {
    let args = wanted.args;
    let acquired = acquire(keeper, wanted).await?;
    *answered = Some(Moment::now());
    Ok(match acquired {
        Some(guard) => Ok(guard),
        None => {
            let held = timeout(LOOK_PATIENCE, who_holds(keeper, args)).await;
            Err(busy(args, held.ok().flatten()))
        }
    })
}

/// What to hold the lock with.
struct Wanted<'a> {
    args: &'a Args,
    lease: Duration,
    label: Option<Label>,
}

/// `None` when it could not be had in time.
async fn acquire(keeper: &Lockkeeper, wanted: &Wanted<'_>) -> Result<Option<Guard>, Error> {
    let Wanted { args, lease, label } = wanted;
    let (name, lease) = (&args.name, *lease);
    let wait = if args.no_wait {
        Some(Duration::ZERO)
    } else {
        args.wait
    };
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

fn busy(args: &Args, held: Option<String>) -> String {
    let name = &args.name;
    let mut text = match args.wait {
        Some(wait) => format!("the lock {name:?} was not free within {}", human(wait)),
        None => format!("the lock {name:?} is not free"),
    };
    if let Some(held) = held {
        text += &format!("; it is {held}");
    }
    text
}

/// What keeps the store from answering, as an error tells it.
fn obstacle(keeper: &Lockkeeper) -> Option<String> {
    let store = keeper.capabilities().store;
    let reason = keeper.obstacle()?;
    Some(Error::unavailable(store, reason).to_string())
}

/// The command to run, with what it may know about the lock.
fn command(args: &Args, guard: &Guard) -> Command {
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
        .env("LOCKKEEPER_NAME", &args.name)
        .env("LOCKKEEPER_TOKEN", guard.token().get().to_string())
        .env("LOCKKEEPER_OWNER", guard.claim().to_string())
        .env("LOCKKEEPER_DEADLINE_MS", unix_ms(deadline).to_string())
        .env_remove(lockkeeper::url::STORE_VARIABLE);
    command
}

fn could_not_run(args: &Args, failure: supervise::Failure) -> Failure {
    match failure {
        supervise::Failure::Setup(error) => {
            let message = format!("the guardian could not be started: {error}");
            Failure::new(exit::INTERNAL, message)
        }
        supervise::Failure::TooLate => {
            let message = "the lock was lost before the command could be started";
            Failure::new(exit::LOST, message)
        }
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
            let mut text = format!("cannot run {program:?}: {error}");
            let one_word = args.command.len() == 1 && program.contains(char::is_whitespace);
            if code == exit::NOT_FOUND && one_word && !args.shell {
                text += "; for a line of shell, write --shell before the --";
            }
            Failure::new(code, text)
        }
    }
}
