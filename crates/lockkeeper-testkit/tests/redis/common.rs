//! What the tests of the Redis store share.

use std::time::Duration;

use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Attempt, Claim, Grant, Interest, Mode, Renewal, Store, Subscription};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Error, Lockkeeper, Name};
use lockkeeper_testkit::servers::redis::RedisServer;

pub use crate::claims::until;
use crate::claims::{self, claim_for, renewal_for};

pub const LEASE: Duration = Duration::from_secs(30);

pub async fn connect(url: &str) -> Result<RedisStore, Error> {
    RedisStore::connect(&StoreUrl::parse(url).expect("a URL")).await
}

pub async fn open(url: &str) -> RedisStore {
    connect(url).await.expect("connects")
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub fn claim(text: &str, mode: Mode) -> Claim {
    claim_for(LEASE, text, mode)
}

pub fn renewal(claim: &Claim) -> Renewal {
    renewal_for(LEASE, claim)
}

pub async fn release(store: &RedisStore, claim: &Claim) -> Result<bool, Error> {
    claims::release(store, claim).await
}

pub fn waiting(text: &str, mode: Mode) -> Claim {
    claim(text, mode).with_enqueue(true)
}

pub async fn granted(store: &RedisStore, claim: &Claim) -> Grant {
    match store.try_acquire(claim).await {
        Ok(Attempt::Granted(grant)) => grant,
        other => panic!("{claim:?} should be granted, was {other:?}"),
    }
}

pub async fn busy(store: &RedisStore, claim: &Claim) -> Option<Duration> {
    match store.try_acquire(claim).await {
        Ok(Attempt::Busy { free_in }) => free_in,
        other => panic!("{claim:?} should be busy, was {other:?}"),
    }
}

pub async fn subscribe(store: &RedisStore, claim: &Claim) -> Subscription {
    let interest = Interest::Claim(claim.name.clone(), claim.id);
    store.subscribe(interest).await.expect("subscribes")
}

/// What the server's clock shows.
pub fn server_micros(server: &RedisServer) -> u64 {
    let time = server.strings(&["TIME"]);
    let part = |at: usize| time[at].parse::<u64>().expect("a number");
    part(0) * 1_000_000 + part(1)
}

/// Every kind of lock, by somebody who is in a hurry.
pub async fn use_everything(keeper: &Lockkeeper) {
    let patience = Duration::from_millis(20);
    for round in 0..10 {
        let lock = keeper.lock("lock").expect("a lock");
        drop(lock.acquire_within(patience).await.expect("answers"));
        let fair = keeper.lock("fair").expect("a lock").fair().expect("fair");
        drop(fair.acquire_within(patience).await.expect("answers"));
        let book = keeper.rwlock("book").expect("a lock");
        match round % 3 {
            0 => drop(book.write().await.expect("writes")),
            _ => drop(book.read().await.expect("reads")),
        }
        let pool = keeper.semaphore("pool", 2).expect("a semaphore");
        drop(pool.acquire(1).await.expect("acquires"));
    }
    let latch = keeper.latch("gate").expect("a latch");
    latch.set(1).await.expect("sets");
    latch.count_down().await.expect("counts");
    latch.wait().await.expect("waits");
}
