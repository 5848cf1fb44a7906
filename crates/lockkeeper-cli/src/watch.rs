//! `lockkeeper watch`: what happens to one lock, as it happens.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use lockkeeper::store::{Broken, ClaimId, Holder, LockInfo, Waiter};
use lockkeeper::{Lockkeeper, Token};
use serde::Serialize;

use crate::terminal;
use crate::view::{HolderView, WaiterView};
use lockkeeper_cli::exit::{self, Failure};
use lockkeeper_cli::notes;
use lockkeeper_cli::output::{lasted, or_unknown, plain, print, print_json, time_of_day, unix_ms};
use lockkeeper_cli::signals::Signals;
use lockkeeper_cli::store::{self, StoreArgs};

/// Look at least this often: hints may be lost, and a lease that runs out gives none.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Shows what happens to a lock, as it happens, until Ctrl-C
///
/// Begins with what is. Holds that come and go between two looks are not seen one by one; where that can be
/// told, "missed" says so. "released" means no longer held, whether let go or run out. "queued" and "left" tell of those
/// who begin to wait, and of those who no longer wait and do not hold; of the first 100 in the queue. "waiting" counts all.
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
    Queued {
        waiter: WaiterView<'a>,
    },
    /// It no longer waits and does not hold.
    Left {
        waiter: WaiterView<'a>,
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
    /// The first of them, in order.
    queue: Vec<Waiter>,
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
            queue: info.queue,
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
    tokio::select! {
        never = terminal::stop_when_asked(&keeper) => match never {},
        watched = look(&keeper, args, store) => watched,
    }
}

async fn look(keeper: &Lockkeeper, args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    // Before the first look, or what happens in between is missed.
    let hints = keeper.watch(&args.name).await?;
    let mut before: Option<Seen> = None;
    loop {
        let now = match keeper.inspect(&args.name).await {
            Ok(info) => Seen::new(info),
            // A watcher wants to see when it comes back.
            Err(error) if error.is_transient() => {
                notes::write_line(&format!("lockkeeper: {error}; still watching"));
                tokio::time::sleep(LONGEST_SLEEP).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for event in events(before.as_ref(), &now) {
            show(&args.name, &event, store.json)?;
        }
        let leases = now.holders.values().filter_map(|holder| holder.remaining);
        let lease = leases.min();
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
    // Reborrowed for 'a: an absent look has nobody to tell of.
    let gone = before.into_iter().flat_map(|before| &before.holders);
    let waited = before.into_iter().flat_map(|before| &before.queue);
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
    let waits = |seen: &Seen, claim| seen.queue.iter().any(|waiter| waiter.claim == claim);
    for waiter in waited {
        if !waits(now, waiter.claim) && !now.holders.contains_key(&waiter.claim) {
            events.push(Event::Left {
                waiter: WaiterView::new(waiter),
            });
        }
    }
    for waiter in &now.queue {
        if !waits(before, waiter.claim) {
            events.push(Event::Queued {
                waiter: WaiterView::new(waiter),
            });
        }
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
    let text = match event {
        Event::Free => "free".to_owned(),
        Event::Acquired { holder } => {
            let (mode, token) = (&holder.mode, or_unknown(holder.token));
            format!("acquired by {}, {mode}, token {token}", holder.text)
        }
        Event::Released { holder } => {
            let since = holder.since_unix_ms.map(Duration::from_millis);
            let since = since.map(|since| SystemTime::UNIX_EPOCH + since);
            format!("released by {} after {}", holder.text, lasted(since))
        }
        Event::Broken { reason } => format!("broken: {}", plain(reason)),
        Event::Queued { waiter } => format!("queued: {}, {}", waiter.text, waiter.mode),
        Event::Left { waiter } => format!("left the queue: {}", waiter.text),
        Event::Waiting { waiters } => format!("waiting: {waiters}"),
        Event::Missed => "missed: someone held it and let go between two looks".to_owned(),
    };
    Ok(print(&format!("{} {text}", time_of_day(now)))?)
}

#[cfg(test)]
mod tests {
    use lockkeeper::store::{KeeperId, Mode, Process};

    use super::*;

    fn claim(number: u64) -> ClaimId {
        ClaimId {
            keeper: KeeperId::from_bits(7),
            number,
        }
    }

    fn process() -> Process {
        Process::new("host", 1, "program")
    }

    fn seen(holders: &[u64], last_token: u64) -> Seen {
        let holder = |&number: &u64| {
            let claim = claim(number);
            let holder = Holder::new(
                claim,
                process(),
                Mode::Read,
                Token::new(number),
                SystemTime::now(),
                Duration::from_secs(1),
            );
            (claim, holder)
        };
        Seen {
            holders: holders.iter().map(holder).collect(),
            last_token: Some(Token::new(last_token)),
            ..Seen::default()
        }
    }

    fn told(before: Option<&Seen>, now: &Seen) -> String {
        let events = events(before, now);
        let tell = |event: &Event<'_>| match event {
            Event::Free => "free".into(),
            Event::Acquired { holder } => format!("+{}", or_unknown(holder.token)),
            Event::Released { holder } => format!("-{}", or_unknown(holder.token)),
            Event::Broken { reason } => format!("broken {reason}"),
            Event::Queued { waiter } => format!("queued {}", waiter.label.unwrap_or("-")),
            Event::Left { waiter } => format!("left {}", waiter.label.unwrap_or("-")),
            Event::Waiting { waiters } => format!("waiting {waiters}"),
            Event::Missed => "missed".into(),
        };
        events.iter().map(tell).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn events_are_what_differs_between_two_looks() {
        assert_eq!(told(None, &Seen::default()), "free");
        assert_eq!(told(None, &seen(&[4], 4)), "+4");
        let before = seen(&[1, 2], 2);
        assert_eq!(told(Some(&before), &seen(&[1, 2], 2)), "");
        assert_eq!(told(Some(&before), &seen(&[2, 3], 3)), "-1, +3");
        let mut waiting = seen(&[1, 2], 2);
        waiting.waiters = 3;
        assert_eq!(told(Some(&before), &waiting), "waiting 3");
        assert_eq!(told(Some(&waiting), &before), "waiting 0");
    }

    #[test]
    fn those_who_wait_are_told_of_when_they_come_and_when_they_go_without_a_hold() {
        let waiting = |holders: &[u64], queue: &[u64]| Seen {
            waiters: queue.len(),
            queue: queue
                .iter()
                .map(|&number| {
                    Waiter::new(claim(number), process(), Mode::Exclusive)
                        .with_label(lockkeeper::Label::shortened(&format!("order {number}")))
                })
                .collect(),
            ..seen(holders, 9)
        };
        let before = waiting(&[1], &[2, 3]);
        assert_eq!(
            told(None, &before),
            "+1, queued order 2, queued order 3, waiting 2"
        );
        // The second has its turn, the third gives up, a fourth comes.
        let now = waiting(&[2], &[4]);
        assert_eq!(
            told(Some(&before), &now),
            "-1, +2, left order 3, queued order 4, waiting 1"
        );
    }

    #[test]
    fn a_hold_that_came_and_went_is_told_only_where_it_is_certain() {
        assert_eq!(told(Some(&seen(&[], 1)), &seen(&[], 5)), "missed");
        // The new holder explains the new token; whether there was another in between cannot be known.
        assert_eq!(told(Some(&seen(&[], 1)), &seen(&[9], 9)), "+9");
        // A break moves the fence as well.
        let mut broken = seen(&[], 5);
        broken.broken = Some(Broken::new("why", SystemTime::now()));
        assert_eq!(told(Some(&seen(&[1], 1)), &broken), "broken why, -1");
    }
}
