//! Many at once: what they do to each other, and to the server.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};

use crate::claims::until;
use crate::turns::take_turns;

/// A server of which nobody else is a client, and that logs what it is asked.
fn own() -> PostgresServer {
    PostgresServer::start_with(PostgresOptions {
        settings: vec![("log_statement".into(), "all".into())],
        ..PostgresOptions::default()
    })
}

/// How often somebody has begun to listen to a keeper's channel.
fn listens(server: &PostgresServer) -> usize {
    server.log().matches("statement: LISTEN \"lk_").count()
}

/// How many batches each keeper asks for.
const BATCHES: u32 = 8;

/// Some names are shared by all, in batches, and one is taken by everybody: rows are locked in one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_many_keepers_never_deadlock() {
    let server = own();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..12_u64 {
        let url = server.url();
        tasks.spawn(async move {
            let keeper = Lockkeeper::connect(&url).await?;
            for _ in 0..BATCHES {
                let mut batch = tokio::task::JoinSet::new();
                for name in 0..12 {
                    let name = format!("shared {}", (name * 7 + number) % 20);
                    let lock = keeper.lock(&name)?;
                    batch.spawn(async move { lock.acquire().await.map(drop) });
                }
                let hot = keeper.lock("hot")?;
                batch.spawn(async move { hot.acquire().await.map(drop) });
                for outcome in batch.join_all().await {
                    outcome?;
                }
            }
            Ok::<(), lockkeeper::Error>(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome.expect("no acquire fails");
    }
    let trouble = server.sql("SELECT sum(deadlocks) FROM pg_stat_database");
    assert_eq!(trouble, ["0"]);
    let log = server.log();
    assert!(!log.contains("deadlock detected"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_keepers_on_one_name_make_no_deadlock() {
    let server = own();
    take_turns(&server.url(), 64, 1, Duration::ZERO).await;
    let deadlocks = server.sql("SELECT sum(deadlocks) FROM pg_stat_database");
    assert_eq!(deadlocks, ["0"]);
    assert!(!server.log().contains("deadlock detected"));
}

/// Eight keepers take names of their own and one of all, in batches. Returns how long the slowest batch took.
async fn slowest_batch(server: &PostgresServer) -> Duration {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let url = server.url();
        tasks.spawn(async move {
            let keeper = Lockkeeper::connect(&url).await?;
            let mut slowest = Duration::ZERO;
            for _ in 0..3 {
                let began = Moment::now();
                let mut batch = tokio::task::JoinSet::new();
                for name in 0..4 {
                    let own = keeper.lock(&format!("own {number} {name}"))?;
                    batch.spawn(async move { own.acquire().await.map(drop) });
                }
                let hot = keeper.lock("hot")?;
                batch.spawn(async move { hot.acquire().await.map(drop) });
                for outcome in batch.join_all().await {
                    outcome?;
                }
                slowest = slowest.max(Moment::now().since(began));
            }
            Ok::<Duration, lockkeeper::Error>(slowest)
        });
    }
    let mut slowest = Duration::ZERO;
    for outcome in tasks.join_all().await {
        slowest = slowest.max(outcome.expect("no acquire fails"));
    }
    eprintln!("the slowest batch took {slowest:?}");
    slowest
}

/// Each commit that waits for the disk takes a tenth of a second, for which its rows are locked. A wait for such a row ends before that, as
/// it does for one that a user's transaction keeps; everybody gets in all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_are_slow_starve_nobody() {
    let server = PostgresServer::start_with(PostgresOptions {
        fsync: true,
        settings: vec![
            ("commit_delay".into(), "100000".into()),
            ("commit_siblings".into(), "0".into()),
        ],
        ..PostgresOptions::default()
    });
    // Eight turns, of a commit or two each.
    let slowest = slowest_batch(&server).await;
    assert!(slowest < Duration::from_secs(20), "{slowest:?}");
}

/// Each grant and renewal takes half a second to commit, for which its row is locked. Everybody gets in, and nobody loses a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
async fn commits_of_half_a_second_cost_nobody_a_lease() {
    let server = own();
    let long = Lockkeeper::builder()
        .url(&server.url())
        .lease(Duration::from_secs(6))
        .connect()
        .await
        .expect("connects");
    // At the end of a transaction that waits for the disk, as slow commits do.
    server.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('synchronous_commit') <> 'off' THEN PERFORM pg_sleep(0.5); END IF; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON lockkeeper.lock DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let long = long.lock("long").expect("a lock");
    let long = long.acquire().await.expect("acquires");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let url = server.url();
        tasks.spawn(async move {
            let keeper = Lockkeeper::connect(&url).await?;
            let lock = keeper.lock("hot")?;
            let mut waited = Vec::new();
            for _ in 0..2 {
                let began = Moment::now();
                let guard = lock.acquire().await?;
                waited.push(Moment::now().since(began));
                tokio::time::sleep(Duration::from_millis(100)).await;
                assert!(guard.is_held());
                guard.release().await?;
            }
            Ok::<_, lockkeeper::Error>(waited)
        });
    }
    let mut waited = Vec::new();
    for outcome in tasks.join_all().await {
        waited.extend(outcome.expect("no acquire fails"));
    }
    assert!(long.is_held());
    waited.sort();
    eprintln!("they waited {waited:?}");
    // 32 turns of little more than half a second each, on a machine that is not busy.
    let slowest = waited.last().expect("some");
    assert!(*slowest < Duration::from_secs(90), "{waited:?}");
}

/// How often the server has waited for the disk for a commit or a record of its log.
fn syncs(server: &PostgresServer) -> u64 {
    let version = server.sql("SHOW server_version_num");
    let counted = match version[0].parse::<u32>() {
        Ok(version) if version >= 180_000 => {
            "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal'"
        }
        _ => "SELECT wal_sync FROM pg_stat_wal",
    };
    server.sql(counted)[0].parse().expect("a number")
}

/// How often the lock is handed on.
const HAND_OFFS: u64 = 60;

/// A commit that notifies keeps all others that do from committing, on the whole server, until it is on disk. So none of ours waits for the
/// disk: a hand-off costs one sync, that of its confirmation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_commit_that_notifies_waits_for_the_disk() {
    let server = PostgresServer::start_with(PostgresOptions {
        fsync: true,
        settings: vec![
            ("log_statement".into(), "all".into()),
            // What waits for nobody is written rarely.
            ("wal_writer_delay".into(), "10s".into()),
        ],
        ..PostgresOptions::default()
    });
    let keeper = async || Lockkeeper::connect(&server.url()).await.expect("connects");
    drop(keeper().await);
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockkeeper'";
    // A session says how often it has waited when it ends.
    let ended = async || until("all have ended", async || server.sql(sessions) == ["0"]).await;
    ended().await;
    let before = syncs(&server);
    let keepers = [keeper().await, keeper().await];
    let hot = |number: u64| keepers[(number % 2) as usize].lock("hot").expect("a lock");
    let mut guard = hot(0).acquire().await.expect("acquires");
    for number in 1..=HAND_OFFS {
        let next = hot(number);
        let next = tokio::spawn(async move { next.acquire().await.expect("acquires") });
        until("it waits", async || {
            let info = keepers[0].inspect("hot").await.expect("inspects");
            info.is_some_and(|info| info.waiters == 1)
        })
        .await;
        guard.release().await.expect("releases");
        guard = next.await.expect("no panic");
    }
    guard.release().await.expect("releases");
    drop(keepers);
    ended().await;
    let waited = syncs(&server) - before;
    // The rest is other work of the server.
    let most = HAND_OFFS + HAND_OFFS / 2;
    assert!(waited <= most, "{waited} syncs for {HAND_OFFS} hand-offs");
    // A latch that opens and a hold that is broken are told of as well.
    let keeper = keeper().await;
    let latch = keeper.latch("l").expect("a latch");
    latch.set(1).await.expect("sets");
    latch.count_down().await.expect("counts");
    let lock = keeper.lock("broken").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    keeper.break_lock("broken", "a test").await.expect("breaks");
    guard.lost().await;
    let log = server.log();
    let said = log.split("LOG:  statement: ").skip(1);
    // What follows in the log is no part of it.
    let said = said.map(|said| said.split("DETAIL:").next().unwrap_or_default());
    let notifies = |said: &&str| said.contains("notify(") && !said.starts_with("PREPARE");
    let said: Vec<&str> = said.filter(notifies).collect();
    let (hand_offs, others): (Vec<&str>, Vec<&str>) =
        said.iter().partition(|said| said.contains("lk_notify("));
    assert!(hand_offs.len() as u64 >= HAND_OFFS, "{hand_offs:?}");
    assert!(others.len() >= 2, "{others:?}");
    for said in said {
        assert!(
            said.starts_with("SET LOCAL synchronous_commit TO off;"),
            "{said}"
        );
    }
}

/// A session that listens is woken by every notification of the database: only keepers that wait do, or hold for long.
#[tokio::test]
async fn idle_keepers_do_not_listen() {
    let server = own();
    let mut idle = Vec::new();
    for _ in 0..5 {
        let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
        drop(
            keeper
                .lock("short")
                .expect("a lock")
                .acquire()
                .await
                .expect("acquires"),
        );
        idle.push(keeper);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(listens(&server), 0);
    let lock = idle[0].lock("long").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    until("a long hold is listened for", async || {
        listens(&server) == 1
    })
    .await;
    // Its break is told, long before it would renew.
    let lost = guard.lost();
    idle[1].break_lock("long", "a test").await.expect("breaks");
    tokio::time::timeout(Duration::from_secs(30), lost)
        .await
        .expect("the loss is told");
}

/// A snapshot of another program keeps old versions of rows: the lock gets slower, and goes on.
#[tokio::test]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
async fn a_snapshot_that_stays_open_stops_nobody() {
    let server = own();
    let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
    let sleeps = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(60); COMMIT";
    let snapshot = tokio::task::spawn_blocking(move || {
        server.sql(sleeps);
        // The server stops with its handle, and the lock is used until it is known that the snapshot has ended.
        server
    });
    let lock = keeper.lock("hot").expect("a lock");
    let mut slowest = Duration::ZERO;
    while !snapshot.is_finished() {
        let began = Moment::now();
        drop(lock.acquire().await.expect("acquires"));
        slowest = slowest.max(Moment::now().since(began));
    }
    let _server = snapshot.await.expect("no panic");
    assert!(slowest < Duration::from_secs(30), "{slowest:?}");
}
