//! The conformance suite on the example of a store: what `docs/adding-a-store.md` tells others to write passes it.

#[allow(dead_code, reason = "its main is not run here")]
#[path = "../../lockkeeper/examples/toy_store.rs"]
mod toy_store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::store::{Attempt, Claim, ClaimId, KeeperId, Mode, Release, Store};
use lockkeeper::{Lockkeeper, Name};
use lockkeeper_testkit::conformance::Subject;
use toy_store::Toy;

async fn toy() -> Subject {
    let one = Toy::default();
    Subject::new(Arc::new(one.clone())).with_other(Arc::new(one))
}

lockkeeper_testkit::conformance_tests!(on_toy, toy);

#[tokio::test]
async fn a_url_opens_it() {
    let builder = Lockkeeper::builder().opener(Toy::default()).url("toy:");
    let keeper = builder.connect().await.expect("connects");
    assert_eq!(keeper.capabilities().store, "toy");
    let guard = keeper.lock("x").expect("a lock").acquire().await;
    guard.expect("acquires").release().await.expect("releases");
}

#[test]
fn it_is_short() {
    let lines = include_str!("../../lockkeeper/examples/toy_store.rs").lines();
    assert!(lines.count() < 200);
}

/// Clients that really run at the same time: a save that does not look at the version lets two of them in.
#[test]
fn clients_on_threads_exclude_each_other() {
    let (toy, inside) = (Toy::default(), AtomicBool::new(false));
    let client = || {
        let keeper = KeeperId::new();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.build().expect("a runtime");
        for number in 0..20_000 {
            let claim = Claim::new(
                ClaimId { keeper, number },
                Name::new("x").expect("a name"),
                Mode::Exclusive,
                Duration::from_secs(60),
            );
            let tried = runtime.block_on(toy.try_acquire(&claim));
            if let Ok(Attempt::Granted(_)) = tried {
                assert!(!inside.swap(true, SeqCst), "somebody else is in");
                inside.store(false, SeqCst);
                let (name, claim) = (claim.name, claim.id);
                let requeue = None;
                let release = Release::new(name, claim).with_requeue(requeue);
                let released = runtime.block_on(toy.release(&release));
                assert!(released.expect("answers").was_held);
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(client))));
}
