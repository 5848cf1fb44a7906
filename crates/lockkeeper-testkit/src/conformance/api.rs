//! The public API over a store: what other libraries got wrong above theirs, and crowds of tasks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::{Mode, Store};
use lockkeeper::{Error, Guard, Lockkeeper, LossCause, ReleaseOutcome};

use super::Subject;
use super::client::{SOON, name};
use crate::checker::{Demands, check};
use crate::history::{Answer, Recorder};
use crate::polling::drop_after;
use crate::retries;
use crate::wrappers::Flaky;

async fn keeper(store: Arc<dyn Store>, lease: Duration) -> Lockkeeper {
    let builder = Lockkeeper::builder().store(store).lease(lease);
    builder.connect().await.expect("connects")
}

/// A keeper on each handle.
async fn keepers(s: &Subject) -> [Lockkeeper; 2] {
    let lease = Duration::from_secs(20);
    [
        keeper(s.store(), lease).await,
        keeper(s.other(), lease).await,
    ]
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(SOON, future).await;
    outcome.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// Nothing is held or waited for any more.
async fn nothing_left(keeper: &Lockkeeper) {
    soon("an empty store", async {
        while !keeper.list("").await.expect("lists").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

pub(super) async fn field_dropped_guard_keeps_the_lock(s: Subject) {
    let [one, two] = keepers(&s).await;
    let guard = one.lock("a").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    let lock = two.lock("a").expect("a lock");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    drop(guard);
    let next = soon("the dropped lock", waiting).await.expect("no panic");
    drop(next.expect("acquires"));
    nothing_left(&two).await;
}

pub(super) async fn a_dropped_lock_can_be_tried_at_once(s: Subject) {
    let keeper = keeper(s.store(), Duration::from_secs(20)).await;
    trying_after_a_drop(&keeper, 20).await;
    // Without tasks that could go on meanwhile.
    let alone = tokio::task::spawn_blocking(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        runtime.block_on(trying_after_a_drop(&keeper, 20));
    });
    alone.await.expect("no panic");
}

/// Takes a lock of each kind that the store has, drops the guard and tries again, so many times. Nobody else is there.
///
/// # Panics
/// When a try finds the lock taken.
pub async fn trying_after_a_drop(keeper: &Lockkeeper, rounds: usize) {
    let capabilities = keeper.capabilities();
    let lock = |name| keeper.lock(name).expect("a lock");
    let mut locks = vec![
        ("usual", lock("usual")),
        (
            "renewed",
            lock("renewed")
                .with_lease(Duration::from_secs(15))
                .expect("a lease"),
        ),
        (
            "fixed",
            lock("fixed")
                .fixed_lease(Duration::from_secs(15))
                .expect("a lease"),
        ),
    ];
    if capabilities.fair {
        locks.push(("fair", lock("fair").fair().expect("fair")));
    }
    let rwlock = capabilities
        .read_write
        .then(|| keeper.rwlock("rwlock").expect("a lock"));
    let semaphore = capabilities
        .permits
        .then(|| keeper.semaphore("semaphore", 2).expect("a semaphore"));
    let mut taken = std::collections::BTreeMap::new();
    let mut count = |kind: &'static str, tried: Result<Option<Guard>, Error>| {
        if tried.expect("the store answers").is_none() {
            *taken.entry(kind).or_insert(0) += 1;
        }
    };
    for _ in 0..rounds {
        for (kind, lock) in &locks {
            drop(lock.acquire().await.expect("acquires"));
            count(kind, lock.try_acquire().await);
            // That one was dropped as well.
            count(kind, lock.try_acquire().await);
        }
        if let Some(rwlock) = &rwlock {
            drop(rwlock.write().await.expect("writes"));
            count(
                "write",
                rwlock.try_write().await.map(|guard| guard.map(Guard::from)),
            );
            count(
                "read after write",
                rwlock.try_read().await.map(|guard| guard.map(Guard::from)),
            );
            count(
                "write after read",
                rwlock.try_write().await.map(|guard| guard.map(Guard::from)),
            );
            drop(rwlock.read().await.expect("reads"));
            count(
                "write after shared read",
                rwlock.try_write().await.map(|guard| guard.map(Guard::from)),
            );
        }
        if let Some(semaphore) = &semaphore {
            drop(semaphore.acquire(2).await.expect("acquires"));
            count("permits", semaphore.try_acquire(2).await);
            count("permit", semaphore.try_acquire(1).await);
        }
        // A release that nobody waits for to the end is a drop.
        let (_, usual) = &locks[0];
        let guard = usual.acquire().await.expect("acquires");
        drop(drop_after(1, guard.release()).await);
        count("cancelled release", usual.try_acquire().await);
    }
    assert!(taken.is_empty(), "taken, of {rounds} rounds: {taken:?}");
}

pub(super) async fn field_cancelled_acquire_through_the_api(s: Subject) {
    let [one, two] = keepers(&s).await;
    let (mine, theirs) = (
        one.lock("a").expect("a lock"),
        two.lock("a").expect("a lock"),
    );
    for polls in 0..12 {
        let guard = theirs.acquire().await.expect("acquires");
        drop(drop_after(polls, mine.acquire()).await);
        guard.release().await.expect("releases");
        drop(drop_after(polls, mine.acquire()).await);
        let guard = soon("a lock nobody wants", theirs.acquire()).await;
        guard.expect("acquires").release().await.expect("releases");
    }
    nothing_left(&two).await;
}

pub(super) async fn field_acquire_loops_for_ever_on_an_error(s: Subject) {
    let flaky = Flaky::new(s.store(), 0);
    let keeper = keeper(flaky.clone(), Duration::from_millis(500)).await;
    let lock = keeper.lock("a").expect("a lock");
    let refused = Error::refused("flaky", "a test");
    flaky.fail_with(Some(refused.clone()));
    let error = soon("the error", lock.acquire()).await;
    assert_eq!(error.expect_err("it fails"), refused);
    // What may pass is tried again, but not for ever.
    let unavailable = Error::unavailable("flaky", "a test");
    flaky.fail_with(Some(unavailable.clone()));
    let error = soon("the error", lock.acquire()).await;
    assert_eq!(error.expect_err("it fails"), unavailable);
    flaky.fail_with(None);
    let guard = soon("the lock", lock.acquire()).await.expect("acquires");
    guard.release().await.expect("releases");
}

pub(super) async fn field_two_locks_in_opposite_order_deadlock(s: Subject) {
    let [one, two] = keepers(&s).await;
    let mut tasks = Vec::new();
    for (keeper, names) in [(one.clone(), ["a", "b"]), (two, ["b", "a"])] {
        tasks.push(tokio::spawn(async move {
            let both = keeper.multi_lock(names).expect("locks");
            for _ in 0..20 {
                let guard = both.acquire().await.expect("acquires");
                tokio::task::yield_now().await;
                guard.release().await.expect("releases");
            }
        }));
    }
    for task in tasks {
        soon("both locks", task).await.expect("no panic");
    }
    nothing_left(&one).await;
}

pub(super) async fn field_unlock_tells_what_became_of_it(s: Subject) {
    let [one, two] = keepers(&s).await;
    let lock = one.lock("a").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    let outcome = guard.release().await.expect("answers");
    assert_eq!(outcome, ReleaseOutcome::Released);
    let guard = lock.acquire().await.expect("acquires");
    two.break_lock("a", "stuck").await.expect("breaks");
    let next = two.lock("a").expect("a lock").acquire().await;
    let next = next.expect("acquires");
    match guard.release().await {
        Err(Error::Lost {
            cause: LossCause::Broken(broken),
            now_held_by: Some(holder),
            ..
        }) => {
            assert_eq!(holder.pid, std::process::id());
            assert_eq!(broken.reason, "stuck");
        }
        other => panic!("it was broken, not {other:?}"),
    }
    assert!(next.is_held());
}

pub(super) async fn field_loss_is_told_before_the_lease_ends(s: Subject) {
    let [one, two] = keepers(&s).await;
    // The notice comes a tenth of it before the end: time enough for a busy machine to see it.
    let lease = Duration::from_secs(4);
    let lock = one.lock("a").expect("a lock").fixed_lease(lease);
    let before = Moment::now();
    let guard = lock.expect("a lease").acquire().await.expect("acquires");
    // Counted from before it was asked for, whatever the answer took.
    let asked_by = Moment::now();
    assert!(guard.deadline() < asked_by + lease);
    let store = s.other();
    soon("the loss", guard.lost()).await;
    let told = Moment::now();
    assert!(!guard.is_held());
    assert!(
        told < before + lease,
        "told {:?} late",
        told.since(before + lease)
    );
    let info = store.inspect(&name("a")).await.expect("answers");
    let held = info.is_some_and(|info| info.holders.iter().any(|h| h.claim == guard.claim()));
    assert!(held, "the store still kept others out");
    let lock = two.lock("a").expect("a lock");
    let next = soon("the lock", lock.acquire()).await.expect("acquires");
    assert!(next.token() > guard.token());
    // Lost is for good.
    assert!(guard.extend(lease).await.is_err());
    assert!(!guard.is_held());
}

/// How many tasks a crowd has, and how often each takes part.
const TASKS: usize = 5;
const ROUNDS: usize = 12;

/// Tasks of two keepers acquire and release, and their history is judged.
async fn crowd<F>(s: &Subject, mode: fn(usize) -> Mode, acquire: fn(Lockkeeper, Mode) -> F)
where
    F: Future<Output = Result<Guard, Error>> + Send + 'static,
{
    let recorder = Recorder::in_memory("crowd", Clock::real());
    let keepers = keepers(s).await;
    let mut tasks = Vec::new();
    for number in 0..2 * TASKS {
        let (keeper, recorder) = (keepers[number % 2].clone(), recorder.clone());
        let owner = format!("c{number}");
        tasks.push(tokio::spawn(async move {
            for round in 0..ROUNDS {
                let mode = mode(number + round);
                let op = recorder.acquire("a", &owner, mode);
                let guard = acquire(keeper.clone(), mode).await.expect("acquires");
                recorder.granted(op, guard.token(), guard.deadline());
                tokio::time::sleep(Duration::from_micros(300)).await;
                let release = recorder.release(op, &owner);
                let deadline = guard.deadline();
                let answer = match guard.release().await {
                    // A direct grant has a second. A busy machine may need longer than that for two steps of this task.
                    Err(Error::Lost { .. }) if Moment::now() >= deadline => {
                        retries::count("a lease ended between two steps of a task");
                        Answer::NotHeld
                    }
                    outcome => {
                        assert_eq!(outcome, Ok(ReleaseOutcome::Released));
                        Answer::Released
                    }
                };
                recorder.ok(release, answer);
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task finishes");
    }
    check(&recorder.events(), &Demands::default()).expect_valid();
    nothing_left(&keepers[0]).await;
}

pub(super) async fn tasks_of_two_keepers_exclude_each_other(s: Subject) {
    crowd(
        &s,
        |_| Mode::Exclusive,
        |keeper, _| async move { keeper.lock("a")?.acquire().await },
    )
    .await;
}

pub(super) async fn readers_and_writers_of_two_keepers_exclude_each_other(s: Subject) {
    let mode = |number: usize| match number % 3 {
        0 => Mode::Write,
        _ => Mode::Read,
    };
    crowd(&s, mode, |keeper, mode| async move {
        let lock = keeper.rwlock("a")?;
        match mode {
            Mode::Read => lock.read().await.map(Guard::from),
            _ => lock.write().await.map(Guard::from),
        }
    })
    .await;
}

pub(super) async fn permits_of_two_keepers_are_never_oversold(s: Subject) {
    let mode = |number: usize| Mode::Permit {
        limit: 3,
        count: 1 + number as u32 % 3,
    };
    crowd(&s, mode, |keeper, mode| async move {
        let Mode::Permit { limit, count } = mode else {
            unreachable!("permits only");
        };
        keeper.semaphore("a", limit)?.acquire(count).await
    })
    .await;
}

pub(super) async fn a_latch_opens_for_whoever_waits_elsewhere(s: Subject) {
    let [one, two] = keepers(&s).await;
    let latch = one.latch("gate").expect("a latch");
    assert!(latch.set(2).await.expect("answers"));
    let elsewhere = two.latch("gate").expect("a latch");
    let waiting = tokio::spawn(async move { elsewhere.wait().await });
    assert_eq!(latch.count_down().await.expect("answers"), 1);
    assert!(!waiting.is_finished());
    assert_eq!(latch.count_down().await.expect("answers"), 0);
    let waited = soon("the open latch", waiting).await.expect("no panic");
    waited.expect("waits");
}
