//! The cases every store has to pass, chosen by what it says it can do.
//!
//! A store's test gives a way to make a fresh [`Subject`]; each case becomes a test of its own name:
//!
//! ```
//! use std::sync::Arc;
//! use lockkeeper::store::memory::MemoryStore;
//! use lockkeeper_testkit::conformance::Subject;
//!
//! async fn memory() -> Subject {
//!     Subject::new(Arc::new(MemoryStore::new()))
//! }
//! lockkeeper_testkit::conformance_tests!(on_memory, memory);
//! # fn main() {}
//! ```
//!
//! Cases run on the real clock. They wait for events and bound them widely, and one that fails while the
//! machine stood still is run again: a slow machine makes them slow, never red.

mod acquire;
mod admin;
mod api;
mod breaks;
mod client;
mod crowd;
pub mod field;
mod hints;
mod labels;
mod latch;
mod lease;
mod modes;
mod names;
mod permits;
mod queue;
mod registry;
mod release;
mod renew;
mod tokens;
mod waiters;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{BoxFuture, Capabilities, Store};

use crate::retries;
pub use api::trying_after_a_drop;

/// A fresh, empty store, as a case gets it.
pub struct Subject {
    store: Arc<dyn Store>,
    other: Arc<dyn Store>,
    refuses: fn(&str) -> bool,
    _keep: Vec<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// A store that has one handle only.
    pub fn new(store: Arc<dyn Store>) -> Subject {
        Subject {
            other: store.clone(),
            store,
            refuses: |_| false,
            _keep: Vec::new(),
        }
    }

    /// Adds a second handle on the same data, as another process would have one.
    pub fn with_other(mut self, other: Arc<dyn Store>) -> Subject {
        self.other = other;
        self
    }

    /// Keeps something, such as a temporary folder, for as long as the case runs.
    pub fn keeping(mut self, thing: impl Any + Send + Sync) -> Subject {
        self._keep.push(Box::new(thing));
        self
    }

    /// Says which names the store has to refuse, with [`lockkeeper::Error::InvalidName`].
    pub fn refusing(mut self, refuses: fn(&str) -> bool) -> Subject {
        self.refuses = refuses;
        self
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The second handle, or the first again.
    pub fn other(&self) -> Arc<dyn Store> {
        self.other.clone()
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, that of its test as well.
    pub name: &'static str,
    needs: fn(&Capabilities) -> bool,
    body: fn(Subject) -> BoxFuture<'static, ()>,
}

impl Case {
    /// Whether a store that can do this has to pass the case.
    pub fn applies(&self, capabilities: &Capabilities) -> bool {
        (self.needs)(capabilities)
    }

    /// Runs the case.
    ///
    /// # Panics
    /// When the store fails it, or has not finished after five minutes. The longest cases make thousands of requests, which
    /// take more than a minute on a busy machine.
    pub async fn run(&self, subject: Subject) {
        let body = (self.body)(subject);
        let outcome = tokio::time::timeout(Duration::from_secs(300), body).await;
        assert!(outcome.is_ok(), "{} hangs", self.name);
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The cases that a store with these capabilities has to pass.
pub fn cases(capabilities: &Capabilities) -> Vec<Case> {
    let mut cases = registry::all();
    cases.retain(|case| case.applies(capabilities));
    cases
}

/// Runs every case that applies, each on a subject of its own, all at the same time.
///
/// # Panics
/// When a case fails, with its name.
pub async fn all<F>(make: impl Fn() -> F)
where
    F: Future<Output = Subject>,
{
    let capabilities = make().await.store.capabilities();
    let watch = StallWatch::start();
    let mut running = Vec::new();
    for case in cases(&capabilities) {
        let subject = make().await;
        running.push((case, tokio::spawn(async move { case.run(subject).await })));
    }
    let mut failed = Vec::new();
    for (case, task) in running {
        if task.await.is_err() {
            failed.push(case);
        }
    }
    if watch.longest() > STALL {
        for case in std::mem::take(&mut failed) {
            stood_still(case, watch.longest());
            run_conclusively(case, &make).await;
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Runs the case of this name in a runtime of its own; one that does not apply is skipped.
///
/// # Panics
/// When the case fails, or there is none of this name.
pub fn run<F>(name: &str, make: impl Fn() -> F)
where
    F: Future<Output = Subject>,
{
    let mut all = registry::all().into_iter();
    let case = all.find(|case| case.name == name);
    let case = case.expect("a case of this name");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run_conclusively(case, &make));
}

/// Runs a case until its outcome means something: a lease that ran out while the machine stood still proves
/// nothing about the store.
async fn run_conclusively<F>(case: Case, make: &impl Fn() -> F)
where
    F: Future<Output = Subject>,
{
    for round in 1.. {
        let subject = make().await;
        if !case.applies(&subject.store.capabilities()) {
            println!("{case:?} does not apply to {:?}", subject.store);
            return;
        }
        let watch = StallWatch::start();
        let outcome = tokio::spawn(async move { case.run(subject).await }).await;
        let Err(failure) = outcome else { return };
        let stalled = watch.longest();
        if stalled <= STALL || round == 5 {
            std::panic::resume_unwind(failure.into_panic());
        }
        stood_still(case, stalled);
    }
}

fn stood_still(case: Case, stalled: Duration) {
    println!("{case:?} again: the machine stood still for {stalled:?}");
    retries::count("the machine stood still during a case");
}

/// The shortest pause of the whole process that can turn a case red: a part of
/// [`GRANT_LEASE`](lockkeeper::store::GRANT_LEASE).
const STALL: Duration = Duration::from_millis(200);

/// Measures how long the machine keeps a thread from running.
struct StallWatch {
    longest: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl StallWatch {
    fn start() -> StallWatch {
        const TICK: Duration = Duration::from_millis(20);
        let longest = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let watch = StallWatch {
            longest: longest.clone(),
            ended: ended.clone(),
        };
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let before = Moment::now();
                std::thread::sleep(TICK);
                let stalled = Moment::now().since(before).saturating_sub(TICK);
                longest.fetch_max(stalled.as_micros() as u64, Ordering::Relaxed);
            }
        });
        watch
    }

    fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
