//! The conformance suite on the SQLite store: two handles on one file, as two processes have them. And random verbs, beside
//! the memory store.

use std::sync::Arc;

use lockkeeper::clock::Clock;
use lockkeeper::store::Store;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::differential;

async fn sqlite() -> Subject {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("locks.db");
    let open = || Arc::new(SqliteStore::open(&path).expect("opens"));
    Subject::new(open()).with_other(open()).keeping(dir)
}

lockkeeper_testkit::conformance_tests!(on_sqlite, sqlite);

async fn compare(verbs: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("locks.db");
    let clock = Clock::simulated();
    let at = clock.clone();
    let open = move || {
        let store = SqliteStore::open_with_clock(&path, at.clone());
        Arc::new(store.expect("opens")) as Arc<dyn Store>
    };
    let stores = (0..3).map(|_| open()).collect();
    let subject = differential::Subject::new(stores, clock, |_| {});
    let subject = subject.ending_in_time().with_deaths(open);
    let report = differential::compare(&subject, differential::seed(), verbs).await;
    assert!(report.count("holds and waiters that died") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_verbs_of_all_modes_are_answered_as_by_memory() {
    compare(20_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `cargo xtask nightly` runs it"]
async fn many_random_verbs_are_answered_as_by_memory() {
    compare(400_000).await;
}
