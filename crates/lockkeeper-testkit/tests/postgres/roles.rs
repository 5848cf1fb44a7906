//! Servers that take no writes, for a while or as standbys, and several servers of which one is the primary.

use std::time::Duration;

use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::ports::free_port;
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};
use lockkeeper_testkit::servers::proxy::Proxy;

use crate::claims::{claim_for, until};
use crate::common::{connect, open};
use crate::switch_over::is_outlasted;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_and_releases_outlast_a_server_that_is_read_only_for_a_while() {
    let server = PostgresServer::start();
    let keeper = async || Lockkeeper::connect(&server.url()).await.expect("connects");
    let (holder, waiter) = (keeper().await, keeper().await);
    let turn = |on| {
        let on = if on { "on" } else { "off" };
        server.sql(&format!(
            "ALTER SYSTEM SET default_transaction_read_only = {on}"
        ));
        server.sql("SELECT pg_reload_conf()");
    };
    is_outlasted(holder, waiter, turn, "default_transaction_read_only").await;
}

/// An address that leads to a standby for a while is away, and no refusal.
#[tokio::test]
async fn an_address_that_leads_to_a_standby_is_away() {
    let primary = PostgresServer::start();
    let standby = PostgresServer::standby_of(&primary);
    let proxy = Proxy::to(primary.port());
    let store = open(&format!(
        "postgres://postgres@127.0.0.1:{}/postgres",
        proxy.port()
    ))
    .await;
    let claim = claim_for(Duration::from_secs(30), "x", Mode::Exclusive);
    proxy.point_to(standby.port());
    proxy.cut();
    until("the standby is found", async || {
        let error = store.try_acquire(&claim).await.expect_err("a standby");
        let in_doubt = matches!(error, Error::OutcomeUnknown { .. });
        assert!(
            in_doubt || matches!(error, Error::Unavailable { .. }),
            "{error:?}"
        );
        error.to_string().contains("replica")
    })
    .await;
    proxy.point_to(primary.port());
    until("the primary is found", async || {
        matches!(store.try_acquire(&claim).await, Ok(Attempt::Granted(_)))
    })
    .await;
}

/// Each of several servers is named with its reason, and one that may be the primary in a moment refuses nobody.
#[tokio::test]
async fn several_servers_are_named_with_their_reasons() {
    let primary = PostgresServer::start();
    let standby = PostgresServer::standby_of(&primary);
    let nowhere = free_port();
    let hosts = |ports: [u16; 2], database: &str| {
        let [one, other] = ports;
        format!("postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/{database}")
    };
    let url = hosts([standby.port(), nowhere], "postgres");
    let error = connect(&url).await.expect_err("none is usable");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.contains("replica") && error.contains(&format!("127.0.0.1:{nowhere}")),
        "{error}"
    );
    // The primary refuses us, and its standby says that it is none.
    let bars = PostgresServer::start_with(PostgresOptions {
        access: vec!["host all all 127.0.0.1/32 reject".into()],
        ..PostgresOptions::default()
    });
    for ports in [[standby.port(), bars.port()], [bars.port(), standby.port()]] {
        let error = connect(&hosts(ports, "postgres")).await;
        let error = error.expect_err("none is usable");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let error = error.to_string();
        assert!(
            error.contains("replica") && error.contains("pg_hba.conf"),
            "{error}"
        );
    }
    // What no switch-over mends is refused.
    let url = hosts([standby.port(), primary.port()], "missing");
    let error = connect(&url).await.expect_err("there is none");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
}
