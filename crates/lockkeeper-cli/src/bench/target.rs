//! The store under test.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::HandOff;
use lockkeeper::blocking::Lockkeeper;
use lockkeeper::store::Store;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper::url::{STORE_VARIABLE, StoreUrl};

use super::counting::Counting;

/// Where the store is.
#[derive(Clone)]
pub struct Address {
    pub url: StoreUrl,
    /// As it was given: `url` does not show a password.
    pub text: String,
}

impl Address {
    /// What an argument names, else the environment's or the embedded default.
    pub fn find(argument: Option<&str>) -> Result<Address> {
        let text = match argument {
            Some(text) => Some(text.to_owned()),
            None => std::env::var(STORE_VARIABLE).ok(),
        };
        let text = text.filter(|text| !text.is_empty());
        let url = match &text {
            Some(text) => StoreUrl::parse(text)?,
            None => StoreUrl::from_environment()?,
        };
        let text = text.unwrap_or_else(|| url.to_string());
        Ok(Address { url, text })
    }
}

/// A keeper, and the count of what it asks of its store.
pub struct Target {
    pub keeper: Lockkeeper,
    /// `None` for a store that only a keeper opens, on its own thread: there a server counts.
    pub counting: Option<Counting>,
}

impl Target {
    pub fn open(address: &Address, hand_off: HandOff, lease: Option<Duration>) -> Result<Target> {
        let mut builder = Lockkeeper::builder().hand_off(hand_off);
        if let Some(lease) = lease {
            builder = builder.lease(lease);
        }
        let counting = open(&address.url)?.map(Counting::new);
        builder = match &counting {
            Some(counting) => builder.store(Arc::new(counting.clone())),
            None => builder.url(&address.text),
        };
        let keeper = builder.connect_blocking()?;
        Ok(Target { keeper, counting })
    }

    /// One lock a name, for tasks.
    pub fn locks(&self, names: &[String]) -> Result<Vec<lockkeeper::Lock>> {
        let keeper = self.keeper.asynchronous();
        Ok(names
            .iter()
            .map(|name| keeper.lock(name))
            .collect::<Result<_, _>>()?)
    }

    /// One lock a name, for threads.
    pub fn blocking_locks(&self, names: &[String]) -> Result<Vec<lockkeeper::blocking::Lock>> {
        let locks = names.iter().map(|name| self.keeper.lock(name));
        Ok(locks.collect::<Result<_, _>>()?)
    }
}

fn open(url: &StoreUrl) -> Result<Option<Arc<dyn Store>>> {
    Ok(match url.scheme() {
        "memory" => Some(Arc::new(MemoryStore::new())),
        "sqlite" => Some(Arc::new(SqliteStore::open(&url.path()?)?)),
        _ => None,
    })
}
