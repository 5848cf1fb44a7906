//! Whether the store works: reports when it goes away, and when it is back.
//!
//! Every verb that changes something records its result here. While the store is away, the keeper probes it, since no user may ask
//! for anything.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::observers::Observers;
use crate::clock::Moment;
use crate::store::{ClaimId, KeeperId, Store};
use crate::{Error, Event, Name};

/// How long a request may be on its way. After that the store ignores it, and its caller stops waiting.
pub(crate) const REQUEST_WINDOW: Duration = Duration::from_secs(10);

/// How long to wait before the store is reported away again: it may work for one lock and not for another. Also how often a store
/// that is away is probed.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Availability {
    /// The kind of store.
    store: &'static str,
    observers: Arc<Observers>,
    /// The store has been reported away.
    reported: AtomicBool,
    state: Mutex<State>,
    began: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Since when the store is away, and the lock whose request failed.
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

    /// Begins an outage. Returns whether to report it.
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

    /// Ends an outage. Returns how long it was.
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

    /// Records the result of a request for a lock.
    pub fn record<T>(&self, name: &Name, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.record_success(),
            Err(error) => self.record_failure(name, error),
        }
    }

    fn record_success(&self) {
        // Set after the event, so that `StoreBack` never comes before `StoreAway`.
        if !self.reported.load(SeqCst) {
            return;
        }
        if let Some(away) = self.end() {
            let store = self.store;
            self.observers.event(&Event::StoreBack { store, away });
        }
    }

    pub fn record_failure(&self, name: &Name, error: &Error) {
        if error.is_transient() && !self.reported.load(SeqCst) && self.begin(name) {
            let store = self.store;
            self.observers.event(&Event::StoreAway { store, error });
            self.reported.store(true, SeqCst);
            self.began.notify_one();
        }
    }

    /// Probes the store while it is away. Runs until its runtime ends.
    pub async fn watch(&self, store: &dyn Store, keeper: KeeperId) {
        loop {
            self.began.notified().await;
            while let Some(name) = self.name() {
                tokio::time::sleep(PAUSE).await;
                let probed =
                    tokio::time::timeout(REQUEST_WINDOW, probe(store, &name, keeper)).await;
                if matches!(probed, Ok(Ok(()))) {
                    self.record_success();
                }
            }
        }
    }
}

/// Reads and writes, and changes nothing, since no claim has this number.
async fn probe(store: &dyn Store, name: &Name, keeper: KeeperId) -> Result<(), Error> {
    store.inspect(name).await?;
    let claim = ClaimId { keeper, number: 0 };
    store.withdraw(name, claim).await
}
