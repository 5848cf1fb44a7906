//! The conformance suite on the SQLite store: two handles on one file, as two processes have them.

use std::sync::Arc;

use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper_testkit::conformance::Subject;

async fn sqlite() -> Subject {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("locks.db");
    let open = || Arc::new(SqliteStore::open(&path).expect("opens"));
    Subject::new(open()).with_other(open()).keeping(dir)
}

lockkeeper_testkit::conformance_tests!(on_sqlite, sqlite);
