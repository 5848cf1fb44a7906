//! The end of a thread and of a keeper, after a verb that failed: what is tried again then is waited for.

use std::sync::Arc;
use std::thread;

use lockkeeper::store::Store;
use lockkeeper::{Lockkeeper, Name};
use tokio::runtime::{Builder, Runtime};

use crate::common::{Fault, LEASE, Tampered, Verb, acquired};

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

fn is_held(store: &Arc<Tampered>) -> bool {
    let name = Name::new("x").expect("a name");
    let info = runtime().block_on(store.inner.inspect(&name));
    info.expect("answers")
        .is_some_and(|info| !info.holders.is_empty())
}

/// Ends a thread that ran this, and then the keeper if that is what is to end.
fn end(keeper: Lockkeeper, with_keeper: bool, verb: impl FnOnce(&Lockkeeper) + Send + 'static) {
    let kept = (!with_keeper).then(|| keeper.clone());
    let thread = thread::spawn(move || verb(&keeper));
    thread.join().expect("no panic");
    // Not before the test has looked.
    std::mem::forget(kept);
}

#[test]
fn a_release_that_failed_is_waited_for() {
    for with_keeper in [false, true] {
        let store = Tampered::new();
        let keeper = runtime().block_on(store.keeper(LEASE));
        let tampered = store.clone();
        end(keeper, with_keeper, move |keeper| {
            let runtime = runtime();
            let guard = runtime.block_on(acquired(keeper));
            tampered.set(Verb::Release, Some(Fault::Refused));
            runtime.block_on(guard.release()).expect_err("is refused");
            while tampered.count(Verb::Release) < 2 {
                thread::yield_now();
            }
            tampered.set(Verb::Release, None);
        });
        assert!(!is_held(&store), "with the keeper: {with_keeper}");
    }
}

#[test]
fn a_drop_that_failed_is_waited_for() {
    for with_keeper in [false, true] {
        // Its verbs take a while, so that the release of a dropped guard goes on in the background, and fails there.
        let store = Tampered::interruptible(Arc::default());
        let keeper = runtime().block_on(store.keeper(LEASE));
        let tampered = store.clone();
        end(keeper, with_keeper, move |keeper| {
            let guard = runtime().block_on(acquired(keeper));
            tampered.set(Verb::Release, Some(Fault::Refused));
            drop(guard);
            while tampered.count(Verb::Release) < 2 {
                thread::yield_now();
            }
            tampered.set(Verb::Release, None);
        });
        assert!(!is_held(&store), "with the keeper: {with_keeper}");
    }
}

#[test]
fn an_acquire_that_failed_is_waited_for() {
    for with_keeper in [false, true] {
        let store = Tampered::new();
        let keeper = runtime().block_on(store.keeper(LEASE));
        let tampered = store.clone();
        end(keeper, with_keeper, move |keeper| {
            let lock = keeper.lock("x").expect("a name");
            tampered.set(Verb::Acquire, Some(Fault::AnswerLost));
            tampered.set(Verb::Withdraw, Some(Fault::Refused));
            let tried = runtime().block_on(lock.try_acquire());
            tried.expect_err("its answer is lost");
            while tampered.count(Verb::Withdraw) < 1 {
                thread::yield_now();
            }
            assert!(is_held(&tampered), "it took effect");
            tampered.set(Verb::Withdraw, None);
        });
        assert!(!is_held(&store), "with the keeper: {with_keeper}");
    }
}
