//! Looks at the store while somebody watches.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockkeeper::clock::Moment;
use lockkeeper::store::{Holder, LockInfo, Mode, Process, Waiter};
use lockkeeper::{Error, Label, Lockkeeper, Token};
use serde::Serialize;
use tokio::sync::Notify;

use super::histogram::Histogram;
use super::listeners::{Events, Watchers, message};
use super::seen::Seen;

/// How often it looks, unless looking takes long.
const EVERY: Duration = Duration::from_millis(250);
/// How long it rests after a look, in looks: a big store is not to be kept busy by us.
const REST: u32 = 5;
/// How long until it tries again to reach a store.
const AGAIN: Duration = Duration::from_secs(2);
/// More locks than this are counted, but not sent.
const MOST: usize = 500;
/// Once so many of those who wait are listed, those who wait for further locks are counted only.
const MOST_WAITERS: usize = 500;

/// What browsers are told.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum News<'a> {
    /// The locks, as they are now.
    Locks {
        at_unix_ms: u64,
        /// How often it looks.
        every_ms: u64,
        locks: Vec<LockView<'a>>,
        /// How many there are beside these.
        more: usize,
        held: &'a Histogram,
        waited: &'a Histogram,
    },
    /// The store cannot be looked at.
    Unavailable { message: String },
}

#[derive(Serialize)]
struct LockView<'a> {
    name: &'a str,
    holders: Vec<HolderView<'a>>,
    waiters: usize,
    /// The first of them, in order.
    queue: Vec<WaiterView<'a>>,
}

impl<'a> LockView<'a> {
    fn new(info: &'a LockInfo, wall: SystemTime) -> LockView<'a> {
        let holders = info.holders.iter();
        LockView {
            name: &info.name,
            holders: holders
                .map(|holder| HolderView::new(holder, wall))
                .collect(),
            waiters: info.waiters,
            queue: info
                .queue
                .iter()
                .map(|waiter| WaiterView::new(waiter, wall))
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct HolderView<'a> {
    claim: String,
    program: &'a str,
    /// `None` where it is not known, and so with all that follows.
    pid: Option<u32>,
    host: Option<&'a str>,
    mode: String,
    /// Of a semaphore: how many permits this hold has, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<(u32, u32)>,
    token: Option<u64>,
    label: Option<&'a str>,
    age_ms: Option<u64>,
    /// How long the lease is as a whole.
    ttl_ms: Option<u64>,
    /// `None` also where it has no end.
    remaining_ms: Option<u64>,
    depth: Option<u32>,
}

impl<'a> HolderView<'a> {
    fn new(holder: &'a Holder, wall: SystemTime) -> HolderView<'a> {
        let (mode, permits) = mode(holder.mode);
        HolderView {
            claim: holder.claim.to_string(),
            program: &holder.process.program,
            pid: pid(&holder.process),
            host: host(&holder.process),
            mode,
            permits,
            token: holder.token.map(Token::get),
            label: holder.label.as_ref().map(Label::as_str),
            age_ms: holder.since.map(|since| age(since, wall)),
            ttl_ms: holder.lease.map(millis),
            remaining_ms: holder.remaining.map(millis),
            depth: holder.depth,
        }
    }
}

#[derive(Serialize)]
struct WaiterView<'a> {
    claim: String,
    program: &'a str,
    pid: Option<u32>,
    host: Option<&'a str>,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<(u32, u32)>,
    label: Option<&'a str>,
    /// For how long it has waited, if that is known.
    age_ms: Option<u64>,
}

impl<'a> WaiterView<'a> {
    fn new(waiter: &'a Waiter, wall: SystemTime) -> WaiterView<'a> {
        let (mode, permits) = mode(waiter.mode);
        WaiterView {
            claim: waiter.claim.to_string(),
            program: &waiter.process.program,
            pid: pid(&waiter.process),
            host: host(&waiter.process),
            mode,
            permits,
            label: waiter.label.as_ref().map(Label::as_str),
            age_ms: waiter.since.map(|since| age(since, wall)),
        }
    }
}

fn mode(mode: Mode) -> (String, Option<(u32, u32)>) {
    match mode {
        Mode::Permit { limit, count } => ("permit".to_owned(), Some((count, limit))),
        mode => (mode.to_string(), None),
    }
}

fn pid(process: &Process) -> Option<u32> {
    Some(process.pid).filter(|pid| *pid != 0)
}

fn host(process: &Process) -> Option<&str> {
    Some(process.host.as_str()).filter(|host| !host.is_empty())
}

fn age(since: SystemTime, wall: SystemTime) -> u64 {
    millis(wall.duration_since(since).unwrap_or_default())
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// All locks. A list only counts those who wait, so each lock that somebody waits for is asked for by itself.
async fn listed(keeper: &Lockkeeper) -> Result<Vec<LockInfo>, Error> {
    let mut locks = keeper.list("").await?;
    let mut waiters = 0;
    for lock in locks.iter_mut().take(MOST).filter(|lock| lock.waiters > 0) {
        if waiters >= MOST_WAITERS {
            break;
        }
        // Free by now and unknown, it is shown as it was a moment ago.
        if let Some(now) = keeper.inspect(&lock.name).await? {
            *lock = now;
        }
        waiters += lock.queue.len();
    }
    Ok(locks)
}

/// The locks of a store, as long as somebody watches them.
pub struct Locks {
    url: Option<String>,
    watchers: Mutex<Watchers>,
    /// Somebody has come.
    come: Notify,
    /// Opened when somebody looks.
    keeper: tokio::sync::Mutex<Option<Lockkeeper>>,
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locks").finish_non_exhaustive()
    }
}

impl Locks {
    /// Those of this store, or of the default one.
    pub fn new(url: Option<String>) -> Locks {
        Locks {
            url,
            watchers: Mutex::default(),
            come: Notify::new(),
            keeper: tokio::sync::Mutex::new(None),
        }
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more who watches; `None` if there are too many.
    pub fn listen(&self) -> Option<impl Events + use<>> {
        let events = self.watchers().add();
        self.come.notify_one();
        events
    }

    /// Looks for as long as somebody watches, for ever.
    pub async fn watch(&self) {
        let mut seen = Seen::default();
        loop {
            if !self.watchers().any() {
                seen.rest();
                self.come.notified().await;
            }
            let begun = Instant::now();
            let rest = match self.look().await {
                Ok(locks) => {
                    let rest = EVERY.max(begun.elapsed() * REST);
                    seen.look(&locks, Moment::now(), SystemTime::now());
                    self.tell(&locks, &seen, rest);
                    rest
                }
                Err(error) => {
                    seen.rest();
                    let message = error.to_string();
                    self.tell_news(&News::Unavailable { message });
                    AGAIN
                }
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                // A new watcher does not wait.
                () = self.come.notified() => {}
            }
        }
    }

    async fn look(&self) -> Result<Vec<LockInfo>, Error> {
        let mut keeper = self.keeper.lock().await;
        let open = match keeper.take() {
            Some(open) => open,
            None => match &self.url {
                Some(url) => Lockkeeper::connect(url).await?,
                None => Lockkeeper::builder().connect().await?,
            },
        };
        let locks = listed(&open).await;
        match &locks {
            Ok(_) => *keeper = Some(open),
            // Opened anew the next time: the store may be another by then, as a file that was replaced is.
            Err(_) => open.close().await,
        }
        locks
    }

    fn tell(&self, locks: &[LockInfo], seen: &Seen, every: Duration) {
        let wall = SystemTime::now();
        let shown = locks.iter().take(MOST);
        self.tell_news(&News::Locks {
            at_unix_ms: millis(wall.duration_since(UNIX_EPOCH).unwrap_or_default()),
            every_ms: millis(every),
            locks: shown.map(|info| LockView::new(info, wall)).collect(),
            more: locks.len().saturating_sub(MOST),
            held: &seen.held,
            waited: &seen.waited,
        });
    }

    fn tell_news(&self, news: &News<'_>) {
        self.watchers().tell(message(news));
    }

    /// Tells nobody any more, and closes the store.
    pub async fn close(&self) {
        self.watchers().close();
        if let Some(keeper) = self.keeper.lock().await.take() {
            keeper.close().await;
        }
    }
}
