//! The connection for verbs, kept alive, and what is asked on it.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use uuid::Uuid;

use super::config::{Config, KIND};
use super::fault::{self, Fault as Trouble};
use super::reply::{Reply as Said, ServerError};
use super::rows::number;
use super::session::{self, Session};
use super::statements::{self, Tested};
use super::wake::{Bell, ring};
use crate::clock::{Clock, Moment};
use crate::store::common::{AbortOnDrop, ServerClock, StoreKind, Supervised, supervise};
use crate::store::sql::engine::{Engine, Fault, Op, Reply, Save, Wake, micros};
use crate::store::sql::wake::Mailbox;
use crate::store::{
    Answer, BoxFuture, Capabilities, ClaimId, DirectGrant, Grant, Health, Interest, KeeperId,
    Subscription,
};
use crate::{Error, Name};

/// How often the server is asked for its time, and whether a hold was broken, while it is asked for nothing else.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same, once it was asked for nothing else for a minute.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(15);
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// From when on a server is slow to commit.
const SLOW: Duration = Duration::from_millis(250);
/// By how many commits a grant to a waiter lasts longer then: its own, that of the waiter's last sign of life, which may be on its way, and
/// one that either has to wait for.
const COMMITS_OF_A_GRANT: u32 = 3;

/// A server, connected.
pub(super) struct MySql {
    hub: Arc<Hub>,
    bell: Bell,
    _supervisor: AbortOnDrop,
}

/// What the connections of a store have in common.
#[derive(Debug)]
pub(super) struct Hub {
    pub config: Config,
    pub clock: ServerClock,
    pub mailbox: Mailbox,
    /// The session in use, or why there is none.
    state: Mutex<Result<Arc<Session>, Error>>,
    ready_at: AtomicU64,
    /// How many holds were broken, as it was last seen.
    breaks: AtomicI64,
    /// When a verb was last asked for.
    used: AtomicU64,
    commits: Mutex<Commits>,
    id: Uuid,
}

/// How long the last transactions took that changed something.
#[derive(Debug, Default)]
struct Commits([Duration; 3]);

impl Commits {
    fn took(&mut self, time: Duration) {
        self.0.rotate_left(1);
        self.0[2] = time;
    }

    /// How long all of them took at least, if that is long. A busy machine makes one of them slow; a slow disk, all.
    fn slowness(&self) -> Duration {
        let least = self.0.into_iter().min().unwrap_or_default();
        if least < SLOW { Duration::ZERO } else { least }
    }
}

impl Hub {
    /// The session in use.
    pub fn session(&self) -> Result<Arc<Session>, Error> {
        let session = self.state().clone()?;
        match session.connection.is_ended() {
            true => Err(KIND.unavailable("the connection is lost; it is made again")),
            false => Ok(session),
        }
    }

    fn commits(&self) -> MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, Result<Arc<Session>, Error>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self, number: u64) -> Result<Arc<Session>, Error> {
        // A name of its own each time: the server may not have noticed yet that the last connection is gone.
        let pillow = format!("lw:{}:{number}", self.id.simple());
        let session = session::open(&self.config, &self.clock, &pillow, number > 1).await?;
        Ok(Arc::new(session))
    }

    fn take_up(&self, session: Arc<Session>) {
        self.ready_at.store(session.ready_at, SeqCst);
        *self.state() = Ok(session);
    }

    /// Reads what [`Tables::look`](statements::Tables::look) selects. Returns the server's time, and whether the session still
    /// knows the server right: if not, the session ends. So it does without a row or a table to look at, which a new one makes.
    fn saw(&self, session: &Session, said: &Said, sent: Moment) -> Option<(u64, bool)> {
        let row = match said {
            Said::Rows(rows) => rows.first(),
            Said::Failed(error) if Trouble::Server(error.clone()).may_pass() => return None,
            _ => None,
        };
        let fits = row.is_some_and(|row| number::<u8>(row, 3) == Some(1));
        if !fits {
            session.connection.retire();
        }
        let row = row?;
        let (time, breaks) = (number(row, 0)?, number::<i64>(row, 1)?);
        self.clock.saw(time, sent, Moment::now());
        self.ready_at.store(number(row, 2)?, SeqCst);
        let before = self.breaks.swap(breaks, SeqCst);
        if before != breaks && before >= 0 {
            self.mailbox.board().keepers();
        }
        Some((time, fits))
    }

    /// Hands a grant to a claim that waits. The server was asked at `sent`, and had that much left of the hold.
    ///
    /// The lease counts from the claim's own last request, as ever, but is no longer than what is left: that request may have come
    /// between the load and the save that granted, and the hold began with the load.
    pub fn granted(
        &self,
        name: &Name,
        claim: ClaimId,
        grant: Grant,
        (sent, left): (Moment, Duration),
    ) {
        // A hold that may be over before it is confirmed is none yet: the claim asks.
        let is_enough = left >= 2 * self.commits().slowness();
        match self.mailbox.asked_at(claim) {
            Some(asked) if is_enough => {
                let granted = DirectGrant {
                    grant,
                    sent: asked,
                    lease: (sent + left).since(asked),
                };
                self.mailbox.board().granted(name, claim, granted);
            }
            _ => self.mailbox.board().claim(name, claim),
        }
    }
}

impl MySql {
    pub async fn connect(config: Config) -> Result<MySql, Error> {
        let hub = Arc::new(Hub {
            config,
            clock: ServerClock::default(),
            mailbox: Mailbox::default(),
            state: Mutex::new(Err(Error::Closed)),
            ready_at: AtomicU64::new(0),
            breaks: AtomicI64::new(-1),
            used: AtomicU64::new(0),
            commits: Mutex::default(),
            id: Uuid::new_v4(),
        });
        let first = hub.open(1).await?;
        hub.take_up(first.clone());
        let kept = Kept(hub.clone());
        let task = tokio::spawn(async move {
            supervise(kept, Some(first), &Clock::real()).await;
        });
        Ok(MySql {
            bell: Bell::new(hub.clone(), Handle::current()),
            hub,
            _supervisor: AbortOnDrop::of(&task),
        })
    }

    /// Does these steps in one transaction. `now`: without waiting for the row of the first.
    async fn transact(&self, ops: &[Op], now: bool) -> Result<Vec<Reply>, Fault> {
        let session = self.hub.session().map_err(Fault::Failed)?;
        self.hub.used.store(Moment::now().as_nanos(), SeqCst);
        let tables = &session.tables;
        let waits = |claim| self.hub.mailbox.waits(claim);
        let steps = ops.iter().map(|op| tables.statements(op, waits));
        let steps: Vec<Vec<String>> = steps.collect();
        let first = ops.first().filter(|_| now);
        let lock_now = first.and_then(|op| tables.lock_now(op));
        let changes = ops.iter().any(|op| op.is_durable().is_some());
        let several = steps.iter().map(Vec::len).sum::<usize>() > 1;
        let whole = changes && (several || lock_now.is_some());
        let mut batch = Vec::with_capacity(ops.len() + 4);
        if whole {
            batch.push("BEGIN".to_owned());
        }
        batch.extend(lock_now);
        let before = batch.len();
        batch.extend(steps.iter().flatten().cloned());
        if whole {
            batch.push("COMMIT".into());
        }
        // Up to here an error undoes all, or leaves the commit in doubt. What follows is no part of it.
        let work = batch.len();
        let tested = ops.iter().map(Tested::of).max();
        batch.push(tables.look(tested.unwrap_or(Tested::Server)));
        let remote = self.remote(ops);
        // The last, since an error of it ends the text.
        batch.extend(remote.first().map(|keeper| ring(*keeper)));
        let sent = Moment::now();
        let (text, statements) = (batch.join(";"), batch.len());
        let transaction = if whole { work } else { 0 };
        let said = session.connection.transact(text, statements, transaction);
        let said = said.await;
        if changes {
            self.hub.commits().took(Moment::now().since(sent));
        }
        let said = said.map_err(|trouble| match trouble {
            Trouble::Lost(reason) => Fault::Unknown(reason),
            other => Fault::Failed(other.of_change()),
        })?;
        if let Some(Said::Failed(error)) = said.last()
            && said.len() <= work
        {
            let in_commit = match whole {
                true => said.len() == work,
                false => changes && fault::is_of_commit(error),
            };
            // Of several steps each is tried alone, and the one that fails again says which table is missing.
            let needs_it = matches!(ops, [op] if op.is_of_locks());
            if error.code == fault::NO_TABLE && needs_it {
                session.connection.retire();
                // The next session makes it, or is refused.
                let reason = format!("{}; it is looked for again", error.message);
                return Err(Fault::Failed(KIND.unavailable(reason)));
            }
            return Err(undone(error, in_commit, ops.len() > 1));
        }
        for keeper in remote.iter().skip(1) {
            session.connection.tell(ring(*keeper));
        }
        let odd = || Fault::Unknown("the answers do not fit the requests".into());
        let look = said.get(work);
        let seen = look.and_then(|look| self.hub.saw(&session, look, sent));
        let mut at = before;
        let mut replies = Vec::with_capacity(ops.len());
        for (op, step) in ops.iter().zip(&steps) {
            let of_step = said.get(at..at + step.len()).ok_or_else(odd)?;
            at += step.len();
            let reply = statements::read(op, of_step).ok_or_else(odd)?;
            replies.push(reply);
        }
        if !matches!(seen, Some((_, true)))
            && ops.iter().zip(&replies).any(|(op, did)| must_last(op, did))
        {
            // The commit may not be on disk, on a server that grants no more, or in tables that a dump brought back.
            let changed = "the server's role, settings or tables changed meanwhile";
            return Err(Fault::Unknown(changed.into()));
        }
        let now = seen.map(|(now, _)| now);
        self.hint(ops, &replies, (sent, now));
        Ok(replies)
    }

    /// Whether a claim stood behind the head of a queue, and no longer does.
    async fn leave_queue(&self, name: &Name, claim: ClaimId) -> bool {
        let Ok(session) = self.hub.session() else {
            return false;
        };
        let text = session.tables.leave(name, claim);
        let all = text.len();
        let said = session.connection.transact(text.join(";"), all, all);
        matches!(
            said.await.as_deref(),
            Ok([.., Said::Done { rows: 1, .. }, Said::Done { .. }])
        )
    }

    /// The keepers of other processes that are to be woken.
    fn remote(&self, ops: &[Op]) -> Vec<KeeperId> {
        let mut keepers = Vec::new();
        for op in ops {
            let Op::Save(save) = op else { continue };
            for wake in &save.wake {
                match wake {
                    Wake::Granted { claim, .. } if !self.hub.mailbox.waits(*claim) => {
                        keepers.push(claim.keeper);
                    }
                    Wake::Granted { .. } => {}
                    Wake::Broken(keeper) => keepers.push(*keeper),
                }
            }
        }
        keepers.sort_unstable();
        keepers.dedup();
        keepers
    }

    /// Hints those of this process. `now` is the server's time in the answer to what was sent then.
    fn hint(&self, ops: &[Op], replies: &[Reply], (sent, now): (Moment, Option<u64>)) {
        let board = self.hub.mailbox.board();
        for (op, reply) in ops.iter().zip(replies) {
            match (op, reply) {
                (Op::Save(save), Reply::Done) => {
                    for wake in &save.wake {
                        match wake {
                            Wake::Granted { claim, grant, .. } => {
                                match now.and_then(|now| left(save, *claim, now)) {
                                    Some(left) => {
                                        let left = (sent, left);
                                        self.hub.granted(&save.name, *claim, *grant, left);
                                    }
                                    None => board.claim(&save.name, *claim),
                                }
                            }
                            Wake::Broken(keeper) => board.keeper(*keeper),
                        }
                    }
                }
                (Op::SaveLatch { name, .. }, Reply::Done) => board.latch(name),
                _ => {}
            }
        }
    }
}

/// What an error of a transaction means, which is rolled back.
fn undone(error: &ServerError, in_commit: bool, several: bool) -> Fault {
    let trouble = Trouble::Server(error.clone());
    if in_commit && !trouble.may_pass() {
        return Fault::Unknown(error.message.clone());
    }
    let passes = trouble.may_pass() || (several && !fault::ends_connection(error));
    let error = fault::explain(error);
    if passes {
        Fault::Undone(error)
    } else {
        Fault::Failed(error)
    }
}

/// Whether a step has given or prolonged what nobody may forget.
fn must_last(op: &Op, reply: &Reply) -> bool {
    match reply {
        Reply::Granted(_) => true,
        Reply::Done => {
            let grants = matches!(op, Op::Save(save) if save.grants);
            grants || op.is_durable() == Some(true)
        }
        _ => false,
    }
}

/// What is left of the lease of a hold that was saved.
fn left(save: &Save, claim: ClaimId, now: u64) -> Option<Duration> {
    let mut holds = save.exclusive.iter().chain(&save.holds);
    let hold = holds.find(|hold| hold.claim == claim)?;
    Some(Duration::from_micros(
        micros(hold.expires).saturating_sub(now),
    ))
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySql")
            .field("place", &self.hub.config.place())
            .finish_non_exhaustive()
    }
}

impl Engine for MySql {
    fn run<'a>(&'a self, ops: &'a [Op], _: bool) -> BoxFuture<'a, Result<Vec<Reply>, Fault>> {
        Box::pin(self.transact(ops, false))
    }
    fn run_now<'a>(&'a self, op: &'a Op) -> BoxFuture<'a, Result<Vec<Reply>, Fault>> {
        // Where commits are slow they keep rows, one after the other: who does not wait never gets one.
        let now = self.hub.commits().slowness().is_zero();
        Box::pin(self.transact(std::slice::from_ref(op), now))
    }
    fn chooses_durability(&self) -> bool {
        false
    }
    fn slowness(&self) -> Duration {
        self.hub.commits().slowness() * COMMITS_OF_A_GRANT
    }
    fn leave<'a>(&'a self, name: &'a Name, claim: ClaimId) -> BoxFuture<'a, bool> {
        Box::pin(self.leave_queue(name, claim))
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(async move { Ok(self.bell.subscribe(interest).await) })
    }
    fn mailbox(&self) -> &Mailbox {
        &self.hub.mailbox
    }
    fn clock(&self) -> &ServerClock {
        &self.hub.clock
    }
    fn capabilities(&self) -> Capabilities {
        super::capabilities(self.hub.config.longest_lease)
    }
    fn place(&self) -> String {
        self.hub.config.place()
    }
    fn health(&self) -> Health {
        let now = self.hub.clock.at(Moment::now());
        let wait = self.hub.ready_at.load(SeqCst).saturating_sub(now);
        Health {
            ready_in: Duration::from_micros(wait),
            ..Health::default()
        }
    }
    fn kind(&self) -> &'static StoreKind {
        &KIND
    }
}

/// Keeps the connection for verbs alive.
struct Kept(Arc<Hub>);

impl Supervised for Kept {
    type Connection = Arc<Session>;

    async fn connect(&self, number: u64) -> Result<Arc<Session>, Error> {
        let session = self.0.open(number).await?;
        self.0.take_up(session.clone());
        // What happened meanwhile was told to nobody.
        self.0.mailbox.board().everyone();
        Ok(session)
    }

    async fn serve(&mut self, session: &Arc<Session>) -> String {
        let connection = &session.connection;
        loop {
            let used = Moment::from_nanos(self.0.used.load(SeqCst));
            let pause = match Moment::now().since(used) > IDLE_AFTER {
                true => IDLE_LOOK_EVERY,
                false => LOOK_EVERY,
            };
            tokio::select! {
                reason = connection.ended() => return reason,
                () = tokio::time::sleep(pause) => {}
            }
            let sent = Moment::now();
            let look = session.tables.look(Tested::All);
            if let Ok(said) = connection.ask(look, 1, Duration::ZERO).await
                && let [said] = said.as_slice()
            {
                let _ = self.0.saw(session, said, sent);
            }
        }
    }

    fn ended(&mut self, session: Arc<Session>, reason: &str) {
        let server = session.connection.address.clone();
        drop(session);
        *self.0.state() =
            Err(KIND.unavailable(format!("the connection to {server} is lost: {reason}")));
        self.0.mailbox.board().everyone();
    }

    fn failed(&mut self, error: &Error) {
        *self.0.state() = Err(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_slow_if_all_of_its_last_commits_were() {
        let mut commits = Commits::default();
        let (slow, quick) = (2 * SLOW, SLOW / 4);
        for (time, expected) in [
            (slow, Duration::ZERO),
            (slow, Duration::ZERO),
            (slow, slow),
            (3 * slow, slow),
            (quick, Duration::ZERO),
        ] {
            commits.took(time);
            assert_eq!(commits.slowness(), expected);
        }
    }
}
