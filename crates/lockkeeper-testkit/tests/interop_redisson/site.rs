//! A server, a Redisson client and a keeper, and how each kind of lock is taken on either side.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Guard, Lockkeeper, Owner, ReleaseOutcome};
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::peer::{Object, Peer};

/// The usual lease of both sides: nobody is woken by its end.
pub const LEASE: Duration = Duration::from_secs(30);
/// Far less than a lease, and more than a busy machine needs.
pub const SOON: Duration = Duration::from_secs(5);
/// When a lease of a few seconds has surely ended, and a usual one surely not.
pub const SOME_TIME: Duration = Duration::from_secs(15);
/// Long enough to see that somebody stays out.
pub const A_WHILE: Duration = Duration::from_millis(300);

/// Everything a test needs.
pub struct Site {
    // First, so that clients end before their server.
    pub peer: Peer,
    pub keeper: Lockkeeper,
    pub server: RedisServer,
}

impl Site {
    pub async fn start() -> Site {
        Site::with_lease(LEASE).await
    }

    /// With another usual lease on both sides.
    pub async fn with_lease(lease: Duration) -> Site {
        let server = RedisServer::start();
        let keeper = Lockkeeper::builder().url(&server.url()).lease(lease);
        Site {
            peer: Peer::start(&server, lease).await,
            keeper: keeper.connect().await.expect("connects"),
            server,
        }
    }

    /// One of ours waits in the queue, and hears what Redisson's clients say.
    pub async fn rust_waits(&self) {
        until("one of ours waits", async || {
            self.server.strings(&["PUBSUB", "NUMPAT"]) != ["0"]
        })
        .await;
        // The new subscription makes it look once more; then it sleeps.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// A thread of Java's listens for the release.
    pub async fn java_waits(&self) {
        until("Java waits", async || {
            let channels = self.server.strings(&["PUBSUB", "CHANNELS", "redisson_*"]);
            !channels.is_empty()
        })
        .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// Nothing is left behind but the tokens: no key, no subscription.
    pub async fn nothing_is_left(&self) {
        self.ours_left_nothing().await;
        until("Java listens no more", async || {
            let channels = self.server.strings(&["PUBSUB", "CHANNELS", "redisson_*"]);
            channels.is_empty()
        })
        .await;
    }

    /// The same, but for the channels that Redisson listens to: it keeps one now and then when a `tryLock` gives up
    /// before its subscription is confirmed.
    pub async fn ours_left_nothing(&self) {
        let end = Moment::now() + Duration::from_secs(20);
        loop {
            let mut left = self.server.keys();
            left.retain(|key| !key.starts_with("redisson_lock_token:"));
            let patterns = self.server.strings(&["PUBSUB", "NUMPAT"]);
            if left.is_empty() && patterns == ["0"] {
                return;
            }
            assert!(Moment::now() < end, "{left:?}, patterns: {patterns:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits for something that has to become true.
pub async fn until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let end = Moment::now() + Duration::from_secs(20);
    while !check().await {
        assert!(Moment::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A kind of lock, as ours have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ours {
    Lock,
    Fair,
    Read,
    Write,
}

/// Two kinds that exclude each other: Redisson's and ours.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub java: &'static str,
    pub rust: Ours,
}

impl Pair {
    pub fn object<'p>(&self, peer: &'p Peer, thread: &'p str, name: &'p str) -> Object<'p> {
        peer.object(thread, self.java, name)
    }

    /// A spin lock tells nobody that it is free, and listens to nobody.
    pub fn spins(&self) -> bool {
        self.java == "spin"
    }
}

impl Ours {
    /// What Redisson calls it.
    pub fn in_java(self) -> &'static str {
        match self {
            Ours::Lock => "lock",
            Ours::Fair => "fair",
            Ours::Read => "read",
            Ours::Write => "write",
        }
    }

    pub async fn acquire(self, keeper: &Lockkeeper, name: &str) -> Guard {
        let guard = self.within(keeper, name, Duration::from_secs(60)).await;
        guard.expect("within a minute")
    }

    pub async fn within(self, keeper: &Lockkeeper, name: &str, time: Duration) -> Option<Guard> {
        let lock = keeper.lock(name).expect("a lock");
        let rwlock = keeper.rwlock(name).expect("a lock");
        let answer = match self {
            Ours::Lock => lock.acquire_within(time).await,
            Ours::Fair => lock.fair().expect("fair").acquire_within(time).await,
            Ours::Read => rwlock
                .read_within(time)
                .await
                .map(|guard| guard.map(Guard::from)),
            Ours::Write => rwlock
                .write_within(time)
                .await
                .map(|guard| guard.map(Guard::from)),
        };
        answer.expect("the store answers")
    }

    pub async fn at_once(self, keeper: &Lockkeeper, name: &str) -> Option<Guard> {
        let lock = keeper.lock(name).expect("a lock");
        let rwlock = keeper.rwlock(name).expect("a lock");
        let answer = match self {
            Ours::Lock => lock.try_acquire().await,
            Ours::Fair => lock.fair().expect("fair").try_acquire().await,
            Ours::Read => rwlock.try_read().await.map(|guard| guard.map(Guard::from)),
            Ours::Write => rwlock.try_write().await.map(|guard| guard.map(Guard::from)),
        };
        answer.expect("the store answers")
    }

    /// With a lease that is not renewed.
    pub async fn fixed(self, keeper: &Lockkeeper, name: &str, lease: Duration) -> Guard {
        let lock = keeper.lock(name).and_then(|lock| lock.fixed_lease(lease));
        let rwlock = keeper.rwlock(name).and_then(|lock| lock.fixed_lease(lease));
        let (lock, rwlock) = (lock.expect("a lock"), rwlock.expect("a lock"));
        let answer = match self {
            Ours::Lock => lock.acquire().await,
            Ours::Fair => lock.fair().expect("fair").acquire().await,
            Ours::Read => rwlock.read().await.map(Guard::from),
            Ours::Write => rwlock.write().await.map(Guard::from),
        };
        answer.expect("acquires")
    }

    pub async fn as_owner(self, keeper: &Lockkeeper, name: &str, owner: &Owner) -> Guard {
        let lock = keeper.lock(name).expect("a lock").as_owner(owner);
        let rwlock = keeper.rwlock(name).expect("a lock").as_owner(owner);
        let answer = match self {
            Ours::Lock => lock.acquire().await,
            Ours::Fair => lock.fair().expect("fair").acquire().await,
            Ours::Read => rwlock.read().await.map(Guard::from),
            Ours::Write => rwlock.write().await.map(Guard::from),
        };
        answer.expect("acquires")
    }
}

/// Releases a guard that has to be still held.
pub async fn release(guard: Guard) {
    let outcome = guard.release().await.expect("the store answers");
    assert_eq!(outcome, ReleaseOutcome::Released);
}
