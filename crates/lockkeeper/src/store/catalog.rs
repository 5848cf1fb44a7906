//! Which stores exist, which of them this build has, and how a URL opens one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::{Answer, Capabilities, Store, memory};
use crate::Error;
use crate::error::excerpt;
use crate::url::StoreUrl;

/// One kind of store, as a URL names it.
///
/// ```
/// use lockkeeper::store::{Scheme, memory};
///
/// const SHELF: Scheme = Scheme::new("shelf", "shelf://localhost:7000").with_capabilities(Some(memory::CAPABILITIES));
/// assert_eq!(SHELF.feature, None);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scheme {
    /// What the URL starts with.
    pub scheme: &'static str,
    /// Which of its dialects, if it has several.
    pub dialect: Option<&'static str>,
    /// An example of a URL.
    pub example: &'static str,
    /// The cargo feature that compiles it in; `None` when it is always there.
    pub feature: Option<&'static str>,
    /// What such a store can do unless the URL says otherwise; `None` if this build does not have it.
    pub capabilities: Option<Capabilities>,
}

impl Scheme {
    /// A scheme without dialects and features, of which nothing is known but an example of a URL.
    pub const fn new(scheme: &'static str, example: &'static str) -> Scheme {
        Scheme {
            scheme,
            dialect: None,
            example,
            feature: None,
            capabilities: None,
        }
    }

    /// With this [`dialect`](Scheme::dialect).
    pub const fn with_dialect(mut self, dialect: Option<&'static str>) -> Self {
        self.dialect = dialect;
        self
    }

    /// Needs this [`feature`](Scheme::feature) of cargo.
    pub const fn with_feature(mut self, feature: Option<&'static str>) -> Self {
        self.feature = feature;
        self
    }

    /// With these [`capabilities`](Scheme::capabilities).
    pub const fn with_capabilities(mut self, capabilities: Option<Capabilities>) -> Self {
        self.capabilities = capabilities;
        self
    }
}

/// A row of [`schemes`]. Its capabilities are known only if its feature is compiled in.
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

/// A row of Redis in the dialect of Redisson.
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

const MEMORY: &[Scheme] = &[Scheme {
    scheme: "memory",
    dialect: None,
    example: "memory:",
    feature: None,
    capabilities: Some(memory::CAPABILITIES),
}];

const SQLITE: &[Scheme] = &[scheme!(
    "sqlite",
    "sqlite",
    None,
    "sqlite:/var/lib/app/locks.db",
    super::sqlite::CAPABILITIES
)];

const REDIS: &[Scheme] = &[
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
];

const MYSQL: &[Scheme] = &[
    scheme!(
        "mysql",
        "mysql",
        None,
        "mysql://app@db.example/locks",
        super::mysql::CAPABILITIES
    ),
    scheme!(
        "mysql",
        "mariadb",
        None,
        "mariadb://app@db.example/locks",
        super::mysql::CAPABILITIES
    ),
];

const REDLOCK: &[Scheme] = &[
    scheme!(
        "redlock",
        "redlock",
        Some("redisson"),
        "redlock://a:6379,b:6379,c:6379",
        super::quorum::CAPABILITIES
    ),
    scheme!(
        "redlock",
        "redlock",
        Some("plain"),
        "redlock://a:6379,b:6379,c:6379?dialect=plain",
        super::quorum::PLAIN_CAPABILITIES
    ),
];

const POSTGRES: &[Scheme] = &[
    scheme!(
        "postgres",
        "postgres",
        None,
        "postgres://app@localhost/app",
        super::postgres::CAPABILITIES
    ),
    scheme!(
        "postgres",
        "postgresql",
        None,
        "postgresql://app@localhost/app",
        super::postgres::CAPABILITIES
    ),
];

const ZOOKEEPER: &[Scheme] = &[
    scheme!(
        "zookeeper",
        "zk",
        None,
        "zk://a:2181,b:2181,c:2181/locks",
        super::zookeeper::CAPABILITIES
    ),
    scheme!(
        "zookeeper",
        "zks",
        None,
        "zks://a:2281,b:2281,c:2281/locks",
        super::zookeeper::CAPABILITIES
    ),
];

const ETCD: &[Scheme] = &[
    scheme!(
        "etcd",
        "etcd",
        None,
        "etcd://a:2379,b:2379,c:2379/locks",
        super::etcd::CAPABILITIES
    ),
    scheme!(
        "etcd",
        "etcds",
        None,
        "etcds://a:2379,b:2379,c:2379/locks",
        super::etcd::CAPABILITIES
    ),
];

/// Every kind of store that this crate has, whether this build has it or not.
pub fn schemes() -> &'static [Scheme] {
    static ALL: LazyLock<Vec<Scheme>> = LazyLock::new(|| {
        [
            MEMORY, SQLITE, REDIS, REDLOCK, POSTGRES, MYSQL, ZOOKEEPER, ETCD,
        ]
        .concat()
    });
    &ALL
}

/// Opens stores of one kind. A crate that brings a store implements it, and a program names it to its keeper with
/// [`Builder::opener`](crate::Builder::opener). The stores of this crate are opened in the same way.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use lockkeeper::Lockkeeper;
/// use lockkeeper::store::memory::{self, MemoryStore};
/// use lockkeeper::store::{Answer, Opener, Scheme, Store};
/// use lockkeeper::url::StoreUrl;
///
/// /// `toy:` is a new store each time.
/// #[derive(Debug)]
/// struct Toy;
///
/// impl Opener for Toy {
///     fn schemes(&self) -> &[Scheme] {
///         const TOY: Scheme = Scheme::new("toy", "toy:").with_capabilities(Some(memory::CAPABILITIES));
///         &[TOY]
///     }
///     fn open<'a>(&'a self, _: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
///         Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>) })
///     }
/// }
///
/// let keeper = Lockkeeper::builder().opener(Toy).url("toy:").connect().await?;
/// # drop(keeper);
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
pub trait Opener: Send + Sync + fmt::Debug + 'static {
    /// The kinds of URL that it opens, with schemes in lower case. Errors show their examples.
    fn schemes(&self) -> &[Scheme];

    /// Whether it opens URLs of this scheme. By default it opens those that it lists.
    fn serves(&self, scheme: &str) -> bool {
        self.schemes().iter().any(|one| one.scheme == scheme)
    }

    /// Opens the store that a URL names. It runs on the keeper's own thread: what it spawns there goes on while the
    /// caller's runtime is blocked, and ends with the keeper.
    ///
    /// Errors are [`Error::InvalidUrl`] for a URL that cannot be meant, without any secret of it; then
    /// [`Error::Unavailable`] if trying again may help, and [`Error::Refused`] if not.
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>>;
}

/// Opens the store that a URL names. Openers that were added come before those of this crate.
pub(crate) async fn open(
    url: &StoreUrl,
    added: &[Arc<dyn Opener>],
) -> Result<Arc<dyn Store>, Error> {
    let serves = |one: &&dyn Opener| one.serves(url.scheme());
    let opener = added.iter().map(|one| &**one).find(serves);
    match opener.or_else(|| built_in().find(serves)) {
        Some(opener) => opener.open(url).await,
        None => Err(Error::InvalidUrl {
            reason: no_opener(url.scheme(), added),
        }),
    }
}

/// The openers of the stores that this build has.
fn built_in() -> impl Iterator<Item = &'static dyn Opener> {
    let all: &'static [&'static dyn Opener] = &[
        &Memory,
        #[cfg(feature = "sqlite")]
        &Sqlite,
        #[cfg(feature = "redis")]
        &Redis,
        #[cfg(feature = "redlock")]
        &Redlock,
        #[cfg(feature = "postgres")]
        &Postgres,
        #[cfg(feature = "mysql")]
        &MySql,
        #[cfg(feature = "zookeeper")]
        &ZooKeeper,
        #[cfg(feature = "etcd")]
        &Etcd,
    ];
    all.iter().copied()
}

#[derive(Debug)]
struct Memory;

impl Opener for Memory {
    fn schemes(&self) -> &[Scheme] {
        MEMORY
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async { Ok(shared_memory(url.rest())) })
    }
}

#[cfg(feature = "sqlite")]
#[derive(Debug)]
struct Sqlite;

#[cfg(feature = "sqlite")]
impl Opener for Sqlite {
    fn schemes(&self) -> &[Scheme] {
        SQLITE
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = super::sqlite::SqliteStore::open(&url.path()?)?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

#[cfg(feature = "redis")]
#[derive(Debug)]
struct Redis;

#[cfg(feature = "redis")]
impl Opener for Redis {
    fn schemes(&self) -> &[Scheme] {
        REDIS
    }
    /// Those that it lists, and each of them with TLS.
    fn serves(&self, scheme: &str) -> bool {
        let plain = scheme.replacen("rediss", "redis", 1);
        REDIS.iter().any(|one| one.scheme == plain)
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = super::redis::RedisStore::connect(url).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

#[cfg(feature = "redlock")]
#[derive(Debug)]
struct Redlock;

#[cfg(feature = "redlock")]
impl Opener for Redlock {
    fn schemes(&self) -> &[Scheme] {
        REDLOCK
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = super::quorum::QuorumStore::connect(url).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

#[cfg(feature = "postgres")]
#[derive(Debug)]
struct Postgres;

#[cfg(feature = "postgres")]
impl Opener for Postgres {
    fn schemes(&self) -> &[Scheme] {
        POSTGRES
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = super::postgres::PostgresStore::connect(url).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

#[cfg(feature = "mysql")]
#[derive(Debug)]
struct MySql;

#[cfg(feature = "mysql")]
impl Opener for MySql {
    fn schemes(&self) -> &[Scheme] {
        MYSQL
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = super::mysql::MySqlStore::connect(url).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

#[cfg(feature = "zookeeper")]
#[derive(Debug)]
struct ZooKeeper;

#[cfg(feature = "zookeeper")]
impl Opener for ZooKeeper {
    fn schemes(&self) -> &[Scheme] {
        ZOOKEEPER
    }
    fn serves(&self, scheme: &str) -> bool {
        matches!(scheme, "zk" | "zks" | "zookeeper")
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = super::zookeeper::ZooKeeperStore::connect(url).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

#[cfg(feature = "etcd")]
#[derive(Debug)]
struct Etcd;

#[cfg(feature = "etcd")]
impl Opener for Etcd {
    fn schemes(&self) -> &[Scheme] {
        ETCD
    }
    fn open<'a>(&'a self, url: &'a StoreUrl) -> Answer<'a, Arc<dyn Store>> {
        Box::pin(async {
            let store = super::etcd::EtcdStore::connect(url).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }
}

/// The store of `memory:NAME`: one for the whole process, for as long as a keeper uses it.
fn shared_memory(name: &str) -> Arc<dyn Store> {
    type Stores = HashMap<String, Weak<memory::MemoryStore>>;
    static STORES: Mutex<Option<(u32, Stores)>> = Mutex::new(None);
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    // A fork has a copy of its parent's stores. Their mutexes may be locked by threads that the fork does not have.
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

/// Why no opener takes URLs of a scheme: a feature is off, or there is no such store.
fn no_opener(scheme: &str, added: &[Arc<dyn Opener>]) -> String {
    let enabled = schemes()
        .iter()
        .filter(|known| known.capabilities.is_some());
    let mut enabled: Vec<&str> = enabled.filter_map(|known| known.feature).collect();
    if cfg!(feature = "tls") {
        enabled.push("tls");
    }
    if let Some(features) = missing_features(scheme, &enabled) {
        return format!("this build has no {scheme} store; enable {features}");
    }
    format!(
        "there is no store {}; write for instance {}",
        excerpt(scheme),
        examples(
            added.iter().flat_map(|one| one.schemes()).chain(
                schemes()
                    .iter()
                    .filter(|known| known.dialect != Some("plain"))
            )
        )
    )
}

/// URLs that added openers take, for an error.
pub(crate) fn added_examples(added: &[Arc<dyn Opener>]) -> String {
    examples(added.iter().flat_map(|one| one.schemes()))
}

fn examples<'a>(schemes: impl Iterator<Item = &'a Scheme>) -> String {
    let schemes = schemes
        .filter(|known| known.capabilities.is_some())
        .map(|known| known.example);
    schemes.collect::<Vec<_>>().join(" or ")
}

/// The cargo features that URLs of a scheme need beside those that are enabled; `None` if there is no such store.
fn missing_features(scheme: &str, enabled: &[&str]) -> Option<String> {
    let without_tls = match scheme {
        "zks" => "zk".to_owned(),
        "etcds" => "etcd".to_owned(),
        // Another name of the same store, and not one with TLS.
        "zookeeper" => return missing_features("zk", enabled),
        scheme => scheme.replacen("rediss", "redis", 1),
    };
    let store = schemes().iter().find(|one| one.scheme == without_tls)?;
    let tls = (without_tls != scheme).then_some("tls");
    let needed = [store.feature, tls].into_iter().flatten();
    let missing: Vec<String> = needed
        .filter(|feature| !enabled.contains(feature))
        .map(|feature| format!("`{feature}`"))
        .collect();
    let features = match missing.len() {
        1 => "feature",
        _ => "features",
    };
    Some(format!("the cargo {features} {}", missing.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_exactly_the_missing_features() {
        for (scheme, enabled, expected) in [
            ("sqlite", &[][..], Some("feature `sqlite`")),
            ("redis+cluster", &[], Some("feature `redis`")),
            ("redlock", &["redis"], Some("feature `redlock`")),
            ("rediss", &[], Some("features `redis` and `tls`")),
            ("rediss", &["redis"], Some("feature `tls`")),
            ("rediss", &["tls"], Some("feature `redis`")),
            (
                "rediss+sentinel",
                &["sqlite"],
                Some("features `redis` and `tls`"),
            ),
            ("etc", &[], None),
        ] {
            let expected = expected.map(|features| format!("the cargo {features}"));
            assert_eq!(missing_features(scheme, enabled), expected, "{scheme}");
        }
    }

    #[tokio::test]
    async fn the_error_for_a_store_that_is_left_out_names_its_feature() {
        for scheme in schemes().iter().filter(|one| one.capabilities.is_none()) {
            let url = StoreUrl::parse(scheme.example).expect("a URL");
            let feature = format!("`{}`", scheme.feature.expect("it is left out"));
            let error = open(&url, &[]).await.expect_err("left out").to_string();
            assert!(error.contains(&feature), "{error}");
        }
    }
}
