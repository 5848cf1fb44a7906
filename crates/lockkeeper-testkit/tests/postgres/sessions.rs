//! What a session sets for itself, and what it leaves behind.

use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};

use crate::common::open;

/// A server that writes down every statement.
fn talkative() -> PostgresServer {
    PostgresServer::start_with(PostgresOptions {
        settings: vec![("log_statement".into(), "all".into())],
        ..PostgresOptions::default()
    })
}

/// The server notices within a minute that the machine of a keeper is gone. By default it takes two hours, and the session stays for as long.
#[tokio::test]
async fn the_server_asks_whether_the_keeper_is_there() {
    let server = talkative();
    let _store = open(&server.url()).await;
    let log = server.log();
    for setting in [
        "SET tcp_keepalives_idle TO 20",
        "SET tcp_keepalives_interval TO 10",
        "SET tcp_keepalives_count TO 3",
        "SET tcp_user_timeout TO 50000",
    ] {
        assert!(log.contains(setting), "{setting} is missing in {log}");
    }
    // A socket has no such settings, and does not mind.
    open(&server.socket_url()).await;
}
