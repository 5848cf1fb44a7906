//! The ZooKeeper store on real servers: the conformance suite here, and what only this store has in the modules.
//!
//! Cases share a server, and each has a chroot of its own. The suite runs with two stores, which have a session each.

#[path = "../support/claims.rs"]
#[allow(dead_code)]
mod claims;
mod common;
mod connections;
#[path = "../support/crew.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod crew;
mod deposed;
mod faults;
mod limits;
mod moved;
mod naive;
mod numbers;
mod parted;
#[path = "../support/place.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod place;
mod sessions;
mod stopped;
mod turns;
#[path = "../support/victim.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod victim;
mod watches;
mod ways;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use common::open;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperServer};

/// Two stores below a chroot that no other case has.
async fn subject(url: impl Fn(&str) -> String) -> Subject {
    static CASES: AtomicU64 = AtomicU64::new(1);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    let url = url(&format!("case{case}"));
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store)).with_other(Arc::new(other))
}

async fn one_server() -> Subject {
    static SERVER: OnceLock<ZooKeeperServer> = OnceLock::new();
    let server = SERVER.get_or_init(ZooKeeperServer::start);
    subject(|chroot| server.url(chroot)).await
}

async fn three_servers() -> Subject {
    static SERVERS: OnceLock<Ensemble> = OnceLock::new();
    let servers = SERVERS.get_or_init(Ensemble::start);
    subject(|chroot| servers.url(chroot)).await
}

lockkeeper_testkit::conformance_tests!(on_zookeeper, one_server);
lockkeeper_testkit::conformance_tests!(on_three_zookeepers, three_servers, transport);
