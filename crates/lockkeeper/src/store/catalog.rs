//! Which stores exist, which of them this build has, and how a URL opens one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Capabilities, Store, memory};
use crate::Error;
use crate::error::excerpt;
use crate::url::StoreUrl;

/// One kind of store, as a URL names it.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// What the URL starts with.
    pub scheme: &'static str,
    /// Which of its dialects, if it has several.
    pub dialect: Option<&'static str>,
    /// An example of a URL.
    pub example: &'static str,
    /// The cargo feature that compiles it in; `None` when it is always there.
    pub feature: Option<&'static str>,
    /// What it can do; `None` when this build does not have it.
    pub capabilities: Option<Capabilities>,
}

/// A row of [`schemes`]. What it can do is known only where its feature is compiled in.
macro_rules! scheme {
    ($feature:literal, $scheme:literal, $dialect:expr, $example:literal, $capabilities:expr) => {
        Scheme {
            scheme: $scheme,
            dialect: $dialect,
            example: $example,
            feature: Some($feature),
            #[cfg(feature = $feature)]
            capabilities: Some($capabilities),
            #[cfg(not(feature = $feature))]
            capabilities: None,
        }
    };
}

/// A row of Redis in its first dialect.
macro_rules! redisson {
    ($scheme:literal, $example:literal) => {
        scheme!(
            "redis",
            $scheme,
            Some("redisson"),
            $example,
            super::redis::CAPABILITIES
        )
    };
}

/// Every kind of store, whether this build has it or not.
pub fn schemes() -> &'static [Scheme] {
    &[
        Scheme {
            scheme: "memory",
            dialect: None,
            example: "memory:",
            feature: None,
            capabilities: Some(memory::CAPABILITIES),
        },
        scheme!(
            "sqlite",
            "sqlite",
            None,
            "sqlite:/var/lib/app/locks.db",
            super::sqlite::CAPABILITIES
        ),
        redisson!("redis", "redis://localhost:6379/0"),
        redisson!("rediss", "rediss://db.example:6380/0"),
        redisson!(
            "redis+sentinel",
            "redis+sentinel://a:26379,b:26379,c:26379/mymaster"
        ),
        redisson!("redis+unix", "redis+unix:///run/redis/redis.sock"),
        redisson!("redis+cluster", "redis+cluster://node1:6379,node2:6379"),
        scheme!(
            "redis",
            "redis",
            Some("plain"),
            "redis://localhost:6379/0?dialect=plain",
            super::redis::PLAIN_CAPABILITIES
        ),
        scheme!(
            "redis",
            "redlock",
            Some("redisson"),
            "redlock://a:6379,b:6379,c:6379",
            super::quorum::CAPABILITIES
        ),
        scheme!(
            "redis",
            "redlock",
            Some("plain"),
            "redlock://a:6379,b:6379,c:6379?dialect=plain",
            super::quorum::PLAIN_CAPABILITIES
        ),
    ]
}

/// Opens the store that a URL names.
pub(crate) async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, Error> {
    match url.scheme() {
        "memory" => Ok(shared_memory(url.rest())),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(super::sqlite::SqliteStore::open(&url.path()?)?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "rediss+unix" | "redis+sentinel"
        | "rediss+sentinel" | "redis+cluster" | "rediss+cluster" => {
            Ok(Arc::new(super::redis::RedisStore::connect(url).await?))
        }
        #[cfg(feature = "redis")]
        "redlock" => Ok(Arc::new(super::quorum::QuorumStore::connect(url).await?)),
        other => Err(Error::InvalidUrl {
            reason: missing(other),
        }),
    }
}

/// `memory:NAME` is one store for the whole process, for as long as someone uses it.
fn shared_memory(name: &str) -> Arc<dyn Store> {
    type Stores = HashMap<String, Weak<memory::MemoryStore>>;
    static STORES: Mutex<Option<(u32, Stores)>> = Mutex::new(None);
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    // A fork has a copy of its parent's, and a thread that is not there may be at work in it.
    if let Some(parents) = stores.take_if(|(of, _)| *of != process) {
        std::mem::forget(parents);
    }
    let (_, stores) = stores.get_or_insert_with(|| (process, Stores::new()));
    if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
        return store;
    }
    stores.retain(|_, store| store.strong_count() > 0);
    let store = Arc::new(memory::MemoryStore::new());
    stores.insert(name.to_owned(), Arc::downgrade(&store));
    store
}

fn missing(scheme: &str) -> String {
    if let Some(known) = schemes().iter().find(|known| known.scheme == scheme) {
        let feature = known.feature.unwrap_or_default();
        return format!("this build has no {scheme} store; enable the cargo feature `{feature}`");
    }
    let examples: Vec<_> = schemes()
        .iter()
        .filter(|known| known.capabilities.is_some() && known.dialect != Some("plain"))
        .map(|known| known.example)
        .collect();
    format!(
        "there is no store {}; write for instance {}",
        excerpt(scheme),
        examples.join(" or ")
    )
}
