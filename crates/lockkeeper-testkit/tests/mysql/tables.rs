//! Tables whose files are touched, that are dropped or put back, under clients that use them.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::claims::{claim_for, until};
use crate::common::*;
use crate::forgetting::{SHORT, are_older_than_a_second, short, sits_out, url};
use lockkeeper::store::mysql::MySqlStore;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper::{Error, Lockkeeper};
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

/// How many statements that read the server was asked by all.
fn reads(server: &MariaDbServer) -> u64 {
    let status = server.sql("SHOW GLOBAL STATUS LIKE 'Com_select'");
    let number = status.split('\t').next_back();
    number.and_then(|text| text.parse().ok()).expect("a number")
}

/// A dump that is loaded drops a table and makes it. In between, a client that connects again leaves its place free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_connects_again_does_not_get_in_the_way_of_a_dump() {
    let server = MariaDbServer::start();
    let stores = [open(&url(&server)).await];
    assert!(all_grant(&stores).await);
    are_older_than_a_second(&server).await;
    let made = server.sql("SHOW CREATE TABLE lockkeeper_meta");
    let (_, create) = made.split_once('\t').expect("a statement");
    let create = create.replace("\\n", " ");
    server.sql("CREATE TABLE kept AS SELECT * FROM lockkeeper_meta; DROP TABLE lockkeeper_meta");
    server.kill_connections();
    let before = reads(&server);
    // To connect takes fewer.
    until("it looks for the table", async || {
        reads(&server) >= before + 10
    })
    .await;
    server.sql(&create);
    let before = reads(&server);
    until("it looks for the row", async || {
        reads(&server) >= before + 2
    })
    .await;
    server.sql("INSERT INTO lockkeeper_meta SELECT * FROM kept");
    until("it grants", async || all_grant(&stores).await).await;
}

/// Others may hold what the tables said that are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_makes_tables_anew_sits_out() {
    let server = MariaDbServer::start();
    let stores = [open(&url(&server)).await];
    assert!(all_grant(&stores).await);
    let tables = server.sql("SHOW TABLES").replace('\n', ",");
    server.sql(&format!("DROP TABLE {tables}"));
    server.kill_connections();
    let mut waited = Duration::ZERO;
    until("it grants again", async || {
        let all = all_grant(&stores).await;
        waited = waited.max(stores[0].health().ready_in);
        all
    })
    .await;
    assert!(waited > Duration::from_secs(1), "{waited:?}");
}

/// Nobody ends its connection: it finds out by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_tables_are_emptied_or_dropped_makes_them_anew() {
    let server = MariaDbServer::start();
    let stores = [open(&url(&server)).await];
    let tables = server.sql("SHOW TABLES").replace('\n', ",");
    let drop_all = format!("DROP TABLE {tables}");
    for harm in ["DELETE FROM lockkeeper_meta", &drop_all] {
        until("it grants", async || all_grant(&stores).await).await;
        server.sql(harm);
        until("there is a row again", async || {
            let _ = all_grant(&stores).await;
            server
                .try_sql("SELECT one FROM lockkeeper_meta")
                .is_ok_and(|said| said == "1")
        })
        .await;
        until("it grants again", async || all_grant(&stores).await).await;
    }
}

/// Makes what is missing, and waits as after a crash: others may hold what the tables said that are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_finds_some_tables_missing_makes_them_and_sits_out() {
    let server = MariaDbServer::start();
    let url = url(&server);
    for (tables, mode) in [
        (&["lock"][..], Mode::Exclusive),
        (&["hold"], Mode::Read),
        (&["waiter"], Mode::Exclusive),
        (&["meta"], Mode::Exclusive),
        // `hold` names the readers, but `lock`, which counts them, is gone.
        (&["lock", "meta"], Mode::Read),
    ] {
        let store = open(&url).await;
        until("it grants", async || {
            all_grant(std::slice::from_ref(&store)).await
        })
        .await;
        are_older_than_a_second(&server).await;
        granted(&store, &claim_for(SHORT, "early", mode)).await;
        let tables = tables.iter().map(|table| format!("lockkeeper_{table}"));
        let tables = tables.collect::<Vec<_>>().join(",");
        server.sql(&format!("DROP TABLE {tables}"));
        // It knows nothing of the tables that were there.
        sits_out(&open(&url).await).await;
        until("the older session too", async || {
            all_grant(std::slice::from_ref(&store)).await
        })
        .await;
    }
}

/// What an administrator runs knows of the tables that are gone by those that are left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_tables_an_administrator_makes_again_sits_out() {
    let server = shared();
    for tables in [&["lock", "meta"][..], &["lock", "hold", "waiter", "meta"]] {
        let prefix = prefix();
        make_tables(&prefix);
        let url = format!(
            "{}?prefix={prefix}&max_lease=2s{PATIENT}",
            server.url_of(LEAST, server.port())
        );
        let store = open(&url).await;
        granted(&store, &short("early")).await;
        let tables = tables.iter().map(|table| format!("{prefix}{table}"));
        let tables = tables.collect::<Vec<_>>().join(",");
        server.sql(&format!("DROP TABLE {tables}"));
        make_tables(&prefix);
        sits_out(&open(&url).await).await;
    }
}

/// What an administrator runs again, for another user or a table that is missing, costs those who hold nothing.
#[tokio::test]
async fn tables_that_are_there_stay_when_they_are_made_again() {
    let (server, prefix) = (shared(), prefix());
    make_tables(&prefix);
    let url = format!(
        "{}?prefix={prefix}{PATIENT}",
        server.url_of(LEAST, server.port())
    );
    let store = open(&url).await;
    granted(&store, &claim("held", Mode::Exclusive)).await;
    server.sql(&format!("DROP TABLE {prefix}keeper"));
    make_tables(&prefix);
    granted(&store, &claim("other", Mode::Exclusive)).await;
    let new = open(&url).await;
    granted(&new, &claim("third", Mode::Exclusive)).await;
    busy(&new, &claim("held", Mode::Exclusive)).await;
}

/// The keeper makes it: nobody else has to do anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_the_keeper_makes_again_is_away_until_then() {
    let (server, prefix) = (shared(), prefix());
    let store = open(&format!("{}?prefix={prefix}{PATIENT}", server.url())).await;
    granted(&store, &claim("held", Mode::Exclusive)).await;
    server.sql(&format!("DROP TABLE {prefix}lock"));
    until("there is a table again", async || {
        match store.try_acquire(&claim("other", Mode::Exclusive)).await {
            Ok(Attempt::Busy { .. }) => true,
            Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

/// Made anew, it would have every latch open. So it is refused, and locks go on in the sessions that are there and in new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_without_the_tables_of_latches_and_keepers() {
    let (server, prefix) = (shared(), prefix());
    make_tables(&prefix);
    let url = format!(
        "{}?prefix={prefix}{PATIENT}",
        server.url_of(LEAST, server.port())
    );
    let before = keeper(&url).await;
    let locks_go_on = async |keeper: &Lockkeeper| {
        let lock = keeper.lock("x").expect("a lock");
        drop(lock.acquire().await.expect("acquires"));
    };
    locks_go_on(&before).await;
    server.sql(&format!("DROP TABLE {prefix}latch, {prefix}keeper"));
    let refused = async |keeper: &Lockkeeper| {
        let latch = keeper.latch("l").expect("a latch");
        let asks = tokio::spawn(async move { latch.wait().await });
        while !asks.is_finished() {
            locks_go_on(keeper).await;
        }
        let error = asks.await.expect("no panic").expect_err("no table");
        let said = error.to_string();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(said.contains("latch") && said.contains("lockkeeper schema mysql"));
    };
    refused(&before).await;
    locks_go_on(&before).await;
    let new = keeper(&url).await;
    refused(&new).await;
    locks_go_on(&new).await;
    // What is there stays, and nobody waits.
    make_tables(&prefix);
    for keeper in [&before, &new] {
        let latch = keeper.latch("l").expect("a latch");
        latch.wait().await.expect("it is open");
        locks_go_on(keeper).await;
    }
}
