//! The ways to a server: a socket, TLS, a pooler.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lockkeeper::store::{Attempt, Interest, Mode, Store, Wakeups};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::certificates::Authority;
use lockkeeper_testkit::servers::pgbouncer::PgBouncer;
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};

use crate::claims::{claim_for, release};
use crate::common::{connect, open};

/// Two keepers hand a lock back and forth, in every mode.
async fn works(url: &str) {
    let one = Lockkeeper::connect(url).await.expect("connects");
    let two = Lockkeeper::connect(url).await.expect("connects");
    for round in 0..10 {
        let (first, second) = match round % 2 {
            0 => (&one, &two),
            _ => (&two, &one),
        };
        let guard = first
            .lock("lock")
            .expect("a lock")
            .acquire()
            .await
            .expect("acquires");
        let lock = second.lock("lock").expect("a lock");
        let waits = tokio::spawn(async move { lock.acquire().await.map(drop) });
        guard.release().await.expect("releases");
        waits.await.expect("no panic").expect("acquires");
        let book = first.rwlock("book").expect("a lock");
        drop((
            book.read().await.expect("reads"),
            book.read().await.expect("reads"),
        ));
        drop(
            second
                .rwlock("book")
                .expect("a lock")
                .write()
                .await
                .expect("writes"),
        );
        let pool = second.semaphore("pool", 2).expect("a semaphore");
        drop(pool.acquire(2).await.expect("acquires"));
    }
    let latch = one.latch("gate").expect("a latch");
    latch.set(1).await.expect("sets");
    let gate = two.latch("gate").expect("a latch");
    let waits = tokio::spawn(async move { gate.wait().await });
    latch.count_down().await.expect("counts");
    waits.await.expect("no panic").expect("opens");
    assert_eq!(one.list("").await.expect("lists").len(), 0);
}

#[tokio::test]
async fn a_socket() {
    let schema = PostgresServer::fresh_schema();
    works(&format!(
        "{}&schema={schema}",
        PostgresServer::shared().socket_url()
    ))
    .await;
}

struct Secure {
    server: PostgresServer,
    authority: Authority,
}

fn secure() -> &'static Secure {
    static SECURE: OnceLock<Secure> = OnceLock::new();
    SECURE.get_or_init(|| {
        let authority = Authority::new();
        let server = PostgresServer::start_with(PostgresOptions {
            tls: Some(authority.issue("server", &["127.0.0.1"])),
            access: vec![
                "hostssl all app 127.0.0.1/32 scram-sha-256".into(),
                "host all app 127.0.0.1/32 reject".into(),
            ],
            ..PostgresOptions::default()
        });
        server.sql("CREATE USER app PASSWORD 'canary'; GRANT CREATE ON DATABASE postgres TO app");
        Secure { server, authority }
    })
}

#[tokio::test]
async fn tls_and_a_password() {
    let Secure { server, authority } = secure();
    let ca = authority.ca().display().to_string();
    works(&format!(
        "{}&connect_timeout=10s&ca={ca}",
        server.url_of("app:canary")
    ))
    .await;
}

#[tokio::test]
async fn a_server_that_cannot_be_believed_is_refused() {
    let Secure { server, .. } = secure();
    let other = Authority::new();
    let ca = other.ca().display().to_string();
    for (url, word) in [
        (
            format!("{}&sslmode=require", server.url_of("app:canary")),
            "certificate",
        ),
        (
            format!("{}&ca={ca}", server.url_of("app:canary")),
            "certificate",
        ),
        (
            format!("{}&insecure=yes", server.url_of("app:wrong")),
            "password",
        ),
        (server.url_of("app:canary"), "pg_hba"),
    ] {
        let error = connect(&format!("{url}&connect_timeout=10s")).await;
        let error = error.expect_err(&url);
        assert!(matches!(error, Error::Refused { .. }), "{url}: {error:?}");
        let error = error.to_string();
        assert!(
            error.contains(word) && !error.contains("canary"),
            "{url}: {error}"
        );
    }
    let plain = PostgresServer::shared();
    let error = connect(&format!("{}&sslmode=require", plain.url())).await;
    let error = error.expect_err("it has no TLS").to_string();
    assert!(error.contains("does not speak TLS"), "{error}");
}

/// Behind a pooler everything works, by polling; nothing stays locked or prepared in its sessions.
#[tokio::test]
async fn a_pooler_in_transaction_mode() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::to(&server, 2);
    let store = open(&pooler.url()).await;
    assert_eq!(store.capabilities().wakeups, Wakeups::Polling);
    let direct = open(&server.url()).await;
    assert_eq!(direct.capabilities().wakeups, Wakeups::Direct);
    works(&pooler.url()).await;
    let claim = claim_for(Duration::from_secs(5), "both", Mode::Exclusive);
    let attempt = store.try_acquire(&claim).await;
    assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
    assert_eq!(release(&direct, &claim).await, Ok(true));
    drop(store);
    let left = || {
        server.sql(
            "SELECT 'lock' FROM pg_locks WHERE locktype = 'advisory' UNION ALL \
             SELECT state FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'",
        )
    };
    // The mark of the session that is not the pooler's: it uses the tables.
    assert_eq!(left(), ["lock"]);
    drop(direct);
    let end = Instant::now() + Duration::from_secs(30);
    while !left().is_empty() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let left = left();
    assert!(left.is_empty(), "{left:?}");
}

/// Behind a pooler values are in the text. A schema and a name that look like parameters and quotes are what they are.
#[tokio::test]
async fn a_schema_and_names_with_dollars_behind_a_pooler() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::to(&server, 2);
    let url = format!("{}&schema=a%241%24%7Bt%7D%22b", pooler.url());
    let (one, two) = (open(&url).await, open(&url).await);
    for name in [
        "$1",
        "'); DROP TABLE lock; --",
        "$$a'\"\\$2${s}{t}",
        "\\'$9",
    ] {
        let claim = claim_for(Duration::from_secs(5), name, Mode::Exclusive);
        let attempt = one.try_acquire(&claim).await;
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
        let waits = claim_for(Duration::from_secs(5), name, Mode::Exclusive).with_enqueue(true);
        let attempt = two.try_acquire(&waits).await;
        assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
        let info = two.inspect(&claim.name).await.expect("looks");
        assert_eq!(info.map(|info| info.waiters), Some(1));
        assert_eq!(release(&one, &claim).await, Ok(true));
        let attempt = two.try_acquire(&waits).await;
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
        assert_eq!(release(&two, &waits).await, Ok(true));
    }
    let tables = server.sql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'a%'");
    assert_eq!(tables, ["a$1${t}\"b"]);
}

/// A store lives on the runtime that connected it. Its callers may run on one that has neither timers nor I/O.
#[test]
fn a_caller_needs_no_timers() {
    let whole = tokio::runtime::Runtime::new().expect("a runtime");
    let schema = PostgresServer::fresh_schema();
    let url = format!("{}&schema={schema}", PostgresServer::shared().url());
    let store = whole.block_on(open(&url));
    let bare = tokio::runtime::Builder::new_current_thread().build();
    bare.expect("a runtime").block_on(async {
        let claim = claim_for(Duration::from_secs(30), "bare", Mode::Exclusive);
        let interest = Interest::Claim(claim.name.clone(), claim.id);
        let _hints = store.subscribe(interest).await.expect("subscribes");
        let attempt = store.try_acquire(&claim).await;
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
        assert_eq!(release(&store, &claim).await, Ok(true));
    });
}
