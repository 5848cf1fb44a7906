//! The conformance suite on the memory store, and that the suite is whole.

use std::sync::Arc;

use lockkeeper::clock::Clock;
use lockkeeper::store::Store;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper_testkit::conformance::{Subject, cases, field};
use lockkeeper_testkit::differential;
use lockkeeper_testkit::wrappers::{SABOTAGES, Sabotage, Sabotaged};

async fn memory() -> Subject {
    Subject::new(Arc::new(MemoryStore::new()))
}

lockkeeper_testkit::conformance_tests!(on_memory, memory);

#[test]
fn every_row_of_the_field_has_its_cases() {
    let all = cases(&MemoryStore::new().capabilities());
    for (row, names) in field::ROWS {
        assert!(!names.is_empty(), "{row}");
        for name in *names {
            assert!(all.iter().any(|case| case.name == *name), "{row}: {name}");
        }
    }
}

#[test]
fn a_store_is_asked_only_for_what_it_can_do() {
    let able = MemoryStore::new().capabilities();
    let mut plain = able;
    plain.queue = false;
    plain.permits = false;
    plain.latches = false;
    plain.read_write = false;
    let names = |capabilities| -> Vec<&'static str> {
        let cases = cases(capabilities);
        cases.iter().map(|case| case.name).collect()
    };
    let (all, few) = (names(&able), names(&plain));
    assert!(all.contains(&"a_newcomer_does_not_overtake"));
    assert!(!few.contains(&"a_newcomer_does_not_overtake"));
    assert!(few.contains(&"a_release_frees_at_once"));
    let mut unique = all.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), all.len(), "two cases of one name");
}

/// What compares stores with the memory store finds a mistake, and none where there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_differs_from_memory_is_found() {
    let compare = |sabotage: Option<Sabotage>| async move {
        let clock = Clock::simulated();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(clock.clone()));
        let store = match sabotage {
            Some(sabotage) => Sabotaged::new(store, sabotage) as Arc<dyn Store>,
            None => store,
        };
        let subject = differential::Subject::new(vec![store.clone(), store], clock, |_| {});
        let subject = subject.ending_in_time();
        differential::compare(&subject, differential::seed(), 20_000).await
    };
    for (sabotage, name, _) in SABOTAGES {
        let found = tokio::spawn(compare(Some(*sabotage))).await;
        assert!(found.is_err_and(|error| error.is_panic()), "{name}");
    }
    compare(None).await;
}
