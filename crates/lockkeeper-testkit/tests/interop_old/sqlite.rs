//! A SQLite file of both.

use crate::old::{OldRun, run_old};

#[test]
fn the_earlier_command_holds_and_lists() {
    let folder = tempfile::tempdir().expect("folder");
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    let holder = OldRun::holding(&store, "a");
    let (code, said) = run_old(&store, &["run", "--no-wait", "a", "--", "true"]);
    assert_eq!(code, 75, "{said}");
    let (_, said) = run_old(&store, &["ls"]);
    assert!(said.contains('a'), "{said}");
    holder.end();
}
