//! Threads that end while others are at work with the same keeper: each waits for its own alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockkeeper::blocking::{Lock, Lockkeeper};
use lockkeeper_testkit::servers::independent::Independent;

use crate::places::Alone;

/// Far more than a thread waits for what it left behind.
const PATIENCE: Duration = Duration::from_secs(6);

/// How long it takes until a thread has ended that dropped a guard as its last; `None` if that is too long.
fn end_of_a_thread(lock: Lock) -> Option<Duration> {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        drop(lock.acquire().expect("acquires"));
        tell.send(Instant::now()).expect("is heard");
    });
    let dropped = told.recv().expect("is told");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        thread.join().expect("no panic");
        let _ = tell.send(Instant::now());
    });
    let ended = told.recv_timeout(PATIENCE).ok()?;
    Some(ended - dropped)
}

fn ends_soon(url: &str) {
    let keeper = Lockkeeper::connect(url).expect("connects");
    let lock = |name: String| keeper.lock(&name).expect("a lock");
    let at_work = AtomicBool::new(true);
    let took: Vec<_> = std::thread::scope(|scope| {
        for number in 0..64 {
            let (lock, at_work) = (lock(format!("others-{number}")), &at_work);
            scope.spawn(move || {
                while at_work.load(Ordering::Relaxed) {
                    drop(lock.acquire().expect("acquires"));
                }
            });
        }
        // Until they all work.
        std::thread::sleep(Duration::from_millis(300));
        let ends = (0..5).map(|number| end_of_a_thread(lock(format!("mine-{number}"))));
        // One that is late enough shows it: the rest would take as long.
        let mut late = false;
        let ends = ends.take_while(|took| !std::mem::replace(&mut late, took.is_none()));
        let took = ends.collect();
        at_work.store(false, Ordering::Relaxed);
        took
    });
    println!("{took:?}");
    assert!(!took.contains(&None), "over {PATIENCE:?}: {took:?}");
    let shortest = took.iter().min().expect("there are some");
    assert!(*shortest < Some(Duration::from_secs(2)), "{took:?}");
}

fn ends_soon_on<S: Alone>() {
    let server = S::begin();
    ends_soon(&server.store());
}

crate::on_each!(ends_soon_on => a_thread_ends_soon_while_others_are_at_work);

#[test]
fn a_thread_ends_soon_while_others_are_at_work_on_a_quorum() {
    let nodes = Independent::start(3);
    ends_soon(&nodes.url_at_once("30s"));
}
