//! What `inspect` and `list` return: the holders and the queue of a name, and the processes behind them.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::{ClaimId, Mode};
use crate::{Label, Name, Token};

/// How many claims of a queue `inspect` returns at most.
pub const MAX_LISTED: usize = 100;

/// What a store knows about a name.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:info-example").await?;
/// # let guard = keeper.lock("report")?.acquire().await?;
/// if let Some(info) = keeper.inspect("report").await? {
///     for holder in &info.holders {
///         println!("{} holds it, lease left: {:?}", holder.process, holder.remaining);
///     }
///     for waiter in &info.queue {
///         println!("{} waits since {:?}", waiter.process, waiter.since);
///     }
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// The name.
    pub name: Name,
    /// The holders; empty when free.
    pub holders: Vec<Holder>,
    /// How many claims wait in the store. This is not how many tasks wait: tasks of one process that want a lock in the same way
    /// share one claim, and have none while their process holds. A task with a label, a lease or a mode of its own has a claim
    /// of its own.
    pub waiters: usize,
    /// The first [`MAX_LISTED`] claims of the queue, in its order. Empty in what [`list`](crate::store::Store::list) returns, and
    /// where a store has no queue.
    pub queue: Vec<Waiter>,
    /// The last token given out.
    pub last_token: Option<Token>,
    /// The last time it was broken.
    pub broken: Option<Broken>,
    /// How many permits are free, where a client of another project has said how many there are. Such a client may leave no
    /// record of the permits that it has, and is not among the [`holders`](LockInfo::holders) then.
    pub free_permits: Option<u32>,
}

impl LockInfo {
    /// A name of which nothing else is known.
    pub const fn new(name: Name) -> LockInfo {
        LockInfo {
            name,
            holders: Vec::new(),
            waiters: 0,
            queue: Vec::new(),
            last_token: None,
            broken: None,
            free_permits: None,
        }
    }

    /// With these [`holders`](LockInfo::holders).
    pub fn with_holders(mut self, holders: Vec<Holder>) -> Self {
        self.holders = holders;
        self
    }

    /// With so many [`waiters`](LockInfo::waiters).
    pub fn with_waiters(mut self, waiters: usize) -> Self {
        self.waiters = waiters;
        self
    }

    /// With this [`queue`](LockInfo::queue).
    pub fn with_queue(mut self, queue: Vec<Waiter>) -> Self {
        self.queue = queue;
        self
    }

    /// With this [`last_token`](LockInfo::last_token).
    pub fn with_last_token(mut self, last_token: Option<Token>) -> Self {
        self.last_token = last_token;
        self
    }

    /// With the last break: [`broken`](LockInfo::broken).
    pub fn with_broken(mut self, broken: Option<Broken>) -> Self {
        self.broken = broken;
        self
    }

    /// With so many [`free_permits`](LockInfo::free_permits).
    pub fn with_free_permits(mut self, free: Option<u32>) -> Self {
        self.free_permits = free;
        self
    }

    /// `None` when nothing is known.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn if_known(self) -> Option<LockInfo> {
        let known = !self.holders.is_empty()
            || self.waiters > 0
            || self.last_token.is_some()
            || self.broken.is_some()
            || self.free_permits.is_some();
        known.then_some(self)
    }
}

/// One hold, as others see it. Of a client of another project a store may know little: the rest is `None`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:").await?;
/// let guard = keeper.lock("job")?.acquire().await?;
/// if let Some(info) = keeper.inspect("job").await? {
///     for holder in &info.holders {
///         println!("{} since {:?}, lease left: {:?}", holder.process, holder.since, holder.remaining);
///     }
/// }
/// # drop(guard);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// Which claim. [`ClaimId::UNKNOWN`] where the store cannot tell.
    pub claim: ClaimId,
    /// Of which process.
    pub process: Process,
    /// How it holds.
    pub mode: Mode,
    /// Its first token. `None` where it has none that others see.
    pub token: Option<Token>,
    /// Since when, by the wall clock of the store. `None` where the store cannot tell.
    pub since: Option<SystemTime>,
    /// How long its lease still runs. `None` where it has no end, or the store cannot tell.
    pub remaining: Option<Duration>,
    /// How long its lease is as a whole, counted from the grant or the last renewal. `None` where the store cannot tell.
    pub lease: Option<Duration>,
    /// What its caller calls it.
    pub label: Option<Label>,
    /// How deep its owner has re-entered. Only the keeper that holds knows.
    pub depth: Option<u32>,
}

impl Holder {
    /// A hold of a keeper, whose whole lease, label and depth are not known.
    pub const fn new(
        claim: ClaimId,
        process: Process,
        mode: Mode,
        token: Token,
        since: SystemTime,
        remaining: Duration,
    ) -> Holder {
        Holder {
            claim,
            process,
            mode,
            token: Some(token),
            since: Some(since),
            remaining: Some(remaining),
            lease: None,
            label: None,
            depth: None,
        }
    }

    /// A hold of a client of another project: all but how it holds is not known.
    pub const fn foreign(claim: ClaimId, process: Process, mode: Mode) -> Holder {
        Holder {
            claim,
            process,
            mode,
            token: None,
            since: None,
            remaining: None,
            lease: None,
            label: None,
            depth: None,
        }
    }

    /// Held [`since`](Holder::since) this time.
    pub fn with_since(mut self, since: Option<SystemTime>) -> Self {
        self.since = since;
        self
    }

    /// With so much of its lease [`remaining`](Holder::remaining).
    pub fn with_remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }

    /// With this whole [`lease`](Holder::lease).
    pub fn with_lease(mut self, lease: Option<Duration>) -> Self {
        self.lease = lease;
        self
    }

    /// With this [`label`](Holder::label).
    pub fn with_label(mut self, label: Option<Label>) -> Self {
        self.label = label;
        self
    }

    /// With this [`depth`](Holder::depth).
    pub fn with_depth(mut self, depth: Option<u32>) -> Self {
        self.depth = depth;
        self
    }

    /// Whether a client of another project holds: only keepers have tokens that others see.
    pub(crate) fn is_foreign(&self) -> bool {
        self.token.is_none()
    }
}

/// One claim in the queue, as others see it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:").await?;
/// if let Some(info) = keeper.inspect("job").await? {
///     for (place, waiter) in info.queue.iter().enumerate() {
///         println!("{place}. {} wants it {}", waiter.process, waiter.mode);
///     }
/// }
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Waiter {
    /// Which claim.
    pub claim: ClaimId,
    /// Of which process.
    pub process: Process,
    /// How it wants to hold.
    pub mode: Mode,
    /// What its caller calls it.
    pub label: Option<Label>,
    /// Since when it waits, by the wall clock of the store. `None` where the store cannot tell.
    pub since: Option<SystemTime>,
}

impl Waiter {
    /// A claim that waits, without a label and since a time that is not known.
    pub const fn new(claim: ClaimId, process: Process, mode: Mode) -> Waiter {
        Waiter {
            claim,
            process,
            mode,
            label: None,
            since: None,
        }
    }

    /// With this [`label`](Waiter::label).
    pub fn with_label(mut self, label: Option<Label>) -> Self {
        self.label = label;
        self
    }

    /// Waits [`since`](Waiter::since) this time.
    pub fn with_since(mut self, since: Option<SystemTime>) -> Self {
        self.since = since;
        self
    }
}

/// When and why a lock was broken.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:").await?;
/// let guard = keeper.lock("job")?.acquire().await?;
/// keeper.break_lock("job", "its host is gone").await?;
/// let broken = keeper.inspect("job").await?.and_then(|info| info.broken);
/// assert_eq!(broken.unwrap().reason, "its host is gone");
/// # drop(guard);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The administrator's reason.
    pub reason: String,
    /// When, by the wall clock of the store. Where tokens run ahead of that clock, as reserved ones and those of a quorum that
    /// has just started do, the break counts as made at the token that it took.
    pub at: SystemTime,
}

impl Broken {
    /// A break at this time, for this reason.
    pub fn new(reason: impl Into<String>, at: SystemTime) -> Broken {
        Broken {
            reason: reason.into(),
            at,
        }
    }
}

/// The process behind a claim.
///
/// ```
/// use lockkeeper::store::Process;
///
/// let process = Process::new("web-1", 4711, "checkout");
/// assert_eq!(process.to_string(), "checkout[4711] on web-1");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Process {
    /// Its machine. Empty where that is not known.
    pub host: String,
    /// Its process id there. 0 where that is not known.
    pub pid: u32,
    /// Its program. Empty where that is not known.
    pub program: String,
}

impl Process {
    /// A process of a machine.
    pub fn new(host: impl Into<String>, pid: u32, program: impl Into<String>) -> Process {
        Process {
            host: host.into(),
            pid,
            program: program.into(),
        }
    }

    /// A process of which no more is known than its program, or what it is a client of.
    ///
    /// ```
    /// use lockkeeper::store::Process;
    ///
    /// let process = Process::unknown("a Redisson client");
    /// assert_eq!(process.to_string(), "a Redisson client on an unknown host");
    /// assert_eq!(Process::unknown("").to_string(), "an unknown program on an unknown host");
    /// ```
    pub fn unknown(program: impl Into<String>) -> Process {
        Process::new("", 0, program)
    }

    /// This process.
    pub fn current() -> Process {
        let program = std::env::args_os().next().map(std::path::PathBuf::from);
        let program = program.as_deref().and_then(|p| p.file_name());
        Process {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            pid: std::process::id(),
            program: program.map_or_else(String::new, |p| p.to_string_lossy().into_owned()),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.program.as_str()) {
            (0, "") => f.write_str("an unknown program")?,
            (0, program) => f.write_str(program)?,
            (pid, program) => write!(f, "{program}[{pid}]")?,
        }
        match self.host.as_str() {
            "" => f.write_str(" on an unknown host"),
            host => write!(f, " on {host}"),
        }
    }
}
