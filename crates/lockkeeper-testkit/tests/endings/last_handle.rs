//! The last handle of a keeper: once it is dropped, the server has the release, wherever that was.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use lockkeeper::{Event, Guard, Lockkeeper, MultiLock, Observer, blocking};
use tokio::runtime::{Builder, Runtime};

use crate::places::{Alone, Place};

/// Each check is made so often: one that happens to be in time proves nothing.
const ROUNDS: usize = 20;

crate::on_each!(
    on_a_thread_that_drives_a_runtime => on_a_thread_that_drives_a_runtime,
    on_a_worker_of_a_runtime => on_a_worker_of_a_runtime,
    on_a_thread_that_enters_a_runtime => on_a_thread_that_enters_a_runtime,
    after_its_runtime_has_ended => after_its_runtime_has_ended,
    in_the_destructors_of_a_thread => in_the_destructors_of_a_thread,
    of_two_keepers_at_once => of_two_keepers_at_once,
    of_a_thread_that_waits_when_the_keeper_is_dropped => of_a_thread_that_waits_when_the_keeper_is_dropped,
    on_the_keepers_own_thread => on_the_keepers_own_thread,
    of_a_task_that_releases => of_a_task_that_releases,
);

fn runtime(threads: usize) -> Runtime {
    let runtime = match threads {
        1 => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build(),
    };
    runtime.expect("a runtime")
}

async fn held(server: &impl Place) -> (Lockkeeper, Guard) {
    let keeper = Lockkeeper::connect(&server.store())
        .await
        .expect("connects");
    let guard = keeper.lock("x").expect("a lock").acquire().await;
    (keeper, guard.expect("acquires"))
}

#[track_caller]
fn is_free(server: &impl Place) {
    let held = server.held_on(&["x", "y"].map(str::to_owned));
    assert_eq!(held, [0, 0], "held on so many servers");
}

fn on_a_thread_that_drives_a_runtime<S: Alone>() {
    let server = S::begin();
    for threads in [1, 2] {
        let runtime = runtime(threads);
        for _ in 0..ROUNDS {
            let held = runtime.block_on(held(&server));
            runtime.block_on(async { drop(held) });
            is_free(&server);
        }
    }
}

fn on_a_worker_of_a_runtime<S: Alone>() {
    let server = S::begin();
    let runtime = runtime(2);
    for _ in 0..ROUNDS {
        let held = runtime.block_on(held(&server));
        let task = runtime.spawn(async { drop(held) });
        runtime.block_on(task).expect("no panic");
        is_free(&server);
    }
}

fn on_a_thread_that_enters_a_runtime<S: Alone>() {
    let server = S::begin();
    let runtime = runtime(2);
    for _ in 0..ROUNDS {
        let held = runtime.block_on(held(&server));
        let handle = runtime.handle().clone();
        let entered = move || handle.block_on(async { drop(held) });
        let task = runtime.spawn_blocking(entered);
        runtime.block_on(task).expect("no panic");
        is_free(&server);
    }
}

fn after_its_runtime_has_ended<S: Alone>() {
    let server = S::begin();
    for threads in [1, 2] {
        for _ in 0..ROUNDS {
            let runtime = runtime(threads);
            let held = runtime.block_on(async {
                let (keeper, guard) = held(&server).await;
                let other = keeper.lock("y").expect("a lock");
                for _ in 0..40 {
                    drop(other.acquire().await.expect("acquires"));
                }
                (keeper, guard, other.acquire().await.expect("acquires"))
            });
            drop(runtime);
            drop(held);
            is_free(&server);
        }
    }
}

fn in_the_destructors_of_a_thread<S: Alone>() {
    thread_local!(static KEPT: RefCell<Option<(Lockkeeper, Guard)>> = const { RefCell::new(None) });
    let server = S::begin();
    for first in [false, true] {
        for _ in 0..ROUNDS {
            let held = runtime(1).block_on(held(&server));
            let thread = std::thread::spawn(move || {
                if first {
                    // Before the keeper's own destructor is registered, and so after it has run.
                    KEPT.set(None);
                }
                let other = held.0.lock("y").expect("a lock");
                drop(runtime(1).block_on(other.acquire()).expect("acquires"));
                KEPT.set(Some(held));
            });
            thread.join().expect("no panic");
            is_free(&server);
        }
    }
}

fn of_two_keepers_at_once<S: Alone>() {
    let server = S::begin();
    let runtime = runtime(2);
    for _ in 0..ROUNDS {
        let guards = runtime.block_on(async {
            let url = server.store();
            let one = Lockkeeper::connect(&url).await.expect("connects");
            let two = Lockkeeper::connect(&url).await.expect("connects");
            let locks = [one.lock("x"), two.lock("y")].map(|lock| lock.expect("a lock"));
            let both = MultiLock::new(locks).expect("locks");
            both.acquire().await.expect("acquires")
        });
        drop(guards);
        is_free(&server);
    }
}

fn of_a_thread_that_waits_when_the_keeper_is_dropped<S: Alone>() {
    let server = S::begin();
    for _ in 0..ROUNDS {
        let keeper = blocking::Lockkeeper::connect(&server.store()).expect("connects");
        let guard = keeper.lock("x").expect("a lock").acquire();
        let lock = keeper.lock("x").expect("a lock");
        let waits = std::thread::spawn(move || {
            // Kept until the thread ends.
            let lock = lock;
            drop(lock.acquire().expect("acquires"));
        });
        let began = Instant::now();
        drop((keeper, guard.expect("acquires")));
        assert!(began.elapsed() < Duration::from_secs(10));
        waits.join().expect("no panic");
        is_free(&server);
    }
}

/// Drops what it was given when a lock is lost, and says how long that took.
#[derive(Debug)]
struct Drops(Mutex<Option<(Lockkeeper, Guard)>>, mpsc::Sender<Duration>);

impl Observer for Drops {
    fn event(&self, event: &Event<'_>) {
        if let Event::Lost { .. } = event {
            let held = self.0.lock().expect("no panic").take();
            let began = Instant::now();
            drop(held);
            let _ = self.1.send(began.elapsed());
        }
    }
}

/// The thread would wait for what only it can do.
fn on_the_keepers_own_thread<S: Alone>() {
    let server = S::begin();
    let runtime = runtime(1);
    let mut took = Vec::new();
    for _ in 0..5 {
        let (tell, told) = mpsc::channel();
        let drops = Arc::new(Drops(Mutex::default(), tell));
        runtime.block_on(async {
            let builder = Lockkeeper::builder().url(&server.store());
            let keeper = builder.observer(drops.clone()).connect().await;
            let keeper = keeper.expect("connects");
            let guard = keeper.lock("x").expect("a lock").acquire().await;
            let other = Lockkeeper::connect(&server.store())
                .await
                .expect("connects");
            *drops.0.lock().expect("no panic") = Some((keeper, guard.expect("acquires")));
            let broken = other.break_lock("x", "a test").await;
            assert_eq!(broken.expect("breaks").len(), 1);
        });
        let patience = Duration::from_secs(30);
        took.push(told.recv_timeout(patience).expect("the lock is lost"));
        is_free(&server);
    }
    let shortest = took.iter().min().expect("there are some");
    assert!(*shortest < Duration::from_millis(900), "{took:?}");
}

/// Others of the runtime's only thread go on.
fn of_a_task_that_releases<S: Alone>() {
    let mut server = S::begin();
    runtime(1).block_on(async {
        let (keeper, guard) = held(&server).await;
        let other = keeper.lock("y").expect("a lock").acquire().await;
        server.end();
        drop((keeper, other.expect("acquires")));
        let beside = tokio::spawn(async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let began = Instant::now();
        let released = guard.release().await;
        let took = began.elapsed();
        assert!(released.is_err(), "{released:?}");
        assert!(
            took > Duration::from_millis(500),
            "not waited for: {took:?}"
        );
        assert!(took < Duration::from_secs(20), "{took:?}");
        assert!(beside.is_finished(), "it blocked for {took:?}");
    });
}
