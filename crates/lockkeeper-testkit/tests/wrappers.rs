//! The wrappers: they keep the contract, and the public API keeps its word over a bad one.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Clock;
use lockkeeper::store::Mode;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper_testkit::checker::{Demands, FaultKind, check};
use lockkeeper_testkit::conformance::{self, Subject};
use lockkeeper_testkit::history::{Answer, Fault, Recorder};
use lockkeeper_testkit::wrappers::{Chaos, Counting, Flaky, Mishap, Verb};

/// Both wrappers over one memory, as two handles.
async fn wrapped() -> Subject {
    let memory = Arc::new(MemoryStore::new());
    let flaky = Flaky::new(memory.clone(), 0);
    Subject::new(flaky).with_other(Counting::new(memory))
}

/// One test for the whole suite: nothing here is new, only passed on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrapper_that_does_nothing_is_the_store() {
    conformance::all(wrapped).await;
}

#[tokio::test]
async fn counting_tells_what_an_acquisition_costs() {
    let counting = Counting::new(Arc::new(MemoryStore::new()));
    let builder = Lockkeeper::builder().store(counting.clone());
    let keeper = builder.connect().await.expect("connects");
    let counts = counting.counts();
    counts.reset(); // a keeper asks once to be told of breaks
    let lock = keeper.lock("cheap").expect("a lock");
    for _ in 0..10 {
        let guard = lock.acquire().await.expect("acquires");
        guard.release().await.expect("releases");
    }
    assert_eq!(counts.of(Verb::TryAcquire), 10, "{counts:?}");
    assert_eq!(counts.of(Verb::Release), 10, "{counts:?}");
    assert_eq!(
        counts.total(),
        20,
        "free, it costs nothing else: {counts:?}"
    );
    counts.reset();
    assert_eq!(counts.total(), 0);
}

const TASKS: usize = 4;
const ROUNDS: usize = 12;

async fn work(keeper: Lockkeeper, owner: String, recorder: Recorder) {
    let lock = keeper.lock("a").expect("a lock");
    for round in 0..ROUNDS {
        let op = recorder.acquire("a", &owner, Mode::Exclusive);
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                recorder.unknown(op, error);
                continue;
            }
        };
        recorder.granted(op, guard.token(), guard.deadline());
        tokio::time::sleep(Duration::from_millis(round as u64 % 3)).await;
        let release = recorder.release(op, &owner);
        match guard.release().await {
            Ok(lockkeeper::ReleaseOutcome::Released) => recorder.ok(release, Answer::Released),
            Ok(other) => recorder.fail(release, format!("{other:?}")),
            Err(error @ lockkeeper::Error::Lost { .. }) => recorder.fail(release, error),
            Err(error) => recorder.unknown(release, error),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_public_api_keeps_its_word_on_a_bad_day() {
    let seed = Clock::real().unix_micros();
    println!("seed {seed}");
    let memory = Arc::new(MemoryStore::new());
    let recorder = Recorder::in_memory("p", Clock::real());
    let mut flakies = Vec::new();
    let mut tasks = Vec::new();
    for process in 0..3 {
        let flaky = Flaky::new(memory.clone(), seed + process);
        flaky.set(Chaos::bad_day(Duration::from_millis(60)));
        let builder = Lockkeeper::builder().store(flaky.clone());
        let lease = Duration::from_millis(800);
        let keeper = builder.lease(lease).connect().await.expect("connects");
        for task in 0..TASKS {
            let owner = format!("p{process}.{task}");
            tasks.push(tokio::spawn(work(keeper.clone(), owner, recorder.clone())));
        }
        flakies.push(flaky);
    }
    for task in tasks {
        task.await.expect("a task finishes");
    }
    let lost = |flaky: &Arc<Flaky>| flaky.mishaps(Mishap::ReplyLost);
    for _ in 0..flakies.iter().map(lost).sum() {
        recorder.fault(Fault::ReplyLost);
    }
    let demands = Demands::default().fault(FaultKind::ReplyLost, 3);
    let stats = check(&recorder.events(), &demands).expect_valid();
    println!("{stats}");
    // Nothing stays behind once the keepers are gone and what was in doubt has been taken back.
    for flaky in &flakies {
        flaky.set(Chaos::default());
    }
    drop(flakies);
    let gone = async {
        while memory.in_use() != (0, 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    assert!(gone.is_ok(), "left behind: {:?}", memory.in_use());
}
