//! What is refused and warned about when a store is opened, who makes the tables, and which rights that takes.

use std::time::Duration;

use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::postgres::PostgresServer;

use crate::claims::claim_for;
use crate::common::{connect, made_by_administrator, open};

fn url(schema: &str) -> String {
    format!("{}&schema={schema}", PostgresServer::shared().url())
}

async fn refused(url: &str, words: &[&str]) {
    let error = connect(url).await.expect_err("is refused");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{error} lacks {word}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_can_be_the_first() {
    let schema = PostgresServer::fresh_schema();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let url = url(&schema);
        tasks.spawn(async move {
            let keeper = Lockkeeper::connect(&url).await?;
            drop(keeper.lock("first")?.acquire().await?);
            Ok::<(), Error>(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome.expect("everyone gets in");
    }
}

#[tokio::test]
async fn newer_tables_are_refused() {
    let schema = PostgresServer::fresh_schema();
    drop(open(&url(&schema)).await);
    PostgresServer::shared().sql(&format!("UPDATE {schema}.meta SET version = 2"));
    refused(&url(&schema), &["version 2", "schema=NAME"]).await;
}

#[tokio::test]
async fn a_user_without_rights_is_told_what_to_run() {
    let server = PostgresServer::shared();
    let user = PostgresServer::fresh_schema();
    server.sql(&format!("CREATE USER {user}"));
    // There are no tables, and it may not make them.
    let url = format!("{}&schema={user}", server.url_of(&user));
    refused(&url, &["lockkeeper schema postgres", "GRANT"]).await;
    // There are, but it may not use them.
    let other = made_by_administrator(server);
    let url = format!("{}&schema={other}", server.url_of(&user));
    refused(&url, &["lockkeeper schema postgres", "GRANT"]).await;
    // It may read them only.
    server.sql(&format!(
        "GRANT USAGE ON SCHEMA {other} TO {user}; GRANT SELECT ON ALL TABLES IN SCHEMA {other} TO {user}"
    ));
    refused(&url, &["GRANT"]).await;
}

#[tokio::test]
async fn a_database_that_is_not_in_utf8_is_refused() {
    let server = PostgresServer::shared();
    server.sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let url = format!("postgres://postgres@127.0.0.1:{}/latin", server.port());
    refused(&url, &["UTF-8"]).await;
}

#[tokio::test]
async fn what_is_not_there_is_told() {
    let server = PostgresServer::shared();
    let url = format!("postgres://postgres@127.0.0.1:{}/nowhere", server.port());
    refused(&url, &["nowhere"]).await;
    let port = lockkeeper_testkit::servers::ports::free_port();
    let error = connect(&format!("postgres://postgres@127.0.0.1:{port}/postgres")).await;
    let error = error.expect_err("nobody listens");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_read_only_default_is_refused() {
    let server = PostgresServer::shared();
    let user = made_by_administrator(server);
    server.sql(&format!(
        "ALTER ROLE {user} SET default_transaction_read_only = on"
    ));
    let url = format!("{}&schema={user}", server.url_of(&user));
    refused(&url, &["default_transaction_read_only"]).await;
}

/// The longest lease is agreed on in the tables: asking for more raises it, and the others keep theirs.
#[tokio::test]
async fn a_longer_lease_has_to_be_asked_for() {
    let schema = PostgresServer::fresh_schema();
    let usual = open(&url(&schema)).await;
    assert_eq!(usual.capabilities().longest_lease, Duration::from_secs(30));
    let longer = open(&format!("{}&max_lease=2m", url(&schema))).await;
    assert_eq!(
        longer.capabilities().longest_lease,
        Duration::from_secs(120)
    );
    let stored = format!("SELECT max_lease FROM {schema}.meta");
    assert_eq!(PostgresServer::shared().sql(&stored), ["120000000"]);
    let shorter = open(&format!("{}&max_lease=5s", url(&schema))).await;
    assert_eq!(shorter.capabilities().longest_lease, Duration::from_secs(5));
    assert_eq!(PostgresServer::shared().sql(&stored), ["120000000"]);
}

/// A copy of the tables on another server says whose it is: that server sits out.
#[tokio::test]
async fn a_restored_copy_sits_out() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::fresh_schema();
    drop(open(&url(&schema)).await);
    server.sql(&format!("UPDATE {schema}.alive SET system = '1'"));
    let store = open(&url(&schema)).await;
    let claim = claim_for(Duration::from_secs(1), "x", Mode::Exclusive);
    let attempt = store.try_acquire(&claim).await.expect("answers");
    assert!(matches!(attempt, Attempt::Busy { .. }), "{attempt:?}");
    assert!(store.health().ready_in > Duration::from_secs(10));
}
