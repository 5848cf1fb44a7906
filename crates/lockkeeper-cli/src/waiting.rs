//! While `run` waits: for its store, for its lock, and what it tells of that.

use std::env;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{LockInfo, NodeState};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Error, Lockkeeper};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

use crate::ending::Trouble;
use crate::run::Args;
use crate::terminal;
use lockkeeper_cli::exit::{Failure, USAGE};
use lockkeeper_cli::lang::Text;
use lockkeeper_cli::nested::{self, OWNER_VARIABLE};
use lockkeeper_cli::notes::Notes;
use lockkeeper_cli::output::plain;
use lockkeeper_cli::{store, words};

/// How long to wait before saying so.
const QUIET: Duration = Duration::from_secs(1);
/// The first and the longest pause between two tries to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Connects to the store. With `--wait` also to one that is not up yet; returns what is left of that time.
pub async fn connect(
    args: &Args,
    url: &StoreUrl,
    trouble: Arc<Trouble>,
    notes: &mut Notes,
) -> Result<(Lockkeeper, Option<Duration>), Error> {
    let connect = || store::builder(url).observer(trouble.clone()).connect();
    let limit = args.limit();
    let mut error = match connect().await {
        Ok(keeper) => return Ok((keeper, limit)),
        Err(error) => error,
    };
    let end = Moment::now() + limit.unwrap_or_default();
    let (mut pause, longest) = PAUSES;
    let mut told = false;
    while error.is_transient() && !end.remaining().is_zero() {
        if !told {
            notes.add(&words::waiting_for_store(&error));
            told = true;
        }
        // Nothing is under way, so Ctrl-Z may stop this process.
        terminal::hear_stops();
        sleep(pause.min(end.remaining())).await;
        terminal::put_stops_off();
        pause = longest.min(pause * 2);
        match timeout(end.remaining(), connect()).await {
            Ok(Ok(keeper)) => return Ok((keeper, Some(end.remaining()))),
            Ok(Err(again)) => error = again,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Tells why nothing happens: a person at a terminal, once, who is in the way; everyone that the store is. Returns only when
/// waiting would have no end.
pub async fn say_why_it_takes_long(
    keeper: &Lockkeeper,
    args: &Args,
    url: &StoreUrl,
    why: &mut UnboundedReceiver<String>,
    notes: &mut Notes,
) -> Failure {
    let mut quiet = Moment::now() + QUIET;
    let mut told = !io::stderr().is_terminal() || notes.are_silent();
    let mut for_itself = args.limit().is_none() && env::var_os(OWNER_VARIABLE).is_some();
    loop {
        tokio::select! {
            Some(why) = why.recv() => {
                notes.add(&words::still_waiting(&args.name, &why));
                // That says it all.
                told = true;
            }
            () = sleep(quiet.remaining()), if !told || for_itself => {
                let in_doubt = for_itself;
                let looked = keeper.inspect(&args.name).await;
                // It is looked again where the store did not answer.
                for_itself &= looked.is_err();
                let info = looked.ok().flatten();
                if in_doubt && info.as_ref().is_some_and(|info| nested::waits_for_itself(info, args.manner())) {
                    return Failure::new(USAGE, words::waits_for_itself(&args.name));
                }
                if !told {
                    notes.add(&who_is_in_the_way(keeper, args, url, info.as_ref()));
                }
                told = true;
                quiet = Moment::now() + QUIET;
            }
            else => std::future::pending().await,
        }
    }
}

fn who_is_in_the_way(
    keeper: &Lockkeeper,
    args: &Args,
    url: &StoreUrl,
    info: Option<&LockInfo>,
) -> Text {
    // The holder could not be asked for then.
    if let Some(obstacle) = keeper.obstacle() {
        return words::waiting_because(&args.name, &obstacle);
    }
    if let Some(held) = info.and_then(words::held) {
        return words::waiting_for_holder(&args.name, &held, &url.to_string());
    }
    // Nobody holds it, but too few nodes of a quorum may be there to say so.
    let nodes = keeper.nodes().into_iter();
    let nodes = nodes.filter(|status| status.state != NodeState::Up);
    let nodes = nodes.map(|status| {
        let state = plain(&status.state.to_string());
        format!("{} {state}", status.node)
    });
    words::waiting_for_nodes(&args.name, &nodes.collect::<Vec<_>>())
}

/// Says that the lock could not be had in time and, if that can be known soon, who holds it.
pub async fn busy(keeper: &Lockkeeper, args: &Args, url: &StoreUrl) -> Text {
    let info = timeout(LOOK_PATIENCE, keeper.inspect(&args.name)).await;
    let info = info.ok().and_then(Result::ok).flatten();
    let held = info.as_ref().and_then(words::held);
    words::busy(&args.name, args.limit(), held.as_ref(), &url.to_string())
}

/// How long it may take to say who has what could not be had.
const LOOK_PATIENCE: Duration = Duration::from_millis(200);
