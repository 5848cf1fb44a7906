//! [`Lockkeeper`]: one client of one store.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::Engine;
use crate::engine::arbiter::Arbiter;
use crate::engine::availability::REQUEST_WINDOW;
use crate::engine::background::Background;
use crate::engine::core::Core;
use crate::store::{self, BreakOutcome, BreakTarget, Capabilities, Interest, KeeperId};
use crate::store::{Opener, Store};
use crate::url::{STORE_VARIABLE, StoreUrl};
use crate::{Error, Label, Latch, Lock, MultiLock, Name, Observer, RwLock, Semaphore};

/// A client of a store: where locks come from. Clones are the same keeper.
///
/// Make one for a program and keep it: it has a thread of its own that renews every lock held through it.
/// The thread ends when the last clone, lock and guard are gone and their releases and withdrawals are done, which takes up to 10 s
/// after an acquire that was cancelled on its way to the store. Dropping the last of them waits for the store's response to requests
/// that are on their way, for at most a second after they were sent, as the program may end right after.
/// On a single-threaded runtime it does not wait for a store that was open already ([`Builder::store`]).
/// [`close`](Lockkeeper::close) does not block.
///
/// After a `fork`, only the parent can use it: connect another in the child. With a `sqlite:` store that is refused as long
/// as the child does not `exec`: connect only after the fork.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use lockkeeper::Lockkeeper;
///
/// let keeper = Lockkeeper::connect("memory:").await?;
/// let guard = keeper.lock("report:daily")?.acquire().await?;
/// println!("working under token {}", guard.token());
/// guard.release().await?;
/// keeper.close().await;
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Lockkeeper {
    engine: Engine,
}

/// How long tasks of one process may hand a lock to each other before it really goes back to the store.
///
/// Handing on is much faster than a release and an acquire; a process elsewhere that waits pays for it with
/// at most this much more waiting. The lock goes back when either bound is reached.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::HandOff;
///
/// let short = HandOff::default().with_time(Duration::from_millis(1));
/// assert_ne!(short, HandOff::OFF);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HandOff {
    /// How often it is handed on in a row.
    pub count: u32,
    /// For how long, from when the process got it.
    pub time: Duration,
}

impl HandOff {
    /// Every release goes to the store.
    pub const OFF: HandOff = HandOff {
        count: 0,
        time: Duration::ZERO,
    };

    /// So many times, for so long.
    pub const fn new(count: u32, time: Duration) -> HandOff {
        HandOff { count, time }
    }

    /// With another [`count`](HandOff::count).
    pub const fn with_count(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// With another [`time`](HandOff::time).
    pub const fn with_time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }
}

impl Default for HandOff {
    /// 512 times or 5 ms.
    fn default() -> HandOff {
        HandOff {
            count: 512,
            time: Duration::from_millis(5),
        }
    }
}

/// Settings of a keeper, before it connects.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use lockkeeper::{HandOff, Lockkeeper};
///
/// let keeper = Lockkeeper::builder()
///     .url("memory:builder-example")
///     .lease(Duration::from_secs(10))
///     .hand_off(HandOff::OFF)
///     .connect()
///     .await?;
/// # drop(keeper);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
#[derive(Default)]
#[must_use]
pub struct Builder {
    url: Option<String>,
    store: Option<Arc<dyn Store>>,
    openers: Vec<Arc<dyn Opener>>,
    lease: Option<Duration>,
    label: Option<String>,
    hand_off: HandOff,
    observer: Option<Arc<dyn Observer>>,
}

impl Builder {
    /// The store's URL. Without one: `LOCKKEEPER_STORE`, else the embedded default.
    pub fn url(mut self, url: &str) -> Builder {
        self.url = Some(url.to_owned());
        self
    }

    /// A store that is open already, instead of a URL.
    ///
    /// [Close](Lockkeeper::close) the keeper before a program with a single-threaded runtime ends. The runtime may be what
    /// drives the store, so there the last handle does not block until what is on its way is done.
    pub fn store(mut self, store: Arc<dyn Store>) -> Builder {
        self.store = Some(store);
        self
    }

    /// Adds a kind of store to those that a URL can name. It may be called more than once. The openers that were added are
    /// asked first, in their order, so that one may take the place of a store of this crate.
    ///
    /// With an opener, the store has to be named, by [`url`](Builder::url) or `LOCKKEEPER_STORE`.
    pub fn opener(mut self, opener: impl Opener) -> Builder {
        self.openers.push(Arc::new(opener));
        self
    }

    /// The URL of the store.
    fn store_url(&self) -> Result<StoreUrl, Error> {
        if let Some(url) = &self.url {
            return StoreUrl::parse(url);
        }
        let url = StoreUrl::from_environment()?;
        let served = |opener: &Arc<dyn Opener>| opener.serves(url.scheme());
        // The default store, or one that the environment names for another program, is not the one that the opener is for.
        if self.openers.is_empty() || self.openers.iter().any(served) {
            return Ok(url);
        }
        Err(Error::InvalidUrl {
            reason: format!(
                "an opener was added, and nothing names its store; write for instance {}, or set {STORE_VARIABLE} to that",
                store::added_examples(&self.openers)
            ),
        })
    }

    /// The lease of locks that ask for no other; 30 s unless set, or the longest that the store grants. Renewed at a
    /// third of it. From [`MIN_LEASE`](crate::MIN_LEASE), 100 ms, to [`MAX_LEASE`](crate::MAX_LEASE), 24 hours.
    pub fn lease(mut self, lease: Duration) -> Builder {
        self.lease = Some(lease);
        self
    }

    /// What holders and waiters of this keeper are called where others look at a lock, beside their process: 1 to 256
    /// bytes without control characters, and none unless set. [`Lock::label`] is for one lock, or one piece of work.
    ///
    /// Everybody who can read the store can read labels, so they are no place for a secret.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # use lockkeeper::Lockkeeper;
    /// let keeper = Lockkeeper::builder().url("memory:keeper-label").label("nightly import").connect().await?;
    /// let _guard = keeper.lock("orders")?.acquire().await?;
    ///
    /// let seen = keeper.inspect("orders").await?.expect("it is held");
    /// let label = seen.holders[0].label.as_ref();
    /// assert_eq!(label.map(|label| label.as_str()), Some("nightly import"));
    /// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
    /// ```
    pub fn label(mut self, label: &str) -> Builder {
        self.label = Some(label.to_owned());
        self
    }

    /// How long tasks of this process may hand a lock to each other.
    pub fn hand_off(mut self, hand_off: HandOff) -> Builder {
        self.hand_off = hand_off;
        self
    }

    /// The observer that receives the events.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Builder {
        self.observer = Some(observer);
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], [`Error::InvalidArgument`] for a lease out of range or an unusable label, or the store's error.
    pub async fn connect(self) -> Result<Lockkeeper, Error> {
        self.lease.map_or(Ok(()), crate::limits::check_lease)?;
        let label = self.label.as_deref().map(Label::new).transpose()?;
        let background = Background::start()?;
        // A store that was open before is driven by the runtime that it was opened on, if by any.
        let drives_store = self.store.is_none();
        let store = match self.store {
            Some(store) => store,
            None => {
                let (url, openers) = (self.store_url()?, self.openers);
                // On the keeper's own thread: connections must live on when the caller's runtime is blocked.
                background
                    .run(async move { store::open(&url, &openers).await })
                    .await??
            }
        };
        let capabilities = store.capabilities();
        let usual = Duration::from_secs(30).min(capabilities.longest_lease);
        let lease = self.lease.unwrap_or(usual);
        capabilities.check_lease(lease)?;
        let core = Core::start(
            background,
            store,
            drives_store,
            lease,
            label,
            self.hand_off,
            self.observer,
        );
        Ok(Lockkeeper {
            engine: Engine::new(core.await?),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_deref().map(StoreUrl::parse);
        f.debug_struct("Builder")
            .field("url", &url)
            .field("store", &self.store)
            .field("openers", &self.openers)
            .field("lease", &self.lease)
            .field("label", &self.label)
            .field("hand_off", &self.hand_off)
            .finish_non_exhaustive()
    }
}

impl Lockkeeper {
    /// Opens the store that a URL names: `memory:`, `sqlite:PATH`, …
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] names the stores there are; otherwise the store's own error.
    pub async fn connect(url: &str) -> Result<Lockkeeper, Error> {
        Lockkeeper::builder().url(url).connect().await
    }

    /// Opens a store with other settings than the usual ones.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same keeper for code that blocks its thread, as within `spawn_blocking`;
    /// [`asynchronous`](crate::blocking::Lockkeeper::asynchronous) is the way back.
    pub fn blocking(&self) -> crate::blocking::Lockkeeper {
        self.clone().into()
    }

    /// The one arbiter of a name that the store can keep.
    pub(crate) fn arbiter(&self, name: Name) -> Result<Arc<Arbiter>, Error> {
        self.engine.core.process.check()?;
        self.engine.core.store().check_name(&name)?;
        Ok(self.engine.arbiter(&name))
    }

    fn supports(&self, can: bool, what: &'static str) -> Result<(), Error> {
        if can {
            return Ok(());
        }
        Err(Error::Unsupported {
            store: self.capabilities().store,
            what,
        })
    }

    /// A lock.
    ///
    /// # Errors
    /// [`Error::InvalidName`] as for a [`lock`](Lockkeeper::lock), also for a name that the store cannot keep.
    pub fn lock(&self, name: &str) -> Result<Lock, Error> {
        Ok(Lock::new(self.arbiter(Name::new(name)?)?))
    }

    /// A lock with readers and writers.
    ///
    /// # Errors
    /// [`Error::InvalidName`] as for a [`lock`](Lockkeeper::lock), or [`Error::Unsupported`] by this store.
    pub fn rwlock(&self, name: &str) -> Result<RwLock, Error> {
        self.supports(self.capabilities().read_write, "read-write locks")?;
        Ok(RwLock::new(self.arbiter(Name::new(name)?)?))
    }

    /// A semaphore of so many permits. All who use it must name the same number.
    ///
    /// # Errors
    /// [`Error::InvalidName`] as for a [`lock`](Lockkeeper::lock), [`Error::InvalidArgument`] for no permits, or [`Error::Unsupported`].
    pub fn semaphore(&self, name: &str, permits: u32) -> Result<Semaphore, Error> {
        self.supports(self.capabilities().permits, "semaphores")?;
        Semaphore::new(self.arbiter(Name::new(name)?)?, permits)
    }

    /// A count-down latch.
    ///
    /// # Errors
    /// [`Error::InvalidName`] as for a [`lock`](Lockkeeper::lock), or [`Error::Unsupported`] by this store.
    pub fn latch(&self, name: &str) -> Result<Latch, Error> {
        self.supports(self.capabilities().latches, "latches")?;
        let name = Name::new(name)?;
        self.engine.core.store().check_name(&name)?;
        Ok(Latch::new(self.engine.core.clone(), name))
    }

    /// Several locks that are acquired together. A name that comes twice is one lock, held once, with one guard.
    ///
    /// # Errors
    /// [`Error::InvalidName`] as for a [`lock`](Lockkeeper::lock), or [`Error::InvalidArgument`] for no names.
    pub fn multi_lock<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<MultiLock, Error> {
        let names: Result<_, _> = names.into_iter().map(Name::new).collect();
        MultiLock::of_names(self, names?)
    }

    /// What is known about a name; `None` when nothing is.
    ///
    /// # Errors
    /// [`Error::InvalidName`], or the store's error.
    pub async fn inspect(&self, name: &str) -> Result<Option<store::LockInfo>, Error> {
        let name = Name::new(name)?;
        self.engine.core.process.check()?;
        let answer = self.engine.core.store().inspect(&name);
        let mut info = self.engine.core.bounded(answer).await?;
        if let Some(info) = &mut info {
            self.add_depths(info);
        }
        Ok(info)
    }

    /// Every name that starts with `prefix` and is held or waited for.
    ///
    /// # Errors
    /// The store's error.
    pub async fn list(&self, prefix: &str) -> Result<Vec<store::LockInfo>, Error> {
        self.engine.core.process.check()?;
        let answer = self.engine.core.store().list(prefix);
        let mut infos = self.engine.core.bounded(answer).await?;
        infos.iter_mut().for_each(|info| self.add_depths(info));
        Ok(infos)
    }

    fn add_depths(&self, info: &mut store::LockInfo) {
        for holder in &mut info.holders {
            if holder.claim.keeper == self.engine.core.id
                && let Some(arbiter) = self.engine.known_arbiter(&info.name)
            {
                holder.depth = Some(arbiter.depth(holder.claim));
            }
        }
    }

    /// Ends every hold of a name and moves its fence past them. Returns the holders; if there were none, nothing is kept of the
    /// break. The holders learn of it by a hint, or at their next renewal if the hint is lost. The next holder of the name has a higher
    /// token, so that a resource which has seen it refuses the old holders' writes.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::InvalidArgument`] without a reason, or the store's error. After
    /// [`Error::OutcomeUnknown`] it has been done or never is: a request that arrives later does nothing.
    pub async fn break_lock(&self, name: &str, reason: &str) -> Result<Vec<store::Holder>, Error> {
        match self.break_hold(name, BreakTarget::All, reason).await? {
            BreakOutcome::Ended(holders) => Ok(holders),
            _ => Ok(Vec::new()),
        }
    }

    /// As [`break_lock`](Lockkeeper::break_lock), of one hold: nobody else's is touched, also if the named one has ended by
    /// now. Never returns [`BreakOutcome::TooLate`].
    ///
    /// # Errors
    /// As [`break_lock`](Lockkeeper::break_lock); [`Error::Unavailable`] if the request reached the store too late and did
    /// nothing.
    pub async fn break_hold(
        &self,
        name: &str,
        target: BreakTarget,
        reason: &str,
    ) -> Result<BreakOutcome, Error> {
        if reason.trim().is_empty() {
            return Err(Error::InvalidArgument {
                what: "reason",
                reason: "it is empty; say why the lock is broken".into(),
            });
        }
        self.engine.core.process.check()?;
        let request = store::Break {
            name: Name::new(name)?,
            target,
            reason: reason.to_owned(),
            not_after: Moment::now() + REQUEST_WINDOW,
        };
        let answer = self.engine.core.store().break_lock(&request);
        let answer = self.engine.core.bounded(answer).await;
        self.engine
            .core
            .shared
            .availability
            .record(&request.name, &answer);
        match answer? {
            BreakOutcome::TooLate => Err(Error::unavailable(
                self.capabilities().store,
                "the request reached it too late and did nothing; try again",
            )),
            outcome => Ok(outcome),
        }
    }

    /// Hints whenever something about a name may have changed.
    ///
    /// # Errors
    /// [`Error::InvalidName`], or the store's error.
    pub async fn watch(&self, name: &str) -> Result<store::Subscription, Error> {
        self.engine.core.process.check()?;
        let interest = Interest::Name(Name::new(name)?);
        self.engine
            .core
            .bounded(self.engine.core.store().subscribe(interest))
            .await
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.engine.core.store().capabilities()
    }

    /// The lease of locks that ask for no other.
    pub fn lease(&self) -> Duration {
        self.engine.core.lease
    }

    /// The nodes of a store that has several which vote, and how they are just now; none elsewhere.
    pub fn nodes(&self) -> Vec<store::NodeStatus> {
        if self.engine.core.process.is_fork() {
            return Vec::new();
        }
        self.engine.core.store().health().nodes
    }

    /// This keeper's id: the first part of its claims' ids.
    pub fn id(&self) -> KeeperId {
        self.engine.core.id
    }

    /// Something that keeps this keeper's holds from being freed as those of a dead process for as long as it
    /// is open, also in a child process. `None` where only the lease decides.
    pub fn liveness(&self) -> Option<OwnedFd> {
        if self.engine.core.process.is_fork() {
            return None;
        }
        self.engine.core.store().embedded()?.liveness()
    }

    /// The reason why the store does not respond just now, and what to do about it, as far as that is known without asking it. On `sqlite:` a process that is stopped inside a transaction.
    pub fn obstacle(&self) -> Option<String> {
        self.engine.core.store().embedded()?.obstacle()
    }

    /// Calls `then` while this keeper is in the middle of nothing that would keep others from the store: for a program
    /// that is about to stop itself. On `sqlite:` it waits for the transaction that runs, which may take as long as
    /// another program keeps the file locked, at most five seconds. `then` must not use the keeper.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let keeper = lockkeeper::Lockkeeper::connect("memory:").await?;
    /// keeper.at_rest(|| println!("nobody waits for this process now"));
    /// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
    /// ```
    pub fn at_rest(&self, then: impl FnOnce()) {
        // A fork has nothing under way, and a thread that is not there may have the store's mutexes locked.
        let store = self.engine.core.store().embedded();
        let Some(store) = store.filter(|_| !self.engine.core.process.is_fork()) else {
            return then();
        };
        let mut then = Some(then);
        store.at_rest(&mut || {
            if let Some(then) = then.take() {
                then();
            }
        });
    }

    /// Acquires nothing more (tasks that wait get [`Error::Closed`]), and waits until the releases of all dropped guards are done
    /// and the claims of those tasks have left the store's queue. Guards that are still alive stay valid and are renewed.
    ///
    /// # Cancel safety
    /// Cancel safe; the keeper stays closed.
    pub async fn close(&self) {
        if self.engine.core.process.is_fork() {
            return;
        }
        self.engine.close();
        self.engine.core.cleaned_up().await;
    }
}

impl fmt::Debug for Lockkeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lockkeeper")
            .field("id", &self.engine.core.id)
            .field("store", &self.capabilities().store)
            .finish_non_exhaustive()
    }
}
