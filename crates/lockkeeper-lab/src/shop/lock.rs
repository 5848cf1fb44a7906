//! Which lock protects a sale: none, one of this process, a naive one on Redis, or ours.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Guard, Lockkeeper, Token};
use lockkeeper_testkit::naive::{MISTAKES, Mistake, NaiveGuard, NaiveLock};
use tokio::sync::OwnedMutexGuard;

use crate::text::Text;
use crate::words;

/// The kind of lock that an instance uses.
#[derive(Clone, PartialEq, Eq)]
pub enum LockKind {
    /// Nothing protects anything.
    None,
    /// A mutex of this process: other instances do not see it.
    Mutex,
    /// A lock on Redis as it is written every day, with a mistake in it. Renewed only if that is its mistake.
    Naive {
        /// What it gets wrong.
        mistake: Mistake,
        /// Its name.
        name: String,
        /// A `redis://` URL.
        redis: String,
    },
    /// Lockkeeper, on the store of this URL.
    Ours(String),
}

impl LockKind {
    /// Reads `none`, `mutex`, a naive lock's name or a store's URL. Naive locks live on the server of `redis`.
    ///
    /// # Errors
    /// What is wrong and what there is to choose from; a password is not repeated.
    pub fn parse(text: &str, redis: Option<&str>) -> Result<LockKind> {
        match text {
            "none" => return Ok(LockKind::None),
            "mutex" => return Ok(LockKind::Mutex),
            _ => {}
        }
        if let Some(mistake) = Mistake::named(text) {
            let redis = redis.with_context(|| words::naive_needs_redis(text))?;
            return Ok(LockKind::Naive {
                mistake,
                name: text.to_owned(),
                redis: redis.to_owned(),
            });
        }
        anyhow::ensure!(text.contains(':'), unknown(text));
        StoreUrl::parse(text)?;
        Ok(LockKind::Ours(text.to_owned()))
    }
}

fn unknown(text: &str) -> Text {
    let naive: Vec<_> = MISTAKES.iter().map(|(_, name, _)| *name).collect();
    let text: String = text.chars().take(40).collect();
    words::no_lock(&text, &naive.join(", "))
}

/// As it is written, without a password.
impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockKind::None => f.write_str("none"),
            LockKind::Mutex => f.write_str("mutex"),
            LockKind::Naive { name, .. } => f.write_str(name),
            LockKind::Ours(url) => match StoreUrl::parse(url) {
                Ok(url) => write!(f, "{url}"),
                Err(_) => f.write_str("an unusable URL"),
            },
        }
    }
}

impl fmt::Debug for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockKind({self})")
    }
}

/// One kind's locks, one a name.
#[derive(Debug)]
pub(super) struct Locks {
    kind: LockKind,
    lease: Duration,
    keeper: Option<Lockkeeper>,
    mutexes: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    naive: Mutex<HashMap<String, NaiveLock>>,
}

/// A held lock, or what there is in its place.
pub(super) enum Held {
    Nothing,
    Mutex(OwnedMutexGuard<()>),
    Naive(Box<NaiveGuard>),
    Ours(Guard),
}

impl Locks {
    pub async fn open(kind: LockKind, lease: Duration) -> Result<Locks> {
        let keeper = match &kind {
            LockKind::Ours(url) => {
                let builder = Lockkeeper::builder().url(url).lease(lease).label("shop");
                Some(builder.connect().await?)
            }
            _ => None,
        };
        let locks = Locks {
            kind,
            lease,
            keeper,
            mutexes: Mutex::default(),
            naive: Mutex::default(),
        };
        // A server that is not there is found out now, not by the first customer.
        if let LockKind::Naive { .. } = locks.kind {
            let probe = locks.naive("shop:opening")?;
            let guard = probe.acquire(Duration::ZERO).await;
            let guard = guard.context(words::NAIVE_SERVER_SILENT)?;
            if let Some(guard) = guard {
                guard.release().await?;
            }
        }
        Ok(locks)
    }

    /// Waits for a lock, for so long; `None` if others have it all the while.
    pub async fn acquire(&self, name: &str, patience: Duration) -> Result<Option<Held>> {
        if let Some(keeper) = &self.keeper {
            let guard = keeper.lock(name)?.acquire_within(patience).await?;
            return Ok(guard.map(Held::Ours));
        }
        match &self.kind {
            LockKind::Mutex => {
                let guard = self.mutex(name).lock_owned();
                let guard = tokio::time::timeout(patience, guard).await;
                Ok(guard.ok().map(Held::Mutex))
            }
            LockKind::Naive { .. } => {
                let guard = self.naive(name)?.acquire(patience).await?;
                Ok(guard.map(|guard| Held::Naive(Box::new(guard))))
            }
            LockKind::None | LockKind::Ours(_) => Ok(Some(Held::Nothing)),
        }
    }

    fn mutex(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut mutexes = self.mutexes.lock().unwrap_or_else(PoisonError::into_inner);
        // Rewards have as many names as families ask: those that nobody uses need not stay.
        if mutexes.len() > 1_000 {
            mutexes.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        }
        mutexes.entry(name.to_owned()).or_default().clone()
    }

    fn naive(&self, name: &str) -> Result<NaiveLock> {
        let LockKind::Naive { mistake, redis, .. } = &self.kind else {
            anyhow::bail!("not a naive lock");
        };
        let mut locks = self.naive.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(name) {
            return Ok(lock.clone());
        }
        // Each has a connection of its own.
        anyhow::ensure!(locks.len() < 1_000, "too many names for naive locks");
        let renewed = matches!(
            mistake,
            Mistake::RenewAnyones | Mistake::RenewRecreates | Mistake::SwallowErrors
        );
        let lock = NaiveLock::new(*mistake, redis, name, self.lease, renewed)?;
        locks.insert(name.to_owned(), lock.clone());
        Ok(lock)
    }

    /// Waits until everything that was held has been given back.
    pub async fn close(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.close().await;
        }
    }
}

impl Held {
    /// The token that a write has to carry. Only ours counts: the others' would protect nothing.
    pub fn token(&self) -> Option<Token> {
        match self {
            Held::Ours(guard) => Some(guard.token()),
            _ => None,
        }
    }

    /// Lets go.
    pub async fn release(self) -> Result<()> {
        match self {
            Held::Nothing => {}
            Held::Mutex(guard) => drop(guard),
            Held::Naive(guard) => {
                guard.release().await?;
            }
            Held::Ours(guard) => {
                guard.release().await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_and_shown_without_passwords() {
        for text in ["none", "mutex", "sqlite:/tmp/x.db", "memory:"] {
            let kind = LockKind::parse(text, None).expect(text);
            assert_eq!(kind.to_string(), text);
        }
        let secret = LockKind::parse("redis://me:pw-1@host/0", None).expect("a URL");
        assert!(!format!("{secret} {secret:?}").contains("pw-1"));
        let naive = LockKind::parse("no-expiry", Some("redis://:pw-2@host/0")).expect("naive");
        assert_eq!(naive.to_string(), "no-expiry");
        assert!(!format!("{naive:?}").contains("pw-2"));
    }

    #[test]
    fn what_is_no_kind_is_told_what_there_is() {
        let error = LockKind::parse("synchronized", None).expect_err("no kind");
        let error = error.to_string();
        assert!(
            error.contains("mutex") && error.contains("get-then-del"),
            "{error}"
        );
        let error = LockKind::parse("no-expiry", None).expect_err("no server");
        assert!(error.to_string().contains("--store"), "{error}");
    }
}
