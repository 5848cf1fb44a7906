//! The MySQL store on a real MariaDB server: the conformance suite here, and what only this store has in the modules.
//!
//! A server takes a while to start, so the cases share one, each with tables of its own.

mod bell;
#[path = "../support/claims.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod claims;
mod common;
mod connecting;
mod cut;
#[path = "../support/cutting.rs"]
mod cutting;
mod forgetting;
mod galera;
#[path = "../support/late.rs"]
mod late;
mod load;
mod model;
mod names;
mod replicas;
mod server;
mod state;
#[path = "../support/switch_over.rs"]
mod switch_over;
mod tables;
mod tidying;
#[path = "../support/tidying.rs"]
mod tidying_support;
#[path = "../support/turns.rs"]
mod turns;
mod waiting;

use std::sync::Arc;

use common::{LEAST, PATIENT, make_tables, open, prefix, shared};
use lockkeeper_testkit::conformance::Subject;

/// Two stores, as two processes have them. The suite asks for leases of minutes.
async fn subject(url: String) -> Subject {
    let url = format!("{url}&max_lease=10m{PATIENT}");
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store)).with_other(Arc::new(other))
}

async fn tcp() -> Subject {
    subject(format!("{}?prefix={}", shared().url(), prefix())).await
}

async fn unix_socket() -> Subject {
    subject(format!("{}&prefix={}", shared().unix_url(), prefix())).await
}

/// As a user who may only read and write the tables, which an administrator has made.
async fn least_rights() -> Subject {
    let (server, prefix) = (shared(), prefix());
    make_tables(&prefix);
    let url = server.url_of(LEAST, server.port());
    subject(format!("{url}?prefix={prefix}")).await
}

lockkeeper_testkit::conformance_tests!(on_mariadb, tcp);
lockkeeper_testkit::conformance_tests!(on_mariadb_with_least_rights, least_rights, transport);
lockkeeper_testkit::conformance_tests!(on_mariadb_over_a_socket, unix_socket, transport);
