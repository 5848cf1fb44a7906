//! The bell: how a waiter in another process learns that it holds.
//!
//! While a keeper waits, a second connection holds the lock `lk:<keeper>` of the server's own kind, and sleeps in the server.
//! A releaser commits the grant and then interrupts that sleep: `KILL QUERY IS_USED_LOCK('lk:<keeper>')`. The
//! bell looks for grants before each sleep, so a grant that was committed before the sleep is seen; a kill that is lost costs the rest
//! of one sleep, which is short at first and never as long as a direct grant lasts.
//!
//! The sleep is a wait for `lw:…`, which the connection for verbs holds, where that may last a fraction of a second
//! (MariaDB); elsewhere it is `SLEEP`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::connection::Connection;
use super::engine::Hub;
use super::fault::Fault;
use super::reply::{Reply, Row};
use super::rows::number;
use super::session::{self, Session};
use super::statements::Tested;
use super::text::{self, NOW};
use crate::clock::Moment;
use crate::store::common::{AbortOnDrop, Backoff, HintBoard};
use crate::store::sql::engine::claim_of;
use crate::store::{ClaimId, Grant, Interest, KeeperId, Subscription};
use crate::{Name, Token};

/// How long the bell sleeps, one after the other: a kill that meets the beginning of a sleep may be lost.
const SLEEPS: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_millis(50),
    Duration::from_millis(845),
];
/// How long it sleeps at most while nobody can ring it, or a latch is waited for.
const POLL: Duration = Duration::from_millis(100);
/// How often waiters try by themselves while there is no bell.
const WITHOUT: Duration = Duration::from_millis(200);
/// The bell's connection is closed when nobody has waited for so long.
const LINGER: Duration = Duration::from_secs(60);
/// How long a subscription waits for the bell at most.
const READY_WITHIN: Duration = Duration::from_millis(500);
/// How often it is roused meanwhile.
const ROUSE_EVERY: Duration = Duration::from_millis(20);

/// Wakes the keeper, if it has a bell.
pub(super) fn ring(keeper: KeeperId) -> String {
    format!("KILL QUERY IS_USED_LOCK('{}')", bell_of(keeper))
}

fn bell_of(keeper: KeeperId) -> String {
    format!("lk:{:032x}", keeper.to_bits())
}

/// The claims that wait, and the task that listens for them.
#[derive(Debug)]
pub(super) struct Bell {
    watched: Arc<Watched>,
    runtime: Handle,
    _task: AbortOnDrop,
}

#[derive(Debug)]
struct Watched {
    hub: Weak<Hub>,
    wanted: Mutex<Wanted>,
    /// Something new is waited for.
    changed: Notify,
    /// How often there was something new.
    added: AtomicU64,
    heard: watch::Sender<Heard>,
    /// The session beside the bell, and its server's number of the bell's connection: in a later session it may be that of another.
    rung: Mutex<Option<(Arc<Session>, u64)>>,
}

/// How many subscriptions there are to each.
#[derive(Debug, Default)]
struct Wanted {
    claims: HashMap<(Name, ClaimId), usize>,
    latches: HashMap<Name, usize>,
    /// The latches with a subscription that no look has seen yet.
    new_latches: HashSet<Name>,
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.latches.is_empty()
    }

    fn add(&mut self, interest: &Interest, by: isize) {
        fn count<K: std::hash::Hash + Eq>(map: &mut HashMap<K, usize>, key: K, by: isize) {
            let count = map.get(&key).copied().unwrap_or_default();
            match count.saturating_add_signed(by) {
                0 => drop(map.remove(&key)),
                count => drop(map.insert(key, count)),
            }
        }
        match interest {
            Interest::Claim(name, claim) => count(&mut self.claims, (name.clone(), *claim), by),
            Interest::Latch(name) => {
                count(&mut self.latches, name.clone(), by);
                if by > 0 {
                    self.new_latches.insert(name.clone());
                }
            }
            Interest::Name(_) | Interest::Keeper(_) => {}
        }
    }
}

impl Watched {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rung(&self) -> MutexGuard<'_, Option<(Arc<Session>, u64)>> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell {
    pub fn new(hub: Arc<Hub>, runtime: Handle) -> Bell {
        let watched = Arc::new(Watched {
            hub: Arc::downgrade(&hub),
            wanted: Mutex::default(),
            changed: Notify::new(),
            added: AtomicU64::new(0),
            heard: watch::Sender::new(Heard::default()),
            rung: Mutex::default(),
        });
        let task = runtime.spawn(keep(watched.clone()));
        Bell {
            watched,
            runtime,
            _task: AbortOnDrop::of(&task),
        }
    }

    /// Subscribes, and returns once the bell can be rung, or cannot for now: then waiters try by themselves.
    pub async fn subscribe(&self, interest: Interest) -> Subscription {
        let watched = self.watched.clone();
        let Some(hub) = watched.hub.upgrade() else {
            return HintBoard::default().subscribe(interest);
        };
        watched.wanted().add(&interest, 1);
        watched.added.fetch_add(1, SeqCst);
        let subscription = hub.mailbox.board().subscribe(interest.clone());
        let subscription = subscription.and(Leave(watched.clone(), interest.clone()));
        watched.changed.notify_one();
        let heard = match interest {
            Interest::Claim(_, claim) => watched.heard.borrow().hears(claim.keeper),
            Interest::Latch(_) => {
                if let Some((session, kill)) = watched.rouse() {
                    session.connection.tell(kill);
                }
                true
            }
            Interest::Name(_) | Interest::Keeper(_) => true,
        };
        if let Interest::Claim(_, claim) = interest
            && !heard
        {
            // The caller may run where there are no timers.
            let ready = async move { watched.ready(claim.keeper).await };
            let _ = self.runtime.spawn(ready).await;
        }
        subscription
    }
}

impl Watched {
    /// What ends a sleep of the bell, so that it sees what is new.
    fn rouse(&self) -> Option<(Arc<Session>, String)> {
        let (session, number) = self.rung().clone()?;
        Some((session, format!("KILL QUERY {number}")))
    }

    /// Waits until a keeper can be rung, or it is clear that it cannot.
    async fn ready(&self, keeper: KeeperId) {
        let mut heard = self.heard.subscribe();
        let began = Moment::now();
        while Moment::now().since(began) < READY_WITHIN {
            // A kill that finds the bell between a look and a sleep does nothing. Each is awaited: on a slow way those that were
            // sent after it would interrupt a bell that hears already.
            if let Some((session, kill)) = self.rouse() {
                let _ = session.connection.ask(kill, 1, Duration::ZERO).await;
            }
            let ready = heard.wait_for(|heard| heard.hears(keeper));
            if tokio::time::timeout(ROUSE_EVERY, ready).await.is_ok() {
                return;
            }
        }
    }
}

/// Whom the bell hears.
#[derive(Clone, PartialEq, Debug, Default)]
struct Heard {
    keepers: HashSet<KeeperId>,
    /// There is no bell for now, and nobody is to wait for it.
    absent: bool,
}

impl Heard {
    fn hears(&self, keeper: KeeperId) -> bool {
        self.absent || self.keepers.contains(&keeper)
    }
}

/// Ends what a subscription wanted.
struct Leave(Arc<Watched>, Interest);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.wanted().add(&self.1, -1);
    }
}

/// Opens the bell while somebody waits, and closes it when nobody has for a while.
async fn keep(watched: Arc<Watched>) {
    let mut backoff = Backoff::default();
    loop {
        if watched.wanted().is_empty() {
            watched.changed.notified().await;
            continue;
        }
        let Some(hub) = watched.hub.upgrade() else {
            return;
        };
        let ended = listen(&hub, &watched, &mut backoff).await;
        watched.heard.send_replace(Heard {
            absent: ended.is_err(),
            ..Heard::default()
        });
        *watched.rung() = None;
        if let Err(reason) = ended {
            tracing::debug!(%reason, "there is no bell; waiters try by themselves for now");
            let pause = backoff.pause().max(WITHOUT);
            drop(hub);
            tokio::time::sleep(pause).await;
            if let Some(hub) = watched.hub.upgrade() {
                hub.mailbox.board().everyone();
            }
        }
    }
}

/// Looks and sleeps, until nobody waits any more.
async fn listen(hub: &Arc<Hub>, watched: &Watched, backoff: &mut Backoff) -> Result<(), String> {
    let main = hub.session().map_err(|error| error.to_string())?;
    let opened = Connection::open(&hub.config, &main.connection.address).await;
    let connection = opened.map_err(|error| error.to_string())?;
    let told = |fault: Fault| fault.of_look().to_string();
    session::settle(&connection, main.is_mariadb)
        .await
        .map_err(told)?;
    let same = format!(
        "SELECT {} FROM {}",
        main.tables.fits(Tested::Server),
        main.tables.table("meta")
    );
    let rows = connection.rows(same).await.map_err(told)?;
    if rows.first().and_then(|row| number(row, 0)) != Some(1_u8) {
        return Err("the bell is at another server".into());
    }
    *watched.rung() = Some((main.clone(), connection.number));
    let mut bell = Listening {
        hub,
        watched,
        main,
        connection,
        keepers: HashSet::new(),
        told: HashMap::new(),
        latches: HashMap::new(),
        others: false,
        deaf_for: HashSet::new(),
    };
    backoff.reset();
    let mut wanted_at = Moment::now();
    let mut sleeps = SLEEPS.iter().cycle();
    loop {
        if bell.main.connection.is_ended() {
            return Err("the connection for verbs is lost".into());
        }
        let added = watched.added.load(SeqCst);
        bell.take_locks().await.map_err(told)?;
        match bell.look().await.map_err(told)? {
            Look::Found => sleeps = SLEEPS.iter().cycle(),
            Look::Nothing => {}
            Look::Interrupted => continue,
        }
        if watched.added.load(SeqCst) != added {
            continue;
        }
        match watched.wanted().is_empty() {
            false => wanted_at = Moment::now(),
            true if Moment::now().since(wanted_at) > LINGER => return Ok(()),
            true => {}
        }
        let longest = sleeps.next().copied().unwrap_or(SLEEPS[0]);
        bell.sleep(longest).await.map_err(told)?;
    }
}

/// What a look has shown.
enum Look {
    Found,
    Nothing,
    /// Somebody rang meanwhile.
    Interrupted,
}

/// The bell's connection.
struct Listening<'a> {
    hub: &'a Arc<Hub>,
    watched: &'a Watched,
    /// The session for verbs, which holds what the bell waits for.
    main: Arc<Session>,
    connection: Connection,
    /// Whose bell it is.
    keepers: HashSet<KeeperId>,
    /// Which grants were passed on, by their tokens.
    told: HashMap<ClaimId, u64>,
    /// The version of each latch, as it was last seen.
    latches: HashMap<Name, Option<i64>>,
    /// Whether keepers of other accounts are there, which may not be allowed to ring.
    others: bool,
    /// The keepers that cannot be rung.
    deaf_for: HashSet<KeeperId>,
}

impl Listening<'_> {
    /// Becomes the bell of every keeper that waits.
    async fn take_locks(&mut self) -> Result<(), Fault> {
        let waiting: HashSet<KeeperId> = {
            let wanted = self.watched.wanted();
            wanted
                .claims
                .keys()
                .map(|(_, claim)| claim.keeper)
                .collect()
        };
        for keeper in waiting.union(&self.deaf_for.clone()) {
            if self.keepers.contains(keeper) {
                continue;
            }
            let take = format!("SELECT GET_LOCK('{}',0)", bell_of(*keeper));
            let taken = loop {
                if let Some(rows) = self.uninterrupted(take.clone(), Duration::ZERO).await? {
                    break rows.first().and_then(|row| number::<i64>(row, 0)) == Some(1);
                }
            };
            // An older bell of ours is about to go, or another store serves the same keeper: it polls meanwhile.
            match taken {
                true => drop(self.deaf_for.remove(keeper)),
                false => drop(self.deaf_for.insert(*keeper)),
            }
            if taken {
                self.keepers.insert(*keeper);
            }
        }
        let heard = Heard {
            keepers: self.keepers.union(&self.deaf_for).copied().collect(),
            absent: false,
        };
        self.watched.heard.send_if_modified(|before| {
            let changed = *before != heard;
            *before = heard;
            changed
        });
        Ok(())
    }

    /// Selects. `None` if somebody rang meanwhile.
    async fn uninterrupted(
        &self,
        text: String,
        takes: Duration,
    ) -> Result<Option<Vec<Row>>, Fault> {
        let mut said = self.connection.ask(text, 1, takes).await?;
        match said.pop() {
            Some(Reply::Rows(rows)) => Ok(Some(rows)),
            Some(Reply::Failed(error)) if error.code == 1317 || error.code == 3024 => Ok(None),
            Some(Reply::Failed(error)) => Err(Fault::Server(error)),
            other => Err(Fault::Lost(format!("a SELECT was answered by {other:?}"))),
        }
    }

    /// Looks for grants, and for latches that changed.
    async fn look(&mut self) -> Result<Look, Fault> {
        let (claims, latches): (Vec<_>, Vec<_>) = {
            let mut wanted = self.watched.wanted();
            // A new subscription may have missed a change: a latch that is set and opened again looks as it did before.
            for name in std::mem::take(&mut wanted.new_latches) {
                self.latches.remove(&name);
            }
            (
                wanted.claims.keys().cloned().collect(),
                wanted.latches.keys().cloned().collect(),
            )
        };
        if claims.is_empty() && latches.is_empty() {
            self.told.clear();
            self.latches.clear();
            return Ok(Look::Nothing);
        }
        let (sent, select) = (Moment::now(), self.select(&claims, &latches));
        let Some(rows) = self.uninterrupted(select, Duration::ZERO).await? else {
            return Ok(Look::Interrupted);
        };
        let mut fits = rows.iter().filter(|row| number(row, 0) == Some(0_u8));
        if !fits.any(|row| number(row, 4) == Some(1_u8)) {
            // What it sees may be of another server, or of tables that a dump brought back.
            self.main.connection.retire();
            return Err(Fault::Lost("the server or its tables changed".into()));
        }
        let mut found = false;
        let mut seen: HashMap<Name, Option<i64>> =
            latches.into_iter().map(|name| (name, None)).collect();
        for row in &rows {
            match number::<u8>(row, 0) {
                Some(0) => self.others = number::<i64>(row, 3) == Some(1),
                Some(1) => found |= self.granted(row, &claims, sent).is_some(),
                _ => {
                    let name = row.get(1).and_then(Option::as_deref).and_then(name_of);
                    if let Some(name) = name {
                        seen.insert(name, number(row, 3));
                    }
                }
            }
        }
        for (name, version) in &seen {
            // The first look may come after the change.
            if self.latches.get(name) != Some(version) {
                self.hub.mailbox.board().latch(name);
            }
        }
        self.latches = seen;
        self.told
            .retain(|claim, _| claims.iter().any(|(_, waits)| waits == claim));
        Ok(if found { Look::Found } else { Look::Nothing })
    }

    fn select(&self, claims: &[(Name, ClaimId)], latches: &[Name]) -> String {
        let tables = &self.main.tables;
        let mut select = format!(
            "SELECT 0,NULL,NULL,EXISTS(SELECT 1 FROM {} WHERE account<>CURRENT_USER() AND seen>{NOW}-1200000000),{},NULL FROM {}",
            tables.table("keeper"),
            tables.fits(Tested::All),
            tables.table("meta")
        );
        if !claims.is_empty() {
            let wanted: Vec<String> = claims
                .iter()
                .map(|(name, claim)| {
                    format!(
                        "(name={} AND claim={})",
                        text::name(name),
                        text::claim(*claim)
                    )
                })
                .collect();
            let wanted = wanted.join(" OR ");
            for table in ["lock", "hold"] {
                select += &format!(
                    " UNION ALL SELECT 1,name,claim,first,tokens,GREATEST(expires-{NOW},0) FROM {} WHERE ({wanted}) AND expires>{NOW}",
                    tables.table(table)
                );
            }
        }
        if !latches.is_empty() {
            let names: Vec<String> = latches.iter().map(text::name).collect();
            select += &format!(
                " UNION ALL SELECT 2,name,NULL,version,NULL,NULL FROM {} WHERE name IN ({})",
                tables.table("latch"),
                names.join(",")
            );
        }
        select
    }

    /// Passes a grant on, once.
    fn granted(&mut self, row: &Row, claims: &[(Name, ClaimId)], sent: Moment) -> Option<()> {
        let claim = claim_of(row.get(2)?.as_deref()?)?;
        let (name, _) = claims.iter().find(|(_, waits)| *waits == claim)?;
        let token: u64 = number(row, 3)?;
        if self.told.insert(claim, token) == Some(token) {
            return None;
        }
        let grant = Grant {
            token: Token::new(token),
            tokens: number(row, 4)?,
        };
        let left = Duration::from_micros(number(row, 5)?);
        self.hub.granted(name, claim, grant, (sent, left));
        Some(())
    }

    /// Sleeps in the server until somebody rings, or the time is over.
    async fn sleep(&mut self, longest: Duration) -> Result<(), Fault> {
        let polls =
            self.others || !self.deaf_for.is_empty() || !self.watched.wanted().latches.is_empty();
        let time = if polls { longest.min(POLL) } else { longest };
        let seconds = time.as_secs_f64();
        let text = match self.main.is_mariadb {
            true => format!("SELECT GET_LOCK('{}',{seconds})", self.main.pillow),
            false => format!("SELECT SLEEP({seconds})"),
        };
        let slept = self.uninterrupted(text, time).await?;
        let got = slept
            .as_ref()
            .and_then(|rows| number::<i64>(rows.first()?, 0))
            == Some(1);
        if self.main.is_mariadb && got {
            // The connection for verbs is gone, and with it what the bell waits for.
            return Err(Fault::Lost("the connection for verbs is lost".into()));
        }
        Ok(())
    }
}

fn name_of(bytes: &[u8]) -> Option<Name> {
    Name::new(std::str::from_utf8(bytes).ok()?).ok()
}
