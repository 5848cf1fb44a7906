//! The Redis store on real servers: the conformance suite here, and what only this store has in the modules.
//!
//! The suite runs with two stores on one server, as two processes have them: over TCP and over a socket, in
//! both dialects.

mod batch;
mod common;
mod faults;
mod keepers;
mod wire;

use std::sync::Arc;

use common::open;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::redis::RedisServer;

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

lockkeeper_testkit::conformance_tests!(on_redis, tcp);
lockkeeper_testkit::conformance_tests!(on_redis_over_a_socket, unix_socket_and_prefix);
lockkeeper_testkit::conformance_tests!(on_plain_redis, plain);
