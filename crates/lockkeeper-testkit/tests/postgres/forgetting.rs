//! A server that may have forgotten grants, other than by a crash under its clients' eyes: `faults` has those.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::postgres::PostgresStore;
use lockkeeper::store::{Attempt, Claim, Mode, Store};
use lockkeeper_testkit::servers::pgbouncer::PgBouncer;
use lockkeeper_testkit::servers::postgres::PostgresServer;

use crate::claims::{claim_for, release, until};
use crate::common::open;

const LEASE: Duration = Duration::from_secs(30);

pub fn claim(text: &str) -> Claim {
    claim_for(LEASE, text, Mode::Exclusive).with_not_after(Moment::NEVER)
}

/// The store answers, and grants nothing for a long time.
pub async fn sits_out(store: &PostgresStore, claim: &Claim) {
    until("the store answers", async || {
        match store.try_acquire(claim).await {
            Ok(Attempt::Busy { .. }) => store.health().ready_in > LEASE / 3,
            Ok(attempt) => panic!("{attempt:?}"),
            Err(_) => false,
        }
    })
    .await;
}

/// The tables are put back from a dump, under a client that is connected: the grants since then are forgotten.
#[tokio::test]
async fn a_server_with_tables_from_a_dump_sits_out() {
    let server = PostgresServer::start();
    let (store, idle) = (open(&server.url()).await, open(&server.url()).await);
    let before = claim("before");
    assert!(matches!(
        store.try_acquire(&before).await,
        Ok(Attempt::Granted(_))
    ));
    assert_eq!(release(&store, &before).await, Ok(true));
    let dump = server.dump("lockkeeper");
    for name in ["before", "since"] {
        let held = claim(name);
        let attempt = store.try_acquire(&held).await;
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
    }
    server.sql(&dump);
    for name in ["before", "since"] {
        sits_out(&idle, &claim(name)).await;
        sits_out(&open(&server.url()).await, &claim(name)).await;
    }
}

/// A session of a pooler outlives that of the server: it idles while the server crashes, and asks as if nothing had been.
#[tokio::test]
async fn a_session_that_idled_through_a_crash_grants_nothing() {
    let mut server = PostgresServer::start();
    let pooler = PgBouncer::to(&server, 2);
    let idle = open(&pooler.url()).await;
    let before = claim("before");
    assert!(matches!(
        idle.try_acquire(&before).await,
        Ok(Attempt::Granted(_))
    ));
    assert_eq!(release(&idle, &before).await, Ok(true));
    // The first crash is noticed by another client, which has the server sit out. The second by nobody.
    for crash in 0..2 {
        server.stop_at_once();
        server.restart();
        if crash == 0 {
            let other = open(&server.url()).await;
            sits_out(&other, &claim("before")).await;
            // As if the time were over.
            server.sql(
                "UPDATE lockkeeper.alive SET ready_at = 1, born = txid_current() & 4294967295",
            );
            let held = claim("since");
            let attempt = other.try_acquire(&held).await;
            assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
            server.sql("CHECKPOINT");
        }
    }
    for name in ["before", "since", "new"] {
        sits_out(&idle, &claim(name)).await;
    }
}

/// A client that is told never to sit out says so for itself. Others that come after it still do.
#[tokio::test]
async fn a_client_that_never_sits_out_lets_others_sit_out() {
    let mut server = PostgresServer::start();
    let before = claim("before");
    let attempt = open(&server.url()).await.try_acquire(&before).await;
    assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
    server.stop_at_once();
    server.restart();
    let never = open(&format!("{}&sit_out=never", server.url())).await;
    let attempt = never.try_acquire(&claim("never")).await;
    assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
    assert_eq!(never.health().ready_in, Duration::ZERO);
    sits_out(&open(&server.url()).await, &claim("auto")).await;
    // By each way to be granted.
    let queued = claim("never").with_enqueue(true);
    let attempt = never.try_acquire(&queued).await;
    assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
    let reader = claim_for(LEASE, "book", Mode::Read);
    let attempt = never.try_acquire(&reader).await;
    assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
}

/// The server may have forgotten a grant of the longer lease too, and that anybody asked for one.
#[tokio::test]
async fn a_server_that_sits_out_does_so_longer_for_a_longer_lease() {
    let server = PostgresServer::start();
    let store = open(&server.url()).await;
    server.sql("TRUNCATE lockkeeper.alive");
    let wants = claim("wants");
    sits_out(&store, &wants).await;
    assert!(store.health().ready_in < 2 * LEASE);
    drop(open(&format!("{}&max_lease=10m", server.url())).await);
    until("it sits out for longer", async || {
        sits_out(&store, &wants).await;
        store.health().ready_in > 2 * LEASE
    })
    .await;
}
