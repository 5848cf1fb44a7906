//! What the tests of runtimes share: keepers that ask the store each time, and runtimes whose threads are blocked.

use std::future::Future;
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{HandOff, Lockkeeper};
use tokio::runtime::{Builder, Runtime};

/// How often a test asks one thing after the other.
pub const MANY: usize = 20;

pub async fn keeper(url: &str) -> Lockkeeper {
    let builder = Lockkeeper::builder().url(url).hand_off(HandOff::OFF);
    let builder = builder.lease(Duration::from_secs(2));
    builder.connect().await.expect("connects")
}

pub async fn pair(keeper: &Lockkeeper, name: &str) {
    let guard = keeper.lock(name).expect("a lock").acquire().await;
    let released = guard.expect("acquires").release().await;
    released.expect("releases");
}

pub fn runtime(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all();
    builder.build().expect("a runtime")
}

/// Keeps both threads of this runtime busy, and answers until when.
pub fn block_both_threads(time: Duration) -> Moment {
    let end = Moment::now() + time;
    for _ in 0..2 {
        tokio::spawn(async move { thread::sleep(time) });
    }
    end
}

/// Blocks a thread until a future is there, as other executors do.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = std::pin::pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Has all threads of a runtime block in this at the same time. None goes back to the runtime before all are done.
pub fn on_all_threads(
    runtime: &Runtime,
    threads: usize,
    blocks: impl Fn(usize) + Clone + Send + 'static,
) {
    let all = Arc::new(Barrier::new(threads));
    let task = |number| {
        let (blocks, all) = (blocks.clone(), all.clone());
        runtime.spawn(async move {
            all.wait();
            blocks(number);
            all.wait();
        })
    };
    let tasks: Vec<_> = (0..threads).map(task).collect();
    for task in tasks {
        runtime.block_on(task).expect("finishes");
    }
}

/// A test that would wait for ever if it failed.
pub fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, ends) = mpsc::channel();
    thread::spawn(move || {
        test();
        done.send(()).expect("somebody waits");
    });
    let ended = ends.recv_timeout(Duration::from_secs(60));
    ended.expect("it ends, and does not wait for the runtime that it keeps busy");
}
