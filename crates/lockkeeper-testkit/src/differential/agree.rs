//! What it takes for two answers to be the same.
//!
//! Tokens follow the clock that a store reads them from, so their values differ. Their order may not: whatever
//! has the lower token in one store has it in the other.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockkeeper::Label;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::{Attempt, BreakOutcome, Grant, Holder, LockInfo, Released, Store, Waiter};

/// The furthest that a token may be ahead of the clock, in microseconds, as long as tokens reserved are compared: past a
/// second fewer are given.
const LED: u64 = 500_000;

/// The tokens of one name in the model, and in the store.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    pairs: BTreeMap<u64, u64>,
    led: bool,
}

pub(super) fn same<T: PartialEq + Debug>(model: T, store: T) -> Result<(), String> {
    match model == store {
        true => Ok(()),
        false => Err(format!("the model says {model:?}, the store {store:?}")),
    }
}

impl Tokens {
    fn pair(&mut self, model: u64, store: u64) -> Result<(), String> {
        if let Some(known) = self.pairs.get(&model) {
            return same(("token", *known), ("token", store));
        }
        let before = self.pairs.range(..model).next_back();
        let after = self.pairs.range(model..).next();
        let above = before.is_none_or(|(_, before)| *before < store);
        if !above || after.is_some_and(|(_, after)| *after <= store) {
            return Err(format!(
                "token {store} is {model} in the model, and out of order: {before:?}, {after:?}"
            ));
        }
        self.pairs.insert(model, store);
        Ok(())
    }

    /// The token of the store that is this one in the model, if it was seen.
    pub fn of_store(&self, model: u64) -> Option<u64> {
        self.pairs.get(&model).copied()
    }

    fn grant(&mut self, model: Grant, store: Grant, now: u64) -> Result<(), String> {
        let first = store.token.get();
        self.led |= first > now + LED;
        if !self.led {
            same(("tokens", model.tokens), ("tokens", store.tokens))?;
        }
        self.pair(model.token.get(), store.token.get())
    }

    /// `now` is the time in microseconds.
    pub fn tried(&mut self, model: Attempt, store: Attempt, now: u64) -> Result<(), String> {
        match (model, store) {
            (Attempt::Granted(model), Attempt::Granted(store)) => self.grant(model, store, now),
            (model, store) => same(model, store),
        }
    }

    pub fn released(&mut self, model: Released, store: Released, now: u64) -> Result<(), String> {
        match (model.regrant, store.regrant) {
            (Some(model), Some(store)) => self.grant(model, store, now)?,
            (model, store) => same(model, store)?,
        }
        same(model.was_held, store.was_held)
    }

    pub fn holders(
        &mut self,
        mut model: Vec<Holder>,
        mut store: Vec<Holder>,
    ) -> Result<(), String> {
        model.sort_by_key(|holder| holder.claim);
        store.sort_by_key(|holder| holder.claim);
        same(shown(&model), shown(&store))?;
        for (model, store) in model.iter().zip(&store) {
            match (model.token, store.token) {
                (Some(model), Some(store)) => self.pair(model.get(), store.get())?,
                (model, store) => same(model, store)?,
            }
        }
        Ok(())
    }

    pub fn broken(&mut self, model: BreakOutcome, store: BreakOutcome) -> Result<(), String> {
        use BreakOutcome::{Ended, NotHeld, TooLate};
        match (model, store) {
            (Ended(model), Ended(store)) | (NotHeld(model), NotHeld(store)) => {
                self.holders(model, store)
            }
            (TooLate, TooLate) => Ok(()),
            (model, store) => Err(format!("the model says {model:?}, the store {store:?}")),
        }
    }

    pub fn info(&mut self, model: Option<LockInfo>, store: Option<LockInfo>) -> Result<(), String> {
        let (model, store) = match (known(model), known(store)) {
            (Some(model), Some(store)) => (model, store),
            (model, store) => return same(model.is_some(), store.is_some()),
        };
        self.holders(model.holders, store.holders)?;
        same(("waiters", model.waiters), ("waiters", store.waiters))?;
        queued(&model.queue, &store.queue)?;
        match (model.broken, store.broken) {
            (Some(model), Some(store)) => {
                same(model.reason, store.reason)?;
                // A break counts as made at the token that it takes.
                self.pair(micros(model.at), micros(store.at))?;
            }
            (model, store) => same(model, store)?,
        }
        match (model.last_token, store.last_token) {
            (Some(model), Some(store)) => self.pair(model.get(), store.get()),
            (model, store) => same(model, store),
        }
    }
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// A name without token and history is the same as one never heard of.
fn known(info: Option<LockInfo>) -> Option<LockInfo> {
    info.filter(|info| {
        let history = info.last_token.is_some() || info.broken.is_some();
        history || !info.holders.is_empty() || info.waiters > 0
    })
}

/// What is compared of a holder: claim, mode, label, what is left of its lease, and the whole of it.
type Shown = (
    String,
    String,
    Option<Label>,
    Option<Duration>,
    Option<Duration>,
);

/// Holders without what differs: tokens, and the process.
fn shown(holders: &[Holder]) -> Vec<Shown> {
    let shown = |holder: &Holder| {
        let (claim, mode) = (holder.claim.to_string(), holder.mode.to_string());
        (
            claim,
            mode,
            holder.label.clone(),
            holder.remaining,
            holder.lease,
        )
    };
    holders.iter().map(shown).collect()
}

/// The same claims wait, in the same order, since the same time.
fn queued(model: &[Waiter], store: &[Waiter]) -> Result<(), String> {
    let shown = |queue: &[Waiter]| -> Vec<(String, String, Option<Label>)> {
        let queue = queue.iter();
        let shown = |one: &Waiter| {
            (
                one.claim.to_string(),
                one.mode.to_string(),
                one.label.clone(),
            )
        };
        queue.map(shown).collect()
    };
    same(shown(model), shown(store))?;
    for (model, store) in model.iter().zip(store) {
        // Those who come in the same microsecond may be told apart by one more.
        let apart = |(one, other): (SystemTime, SystemTime)| {
            let apart = one.duration_since(other);
            apart.unwrap_or_else(|error| error.duration())
        };
        if model.since.zip(store.since).map(apart) > Some(Duration::from_millis(1)) {
            return same(model.since, store.since);
        }
    }
    Ok(())
}

/// The names that are held or waited for are the same.
pub(super) async fn listed(stores: &[Arc<dyn Store>], model: &MemoryStore, prefix: &str) {
    let names = |infos: Vec<LockInfo>| -> Vec<String> {
        infos.iter().map(|info| info.name.to_string()).collect()
    };
    let model = names(model.list(prefix).await.expect("the model answers"));
    for store in stores {
        let listed = names(store.list(prefix).await.expect("the store answers"));
        assert_eq!(listed, model, "what is held or waited for");
    }
}
