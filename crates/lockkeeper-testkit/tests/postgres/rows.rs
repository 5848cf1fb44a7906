//! Rows that somebody else has locked, and rows that a client must not lock for long.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Claim, Mode, Store};
use lockkeeper_testkit::servers::postgres::PostgresServer;
use lockkeeper_testkit::servers::proxy::Proxy;
use tokio::task::JoinHandle;

use crate::claims::{claim_for, release, until};
use crate::common::open;

fn claim(text: &str) -> Claim {
    // Longer than a busy machine takes.
    let lease = Duration::from_secs(300);
    claim_for(lease, text, Mode::Exclusive).with_not_after(Moment::NEVER)
}

/// Another program's transaction that has locked the row of a name, and stands still for so long.
async fn lock_row(
    server: &'static PostgresServer,
    schema: &str,
    name: &str,
    how: &str,
    seconds: u32,
) -> JoinHandle<Vec<String>> {
    let row = format!("SELECT name FROM {schema}.lock WHERE name = '{name}'");
    let stands = format!("BEGIN; {row} FOR {how}; SELECT pg_sleep({seconds}); COMMIT");
    let locked = tokio::task::spawn_blocking(move || server.sql(&stands));
    until("the row is locked", async || {
        server
            .sql(&format!("{row} FOR UPDATE SKIP LOCKED"))
            .is_empty()
    })
    .await;
    locked
}

/// A user's transaction checks the fence by `SELECT … FOR SHARE`, and is stopped before it commits. The hold that it checked cannot be
/// renewed; every other one of the same keeper is, and other names are served.
#[tokio::test]
async fn a_stopped_transaction_of_a_user_costs_no_other_name_its_lease() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::fresh_schema();
    let keeper = Lockkeeper::builder()
        .url(&format!("{}&schema={schema}", server.url()))
        .lease(Duration::from_secs(2))
        .connect()
        .await
        .expect("connects");
    let mut others = Vec::new();
    for name in ["a", "b", "stuck", "x", "y"] {
        let lock = keeper.lock(name).expect("a lock");
        let guard = lock.acquire().await.expect("acquires");
        if name == "stuck" {
            std::mem::forget(guard);
        } else {
            others.push(guard);
        }
    }
    let locked = lock_row(server, &schema, "stuck", "SHARE", 7).await;
    let mut served = 0;
    while !locked.is_finished() {
        let lock = keeper.lock("short").expect("a lock");
        drop(lock.acquire().await.expect("acquires"));
        served += 1;
        for guard in &others {
            assert!(guard.is_held(), "{} was lost", guard.name());
        }
    }
    locked.await.expect("no panic");
    assert!(served > 5, "{served}");
}

/// A transaction that changes something returns little. A client that is stopped while the server sends it much would keep the
/// rows of that transaction locked, as nothing ends a server that waits to send.
#[tokio::test]
async fn a_client_that_is_stopped_while_it_reads_has_no_row_locked() {
    let server = PostgresServer::shared();
    let schema = PostgresServer::fresh_schema();
    let proxy = Proxy::to(server.port());
    let store = open(&format!(
        "postgres://postgres@127.0.0.1:{}/postgres?schema={schema}&response_timeout=10s&max_lease=5m",
        proxy.port()
    ))
    .await;
    let store = Arc::new(store);
    for name in ["a", "big", "slow"] {
        let once = claim(name);
        assert!(store.try_acquire(&once).await.is_ok());
        assert_eq!(release(&*store, &once).await, Ok(true));
    }
    // Far more than sockets take: about 8 MB in one answer.
    server.sql(&format!(
        "UPDATE {schema}.lock SET shared = 40000 WHERE name = 'big'; \
         INSERT INTO {schema}.hold SELECT 'big', decode(lpad(to_hex(n), 48, '0'), 'hex'), 2, 0, 0, n, 1, 86400000000, \
         (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 86400000000, 1, repeat('x', 60) \
         FROM generate_series(1, 40000) AS n"
    ));
    let (mine, slow) = (claim("a"), claim("slow"));
    assert!(store.try_acquire(&mine).await.is_ok() && store.try_acquire(&slow).await.is_ok());
    // What is asked while the store waits for a row goes together.
    let locked = lock_row(server, &schema, "slow", "UPDATE", 3).await;
    proxy.hold_replies_to("EXECUTE lk_free(E'a'");
    let mut asked = tokio::task::JoinSet::new();
    asked.spawn({
        let (store, slow) = (store.clone(), slow.clone());
        async move { drop(release(&*store, &slow).await) }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    for _ in 0..4 {
        let (store, big) = (store.clone(), claim("big"));
        asked.spawn(async move { drop(store.inspect(&big.name).await) });
    }
    // By its name it comes before what is long.
    asked.spawn({
        let (store, mine) = (store.clone(), mine.clone());
        async move { drop(release(&*store, &mine).await) }
    });
    until("the client is stopped", async || proxy.stopped() > 0).await;
    until("the row is free", async || {
        let row = format!("SELECT claim IS NULL FROM {schema}.lock WHERE name = 'a'");
        server.sql(&format!("{row} FOR UPDATE SKIP LOCKED")) == ["t"]
    })
    .await;
    locked.await.expect("no panic");
    proxy.heal();
    asked.join_all().await;
}
