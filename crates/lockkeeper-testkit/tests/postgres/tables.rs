//! Tables that are dropped, or put back alone, under clients that use them.

use lockkeeper::store::postgres::{self, PostgresStore};
use lockkeeper::store::{Attempt, Claim, Mode, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::postgres::PostgresServer;

use crate::claims::{claim_for, release, until};
use crate::common::{connect, made_by_administrator, open};
use crate::forgetting::{claim, sits_out};

fn url(schema: &str) -> String {
    format!("{}&schema={schema}", PostgresServer::shared().url())
}

async fn granted(store: &PostgresStore, claim: &Claim) {
    let attempt = store.try_acquire(claim).await;
    assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
}

/// As if the longest lease were over since the tables were made.
async fn goes_on_in_time(store: &PostgresStore, schema: &str, name: &str) {
    PostgresServer::shared().sql(&format!(
        "UPDATE {schema}.alive SET ready_at = 1, born = txid_current() & 4294967295"
    ));
    until("it grants again", async || {
        matches!(
            store.try_acquire(&claim(name)).await,
            Ok(Attempt::Granted(_))
        )
    })
    .await;
}

/// A copy of a table comes in its place: it knows nothing of the grants since then. No statement fails, and no session ends.
#[tokio::test]
async fn a_table_that_is_put_back_alone_makes_the_server_sit_out() {
    let server = PostgresServer::shared();
    for (table, mode) in [("lock", Mode::Exclusive), ("hold", Mode::Read)] {
        let schema = PostgresServer::fresh_schema();
        let (store, idle) = (open(&url(&schema)).await, open(&url(&schema)).await);
        granted(&idle, &claim("other")).await;
        server.sql(&format!(
            "CREATE TABLE {schema}.old (LIKE {schema}.{table} INCLUDING ALL)"
        ));
        let held = claim_for(std::time::Duration::from_secs(30), "held", mode);
        granted(&store, &held).await;
        server.sql(&format!(
            "DROP TABLE {schema}.{table}; ALTER TABLE {schema}.old RENAME TO {table}"
        ));
        sits_out(&idle, &claim("held")).await;
        sits_out(&open(&url(&schema)).await, &claim("held")).await;
        goes_on_in_time(&idle, &schema, "new").await;
    }
}

/// The first to come after that knows nothing of the tables that were there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_tables_are_dropped_sits_out() {
    let server = PostgresServer::shared();
    let all = "meta, lock, hold, waiter, keeper, latch, arrival, alive";
    let harms = [
        "DROP TABLE lock",
        "DROP TABLE hold, waiter",
        "DROP TABLE meta",
        "DROP TABLE alive",
        &format!("DROP TABLE {all}"),
        "DROP SCHEMA CASCADE",
    ];
    let cases = tokio::task::LocalSet::new();
    let mut ended = Vec::new();
    for harm in harms {
        let (schema, harm) = (PostgresServer::fresh_schema(), harm.to_owned());
        ended.push(cases.spawn_local(async move {
            let store = open(&url(&schema)).await;
            granted(&store, &claim("held")).await;
            let drops = match harm.strip_prefix("DROP TABLE ") {
                None => format!("DROP SCHEMA {schema} CASCADE"),
                Some(tables) => {
                    let tables = tables.split(", ").map(|table| format!("{schema}.{table}"));
                    format!("DROP TABLE {}", tables.collect::<Vec<_>>().join(","))
                }
            };
            server.sql(&drops);
            let new = open(&url(&schema)).await;
            let attempt = new.try_acquire(&claim("held")).await;
            assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
            // Without `meta` it is known who holds.
            if harm != "DROP TABLE meta" {
                sits_out(&new, &claim("new")).await;
                sits_out(&store, &claim("new")).await;
            }
            until("the older session is refused too", async || {
                let attempt = store.try_acquire(&claim("held")).await;
                assert!(!matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
                attempt.is_ok()
            })
            .await;
            goes_on_in_time(&store, &schema, "free").await;
        }));
    }
    cases.await;
    for case in ended {
        case.await.expect("no panic");
    }
}

/// A user who may not make the tables is told what is missing, and what to run.
#[tokio::test]
async fn a_table_that_an_administrator_has_to_make_again_is_named() {
    let server = PostgresServer::shared();
    let schema = made_by_administrator(server);
    let url = format!("{}&schema={schema}", server.url_of(&schema));
    let store = open(&url).await;
    granted(&store, &claim("held")).await;
    server.sql(&format!("DROP TABLE {schema}.lock"));
    let says = |error: &Error| {
        let (refused, said) = (matches!(error, Error::Refused { .. }), error.to_string());
        refused && said.contains("no table lock") && said.contains("lockkeeper schema postgres")
    };
    until("the open store says so", async || {
        let error = store.try_acquire(&claim("other")).await;
        says(&error.expect_err("there is no table"))
    })
    .await;
    let error = connect(&url).await.expect_err("there is no table");
    assert!(says(&error), "{error:?}");
    server.sql(&postgres::schema(&schema, &schema));
    sits_out(&store, &claim("held")).await;
    goes_on_in_time(&store, &schema, "free").await;
}

/// A keeper that holds and renews makes the tables anew, and marks the schema meanwhile: a new client that is faster is granted nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_whose_schema_is_dropped_never_stops_marking_it() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::fresh_schema();
    server.sql(&format!(
        "CREATE USER {schema}; GRANT CREATE ON DATABASE postgres TO {schema}"
    ));
    let url = format!("{}&schema={schema}", server.url_of(&schema));
    let store = open(&url).await;
    granted(&store, &claim("held")).await;
    let sessions = |also: &str| {
        let sessions = "SELECT pid FROM pg_stat_activity WHERE usename";
        server.sql(&format!("{sessions} = '{schema}' {also}"))
    };
    let first = sessions("").join(",");
    server.sql(&format!("DROP SCHEMA {schema} CASCADE"));
    until("it connects again", async || {
        let attempt = store.try_acquire(&claim("other")).await;
        assert!(attempt.is_err(), "{attempt:?}");
        !sessions(&format!("AND pid <> {first}")).is_empty()
    })
    .await;
    sits_out(&open(&url).await, &claim("held")).await;
}

/// The same, where an administrator has to make the tables: between two tries, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_may_not_make_its_schema_never_stops_marking_it() {
    let server = PostgresServer::shared();
    for ended in [false, true] {
        let schema = made_by_administrator(server);
        let url = format!("{}&schema={schema}", server.url_of(&schema));
        let store = open(&url).await;
        granted(&store, &claim("held")).await;
        server.sql(&format!("DROP SCHEMA {schema} CASCADE"));
        if ended {
            server.sql(&format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{schema}'"
            ));
        }
        until("it is refused", async || {
            let error = store.try_acquire(&claim("other")).await;
            let error = error.expect_err("there is no table").to_string();
            error.contains("no table meta, lock")
        })
        .await;
        server.sql(&postgres::schema(&schema, &schema));
        sits_out(&open(&url).await, &claim("held")).await;
    }
}

/// The keeper makes it: nobody else has to do anything.
#[tokio::test]
async fn a_table_that_the_keeper_makes_again_is_away_until_then() {
    let schema = PostgresServer::fresh_schema();
    let store = open(&url(&schema)).await;
    granted(&store, &claim("held")).await;
    PostgresServer::shared().sql(&format!("DROP TABLE {schema}.lock"));
    until("there is a table again", async || {
        match store.try_acquire(&claim("other")).await {
            Ok(Attempt::Busy { .. }) => true,
            Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

/// One who makes the tables at the same time waits, so that both know whether they are new.
#[test]
fn what_an_administrator_runs_takes_the_lock_of_those_who_make_tables() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::fresh_schema();
    server.sql(&format!("CREATE USER {schema}"));
    let held = "SELECT 'it has ' || count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid() \
         AND (classid, objid) = (1818979947, 1)";
    let script = postgres::schema(&schema, &schema).replace("COMMIT;", &format!("{held}; COMMIT;"));
    let said = server.sql(&script);
    assert!(said.contains(&"it has 1".to_owned()), "{said:?}");
}

/// Its primary may have been used before the standby heard of any table.
#[tokio::test]
async fn a_standby_that_was_promoted_before_it_had_the_tables_sits_out() {
    let primary = PostgresServer::start();
    let standby = PostgresServer::standby_of(&primary);
    standby.promote();
    sits_out(&open(&standby.url()).await, &claim("held")).await;
}

/// Nobody else knows any more for how long it may hold something.
#[tokio::test]
async fn an_idle_keeper_with_long_leases_notices_that_meta_is_gone() {
    let (server, longest) = (
        PostgresServer::shared(),
        std::time::Duration::from_secs(300),
    );
    let schemas = [
        PostgresServer::fresh_schema(),
        PostgresServer::fresh_schema(),
    ];
    let mut stores = Vec::new();
    for (schema, also) in schemas.iter().zip(["", ", {}.lock"]) {
        let store = open(&format!("{}&max_lease=5m", url(schema))).await;
        granted(&store, &claim_for(longest, "held", Mode::Exclusive)).await;
        let also = also.replace("{}", schema);
        server.sql(&format!("DROP TABLE {schema}.meta{also}"));
        let new = open(&url(schema)).await;
        stores.push((store, new));
    }
    for (schema, (_idle, new)) in schemas.iter().zip(&stores) {
        let stored = format!("SELECT max_lease FROM {schema}.meta");
        until("its longest lease is known", async || {
            server.sql(&stored) == ["300000000"]
        })
        .await;
        let attempt = new.try_acquire(&claim("held")).await;
        assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
    }
    until("it sits out for as long", async || {
        let attempt = stores[1].1.try_acquire(&claim("held")).await;
        assert!(!matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
        stores[1].1.health().ready_in > longest / 2
    })
    .await;
}

/// Made anew, it would have every latch open. So it is refused, and locks go on in the sessions that are there and in new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_on_without_the_tables_of_latches_and_keepers() {
    let server = PostgresServer::shared();
    let schema = made_by_administrator(server);
    let url = format!("{}&schema={schema}", server.url_of(&schema));
    let keeper = async || Lockkeeper::connect(&url).await.expect("connects");
    let before = keeper().await;
    let locks_go_on = async |keeper: &Lockkeeper| {
        let lock = keeper.lock("x").expect("a lock");
        drop(lock.acquire().await.expect("acquires"));
    };
    locks_go_on(&before).await;
    let sessions = format!(
        "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity WHERE usename = '{schema}'"
    );
    let before_it = server.sql(&sessions);
    server.sql(&format!("DROP TABLE {schema}.latch, {schema}.keeper"));
    let refused = async |keeper: &Lockkeeper| {
        let latch = keeper.latch("l").expect("a latch");
        let asks = tokio::spawn(async move { latch.wait().await });
        while !asks.is_finished() {
            locks_go_on(keeper).await;
        }
        let error = asks.await.expect("no panic").expect_err("no table");
        let said = error.to_string();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(said.contains("latch") && said.contains("lockkeeper schema postgres"));
    };
    refused(&before).await;
    locks_go_on(&before).await;
    assert_eq!(server.sql(&sessions), before_it, "the session has ended");
    let new = keeper().await;
    refused(&new).await;
    locks_go_on(&new).await;
    // What is there stays, and nobody waits.
    server.sql(&postgres::schema(&schema, &schema));
    for keeper in [&before, &new] {
        let latch = keeper.latch("l").expect("a latch");
        latch.wait().await.expect("it is open");
        locks_go_on(keeper).await;
    }
}

/// What an administrator runs again, for another user or a table that is missing, costs those who hold nothing.
#[tokio::test]
async fn tables_that_are_there_stay_when_they_are_made_again() {
    let server = PostgresServer::shared();
    let schema = made_by_administrator(server);
    let store = open(&url(&schema)).await;
    let held = claim("held");
    granted(&store, &held).await;
    server.sql(&postgres::schema(&schema, &schema));
    granted(&store, &claim("other")).await;
    assert_eq!(release(&store, &held).await, Ok(true));
    granted(&open(&url(&schema)).await, &claim("third")).await;
}
