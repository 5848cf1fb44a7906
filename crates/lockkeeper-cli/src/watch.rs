//! `lockkeeper watch`: what happens to one lock, as it happens.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use lockkeeper::Token;
use lockkeeper::store::{Broken, ClaimId, Holder, LockInfo};
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::output::{ago, human, print, print_json, time_of_day, unix_ms};
use crate::signals::Signals;
use crate::store::{self, StoreArgs};
use crate::view::HolderView;

/// Look at least this often: hints may be lost, and a lease that runs out gives none.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Shows what happens to a lock, as it happens, until Ctrl-C
///
/// Begins with what is. Holds that come and go between two looks are not seen one by one; where that can be
/// told, "missed" says so. "released" means no longer held, whether let go or run out.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The lock
    name: String,
}

/// Something that happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    /// Nobody holds it, as watching begins.
    Free,
    Acquired {
        holder: HolderView<'a>,
    },
    Released {
        holder: HolderView<'a>,
    },
    Broken {
        reason: &'a str,
    },
    Waiting {
        waiters: usize,
    },
    /// At least one hold came and went unseen.
    Missed,
}

#[derive(Serialize)]
struct Line<'a> {
    at_unix_ms: u64,
    name: &'a str,
    #[serde(flatten)]
    event: &'a Event<'a>,
}

/// What was seen at one look.
#[derive(Debug, Default)]
struct Seen {
    holders: BTreeMap<ClaimId, Holder>,
    waiters: usize,
    last_token: Option<Token>,
    broken: Option<Broken>,
}

impl Seen {
    fn new(info: Option<LockInfo>) -> Seen {
        let Some(info) = info else {
            return Seen::default();
        };
        let holders = info.holders.into_iter().map(|h| (h.claim, h)).collect();
        Seen {
            holders,
            waiters: info.waiters,
            last_token: info.last_token,
            broken: info.broken,
        }
    }
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let watching = watch(args, store);
    tokio::select! {
        failure = watching => Err(failure.err().unwrap_or_else(|| {
            Failure::new(exit::INTERNAL, "watching ended by itself")
        })),
        signal = signals.next_fatal() => Ok(exit::signaled(signal)),
    }
}

async fn watch(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    let keeper = store::open(store).await?;
    // Before the first look, or what happens in between is missed.
    let hints = keeper.watch(&args.name).await?;
    let mut before: Option<Seen> = None;
    loop {
        let now = Seen::new(keeper.inspect(&args.name).await?);
        for event in events(before.as_ref(), &now) {
            show(&args.name, &event, store.json)?;
        }
        let lease = now.holders.values().map(|holder| holder.remaining).min();
        let sleep = lease.unwrap_or(LONGEST_SLEEP);
        let sleep = sleep.clamp(Duration::from_millis(10), LONGEST_SLEEP);
        before = Some(now);
        let _ = tokio::time::timeout(sleep, hints.hint()).await;
    }
}

/// What must have happened between two looks.
fn events<'a>(before: Option<&'a Seen>, now: &'a Seen) -> Vec<Event<'a>> {
    let nothing = Seen::default();
    let first = before.is_none();
    let mut events = Vec::new();
    // Reborrowed for 'a: an absent look has no holders to tell of.
    let gone = before.into_iter().flat_map(|before| &before.holders);
    let before = before.unwrap_or(&nothing);
    let broken = now.broken.as_ref().filter(|_| now.broken != before.broken);
    if let (Some(broken), false) = (broken, first) {
        events.push(Event::Broken {
            reason: &broken.reason,
        });
    }
    for (claim, holder) in gone {
        if !now.holders.contains_key(claim) {
            events.push(Event::Released {
                holder: HolderView::new(holder),
            });
        }
    }
    let mut someone_new = false;
    for (claim, holder) in &now.holders {
        if !before.holders.contains_key(claim) {
            someone_new = true;
            events.push(Event::Acquired {
                holder: HolderView::new(holder),
            });
        }
    }
    if first && now.holders.is_empty() {
        events.push(Event::Free);
    }
    // Tokens grow with the clock and so count nothing; but only a grant or a break moves the last one.
    let moved = now.last_token > before.last_token;
    if moved && !first && !someone_new && broken.is_none() {
        events.push(Event::Missed);
    }
    if now.waiters != before.waiters {
        events.push(Event::Waiting {
            waiters: now.waiters,
        });
    }
    events
}

fn show(name: &str, event: &Event<'_>, json: bool) -> Result<(), Failure> {
    let now = SystemTime::now();
    if json {
        return Ok(print_json(&Line {
            at_unix_ms: unix_ms(now),
            name,
            event,
        })?);
    }
    let who = |holder: &HolderView<'_>| {
        let HolderView {
            program, pid, host, ..
        } = holder;
        format!("{program}[{pid}] on {host}")
    };
    let text = match event {
        Event::Free => "free".to_owned(),
        Event::Acquired { holder } => {
            let (mode, token) = (holder.mode, holder.token);
            format!("acquired by {}, {mode}, token {token}", who(holder))
        }
        Event::Released { holder } => {
            let since = SystemTime::UNIX_EPOCH + Duration::from_millis(holder.since_unix_ms);
            format!("released by {} after {}", who(holder), human(ago(since)))
        }
        Event::Broken { reason } => format!("broken: {reason}"),
        Event::Waiting { waiters } => format!("waiting: {waiters}"),
        Event::Missed => "missed: someone held it and let go between two looks".to_owned(),
    };
    Ok(print(&format!("{} {text}", time_of_day(now)))?)
}
