//! A primary and its replica, which change roles.

use std::time::Duration;

use crate::common::*;
use crate::forgetting::{short, sits_out, url};
use lockkeeper_testkit::servers::mariadb::{MariaDbServer, PASSWORD};

fn node(number: u32) -> MariaDbServer {
    let number = format!("--server-id={number}");
    MariaDbServer::start_as(&[&number, "--log-bin", "--sync-binlog=1"])
}

/// Where the binary log of a server ends: its file and the place in it.
fn end_of_log(server: &MariaDbServer) -> (String, String) {
    let status = server.sql("SHOW MASTER STATUS");
    let mut words = status.split('\t').map(str::to_owned);
    words.next().zip(words.next()).expect("a binary log")
}

/// Makes a server read only and the replica of another, from now on.
fn follow(replica: &MariaDbServer, primary: &MariaDbServer) {
    primary.sql(&format!(
        "CREATE OR REPLACE USER copy@'%' IDENTIFIED BY '{PASSWORD}'; GRANT REPLICATION SLAVE ON *.* TO copy@'%'"
    ));
    let (file, place) = end_of_log(primary);
    replica.sql(&format!(
        "SET GLOBAL read_only = 1; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'copy', \
         MASTER_PASSWORD = '{PASSWORD}', MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {place}, MASTER_USE_GTID = no; START SLAVE",
        primary.port()
    ));
}

/// Waits until a replica has all that its primary has.
fn catch_up(replica: &MariaDbServer, primary: &MariaDbServer) {
    let (file, place) = end_of_log(primary);
    let waited = replica.sql(&format!("SELECT MASTER_POS_WAIT('{file}', {place}, 60)"));
    let applied = waited.parse::<i64>().is_ok_and(|events| events >= 0);
    assert!(applied, "{waited}: {}", replica.log());
}

fn promote(replica: &MariaDbServer) {
    replica.sql("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_sits_out_and_so_does_the_first_primary_when_it_is_one_again() {
    let (first, second) = (node(1), node(2));
    follow(&second, &first);
    let idle = open(&url(&first)).await;
    granted(&idle, &short("before")).await;
    // A switch-over: nothing is lost.
    first.sql("SET GLOBAL read_only = 1");
    catch_up(&second, &first);
    promote(&second);
    follow(&first, &second);
    let store = open(&url(&second)).await;
    sits_out(&store).await;
    // A fail-over back: the last grant never reached the first.
    catch_up(&first, &second);
    first.sql("STOP SLAVE");
    granted(&store, &short("unknown")).await;
    second.sql("SET GLOBAL read_only = 1");
    promote(&first);
    sits_out(&idle).await;
}

/// Replication left our tables out: the promoted server knows nothing of them, and so of no grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_without_the_tables_sits_out() {
    let first = node(1);
    let second = MariaDbServer::start_as(&[
        "--server-id=2",
        "--log-bin",
        "--sync-binlog=1",
        "--replicate-wild-ignore-table=locks.lockkeeper\\_%",
    ]);
    follow(&second, &first);
    granted(&open(&url(&first)).await, &short("early")).await;
    catch_up(&second, &first);
    first.sql("SET GLOBAL read_only = 1");
    promote(&second);
    assert_eq!(second.sql("SHOW TABLES"), "");
    sits_out(&open(&url(&second)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_knows_both_servers_follows_a_fail_over() {
    let (mut first, second) = (node(1), node(2));
    follow(&second, &first);
    let both = format!(
        "mariadb://keeper:{PASSWORD}@127.0.0.1:{},127.0.0.1:{}/locks?max_lease=2s{PATIENT}",
        first.port(),
        second.port()
    );
    let store = open(&both).await;
    let held = short("held");
    let before = granted(&store, &held).await;
    catch_up(&second, &first);
    first.kill();
    promote(&second);
    // The hold of the replicated grant is there, and nobody is granted anything until all leases are over.
    let again = async {
        loop {
            if let Ok(Some(info)) = lockkeeper::store::Store::inspect(&store, &held.name).await {
                break info;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let info = in_time("the second server", again).await;
    assert_eq!(info.last_token, Some(before.token));
    sits_out(&store).await;
    let after = granted(&store, &short("held")).await;
    assert!(after.token > before.token);
}
