//! Whether the store answers: what is reported when it does not, and when it does again.
//!
//! Every verb that changes something says how it ended. Where nobody asks for anything any more, the keeper asks by itself.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::observers::Observers;
use crate::clock::Moment;
use crate::store::{ClaimId, KeeperId, Store};
use crate::{Error, Event, Name};

/// How long a request may be on its way: past this the store ignores it, and we stop waiting for its answer.
pub(crate) const REQUEST_WINDOW: Duration = Duration::from_secs(10);

/// How long the store is not said to be away again after it was, where it answers for one lock and not for another. How
/// often the keeper asks whether it is back.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Availability {
    /// The kind of store.
    store: &'static str,
    observers: Arc<Observers>,
    /// Set once it has been reported that the store is away.
    reported: AtomicBool,
    state: Mutex<State>,
    began: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Since when the store is away, and the lock that found it out.
    away: Option<(Moment, Name)>,
    /// When the last event was reported.
    last: Option<Moment>,
}

impl Availability {
    pub fn new(store: &'static str, observers: Arc<Observers>) -> Availability {
        Availability {
            store,
            observers,
            reported: AtomicBool::new(false),
            state: Mutex::default(),
            began: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the store is away. Returns whether that is to be reported.
    fn begin(&self, name: &Name) -> bool {
        let mut state = self.state();
        let now = Moment::now();
        let just_reported = state.last.is_some_and(|last| now.since(last) < PAUSE);
        if state.away.is_some() || just_reported {
            return false;
        }
        state.last = Some(now);
        state.away = Some((now, name.clone()));
        true
    }

    /// Notes that the store works. Returns for how long it was away, if that was reported.
    fn end(&self) -> Option<Duration> {
        let mut state = self.state();
        let (since, _) = state.away.take()?;
        let now = Moment::now();
        state.last = Some(now);
        self.reported.store(false, SeqCst);
        Some(now.since(since))
    }

    fn name(&self) -> Option<Name> {
        self.state().away.as_ref().map(|(_, name)| name.clone())
    }

    /// The store answered a verb for a lock, or did not.
    pub fn record<T>(&self, name: &Name, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.record_success(),
            Err(error) => self.record_failure(name, error),
        }
    }

    /// The store did what it was asked for.
    pub fn record_success(&self) {
        // Set only after it was reported, so that the two events come in their order.
        if !self.reported.load(SeqCst) {
            return;
        }
        if let Some(away) = self.end() {
            let store = self.store;
            self.observers.event(&Event::StoreBack { store, away });
        }
    }

    /// The store said this instead of an answer.
    pub fn record_failure(&self, name: &Name, error: &Error) {
        if error.is_transient() && !self.reported.load(SeqCst) && self.begin(name) {
            let store = self.store;
            self.observers.event(&Event::StoreAway { store, error });
            self.reported.store(true, SeqCst);
            self.began.notify_one();
        }
    }

    /// Asks a store that is away whether it is back, until it is. Runs until its runtime ends.
    pub async fn watch(&self, store: &dyn Store, keeper: KeeperId) {
        loop {
            self.began.notified().await;
            while let Some(name) = self.name() {
                tokio::time::sleep(PAUSE).await;
                let answer = tokio::time::timeout(REQUEST_WINDOW, probe(store, &name, keeper)).await;
                if matches!(answer, Ok(Ok(()))) {
                    self.record_success();
                }
            }
        }
    }
}

/// Reads and writes, and changes nothing: no claim has this number.
async fn probe(store: &dyn Store, name: &Name, keeper: KeeperId) -> Result<(), Error> {
    store.inspect(name).await?;
    let claim = ClaimId { keeper, number: 0 };
    store.withdraw(name, claim).await
}
