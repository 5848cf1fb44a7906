//! Tables whose files are touched, under clients that use them.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use crate::claims::until;
use crate::common::*;
use crate::forgetting::{are_older_than_a_second, short, url};
use lockkeeper::store::mysql::MySqlStore;
use lockkeeper::store::{Attempt, Store};
use lockkeeper_testkit::servers::mariadb::{DATABASE, MariaDbServer};

/// Changes nothing about the files of the tables but the time of their last change.
fn touch(server: &MariaDbServer) {
    for table in ["lock", "hold"] {
        let file = format!("data/{DATABASE}/lockkeeper_{table}.frm");
        let file = server.folder().join(file);
        let same = fs::metadata(&file).expect("a file").permissions();
        fs::set_permissions(&file, same).expect("touches");
    }
}

/// Whether every store grants.
async fn all_grant(stores: &[MySqlStore]) -> bool {
    let mut all = true;
    for (number, store) in stores.iter().enumerate() {
        let name = format!("{number} {:?}", std::time::Instant::now());
        let attempt = store.try_acquire(&short(&name)).await;
        all &= matches!(attempt, Ok(Attempt::Granted(_)));
    }
    all
}

/// The server has a table open several times, and says of each time what the file was like then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_files_are_touched_sits_out_once() {
    // Sessions share what is open in the order in which they put it back.
    let server = Arc::new(MariaDbServer::start_as(&["--table-open-cache-instances=1"]));
    let stores = [open(&url(&server)).await, open(&url(&server)).await];
    for flush in [false, true] {
        assert!(all_grant(&stores).await);
        are_older_than_a_second(&server).await;
        touch(&server);
        if flush {
            server.sql("FLUSH TABLES");
        }
        let (mut ends, mut rounds) = (BTreeSet::new(), 0);
        until("all grant, round after round", async || {
            // While this sleeps, others use what was opened later.
            let sleeps = "SELECT SLEEP(0.2) FROM (SELECT 1) one LEFT JOIN lockkeeper_lock l ON l.name = '' \
                 LEFT JOIN lockkeeper_hold h ON h.name = ''";
            let sleeper = tokio::task::spawn_blocking({
                let server = server.clone();
                move || server.sql(sleeps)
            });
            let sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'root' AND info LIKE 'SELECT SLEEP%'";
            until("it sleeps", async || sleeper.is_finished() || server.sql(sleeping) == "1").await;
            let beside = all_grant(&stores).await;
            sleeper.await.expect("it slept");
            let after = all_grant(&stores).await;
            ends.insert(server.sql("SELECT ready_at FROM lockkeeper_meta"));
            assert!(ends.len() <= 3, "it sits out again and again: {ends:?}");
            rounds = if beside && after { rounds + 1 } else { 0 };
            rounds == 4
        })
        .await;
    }
}
