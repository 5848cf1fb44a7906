//! The express lane: a second connection to the same server, driven by the runtime of the tasks that use it.
//!
//! The main connection is driven by the keeper's thread, so that nothing of it depends on the caller's runtime. That
//! costs every request two wake-ups of a sleeping thread more, more than half of the median time of a task that asks one
//! thing after the other. So once tasks of a runtime ask often, what they wait for themselves (tries and releases) goes
//! over a connection of that runtime. All else stays on the main one: renewals, hints, what nobody waits for, what comes
//! from other threads and runtimes, and everything while there is no lane. Nobody ever waits for a lane. A runtime of
//! one thread gets none: a task that blocks it until we answer would wait for ever.
//!
//! # Order
//! * Both lead to one server, by its run id, or the lane is not used; nor while the main connection is another than
//!   the lane was opened beside.
//! * A task that dropped a guard finds it released: while a release of a name is under way on the main connection, all verbs
//!   for that name go there. (Not those for others: with many at work there always is one, and the lane would stay empty.)
//! * A withdrawal must not overtake the try it undoes. If that was cancelled on the lane, its withdrawal follows it
//!   there. (Where the lane broke, `not_after` bounds how long the try may be on its way, and the engine withdraws again
//!   after that.)

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::runtime::{Handle, Id};

use super::connection::Connection;
use super::fault::unavailable;
use super::readers::Readers;
use super::setup::Fresh;
use super::shared::{Shared, State};
use super::slots::crc;
use super::way::Way;
use crate::store::{ClaimId, caller};
use crate::{Error, Name};

/// A runtime gets a lane when it has asked for this much: who takes a lock now and then needs no second connection.
const OFTEN: u32 = 16;
/// Into how many groups names are put that are kept off the lane together: few of them are at a time.
const PLACES: usize = 512;

/// The two connections to one server.
#[derive(Debug)]
pub(super) struct Lanes {
    pub main: Arc<Connection>,
    express: OnceLock<Express>,
    /// What reads the lane, and those to other servers of the same store.
    readers: Arc<Readers>,
    /// How many verbs a runtime has asked for, while there is no lane.
    asked: AtomicU32,
    /// Which names are being released on the main connection.
    releases: Arc<Releases>,
    /// Claims whose try was cancelled on the lane, until they are withdrawn.
    cancelled: Mutex<HashSet<ClaimId>>,
}

#[derive(Debug)]
struct Express {
    runtime: Id,
    connection: Connection,
}

/// What a verb does that others must be in order with.
pub(super) enum Does {
    /// May make this claim hold or wait.
    Claims(ClaimId),
    /// Lets go, and may make this claim hold or wait.
    Releases(Option<ClaimId>),
}

impl Lanes {
    pub fn new(main: Connection, readers: Arc<Readers>) -> Lanes {
        Lanes {
            main: Arc::new(main),
            express: OnceLock::new(),
            readers,
            asked: AtomicU32::new(0),
            releases: Arc::default(),
            cancelled: Mutex::default(),
        }
    }

    /// The way of a verb over the main connection.
    pub fn main(&self) -> Passage<'_> {
        self.passage(None)
    }

    /// The way of a verb that a task may wait for.
    pub fn quickest(&self, name: &Name, does: Does) -> Passage<'_> {
        let mut passage = self.passage(self.express(name));
        match (passage.express, does) {
            (Some(_), Does::Claims(claim) | Does::Releases(Some(claim))) => {
                passage.claims = Some(claim);
            }
            (None, Does::Releases(_)) => {
                passage._releasing = Some(self.releasing(name));
            }
            _ => {}
        }
        passage
    }

    /// The way of a claim's withdrawal: behind its try, if that may still be on the lane.
    pub fn behind(&self, claim: ClaimId) -> Passage<'_> {
        let cancelled = self.cancelled().remove(&claim);
        let express = self.express.get().filter(|_| cancelled);
        let mut passage = self.passage(express.map(|express| &express.connection));
        // The runtime may be busy: nobody may wait for it but its own tasks.
        passage.bounded = true;
        passage
    }

    fn passage<'a>(&'a self, express: Option<&'a Connection>) -> Passage<'a> {
        Passage {
            lanes: self,
            express,
            bounded: false,
            claims: None,
            _releasing: None,
        }
    }

    /// For as long as this is there, all verbs for the name take the main connection.
    pub fn releasing(&self, name: &Name) -> Releasing {
        let place = Releases::place(name);
        self.releases.0[place].fetch_add(1, SeqCst);
        Releasing(self.releases.clone(), place)
    }

    /// The lane, if it is the caller's and of use for this name just now.
    pub fn express(&self, name: &Name) -> Option<&Connection> {
        let caller = caller::runtime()?;
        let Some(express) = self.express.get() else {
            self.notice(&caller);
            return None;
        };
        let usable = express.runtime == caller.id()
            && self.releases.0[Releases::place(name)].load(SeqCst) == 0
            && express.connection.stands_beside(&self.main);
        usable.then_some(&express.connection)
    }

    /// Opens a lane for a runtime that asks often.
    fn notice(&self, caller: &Handle) {
        let settings = self.main.settings();
        let own = caller.id() == self.main.runtime().id();
        // A task may block its thread until we answer; where there is no other, nobody would read the answer.
        let alone = caller.metrics().num_workers() < 2;
        // Replicas confirm what was done on the main connection.
        if own || alone || settings.replicas > 0 || self.asked.fetch_add(1, SeqCst) < OFTEN {
            return;
        }
        self.express.get_or_init(|| Express {
            runtime: caller.id(),
            connection: Connection::beside(&self.main, caller.clone(), self.readers.clone()),
        });
    }

    fn cancelled(&self) -> MutexGuard<'_, HashSet<ClaimId>> {
        self.cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way of one verb.
pub(super) struct Passage<'a> {
    lanes: &'a Lanes,
    express: Option<&'a Connection>,
    bounded: bool,
    /// Not answered yet, it may make this claim hold or wait.
    claims: Option<ClaimId>,
    _releasing: Option<Releasing>,
}

impl<'a> Passage<'a> {
    pub fn way(&self) -> Way<'a> {
        match self.express {
            None => Way::to(&self.lanes.main),
            Some(express) => Way::express(express, &self.lanes.main, self.bounded),
        }
    }

    pub fn answered(&mut self) {
        self.claims = None;
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claims {
            self.lanes.cancelled().insert(claim);
        }
    }
}

/// How many releases are under way for the names that share a place.
#[derive(Debug)]
struct Releases([AtomicU32; PLACES]);

impl Releases {
    fn place(name: &Name) -> usize {
        usize::from(crc(name.as_str().as_bytes())) % PLACES
    }
}

impl Default for Releases {
    fn default() -> Releases {
        Releases(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

/// A release of a name under way on the main connection.
#[derive(Debug)]
pub(super) struct Releasing(Arc<Releases>, usize);

impl Drop for Releasing {
    fn drop(&mut self) {
        let Releasing(releases, place) = self;
        releases.0[*place].fetch_sub(1, SeqCst);
    }
}

/// What makes a connection a lane.
pub(super) struct Beside {
    pub main: Arc<Shared>,
    /// Where it is driven. Its supervisor stays on the keeper's thread.
    pub runtime: Handle,
    pub readers: Arc<Readers>,
}

impl Beside {
    /// Connects to the server that the main connection leads to. [`Error::Closed`]: never again.
    pub async fn connect(&self, lane: &Arc<Shared>, number: u64) -> Result<Fresh, Error> {
        self.is_driven().await?;
        let beside = self.main_number().await?;
        let address = self.main.address();
        lane.set_address(address.clone());
        let fresh = lane.connect_to(number, &address).await?;
        // An address may lead to several servers, one after the other or at once.
        match lane.run_id() {
            None => Err(Error::Closed),
            id if id != self.main.run_id() => Err(unavailable(format!(
                "{address} has just become another server"
            ))),
            _ => Ok(Fresh { beside, ..fresh }),
        }
    }

    /// Waits until the main connection is up.
    async fn main_number(&self) -> Result<u64, Error> {
        let mut state = self.main.state.subscribe();
        let up = state.wait_for(|state| matches!(state, State::Up(_))).await;
        match up.as_deref() {
            Ok(State::Up(up)) => Ok(up.number),
            _ => Err(Error::Closed),
        }
    }

    /// Waits until the runtime does something. Fails when it has ended.
    pub async fn is_driven(&self) -> Result<(), Error> {
        let done = self.runtime.spawn(async {}).await;
        done.map_err(|_| Error::Closed)
    }

    /// Waits until the main connection is another than this one.
    pub async fn is_left_behind(&self, beside: u64) {
        let mut state = self.main.state.subscribe();
        let another = |state: &State| matches!(state, State::Up(up) if up.number != beside);
        if state.wait_for(another).await.is_err() {
            std::future::pending().await
        }
    }
}
