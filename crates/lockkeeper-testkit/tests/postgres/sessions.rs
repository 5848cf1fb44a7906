//! What a session sets for itself, and what it leaves behind.

use std::time::Duration;

use lockkeeper::store::postgres::PostgresStore;
use lockkeeper::store::{Attempt, Claim, Mode, Renewed, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};

use crate::claims::{claim_for, release, renewal_for, until};
use crate::common::{connect, open};

const LEASE: Duration = Duration::from_secs(30);

fn claim(text: &str) -> Claim {
    claim_for(LEASE, text, Mode::Exclusive)
}

async fn granted(store: &PostgresStore, claim: &Claim) -> bool {
    matches!(store.try_acquire(claim).await, Ok(Attempt::Granted(_)))
}

/// A server that writes down every statement.
fn talkative() -> PostgresServer {
    PostgresServer::start_with(PostgresOptions {
        settings: vec![("log_statement".into(), "all".into())],
        ..PostgresOptions::default()
    })
}

/// The process of a keeper is written down for people alone. Where that is refused it is not tried again at every acquire.
#[tokio::test]
async fn a_missing_table_of_keepers_is_not_asked_for_at_every_acquire() {
    let server = talkative();
    let store = open(&server.url()).await;
    server.sql("DROP TABLE lockkeeper.keeper");
    let held = claim("x");
    for _ in 0..20 {
        assert!(granted(&store, &held).await);
        assert_eq!(release(&store, &held).await, Ok(true));
    }
    let log = server.log();
    let refusals = log.matches("ERROR:  relation \"lockkeeper.keeper\" does not exist");
    let refusals = refusals.count();
    assert!((1..10).contains(&refusals), "{refusals}: {log}");
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

/// Whose limits are set for the server or the role is not asked by us: a statement may take as long as the URL allows.
#[tokio::test]
async fn the_time_outs_of_a_server_do_not_matter() {
    let server = PostgresServer::start_with(PostgresOptions {
        settings: vec![("statement_timeout".into(), "100ms".into())],
        ..PostgresOptions::default()
    });
    // Since version 17 there is one for transactions, too.
    server.sql(
        "DO $$ BEGIN IF current_setting('server_version_num')::int >= 170000 THEN \
         EXECUTE 'ALTER SYSTEM SET transaction_timeout = ''100ms'''; PERFORM pg_reload_conf(); END IF; END $$",
    );
    let store = open(&server.url()).await;
    let held = claim("held");
    assert!(granted(&store, &held).await);
    // A commit that waits for the disk may take long. So does one that waits for a row.
    server.sql(
        "SET statement_timeout TO 0; CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$; \
         CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON lockkeeper.lock DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION slowly()",
    );
    let renewed = store.renew(&[renewal_for(LEASE, &held)]).await;
    assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
    assert_eq!(release(&store, &held).await, Ok(true));
}

/// A server that has no connection left is away, whether the keeper is new or comes back.
#[tokio::test]
async fn a_server_without_a_free_connection_is_away() {
    let server = PostgresServer::start_with(PostgresOptions {
        settings: vec![
            ("max_connections".into(), "6".into()),
            ("superuser_reserved_connections".into(), "3".into()),
            ("max_wal_senders".into(), "0".into()),
        ],
        ..PostgresOptions::default()
    });
    server.sql("CREATE USER app; GRANT CREATE ON DATABASE postgres TO app");
    let url = server.url_of("app");
    let mut stores = Vec::new();
    let error = loop {
        match connect(&url).await {
            Ok(store) => stores.push(store),
            Err(error) => break error,
        }
        assert!(stores.len() < 6);
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    // Another takes the place of one that comes back.
    let store = stores.pop().expect("a store");
    let proxied = claim("x");
    let others =
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app'";
    assert_ne!(server.sql(others), ["0"]);
    until("it is back", async || granted(&store, &proxied).await).await;
    drop(stores);
    until("another gets in", async || connect(&url).await.is_ok()).await;
}

/// The server is told not to wait for the disk, and is stopped at once: what was granted before is still held.
#[tokio::test]
async fn grants_outlast_a_crash_though_commits_do_not_wait_for_the_disk_by_default() {
    let mut server = PostgresServer::start_with(PostgresOptions {
        settings: vec![
            ("synchronous_commit".into(), "off".into()),
            ("wal_writer_delay".into(), "10s".into()),
        ],
        ..PostgresOptions::default()
    });
    let url = format!("{}&sit_out=never", server.url());
    let store = open(&url).await;
    for number in 0..20 {
        assert!(granted(&store, &claim(&format!("held-{number}"))).await);
    }
    server.stop_at_once();
    server.restart();
    let store = open(&url).await;
    for number in 0..20 {
        let other = claim(&format!("held-{number}"));
        let attempt = store.try_acquire(&other).await;
        assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
    }
}

/// Under load nothing of ours takes a second, nothing waits for a lock for so long, and no transaction stands open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_is_long_and_no_transaction_idles() {
    let server = PostgresServer::start_with(PostgresOptions {
        settings: vec![
            ("log_min_duration_statement".into(), "1s".into()),
            ("log_lock_waits".into(), "on".into()),
            ("deadlock_timeout".into(), "1s".into()),
        ],
        ..PostgresOptions::default()
    });
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
        for task in 0..4 {
            let lock = keeper.lock(if task == 0 { "all" } else { "some" });
            let lock = lock.expect("a lock");
            let own = keeper.lock(&format!("own-{number}-{task}"));
            let own = own.expect("a lock");
            tasks.spawn(async move {
                for _ in 0..20 {
                    drop(lock.acquire().await.expect("acquires"));
                    drop(own.acquire().await.expect("acquires"));
                }
            });
        }
    }
    let stands = "SELECT query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' \
                  AND state_change < clock_timestamp() - interval '500 ms'";
    while !tasks.is_empty() {
        assert_eq!(server.sql(stands), Vec::<String>::new());
        while tasks.try_join_next().is_some() {}
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = server.log();
    let long: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("duration: ") || line.contains("still waiting"))
        .collect();
    assert!(long.is_empty(), "{long:?}");
}
