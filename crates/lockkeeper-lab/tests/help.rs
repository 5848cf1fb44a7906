//! What `lockkeeper-lab` says of itself.

mod common;

use common::{bare, finish};

#[test]
fn help_names_a_store_only_where_one_is_used() {
    let help = |verb: &[&str]| finish(bare(verb).arg("--help")).code(0).out();
    let with: [&[&str]; 2] = [&["lab"], &["shop", "serve"]];
    for verb in with {
        assert!(help(verb).contains("--store"), "{verb:?}");
    }
    let without: [&[&str]; 4] = [
        &["lab", "list"],
        &["lab", "run"],
        &["shop", "load"],
        &["shop", "reset"],
    ];
    for verb in without {
        assert!(!help(verb).contains("--store"), "{verb:?}");
        assert!(help(verb).contains("--json"), "{verb:?}");
    }
    // It may stand there all the same: scripts put it everywhere.
    finish(&mut bare(&["--store", "memory:", "lab", "list"])).code(0);
    finish(&mut bare(&["lab", "list", "--store", "memory:"])).code(0);
}

#[test]
fn the_hidden_verb_stays_hidden() {
    assert!(
        !finish(&mut bare(&["--help"]))
            .code(0)
            .out()
            .contains("actor")
    );
}
