//! The etcd store on real servers: the conformance suite here, and what only this store has in the modules.
//!
//! Cases share a server, and each has a prefix of its own. The suite runs with two stores, which have leases of their own.

#[path = "../support/claims.rs"]
#[allow(dead_code)]
mod claims;
mod common;
#[path = "../support/crew.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod crew;
mod faults;
mod leaders;
mod others;
#[path = "../support/place.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod place;
mod stopped;
#[path = "../support/victim.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod victim;
mod ways;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use common::open;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::etcd::{EtcdCluster, EtcdServer};

/// Two stores below a prefix that no other case has.
async fn subject(url: impl Fn(&str) -> String) -> Subject {
    static CASES: AtomicU64 = AtomicU64::new(1);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    let url = url(&format!("case{case}"));
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store))
        .with_other(Arc::new(other))
        .refusing(|name| format!("{name}/").starts_with(".lockkeeper/"))
}

async fn one_member() -> Subject {
    static SERVER: OnceLock<EtcdServer> = OnceLock::new();
    let server = SERVER.get_or_init(EtcdServer::start);
    subject(|prefix| server.url(prefix)).await
}

async fn three_members() -> Subject {
    static CLUSTER: OnceLock<EtcdCluster> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(EtcdCluster::start);
    subject(|prefix| cluster.url(prefix)).await
}

lockkeeper_testkit::conformance_tests!(on_etcd, one_member);
lockkeeper_testkit::conformance_tests!(on_three_etcds, three_members, transport);
