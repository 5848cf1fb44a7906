//! A cluster of which every node takes writes: one of them grants.

use std::time::Duration;

use crate::claims::{release, renewal_for};
use crate::common::*;
use crate::forgetting::{SHORT, short, sits_out, url};
use lockkeeper::Error;
use lockkeeper::store::{Attempt, Renewed, Store};
use lockkeeper_testkit::servers::galera::Galera;
use lockkeeper_testkit::servers::mariadb::PASSWORD;

/// Why a client is refused.
async fn refused(url: &str) -> String {
    match connect(url).await {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("it should be refused, was {other:?}"),
    }
}

/// A client that names another node costs nobody a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_writer_of_a_cluster_is_refused_while_the_first_is_used() {
    let cluster = Galera::start(2);
    let (one, other) = (url(cluster.node(0)), url(cluster.node(1)));
    let store = open(&one).await;
    let held = short("held");
    granted(&store, &held).await;
    for _ in 0..3 {
        let renewed = store.renew(&[renewal_for(SHORT, &held)]).await;
        assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
        let reason = refused(&other).await;
        assert!(reason.contains("same node"), "{reason}");
    }
    let both = format!(
        "mariadb://keeper:{PASSWORD}@127.0.0.1:{},127.0.0.1:{}/locks?max_lease=2s{PATIENT}",
        cluster.node(1).port(),
        cluster.node(0).port()
    );
    // Of both it takes the one that grants.
    busy(&open(&both).await, &short("held")).await;
    let renewed = store.renew(&[renewal_for(SHORT, &held)]).await;
    assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
    assert_eq!(release(&store, &held).await, Ok(true));
    // Nobody holds anything: the other node takes over, and this one grants no more.
    let taker = open(&other).await;
    assert!(taker.health().ready_in > Duration::ZERO);
    let attempt = store.try_acquire(&short("late")).await;
    assert!(
        matches!(
            attempt,
            Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. })
        ),
        "{attempt:?}"
    );
    let reason = refused(&one).await;
    assert!(reason.contains("same node"), "{reason}");
    sits_out(&taker).await;
}

/// The node that grants dies. Another takes over once what was granted has ended, and sits out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_knows_two_nodes_follows_a_fail_over() {
    let mut cluster = Galera::start(2);
    let both = format!(
        "mariadb://keeper:{PASSWORD}@127.0.0.1:{},127.0.0.1:{}/locks?max_lease=2s{PATIENT}",
        cluster.node(0).port(),
        cluster.node(1).port()
    );
    let store = open(&both).await;
    let before = granted(&store, &short("held")).await;
    cluster.kill(0);
    let again = async {
        loop {
            match store.try_acquire(&short("held")).await {
                Ok(Attempt::Granted(grant)) => break grant,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let after = in_time("the second node", again).await;
    assert!(after.token > before.token);
}

/// Keepers of two nodes want one lock, one after the other: whichever node grants, no two are inside, and tokens grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_of_a_cluster_never_grant_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    let cluster = Galera::start(2);
    let (inside, last) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let urls = [url(cluster.node(0)), url(cluster.node(1))];
    // Both are open before anybody holds: the second has taken over from the first.
    let stores = [open(&urls[0]).await, open(&urls[1]).await];
    let mut tasks = tokio::task::JoinSet::new();
    for store in stores {
        let (inside, last) = (inside.clone(), last.clone());
        tasks.spawn(async move {
            let end = std::time::Instant::now() + Duration::from_secs(15);
            let mut turns = 0;
            while std::time::Instant::now() < end {
                let claim = short("wanted");
                let sent = std::time::Instant::now();
                match store.try_acquire(&claim).await {
                    // A task that may have lost its grant on the way shows nothing.
                    Ok(Attempt::Granted(grant)) if sent.elapsed() < SHORT / 2 => {
                        assert!(!inside.swap(true, SeqCst), "another is inside");
                        assert!(last.swap(grant.token.get(), SeqCst) < grant.token.get());
                        turns += 1;
                        inside.store(false, SeqCst);
                        let _ = release(&store, &claim).await;
                    }
                    _ => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
            turns
        });
    }
    let turns: Vec<u32> = tasks.join_all().await;
    println!("figure: turns of two writers: {turns:?}");
    assert!(turns.iter().sum::<u32>() > 0, "{turns:?}");
}
