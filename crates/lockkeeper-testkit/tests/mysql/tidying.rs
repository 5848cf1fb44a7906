//! Rows of names that are not used any more.

use crate::common::*;
use crate::tidying_support::{OLD, one_keeper_forgets_all, short_keepers_forget};

/// Tables in which so many names were used two hours ago. Some of them were never let go of, and some have the rows of a reader or a waiter
/// that died.
async fn prepared(names: usize) -> (String, String) {
    let prefix = prefix();
    let url = format!("{}?prefix={prefix}{PATIENT}", shared().url());
    drop(open(&url).await);
    let old = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))-7200000000";
    shared().sql(&format!(
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

fn count(prefix: &str, table: &str) -> usize {
    let counted = shared().sql(&format!("SELECT COUNT(*) FROM {prefix}{table}"));
    counted.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_forgets_names_that_are_not_used_any_more() {
    let (url, prefix) = prepared(OLD).await;
    one_keeper_forgets_all(&keeper(&url).await, || count(&prefix, "lock")).await;
    assert_eq!((count(&prefix, "waiter"), count(&prefix, "hold")), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_keepers_forget_names_too() {
    let (url, prefix) = prepared(400).await;
    short_keepers_forget(&url, 400, || count(&prefix, "lock")).await;
}
