//! Runtimes without I/O and timers use locks on Redis: what drives the connections is the keeper's own thread.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::{HandOff, Lockkeeper};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Uses locks in every way in which a task of this runtime may: alone and with others, releasing and dropping.
fn uses_locks(runtime: &Runtime, url: &str) {
    runtime.block_on(async {
        let builder = Lockkeeper::builder().url(url).hand_off(HandOff::OFF);
        let keeper = builder.connect().await.expect("connects");
        let alone = keeper.lock("alone").expect("a lock");
        for round in 0..300 {
            let guard = alone.acquire().await.expect("acquires");
            if round % 3 == 0 {
                drop(guard);
            } else {
                guard.release().await.expect("releases");
            }
        }
        let mut tasks = JoinSet::new();
        for number in 0..8 {
            let shared = keeper.lock(&format!("{}", number % 4)).expect("a lock");
            tasks.spawn(async move {
                for _ in 0..50 {
                    let guard = shared.acquire_within(Duration::from_secs(60)).await;
                    let guard = guard.expect("works").expect("in time");
                    tokio::task::yield_now().await;
                    guard.release().await.expect("releases");
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
        keeper.close().await;
    });
}

/// Alone in its program: it watches every panic.
#[test]
fn a_runtime_without_io_and_timers_uses_locks_and_nothing_panics() {
    let server = RedisServer::start();
    let nodes = Independent::start(3);
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        usual(info);
    }));
    for url in [server.url(), nodes.url_at_once("30s")] {
        let multi = Builder::new_multi_thread().worker_threads(2).build();
        for runtime in [Builder::new_current_thread().build(), multi] {
            uses_locks(&runtime.expect("a runtime"), &url);
        }
    }
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "panics were printed");
}
