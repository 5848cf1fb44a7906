//! The Redis store on real servers: the conformance suite here, and what only this store has in the modules.
//!
//! The suite runs with two stores on one server, as two processes have them: over TCP and over a socket, in
//! both dialects, and on whatever else a URL can name. Where a deployment takes long to start, the cases share
//! one, each under a prefix of its own.

mod acl;
mod batch;
mod breaks;
#[path = "../support/claims.rs"]
mod claims;
mod common;
mod direct;
mod fair_line;
mod faults;
mod keepers;
mod midway;
mod model;
mod multi;
mod not_locks;
mod places;
mod replicas;
mod rows;
mod runtimes;
mod sentinel;
mod server_time;
mod short_ways;
mod shown;
mod spent;
mod tls;
mod tokens;
mod topics;
mod unasked;
mod upstream;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use common::open;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::certificates::Authority;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::replicated::Replicated;

async fn subject(url: impl Fn(&RedisServer) -> String) -> Subject {
    let server = RedisServer::start();
    let url = url(&server);
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store))
        .with_other(Arc::new(other))
        .keeping(server)
}

async fn tcp() -> Subject {
    subject(RedisServer::url).await
}

async fn unix_socket_and_prefix() -> Subject {
    subject(|server| format!("{}?db=3&prefix=app:", server.unix_url())).await
}

async fn plain() -> Subject {
    subject(|server| format!("{}?dialect=plain", server.url())).await
}

/// A deployment that all cases share; `url` is to be followed by more options.
async fn shared(url: &str) -> Subject {
    static CASES: AtomicU64 = AtomicU64::new(1);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    let url = format!("{url}&prefix=case{case}:");
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store)).with_other(Arc::new(other))
}

async fn with_tls() -> Subject {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let authority = Authority::new();
        let server = RedisServer::start_with(RedisOptions {
            tls: Some(authority.issue("server", &["127.0.0.1"])),
            ..RedisOptions::default()
        });
        std::fs::copy(authority.ca(), server.folder().join("ca.pem")).expect("copies");
        server
    });
    let ca = server.folder().join("ca.pem");
    shared(&format!("{}?ca={}", server.url(), ca.display())).await
}

async fn sentinels() -> Subject {
    static SERVERS: OnceLock<Replicated> = OnceLock::new();
    let servers = SERVERS.get_or_init(Replicated::with_sentinels);
    shared(&format!("{}?db=2", servers.url())).await
}

async fn a_replica() -> Subject {
    static SERVERS: OnceLock<Replicated> = OnceLock::new();
    let servers = SERVERS.get_or_init(|| Replicated::start(1));
    shared(&format!("{}?replicas=1", servers.servers()[0].url())).await
}

lockkeeper_testkit::conformance_tests!(on_redis, tcp);
lockkeeper_testkit::conformance_tests!(on_redis_with_sentinels, sentinels, transport);
lockkeeper_testkit::conformance_tests!(on_redis_with_a_replica, a_replica, transport);
lockkeeper_testkit::conformance_tests!(on_redis_with_tls, with_tls, transport);
lockkeeper_testkit::conformance_tests!(on_redis_over_a_socket, unix_socket_and_prefix, transport);
lockkeeper_testkit::conformance_tests!(on_plain_redis, plain);
