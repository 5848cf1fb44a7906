//! Every public future, dropped at every point where it can wait, leaves nothing behind.

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Tampered, pause};
use lockkeeper::store::Store;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::{Error, Lockkeeper, Owner};

/// Polls a future at most `polls` times, then drops it. Answers whether it finished.
async fn poll_and_drop<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    let finished = std::future::poll_fn(|context: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        future.as_mut().poll(context).map(|_| true)
    });
    // A future that waits for an event that does not come is dropped there too.
    let waited = tokio::time::timeout(Duration::from_millis(40), finished);
    waited.await.unwrap_or(false)
}

struct World {
    store: Arc<MemoryStore>,
    keeper: Lockkeeper,
    /// Another process, as far as the store can tell.
    other: Lockkeeper,
}

impl World {
    async fn new() -> World {
        let store = Arc::new(MemoryStore::new());
        let connect = async |store: Arc<dyn Store>| {
            let builder = Lockkeeper::builder().store(store);
            builder.connect().await.expect("connects")
        };
        World {
            keeper: connect(Tampered::interruptible(store.clone())).await,
            other: connect(store.clone()).await,
            store,
        }
    }

    /// Waits until nothing is held, queued or subscribed to.
    async fn is_empty(&self, case: &str) {
        self.keeper.close().await;
        self.other.close().await;
        let empty = async {
            while self.store.in_use() != (0, 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let left = tokio::time::timeout(Duration::from_secs(10), empty).await;
        assert!(
            left.is_ok(),
            "{case}: left behind {:?}",
            self.store.in_use()
        );
    }
}

type Case<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

/// Drops what `make` makes after 0, 1, 2, … polls, each time in a new world, until it finishes or has waited
/// for an event that does not come. `held`: the other keeper holds the name "x" meanwhile.
async fn drop_everywhere(case: &str, held: bool, make: impl for<'a> Fn(&'a World) -> Case<'a>) {
    let mut stuck = 0;
    for polls in 0.. {
        let world = World::new().await;
        let guard = if held {
            Some(world.other.lock("x").expect("a name").acquire().await)
        } else {
            None
        };
        let finished = poll_and_drop(make(&world), polls).await;
        drop(guard);
        world
            .is_empty(&format!("{case}, dropped after {polls} polls"))
            .await;
        // The lock is not stuck either.
        let other = Lockkeeper::builder().store(world.store.clone());
        let other = other.connect().await.expect("connects");
        let free = other.lock("x").expect("a name").try_acquire().await;
        assert!(
            free.expect("works").is_some(),
            "{case}: stuck after {polls} polls"
        );
        stuck += usize::from(!finished && polls > 12);
        if finished || stuck > 3 {
            return;
        }
    }
}

fn done<T>(_: T) -> Result<(), Error> {
    Ok(())
}

macro_rules! case {
    ($name:ident, $held:expr, |$world:ident| $body:expr) => {
        #[tokio::test]
        async fn $name() {
            drop_everywhere(stringify!($name), $held, |$world| {
                Box::pin(async move { done($body) })
            })
            .await;
        }
    };
}

const SHORT: Duration = Duration::from_millis(20);

case!(acquire_free, false, |w| w
    .keeper
    .lock("x")?
    .acquire()
    .await?);
case!(acquire_held, true, |w| w
    .keeper
    .lock("x")?
    .acquire()
    .await?);
case!(acquire_within_held, true, |w| w
    .keeper
    .lock("x")?
    .acquire_within(SHORT)
    .await?);
case!(try_acquire_held, true, |w| w
    .keeper
    .lock("x")?
    .try_acquire()
    .await?);
case!(acquire_fair, true, |w| w
    .keeper
    .lock("x")?
    .fair()?
    .acquire()
    .await?);
case!(acquire_fixed, true, |w| w
    .keeper
    .lock("x")?
    .fixed_lease(Duration::from_secs(5))?
    .acquire()
    .await?);
case!(read_free, false, |w| w.keeper.rwlock("x")?.read().await?);
case!(read_held, true, |w| w.keeper.rwlock("x")?.read().await?);
case!(try_read, false, |w| w
    .keeper
    .rwlock("x")?
    .try_read()
    .await?);
case!(write_held, true, |w| w.keeper.rwlock("x")?.write().await?);
case!(permits, true, |w| w
    .keeper
    .semaphore("x", 3)?
    .acquire(2)
    .await?);
case!(multi, true, |w| w
    .keeper
    .multi_lock(["y", "x", "a"])?
    .acquire()
    .await?);
case!(release, false, |w| w
    .keeper
    .lock("x")?
    .acquire()
    .await?
    .release()
    .await?);
case!(drop_guard, false, |w| {
    let guard = w.keeper.lock("x")?.acquire().await?;
    drop(guard);
    pause().await;
});
case!(extend, false, |w| w
    .keeper
    .lock("x")?
    .acquire()
    .await?
    .extend(Duration::from_secs(60))
    .await?);
case!(downgrade, false, |w| w
    .keeper
    .rwlock("x")?
    .write()
    .await?
    .downgrade()
    .await?);
case!(run, false, |w| w
    .keeper
    .lock("x")?
    .acquire()
    .await?
    .run(pause())
    .await?);
case!(lost, false, |w| w
    .keeper
    .lock("x")?
    .acquire()
    .await?
    .lost()
    .await);
case!(at_risk, false, |w| w
    .keeper
    .lock("x")?
    .acquire()
    .await?
    .at_risk()
    .await);
case!(reentry, false, |w| {
    let lock = w.keeper.lock("x")?;
    let scope = async {
        let outer = lock.acquire().await?;
        let inner = lock.acquire().await?;
        inner.release().await?;
        outer.release().await
    };
    Owner::new().scope(scope).await?
});
case!(multi_release, false, |w| w
    .keeper
    .multi_lock(["x", "y"])?
    .acquire()
    .await?
    .release()
    .await?);
case!(latch_wait, false, |w| {
    let latch = w.keeper.latch("l")?;
    latch.set(1).await?;
    latch.wait().await?
});
case!(latch_count_down, false, |w| {
    let latch = w.keeper.latch("l")?;
    latch.set(2).await?;
    latch.count_down().await?
});
case!(inspect_and_list, false, |w| (
    w.keeper.inspect("x").await?,
    w.keeper.list("").await?
));
case!(break_lock, false, |w| w
    .keeper
    .break_lock("x", "a test")
    .await?);
case!(watch, false, |w| w.keeper.watch("x").await?.hint().await);
case!(connect, false, |w| {
    Lockkeeper::builder()
        .store(w.store.clone())
        .connect()
        .await?
});
case!(close, false, |w| w.keeper.close().await);

/// A holder that leaves while local tasks wait: dropped at each point, the next in line still gets its turn.
#[tokio::test]
async fn a_release_cancelled_anywhere_admits_the_next_task() {
    for polls in 0..12 {
        let world = World::new().await;
        let lock = world.keeper.lock("x").expect("a name");
        let guard = lock.acquire().await.expect("acquired");
        let next = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.map(|guard| guard.token()) }
        });
        tokio::task::yield_now().await;
        let token = guard.token();
        poll_and_drop(guard.release(), polls).await;
        let next = tokio::time::timeout(Duration::from_secs(10), next).await;
        let next = next.expect("in time").expect("no panic").expect("acquired");
        assert!(next > token, "after {polls} polls");
        drop(lock);
        world.is_empty("release").await;
    }
}
