//! What the tests of the MySQL store share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::store::mysql::MySqlStore;
use lockkeeper::store::{Attempt, Claim, Grant, Interest, Mode, Store, Subscription};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::mariadb::{MariaDbServer, PASSWORD};

use crate::claims::claim_for;

pub const LEASE: Duration = Duration::from_secs(30);
/// How long anything may take before a test gives up.
pub const LONG: Duration = Duration::from_secs(60);
/// For a machine that is busy with other tests.
pub const PATIENT: &str = "&connect_timeout=10s&response_timeout=10s";
/// A user with the rights that the documentation names, and no others.
pub const LEAST: &str = "least";

/// The server of all cases that do not harm it.
pub fn shared() -> &'static MariaDbServer {
    static SERVER: OnceLock<MariaDbServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = MariaDbServer::start();
        server.sql(&format!(
            "CREATE USER {LEAST}@'%' IDENTIFIED BY '{PASSWORD}'"
        ));
        server
    })
}

/// Makes tables as an administrator does for a user who may not.
pub fn make_tables(prefix: &str) {
    let schema = lockkeeper::store::mysql::schema(prefix, LEAST).expect("a prefix");
    shared().sql(&schema);
}

/// Tables of its own for a case.
pub fn prefix() -> String {
    static CASES: AtomicU64 = AtomicU64::new(1);
    format!("c{}_", CASES.fetch_add(1, Ordering::Relaxed))
}

/// A URL of the shared server with tables of its own.
pub fn fresh() -> String {
    format!("{}?prefix={}{PATIENT}", shared().url(), prefix())
}

pub async fn connect(url: &str) -> Result<MySqlStore, Error> {
    MySqlStore::connect(&StoreUrl::parse(url).expect("a URL")).await
}

pub async fn open(url: &str) -> MySqlStore {
    connect(url).await.expect("connects")
}

pub async fn keeper(url: &str) -> Lockkeeper {
    Lockkeeper::connect(url).await.expect("connects")
}

pub fn claim(text: &str, mode: Mode) -> Claim {
    claim_for(LEASE, text, mode)
}

pub fn waiting(text: &str, mode: Mode) -> Claim {
    claim(text, mode).with_enqueue(true)
}

pub async fn granted(store: &MySqlStore, claim: &Claim) -> Grant {
    match store.try_acquire(claim).await {
        Ok(Attempt::Granted(grant)) => grant,
        other => panic!("{claim:?} should be granted, was {other:?}"),
    }
}

pub async fn busy(store: &MySqlStore, claim: &Claim) -> Option<Duration> {
    match store.try_acquire(claim).await {
        Ok(Attempt::Busy { free_in }) => free_in,
        other => panic!("{claim:?} should be busy, was {other:?}"),
    }
}

pub async fn subscribe(store: &MySqlStore, claim: &Claim) -> Subscription {
    let interest = Interest::Claim(claim.name.clone(), claim.id);
    store.subscribe(interest).await.expect("subscribes")
}

/// Waits for something, and fails if it takes very long.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} takes more than {LONG:?}"),
    }
}
