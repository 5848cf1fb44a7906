//! The conformance suite on the memory store, and that the suite is whole.

use std::sync::Arc;

use lockkeeper::store::Store;
use lockkeeper::store::memory::MemoryStore;
use lockkeeper_testkit::conformance::{Subject, cases, field};

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

/// Beyond the suite: see the cases for why.
mod beyond {
    use super::memory;
    use lockkeeper_testkit::conformance::run;

    #[test]
    #[ignore = "the store forgets a claim as soon as its hold ends"]
    fn a_claim_is_granted_once() {
        run("a_claim_is_granted_once", memory);
    }

    #[test]
    #[ignore = "inspecting hints whoever watches the name"]
    fn looking_hints_nobody() {
        run("looking_hints_nobody", memory);
    }

    #[test]
    #[ignore = "a claim beside a hold that is not there passes the queue"]
    fn standing_beside_nothing_waits_its_turn() {
        run("standing_beside_nothing_waits_its_turn", memory);
    }
}
