//! Rows of names that are not used any more.

use std::sync::Arc;

use lockkeeper_testkit::servers::mariadb::MariaDbServer;

use crate::claims::until;
use crate::common::*;
use crate::tidying_support::{OLD, one_keeper_forgets_all, short_keepers_forget};

/// Tables in which so many names were used two hours ago. Some of them were never let go of, and some have the rows of a reader or a waiter
/// that died.
async fn prepared(server: &MariaDbServer, names: usize) -> (String, String) {
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}{PATIENT}", server.url());
    drop(open(&url).await);
    let old = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))-7200000000";
    server.sql(&format!(
        "INSERT INTO {prefix}lock (name,version,tail,waited,shared,token,claim,mode,first,tokens,lease,expires,since) \
         SELECT CONCAT('old-',seq),seq,1,seq%5=1,seq%5=2,t,IF(seq%5=3,x'00',NULL),1,t,1,1000000,t+1000000,t \
         FROM seq_1_to_{names},(SELECT {old} AS t) AS x; \
         INSERT INTO {prefix}waiter (name,seq,claim,mode,permits,taken,lease,reserve,since,until) \
         SELECT name,1,x'01',1,0,0,1,1,token,token FROM {prefix}lock WHERE waited=1; \
         INSERT INTO {prefix}hold (name,claim,mode,permits,taken,first,tokens,lease,expires,since) \
         SELECT name,x'02',2,0,0,token,1,1,token,token FROM {prefix}lock WHERE shared=1"
    ));
    (url, prefix)
}

fn count(server: &MariaDbServer, prefix: &str, table: &str) -> usize {
    let counted = server.sql(&format!("SELECT COUNT(*) FROM {prefix}{table}"));
    counted.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_forgets_names_that_are_not_used_any_more() {
    let (url, prefix) = prepared(shared(), OLD).await;
    one_keeper_forgets_all(&keeper(&url).await, || count(shared(), &prefix, "lock")).await;
    assert_eq!(
        (
            count(shared(), &prefix, "waiter"),
            count(shared(), &prefix, "hold")
        ),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_keepers_forget_names_too() {
    let (url, prefix) = prepared(shared(), 400).await;
    short_keepers_forget(&url, 400, || count(shared(), &prefix, "lock")).await;
}

/// The longest that a statement has waited for a row, in milliseconds.
fn longest_wait(server: &MariaDbServer) -> u64 {
    let status = server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_time_max'");
    let longest = status.split('\t').next_back();
    longest
        .and_then(|text| text.parse().ok())
        .expect("a number")
}

/// While somebody keeps the row of `meta`, nothing is forgotten, and what is asked of the keeper does not wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_kept_is_not_waited_for() {
    let server = Arc::new(MariaDbServer::start());
    let (url, prefix) = prepared(&server, 400).await;
    let keeps = format!("BEGIN; SELECT one FROM {prefix}meta FOR UPDATE; SELECT SLEEP(600)");
    let kept = tokio::task::spawn_blocking({
        let server = server.clone();
        move || server.try_sql(&keeps)
    });
    let row = format!("SELECT one FROM {prefix}meta FOR UPDATE NOWAIT");
    until("the row is kept", async || server.try_sql(&row).is_err()).await;
    let before = longest_wait(&server);
    let keeper = keeper(&url).await;
    let lock = keeper.lock("used").expect("a lock");
    for _ in 0..200 {
        drop(lock.acquire().await.expect("acquires"));
    }
    assert_eq!(count(&server, &prefix, "lock"), 401);
    let waited = longest_wait(&server);
    assert!(waited < before.max(500), "{waited} ms");
    let sleeper = "SELECT id FROM information_schema.processlist WHERE info = 'SELECT SLEEP(600)'";
    server.sql(&format!("KILL {}", server.sql(sleeper)));
    assert!(kept.await.expect("no panic").is_err());
    until("all are forgotten", async || {
        for _ in 0..16 {
            drop(lock.acquire().await.expect("acquires"));
        }
        count(&server, &prefix, "lock") == 1
    })
    .await;
}
