//! The PostgreSQL store on real servers: the conformance suite here, and what only this store has in the modules.
//!
//! The suite runs with two stores on one server, as two processes have them, each case in a schema of its own.

#[path = "../support/claims.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod claims;
mod clock;
mod common;
mod cut;
#[path = "../support/cutting.rs"]
mod cutting;
mod faults;
mod forgetting;
mod handing_on;
#[path = "../support/late.rs"]
mod late;
mod load;
mod model;
mod opening;
mod roles;
mod rows;
mod sessions;
#[path = "../support/switch_over.rs"]
mod switch_over;
mod tables;
mod tidying;
#[path = "../support/tidying.rs"]
mod tidying_support;
#[path = "../support/turns.rs"]
mod turns;
mod ways;

use std::sync::Arc;

use common::open;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::postgres::PostgresServer;

/// Two stores on a schema of their own, made by an administrator, and with no other right than to use it.
async fn least_rights() -> Subject {
    let server = PostgresServer::shared();
    let schema = common::made_by_administrator(server);
    // The suite asks for longer leases than are usual.
    let url = format!("{}&schema={schema}&max_lease=5m", server.url_of(&schema));
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store)).with_other(Arc::new(other))
}

lockkeeper_testkit::conformance_tests!(over_tcp_with_least_rights, least_rights);
