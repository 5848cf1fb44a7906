//! A session that is not as it was made: the server's defaults, or a proxy that resets sessions.

use std::time::Instant;

use crate::claims::{release, until};
use crate::common::*;
use lockkeeper::Error;
use lockkeeper::store::mysql::MySqlStore;
use lockkeeper::store::{Attempt, Claim, Mode, Store};
use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::proxy::Proxy;

/// `COM_RESET_CONNECTION`.
const RESET: &[u8] = &[1, 0, 0, 0, 0x1f];

/// A statement as a packet.
fn query(text: &str) -> Vec<u8> {
    let length = (text.len() as u32 + 1).to_le_bytes();
    [&length[..3], &[0, 3], text.as_bytes()].concat()
}

/// Tells the server something in the session of the store behind a proxy.
async fn tell(proxy: &Proxy, packet: &[u8]) {
    let before = proxy.heard();
    proxy.tell_server(packet);
    until("the server has heard it", async || proxy.heard() > before).await;
}

/// What a store was granted is there for all others, also when every connection ends at once.
async fn grants_what_lasts(store: &MySqlStore, server: &MariaDbServer, claim: &Claim) {
    let attempt = store.try_acquire(claim).await;
    server.kill_connections();
    let other = open(&server.url()).await;
    let rivals = other.try_acquire(&claim_like(claim)).await;
    let both =
        matches!(attempt, Ok(Attempt::Granted(_))) && matches!(rivals, Ok(Attempt::Granted(_)));
    assert!(!both, "{attempt:?} and {rivals:?}");
}

fn claim_like(claim: &Claim) -> Claim {
    crate::common::claim(&claim.name, claim.mode)
}

/// A commit begins the next transaction there, and a statement after it would never be committed.
#[tokio::test]
async fn a_server_that_chains_transactions_keeps_grants() {
    let server = MariaDbServer::start_as(&["--completion-type=CHAIN"]);
    let store = open(&server.url()).await;
    granted(&store, &claim("other", Mode::Exclusive)).await;
    // Several statements, and so a transaction.
    busy(&store, &waiting("other", Mode::Exclusive)).await;
    grants_what_lasts(&store, &server, &claim("x", Mode::Exclusive)).await;
}

#[tokio::test]
async fn a_session_that_no_longer_commits_by_itself_grants_nothing() {
    let server = MariaDbServer::start();
    for (round, state) in ["SET autocommit=0", "SET completion_type=CHAIN", "BEGIN"]
        .iter()
        .enumerate()
    {
        let proxy = Proxy::to(server.port());
        let store = open(&server.url_at(proxy.port())).await;
        let name = format!("other {round}");
        granted(&store, &claim(&name, Mode::Exclusive)).await;
        tell(&proxy, &query(state)).await;
        let _ = store.try_acquire(&waiting(&name, Mode::Exclusive)).await;
        grants_what_lasts(
            &store,
            &server,
            &claim(&format!("x {round}"), Mode::Exclusive),
        )
        .await;
    }
}

/// Waits until a store grants: its session is made anew.
async fn serves(store: &MySqlStore) {
    until("a new session", async || {
        let fresh = claim(&format!("fresh {:?}", Instant::now()), Mode::Exclusive);
        matches!(store.try_acquire(&fresh).await, Ok(Attempt::Granted(_)))
    })
    .await;
}

#[tokio::test]
async fn a_server_whose_transactions_only_read_by_default_is_used() {
    let server = MariaDbServer::start();
    drop(open(&server.url()).await);
    server.sql("SET GLOBAL tx_read_only = ON");
    granted(&open(&server.url()).await, &claim("x", Mode::Exclusive)).await;
}

/// The times of a session that was reset are those of the server's zone, in which every lease is over.
#[tokio::test]
async fn a_session_that_was_reset_grants_nothing_by_times_of_another_zone() {
    let server = MariaDbServer::start_as(&["--default-time-zone=+09:00"]);
    let proxy = Proxy::to(server.port());
    let (holder, reset) = (
        open(&server.url()).await,
        open(&server.url_at(proxy.port())).await,
    );
    for (name, mode) in [("lock", Mode::Exclusive), ("book", Mode::Read)] {
        let held = claim(name, mode);
        granted(&holder, &held).await;
        for wants in [claim(name, Mode::Exclusive), waiting(name, Mode::Exclusive)] {
            serves(&reset).await;
            tell(&proxy, RESET).await;
            let attempt = reset.try_acquire(&wants).await;
            assert!(!matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
            let info = holder.inspect(&held.name).await.expect("inspects");
            let holders = info.expect("it is held").holders;
            assert_eq!(holders[0].claim, held.id);
            let _ = reset.withdraw(&wants.name, wants.id).await;
        }
    }
    serves(&reset).await;
}

/// A commit that the server failed at may have happened all the same.
#[tokio::test]
async fn an_error_at_the_commit_of_a_single_statement_is_in_doubt() {
    let server = shared();
    let text = b"#HY000Got error 5 during COMMIT";
    let mut error = vec![text.len() as u8 + 3, 0, 0, 1, 0xff];
    error.extend_from_slice(&1180_u16.to_le_bytes());
    error.extend_from_slice(text);
    for (statement, what) in [
        ("claim=NULL", "a release"),
        ("LAST_INSERT_ID(GREATEST(token", "a take"),
    ] {
        let proxy = Proxy::to(server.port());
        let url = format!(
            "{}?prefix={}{PATIENT}",
            server.url_at(proxy.port()),
            prefix()
        );
        let store = open(&url).await;
        let held = claim("x", Mode::Exclusive);
        granted(&store, &held).await;
        proxy.replace_reply(statement, &error);
        let outcome = match what {
            "a release" => release(&store, &held).await.map(drop),
            _ => {
                let takes = waiting("y", Mode::Exclusive);
                store.try_acquire(&takes).await.map(drop)
            }
        };
        let unknown = matches!(outcome, Err(Error::OutcomeUnknown { .. }));
        assert!(unknown, "{what}: {outcome:?}");
    }
}
