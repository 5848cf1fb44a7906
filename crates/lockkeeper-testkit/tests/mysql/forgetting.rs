//! Servers that may have forgotten grants: each waits until all leases are over.

use std::time::Duration;

use crate::claims::{claim_for, release, renewal_for};
use crate::common::*;
use lockkeeper::Error;
use lockkeeper::clock::Moment;
use lockkeeper::store::mysql::MySqlStore;
use lockkeeper::store::{Attempt, Claim, Mode, Renewed, Store};
use lockkeeper_testkit::servers::mariadb::{MariaDbOptions, MariaDbServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

pub const SHORT: Duration = Duration::from_secs(2);

/// A claim whose lease is the longest of [`url`].
pub fn short(name: &str) -> Claim {
    claim_for(SHORT, name, Mode::Exclusive)
}

pub fn url(server: &MariaDbServer) -> String {
    format!("{}?max_lease=2s{PATIENT}", server.url())
}

/// The server grants nothing for now, and says so; once all leases are over it does.
pub async fn sits_out(store: &MySqlStore) {
    let attempt = store.try_acquire(&short("early")).await;
    assert!(
        matches!(
            attempt,
            Ok(Attempt::Busy { .. })
                | Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })
        ) || was_read_only(&attempt),
        "{attempt:?}"
    );
    let mut waited = Duration::ZERO;
    let granted = async {
        loop {
            match store.try_acquire(&short("late")).await {
                Ok(Attempt::Granted(_)) => break,
                // The session may be a new one by now.
                Ok(_) | Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => {}
                attempt => assert!(was_read_only(&attempt), "{attempt:?}"),
            }
            waited = waited.max(store.health().ready_in);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("sitting out", granted).await;
    assert!(waited > Duration::ZERO, "it never said how long");
}

/// The store has not connected again since the server was read only.
fn was_read_only(attempt: &Result<Attempt, Error>) -> bool {
    let error = attempt.as_ref().err().map(Error::to_string);
    error.is_some_and(|error| error.contains("is read only"))
}

/// Starts the server again, so late that its two starts differ for sure.
async fn start_anew(server: &mut MariaDbServer, options: &[&str]) {
    let runs = "SHOW GLOBAL STATUS LIKE 'Uptime'";
    let seconds = || {
        let status = server.sql(runs);
        let uptime = status
            .split('\t')
            .next_back()
            .and_then(|text| text.parse().ok());
        uptime.unwrap_or(0)
    };
    while seconds() < 5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.kill();
    server.restart_as(options);
}

#[tokio::test]
async fn a_replica_with_the_identity_of_its_primary_sits_out() {
    let mut server = MariaDbServer::start_as(&["--server-id=1"]);
    let url = url(&server);
    granted(&open(&url).await, &short("held")).await;
    let identity = "SELECT @@server_uid";
    let before = server.sql(identity);
    // A promoted replica in a container: the port and the hardware address are those of the primary.
    server.kill();
    server.restart_as(&["--server-id=2"]);
    assert_eq!(server.sql(identity), before);
    sits_out(&open(&url).await).await;
}

#[tokio::test]
async fn a_session_that_idled_through_a_demotion_and_a_promotion_sits_out() {
    let server = MariaDbServer::start();
    let store = open(&url(&server)).await;
    granted(&store, &short("before")).await;
    // Another server took over, and its mark was replicated. Its last grants may not have been when this one is promoted again.
    server.sql(
        "SET GLOBAL read_only = 1; UPDATE lockkeeper_meta SET server = 'another'; SET GLOBAL read_only = 0",
    );
    sits_out(&store).await;
}

#[tokio::test]
async fn a_demoted_server_grants_nothing_to_users_who_may_write_there() {
    let server = MariaDbServer::start();
    server.sql("GRANT READ ONLY ADMIN, SUPER ON *.* TO keeper@'%'");
    let store = open(&url(&server)).await;
    granted(&store, &short("before")).await;
    server.sql("SET GLOBAL read_only = 1");
    let attempt = store.try_acquire(&short("demoted")).await;
    assert!(!matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
    server.sql("SET GLOBAL read_only = 0");
    let granted = async {
        while !matches!(
            store.try_acquire(&short("again")).await,
            Ok(Attempt::Granted(_))
        ) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("a grant of the primary", granted).await;
}

#[tokio::test]
async fn a_session_notices_that_commits_no_longer_wait_for_the_disk() {
    let mut server = MariaDbServer::start();
    let url = url(&server);
    let store = open(&url).await;
    granted(&store, &short("before")).await;
    // The setting does not outlive the server. What was granted under it may be gone all the same.
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    sits_out(&store).await;
    start_anew(&mut server, &[]).await;
    sits_out(&open(&url).await).await;
    // From then on all is on disk again.
    server.kill();
    server.restart();
    granted(&open(&url).await, &short("at once")).await;
}

#[tokio::test]
async fn a_session_notices_that_commits_wait_for_the_disk_again() {
    let server = MariaDbServer::start_as(&["--innodb-flush-log-at-trx-commit=0"]);
    let url = url(&server);
    let store = open(&url).await;
    // The first grants may be lost together with the mark that there were any.
    sits_out(&store).await;
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    granted(&open(&url).await, &short("strict")).await;
    let again = async {
        while !matches!(
            store.try_acquire(&short("again")).await,
            Ok(Attempt::Granted(_))
        ) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("the older session", again).await;
    let marked = "SELECT started FROM lockkeeper_meta";
    assert_eq!(server.sql(marked), "0");
}

#[tokio::test]
async fn a_binary_log_that_is_not_synced_may_undo_grants() {
    let lax = ["--log-bin", "--sync-binlog=0"];
    let mut server = MariaDbServer::start_as(&lax);
    let url = url(&server);
    sits_out(&open(&url).await).await;
    start_anew(&mut server, &lax).await;
    sits_out(&open(&url).await).await;
    let strict = ["--log-bin", "--sync-binlog=1"];
    start_anew(&mut server, &strict).await;
    sits_out(&open(&url).await).await;
    start_anew(&mut server, &strict).await;
    granted(&open(&url).await, &short("at once")).await;
}

/// Waits until the second is over in which the tables were made: it is by the second that tables are told apart.
pub async fn are_older_than_a_second(server: &MariaDbServer) {
    let older = "SELECT MAX(create_time) < NOW() FROM information_schema.tables WHERE table_schema = DATABASE()";
    crate::claims::until("the tables have some age", async || {
        server.sql(older) == "1"
    })
    .await;
}

/// The tables are put back from a dump, under a client that is connected: the grants since then are forgotten.
#[tokio::test]
async fn a_server_with_tables_from_a_dump_sits_out() {
    let server = MariaDbServer::start();
    let url = url(&server);
    let (store, idle) = (open(&url).await, open(&url).await);
    let unused = server.dump();
    let before = short("early");
    granted(&store, &before).await;
    assert_eq!(release(&store, &before).await, Ok(true));
    are_older_than_a_second(&server).await;
    let used = server.dump();
    for dump in [used, unused] {
        granted(&store, &short("early")).await;
        server.sql(&dump);
        sits_out(&idle).await;
        server.sql(&dump);
        sits_out(&open(&url).await).await;
        crate::claims::until("the first session is made anew", async || {
            let name = format!("name {:?}", std::time::Instant::now());
            matches!(
                store.try_acquire(&short(&name)).await,
                Ok(Attempt::Granted(_))
            )
        })
        .await;
    }
}

/// A server that sits out does so for the longest lease, and not for as long as its clock went back.
#[tokio::test]
async fn a_server_whose_clock_was_set_back_sits_out_no_longer() {
    let wall = WallClock::new();
    let server = MariaDbServer::start_with(MariaDbOptions {
        environment: wall.environment(),
        options: vec!["--innodb-flush-log-at-trx-commit=2".into()],
        ..MariaDbOptions::default()
    });
    let store = open(&server.url()).await;
    let wants = claim("wants", Mode::Exclusive).with_not_after(Moment::NEVER);
    busy(&store, &wants).await;
    assert!(store.health().ready_in > LEASE / 3);
    wall.behind(Duration::from_secs(3_600));
    crate::claims::until("it sits out for the longest lease", async || {
        let attempt = store.try_acquire(&wants).await;
        let ready_in = store.health().ready_in;
        let short = LEASE / 3..LEASE + Duration::from_secs(5);
        matches!(attempt, Ok(Attempt::Busy { .. })) && short.contains(&ready_in)
    })
    .await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_a_longer_renewal_counts() {
    let (wall, start) = (WallClock::new(), Duration::from_secs(1_800_000_000));
    wall.stand_at(start);
    let server = MariaDbServer::start_with(MariaDbOptions {
        environment: wall.environment(),
        ..MariaDbOptions::default()
    });
    let url = format!("{}?max_lease=10m{PATIENT}", server.url());
    let (holder, rival) = (open(&url).await, open(&url).await);
    for mode in [Mode::Exclusive, Mode::Read] {
        let name = format!("held {mode:?}");
        wall.stand_at(start);
        let held = claim_for(Duration::from_secs(5), &name, mode);
        granted(&holder, &held).await;
        let back = start - Duration::from_secs(3_600);
        wall.stand_at(back);
        let renewal = renewal_for(Duration::from_secs(60), &held);
        let renewed = holder.renew(&[renewal]).await.expect("renews");
        assert_eq!(renewed, [Renewed::Renewed]);
        let rivals = claim_for(LEASE, &name, Mode::Exclusive).with_enqueue(true);
        busy(&rival, &rivals).await;
        // More than the first lease, less than the second.
        for seconds in [6, 30, 58] {
            wall.stand_at(back + Duration::from_secs(seconds));
            busy(&rival, &claim_for(LEASE, &name, Mode::Exclusive)).await;
        }
        // It is not stuck for the hour either.
        wall.stand_at(back + Duration::from_secs(70));
        granted(&rival, &claim_for(LEASE, &name, Mode::Exclusive)).await;
    }
}

/// A client that is told never to sit out says so for itself. Others that come after it still do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_sits_out_lets_others_sit_out() {
    let unsynced = &["--innodb-flush-log-at-trx-commit=0"];
    let mut server = MariaDbServer::start_as(unsynced);
    drop(open(&url(&server)).await);
    start_anew(&mut server, unsynced).await;
    let never = open(&format!("{}&sit_out=never", url(&server))).await;
    granted(&never, &short("never")).await;
    assert_eq!(never.health().ready_in, Duration::ZERO);
    sits_out(&open(&url(&server)).await).await;
}

/// The server may have forgotten a grant of the longer lease too, and that anybody asked for one.
#[tokio::test]
async fn a_server_that_sits_out_does_so_longer_for_a_longer_lease() {
    let server = MariaDbServer::start_as(&["--innodb-flush-log-at-trx-commit=2"]);
    let store = open(&server.url()).await;
    let wants = claim("wants", Mode::Exclusive).with_not_after(Moment::NEVER);
    busy(&store, &wants).await;
    assert!(store.health().ready_in < 2 * LEASE);
    drop(open(&format!("{}?max_lease=10m{PATIENT}", server.url())).await);
    busy(&store, &wants).await;
    assert!(store.health().ready_in > 2 * LEASE);
}
