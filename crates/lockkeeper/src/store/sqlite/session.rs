//! One connection to the file, and the transactions on it: each verb is one. In a transaction the rules of
//! [`record`](crate::store::record) are applied to a name's rows, and what has to happen after the commit is collected
//! as [`Effects`].
//!
//! The thread that has the session is the only one of this store to write; SQLite keeps other processes out.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::fault::{Fault, refused};
use super::file::sibling;
use super::liveness::Peer;
use super::rows::{Rows, claim_bytes, nanos};
use super::statements;
use crate::clock::{Clock, Moment};
use crate::store::record::{Change, Missing, Now, ProcessId, Record, Step};
use crate::store::{ClaimId, Process};
use crate::{Error, Name};

/// How often to check that the file is still the one that was opened.
const FILE_CHECK: Duration = Duration::from_millis(100);

/// How many peers are remembered before the cache is emptied.
const MAX_PEERS: usize = 1024;

/// Device and inode of the database, of its log (`-wal`) and of its shared memory (`-shm`).
type Identity = [(u64, u64); 3];

/// The time of one verb.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub moment: Moment,
    wall_micros: u64,
}

/// A connection, and what has been learned of the file and of the other stores.
#[derive(Debug)]
pub(super) struct Session {
    conn: Connection,
    clock: Clock,
    boot: String,
    path: PathBuf,
    identity: Identity,
    next_check: Moment,
    /// Which row of the process table is ours.
    me: ProcessId,
    /// The folder with the files of the open stores.
    folder: Arc<Path>,
    /// Other stores by their row, `None` for a row that is gone. A row never changes, and its id is not used again.
    peers: HashMap<ProcessId, Option<Arc<Peer>>>,
}

/// What to do once a transaction is committed: whom to hint, and what to count.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Claims that got a lock from the queue, each with the store that it is of, if that is another one.
    pub granted: Vec<(Name, ClaimId, Option<Arc<Peer>>)>,
    /// Claims whose hold was broken, each with the store that it is of, if that is another one.
    pub broken: Vec<(ClaimId, Option<Arc<Peer>>)>,
    /// Names whose holders or queue changed.
    pub changed: Vec<Name>,
    /// Latches that changed.
    pub latches: Vec<Name>,
    /// About how many pages the log grew by.
    pub pages_written: usize,
    /// How many names have a new fence.
    pub new_names: usize,
}

/// A running transaction, which a verb is given.
#[derive(Debug)]
pub(super) struct Tx<'s> {
    pub conn: &'s Connection,
    pub now: Time,
    pub me: ProcessId,
    pub effects: Effects,
    folder: &'s Arc<Path>,
    peers: &'s mut HashMap<ProcessId, Option<Arc<Peer>>>,
}

impl Session {
    pub fn new(
        conn: Connection,
        clock: Clock,
        path: PathBuf,
        folder: Arc<Path>,
    ) -> Result<Session, Error> {
        let boot = clock.boot_id();
        let identity = identity(&path)?;
        Ok(Session {
            conn,
            clock,
            boot,
            path,
            identity,
            next_check: Moment::BOOT,
            me: 0,
            folder,
            peers: HashMap::new(),
        })
    }

    /// Says which row of the process table this store is.
    pub fn set_me(&mut self, me: ProcessId) {
        self.me = me;
        self.peers.clear();
    }

    /// Runs `verb` in one transaction: entirely or not at all.
    pub fn write<T>(
        &mut self,
        verb: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>,
    ) -> Result<(T, Effects), Fault> {
        self.check_file()?;
        self.execute(statements::BEGIN)?;
        match self.run(verb) {
            Ok(done) => match self.execute(statements::COMMIT) {
                Ok(()) => Ok(done),
                Err(fault) => Err(self.roll_back(fault)),
            },
            Err(fault) => Err(self.roll_back(fault)),
        }
    }

    /// Runs `verb` inside the transaction that was begun.
    fn run<T>(
        &mut self,
        verb: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>,
    ) -> Result<(T, Effects), Fault> {
        self.check_boot()?;
        let mut tx = Tx {
            conn: &self.conn,
            // Read while no other process can write, so that no verb runs at an earlier time than the one before.
            now: Time {
                moment: self.clock.now(),
                wall_micros: self.clock.unix_micros(),
            },
            me: self.me,
            effects: Effects::default(),
            folder: &self.folder,
            peers: &mut self.peers,
        };
        let answer = verb(&mut tx)?;
        Ok((answer, tx.effects))
    }

    /// Ends a lease if it is certain that nobody waits for it. Returns `None` if the release needs the whole record.
    pub fn release_uncontended(
        &mut self,
        name: &Name,
        claim: ClaimId,
    ) -> Result<Option<Effects>, Fault> {
        self.check_file()?;
        if !self.clock.is_boot(&self.boot) {
            return Ok(None);
        }
        let now = nanos(self.clock.now());
        let mut release = self.conn.prepare_cached(statements::RELEASE)?;
        let ended = release.execute(params![name.as_str(), claim_bytes(claim), now])? > 0;
        Ok(ended.then(|| Effects {
            changed: vec![name.clone()],
            pages_written: 1,
            ..Effects::default()
        }))
    }

    fn roll_back(&mut self, fault: Fault) -> Fault {
        // SQLite may have rolled back by itself, for instance when the disk is full.
        if !self.conn.is_autocommit()
            && let Err(stuck) = self.conn.execute_batch(statements::ROLLBACK)
        {
            tracing::warn!(%stuck, "a transaction could not be rolled back");
        }
        fault
    }

    fn execute(&self, sql: &str) -> Result<(), Fault> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Ends what an earlier boot left. Only a simulated machine reboots while a store is open.
    fn check_boot(&mut self) -> Result<(), Fault> {
        if self.clock.is_boot(&self.boot) {
            return Ok(());
        }
        let boot = self.clock.boot_id();
        start_boot(&self.conn, &boot)?;
        self.boot = boot;
        Ok(())
    }

    /// Refuses to go on with a file that was deleted or replaced: a program that opens its path now does not see our locks.
    fn check_file(&mut self) -> Result<(), Fault> {
        let now = Moment::now();
        if now < self.next_check {
            return Ok(());
        }
        if identity(&self.path).ok() != Some(self.identity) {
            return Err(Fault::Explained(refused(format!(
                "{:?}, or its -wal or -shm, was deleted or replaced while open; restart the programs that use it",
                self.path
            ))));
        }
        self.next_check = now + FILE_CHECK;
        Ok(())
    }

    /// A number that changes whenever another connection changed the file.
    pub fn data_version(&self) -> Result<i64, Fault> {
        let mut version = self.conn.prepare_cached(statements::DATA_VERSION)?;
        Ok(version.query_row([], |row| row.get(0))?)
    }

    /// How many fences are idle, or a little fewer.
    pub fn idle_fences(&self) -> Result<i64, Fault> {
        let mut count = self.conn.prepare_cached(statements::FENCES_IDLE)?;
        Ok(count.query_row([], |row| row.get(0))?)
    }

    /// Every other store that has a row. It is open, or died and was not cleaned up yet.
    pub fn others(&self) -> Result<Vec<Arc<Peer>>, Fault> {
        others(&self.conn, &self.folder, self.me)
    }
}

impl<'s> Tx<'s> {
    /// Every other store that has a row. It is open, or died and was not cleaned up yet.
    pub fn others(&self) -> Result<Vec<Arc<Peer>>, Fault> {
        others(self.conn, self.folder, self.me)
    }

    /// Applies one rule to the record of a name, and writes what it changes. Returns the answer and the rows afterwards.
    pub fn apply<'a, T>(
        &mut self,
        name: &'a Name,
        rule: impl Fn(&Record, Now<'_>) -> Result<Step<T>, Missing>,
    ) -> Result<(T, Rows<'a>), Fault>
    where
        's: 'a,
    {
        let mut rows = Rows::load(self.conn, name)?;
        let was_new = !rows.exists();
        // Processes that the rule has asked about.
        let mut checked: Vec<(ProcessId, bool)> = Vec::new();
        let step = loop {
            let lives = |process| {
                let mut checked = checked.iter();
                let found = checked.find(|(known, _)| *known == process);
                found.map(|(_, lives)| *lives)
            };
            let now = Now {
                moment: self.now.moment,
                asked: self.now.moment,
                wall_micros: self.now.wall_micros,
                may_grant: true,
                me: self.me,
                lives: &lives,
            };
            match rule(&rows.record, now) {
                Ok(step) => break step,
                Err(Missing::Queue) => rows.load_more()?,
                Err(Missing::Alive(process)) => checked.push((process, !self.is_dead(process)?)),
            }
        };
        for change in &step.changes {
            if let Change::Start { hold, direct: true } = change {
                let peer = self.peer(hold.process)?;
                self.effects.granted.push((name.clone(), hold.claim, peer));
            }
        }
        if step.changes.iter().any(Change::is_visible) {
            self.effects.changed.push(name.clone());
        }
        if rows.save(step.changes, self.now.moment)? {
            self.effects.pages_written += 1;
            self.effects.new_names += usize::from(was_new);
        }
        Ok((step.answer, rows))
    }

    /// What is known about a process; `None` for this one, and for one without a row.
    pub fn peer(&mut self, process: ProcessId) -> Result<Option<Arc<Peer>>, Fault> {
        if process == self.me {
            return Ok(None);
        }
        if let Some(known) = self.peers.get(&process) {
            return Ok(known.clone());
        }
        let mut find = self.conn.prepare_cached(statements::PROCESS)?;
        let mut rows = find.query([process])?;
        let peer = match rows.next()? {
            Some(row) => Some(Arc::new(Peer::read(row, self.folder)?)),
            None => None,
        };
        if self.peers.len() >= MAX_PEERS {
            self.peers.clear();
        }
        self.peers.insert(process, peer.clone());
        Ok(peer)
    }

    /// What people are shown of a process.
    pub fn process(&mut self, process: ProcessId) -> Result<Process, Fault> {
        if process == self.me {
            return Ok(Process::current());
        }
        Ok(match self.peer(process)? {
            Some(peer) => peer.process.clone(),
            None => Process::unknown(""),
        })
    }

    fn is_dead(&mut self, process: ProcessId) -> Result<bool, Fault> {
        Ok(self.peer(process)?.is_some_and(|peer| peer.is_dead()))
    }
}

fn others(conn: &Connection, folder: &Path, me: ProcessId) -> Result<Vec<Arc<Peer>>, Fault> {
    let mut all = conn.prepare_cached(statements::PROCESSES)?;
    let peers = all.query_map([], |row| Peer::read(row, folder))?;
    let others = peers.filter(|peer| !matches!(peer, Ok(peer) if peer.id == me));
    let others = others.map(|peer| peer.map(Arc::new));
    Ok(others.collect::<Result<_, _>>()?)
}

/// Begins a boot: if the file was last used in another one, nothing in it still holds or waits.
pub(super) fn start_boot(conn: &Connection, boot: &str) -> Result<(), Fault> {
    let last: String = conn.query_row(statements::BOOT, [], |row| row.get(0))?;
    if last != boot {
        conn.execute_batch(statements::CLEAR)?;
        conn.execute(statements::BOOT_SET, [boot])?;
    }
    Ok(())
}

fn identity(path: &Path) -> Result<Identity, Error> {
    let mut identity = Identity::default();
    for (one, end) in identity.iter_mut().zip(["", "-wal", "-shm"]) {
        let path = sibling(path, end);
        let file = std::fs::metadata(&path)
            .map_err(|error| refused(format!("{path:?} cannot be accessed: {error}")))?;
        *one = (file.dev(), file.ino());
    }
    Ok(identity)
}
