//! Locks among the processes of one machine, in a SQLite file: the embedded default.
//!
//! # What it rests on
//! * Every verb is one transaction; SQLite lets one process write at a time.
//! * Times are of the clock since boot, which nobody can set. A reboot ends everything that was held.
//! * Each open store keeps a lock of the operating system (`flock`) on a file of its own, in the folder
//!   `<file>-keepers`. It ends with the process, so what a dead process held is free at once, not at the end of its lease.
//! * Waiters are woken by datagrams, to sockets in the same folder.
//!
//! # Sharing a file
//! Every user that can write to the file can take part. A new file gets the permissions that the umask allows, and
//! everything next to it those of the file. To share a file among the users of one group, make a folder of that group with
//! the set-group-id bit, and open the file for the first time with `umask 002`.
//!
//! # What it does not protect against
//! * The file, its `-wal` or its `-shm` is deleted or replaced under running programs. Each notices within a
//!   tenth of a second and refuses to go on, but until then it may hold locks that programs which open the
//!   new file do not see.
//! * Other machines use the file. A file on a network file system is refused.
//! * A process is stopped inside a transaction (SIGSTOP, Ctrl-Z, a debugger, `docker pause`). Until it is
//!   continued or killed, no process can acquire, release or renew, and holders lose their locks. Errors name it.
//! * A power cut loses the last commits. No lock is lost by it, as the holders end too, but tokens then go on by the clock.
//!
//! # Layout
//! | | |
//! | --- | --- |
//! | `file`, `file_system`, `upgrade` | open and check the database, and bring an old one up to date |
//! | `session`, `verbs`, `rows`, `statements` | a connection with its transactions, in which each verb applies the rules of [`record`] to a name's rows |
//! | `core`, `worker` | run a verb at once on the caller's thread, or on the worker's while another process writes |
//! | `checkpoint` | copies the write-ahead log back into the database, on the worker's thread |
//! | `liveness`, `wake` | which open stores live, and how their waiters are woken |
//! | `file_status`, `fault`, `forks` | which process has the file locked; what SQLite's errors mean; processes that were forked |

mod checkpoint;
mod core;
mod fault;
mod file;
mod file_status;
mod file_system;
mod forks;
mod liveness;
mod rows;
mod session;
mod statements;
mod upgrade;
mod verbs;
mod wake;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::params;

use self::core::{Core, Verb};
use self::fault::{Fault, STORE, refused};
use self::forks::OpenStore;
use self::liveness::{Instance, Liveness, Peer};
use self::session::Session;
use self::wake::{HintReceiver, HintSender, Watcher};
use super::record::ProcessId;
use super::*;
use crate::clock::Clock;

/// Reads the leases and the fence of a name: `lockkeeper bench` runs it without the store.
#[cfg(feature = "internals")]
pub const LOAD: &str = statements::LOAD;

pub use self::file_status::{FileStatus, FileUser, UserState};

/// How many holds are renewed in one transaction. Other processes can write between two.
const RENEW_SLICE: usize = 256;
/// How many names are described in one transaction.
const LIST_SLICE: usize = 256;
/// How long a store that is dropped waits for other writers, to remove its row. If they are slower, the next store that
/// opens the file removes it.
const UNREGISTER_TIMEOUT: Duration = Duration::from_millis(200);

/// Keeps locks in a SQLite file. Stores on one file exclude each other, in one process or many.
///
/// Dropping it ends its threads and removes its files. What it still holds then counts as left by a dead
/// process, unless a handle from [`Embedded::liveness`] is open somewhere.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let folder = std::env::temp_dir().join(format!("lockkeeper-example-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// use std::sync::Arc;
/// use lockkeeper::{Lockkeeper, store::sqlite::SqliteStore};
///
/// let store = Arc::new(SqliteStore::open(&folder.join("locks.db"))?);
/// let keeper = Lockkeeper::builder().store(store).connect().await?;      // as `sqlite:PATH` does
/// keeper.close().await;
/// # drop(keeper);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    core: Arc<Core>,
    watcher: Watcher,
    worker: Option<JoinHandle<()>>,
    instance: Instance,
    me: ProcessId,
    /// Dropped last: the connections are closed by then.
    _opened: OpenStore,
}

impl SqliteStore {
    /// Opens the file at `path`, creating it if there is none.
    ///
    /// A missing folder is created only if it is named `lockkeeper`, as the folder of the default store is.
    ///
    /// # Errors
    /// [`Error::Refused`] for what cannot be a store of locks: a folder, another program's database, a damaged or read-only
    /// file, a file of a newer version, a file of an older version that is in use, a file on a network file system. Also in a
    /// process that was forked from one that had such a store open. [`Error::Unavailable`] if another program keeps the file
    /// locked for more than five seconds, or the disk is full.
    pub fn open(path: &Path) -> Result<SqliteStore, Error> {
        SqliteStore::open_with_clock(path, Clock::real())
    }

    /// Opens a file on this clock. All stores on one file must have the same.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with_clock(path: &Path, clock: Clock) -> Result<SqliteStore, Error> {
        // The first, so that it is dropped last if this fails.
        let opened = OpenStore::count()?;
        let boot = clock.boot_id();
        let (conn, path) = file::open(path, &clock)?;
        let folder: Arc<Path> = file::keepers_folder(&path).into();
        let log = file::reopen(&path)?;
        let mut session = Session::new(conn, clock, path.clone(), folder.clone())?;

        let instance = Instance::new(&folder, &path)?;
        let registered = file::retry(|| register(&mut session, &instance, &boot));
        let me = match registered {
            Ok(me) => me,
            Err(fault) => {
                instance.remove();
                return Err(fault.explain(&path));
            }
        };
        session.set_me(me);

        let no_socket = |error| refused(format!("no socket can be made: {error}"));
        let sender = HintSender::new().map_err(no_socket)?;
        // After the row, by which other stores find what a crash leaves behind.
        let receiver = HintReceiver::new(&instance.socket).map_err(no_socket)?;
        if let Err(error) = instance.share_socket() {
            tracing::debug!(%error, "other users cannot send hints");
        }
        let (jobs, todo) = mpsc::channel();
        let core = Arc::new(Core::new(path, session, sender, jobs));
        file::retry(|| core.clean_up()).map_err(|fault| fault.explain(&core.path))?;
        let others = core.session().others();
        if let Ok(others) = others {
            let mut known: Vec<String> = others.iter().map(|peer| peer.instance.clone()).collect();
            known.push(instance.id.clone());
            liveness::remove_orphans(&folder, &known);
        }
        let watcher = Watcher::start(core.clone(), receiver)?;
        let worker = Some(worker::start(core.clone(), log, todo)?);
        Ok(SqliteStore {
            core,
            watcher,
            worker,
            instance,
            me,
            _opened: opened,
        })
    }

    /// Runs a verb at once if no other thread or process is writing, else in the worker.
    async fn call<A, T>(&self, ask: &A, verb: Verb<A, T>) -> Result<T, Error>
    where
        A: ToOwned + ?Sized + 'static,
        A::Owned: Send + 'static,
        T: Send + 'static,
    {
        match self.core.run_inline(ask, verb) {
            Some(answer) => answer,
            None => worker::run(&self.core, ask, verb).await,
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        loop {
            let (attempt, blockers) = self.call(claim, verbs::acquire).await?;
            if !self.reclaim_dead(&blockers).await? {
                return Ok(attempt);
            }
        }
    }

    /// Frees what these stores held, where they are dead. Returns whether any was.
    async fn reclaim_dead(&self, peers: &[Arc<Peer>]) -> Result<bool, Error> {
        let mut found = false;
        for peer in peers.iter().filter(|peer| peer.is_dead()) {
            while !self.call(&peer.id, verbs::reclaim).await? {}
            peer.remove_files();
            found = true;
        }
        Ok(found)
    }

    /// Frees what any dead store held, so that a list does not show it.
    async fn reclaim_all_dead(&self) -> Result<(), Error> {
        let others = self.call(&(), |tx, ()| tx.others()).await?;
        self.reclaim_dead(&others).await.map(|_| ())
    }

    async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        if renewals.len() <= 1 {
            return self.call(renewals, verbs::renew).await;
        }
        // In the order of names, so that a transaction touches few pages.
        let mut order: Vec<usize> = (0..renewals.len()).collect();
        order.sort_by(|&a, &b| renewals[a].name.cmp(&renewals[b].name));
        let mut answers = vec![Renewed::NotHeld; renewals.len()];
        for (number, slice) in order.chunks(RENEW_SLICE).enumerate() {
            let ask: Vec<Renewal> = slice.iter().map(|&at| renewals[at].clone()).collect();
            let renewed = match self.call(ask.as_slice(), verbs::renew).await {
                // Some were renewed before this one failed.
                Err(error @ Error::Unavailable { .. }) if number > 0 => {
                    return Err(error.in_doubt());
                }
                renewed => renewed?,
            };
            for (&at, renewed) in slice.iter().zip(renewed) {
                answers[at] = renewed;
            }
        }
        Ok(answers)
    }

    async fn inspect_name(&self, name: &Name) -> Result<Option<LockInfo>, Error> {
        self.reclaim_all_dead().await?;
        self.call(name, verbs::inspect).await
    }

    async fn list_names(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        self.reclaim_all_dead().await?;
        let names = self.call(prefix, verbs::names_in_use).await?;
        let names: Vec<Name> = names
            .iter()
            .filter_map(|name| Name::new(name).ok())
            .collect();
        let mut infos = Vec::new();
        for slice in names.chunks(LIST_SLICE) {
            infos.extend(self.call(slice, verbs::inspect_all).await?);
        }
        Ok(infos)
    }
}

/// Adds this store to the process table, after ending what an earlier boot left.
fn register(session: &mut Session, instance: &Instance, boot: &str) -> Result<ProcessId, Fault> {
    let process = Process::current();
    let socket = std::os::unix::ffi::OsStrExt::as_bytes(instance.socket.as_os_str());
    let (me, _) = session.write(|tx| {
        // A live store proves that no reboot has come since it was opened, also on a system that gives boots no id.
        let others = tx.others()?;
        if !others.iter().any(|peer| peer.liveness() == Liveness::Alive) {
            session::start_boot(tx.conn, boot)?;
        }
        let row = params![
            instance.id,
            process.host,
            process.pid,
            process.program,
            socket
        ];
        tx.conn.execute(statements::PROCESS_ADD, row)?;
        Ok(tx.conn.last_insert_rowid())
    })?;
    Ok(me)
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.watcher.stop();
        self.core.stop_worker();
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
        let deadline = Instant::now() + UNREGISTER_TIMEOUT;
        let removed = self
            .core
            .run_blocking(&self.me, verbs::unregister, deadline, || false);
        // While something is held, the row and the files tell other stores whether it still counts.
        if let Some(Ok(true)) = removed {
            self.instance.remove();
        }
    }
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }
    fn place(&self) -> String {
        self.core.path.display().to_string()
    }
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(self.acquire(claim))
    }
    fn withdraw<'a>(&'a self, name: &'a Name, claim: ClaimId) -> Answer<'a, ()> {
        Box::pin(async move { self.call(&(name.clone(), claim), verbs::withdraw).await })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(self.renew_all(renewals))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(async move {
            if self.core.release_uncontended(release) {
                return Ok(Released {
                    was_held: true,
                    regrant: None,
                });
            }
            self.call(release, verbs::release).await
        })
    }
    fn subscribe<'a>(&'a self, interest: Interest) -> Answer<'a, Subscription> {
        Box::pin(async move {
            let subscription = self.core.hints.subscribe(interest.clone());
            Ok(match interest {
                // A datagram hints it. A break is too rare to poll the file for.
                Interest::Keeper(_) => subscription,
                _ => self.watcher.watch(interest, subscription),
            })
        })
    }
    fn inspect<'a>(&'a self, name: &'a Name) -> Answer<'a, Option<LockInfo>> {
        Box::pin(self.inspect_name(name))
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<LockInfo>> {
        Box::pin(self.list_names(prefix))
    }
    fn break_lock<'a>(&'a self, request: &'a Break) -> Answer<'a, BreakOutcome> {
        Box::pin(self.call(request, verbs::break_lock))
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(self.call(request, verbs::latch))
    }
    fn embedded(&self) -> Option<&dyn Embedded> {
        Some(self)
    }
}

impl Embedded for SqliteStore {
    fn liveness(&self) -> Option<std::os::fd::OwnedFd> {
        self.instance.handle()
    }
    fn obstacle(&self) -> Option<String> {
        file_status::describe_stuck_writer(&self.core.path)
    }
    fn at_rest(&self, then: &mut dyn FnMut()) {
        self.core.at_rest(then);
    }
}

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    store: STORE,
    reach: Reach::Machine,
    fair: true,
    read_write: true,
    permits: true,
    latches: true,
    queue: true,
    fencing: Fencing::DataOrClock,
    wakeups: Wakeups::Direct,
    survives_restart: true,
    frees_dead_at_once: true,
    time: TimeAuthority::Boot,
    lease_end: LeaseEnd::ByItself,
    longest_lease: crate::MAX_LEASE,
    ends_in_time: false,
};
