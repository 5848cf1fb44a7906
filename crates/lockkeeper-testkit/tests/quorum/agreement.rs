//! Clients agree on the longest lease: by a record on each node, which nobody writes who is not let in.

use std::time::Duration;

use crate::claims::claim_for;
use crate::common::*;
use lockkeeper::Error;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Break, BreakOutcome, BreakTarget, Mode, NodeState, Store};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

const RECORD: &str = "lockkeeper_quorum";

fn record(server: &RedisServer) -> Option<String> {
    server.strings(&["GET", RECORD]).pop()
}

fn records(nodes: &Independent) -> Vec<Option<String>> {
    nodes.servers().iter().map(record).collect()
}

fn all_have(nodes: &Independent, text: &str) -> bool {
    let have = |record: Option<String>| record.as_deref() == Some(text);
    records(nodes).into_iter().all(have)
}

/// One wrong client must not keep all the right ones out.
#[tokio::test]
async fn a_client_that_is_refused_changes_nothing() {
    let mut nodes = Independent::start(3);
    let right = nodes.url("2s&node_timeout=10s");
    drop(open(&right).await);
    assert!(all_have(&nodes, "2000"));
    // The client that wrote it is gone. Then one with a typo comes.
    nodes.server(2).restart_empty();
    let error = connect(&nodes.url("60s&node_timeout=10s")).await;
    let error = error.expect_err("another longest lease");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    for word in ["max_lease=2s", "max_lease=60s", RECORD] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(record(&nodes.servers()[2]), None);
    // Also where those that know better are few.
    nodes.server(1).restart_empty();
    let error = connect(&nodes.url("60s&node_timeout=10s")).await;
    let error = error.expect_err("another longest lease");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert_eq!(nodes.count_key(RECORD), 1);
    // A right client brings it to those that lost it.
    let store = open(&right).await;
    until("all have it", async || all_have(&nodes, "2000")).await;
    until("all vote", async || {
        states(&store).iter().all(|state| *state == NodeState::Up)
    })
    .await;
}

#[tokio::test]
async fn a_keeper_that_lives_on_brings_the_record_to_a_node_that_lost_it() {
    let mut nodes = Independent::start(3);
    let store = open(&nodes.url("2s&node_timeout=10s")).await;
    for at in [0, 1, 2, 0] {
        nodes.server(at).restart_empty();
        until("all have it", async || all_have(&nodes, "2000")).await;
    }
    // Nor does one that is away stop it.
    nodes.server(0).kill();
    nodes.server(1).restart_empty();
    until("it is back", async || record(&nodes.servers()[1]).is_some()).await;
    until("a majority votes", async || {
        let held = claim_for(Duration::from_secs(1), "held", Mode::Exclusive);
        matches!(store.try_acquire(&held).await, Ok(Attempt::Granted(_)))
    })
    .await;
}

/// Held under a long lease; those that knew of that lease have forgotten it, or are silent.
#[tokio::test]
async fn a_client_with_a_shorter_lease_is_not_let_in_by_nodes_that_forgot_the_longer() {
    for lives_on in [false, true] {
        let mut nodes = Independent::start(3);
        let quick = "node_timeout=10s&connect_timeout=1s";
        let (long, short) = (
            nodes.url(&format!("60s&{quick}")),
            nodes.url(&format!("1s&{quick}")),
        );
        let at_once = nodes.url_at_once(&format!("60s&{quick}"));
        // Otherwise the nodes would have to be a minute old.
        let holder = open(&at_once).await;
        let held = claim("held", Mode::Exclusive);
        until("it is held", async || is_granted(&holder, &held).await).await;
        let holder = lives_on.then_some(holder);
        nodes.server(1).restart_empty();
        nodes.server(2).restart_empty();
        if !lives_on {
            assert_eq!(record(&nodes.servers()[1]), None);
        }
        nodes.servers()[0].pause();
        let mut wrong = None;
        let mut seen = String::new();
        until("they are older than a short lease", async || {
            wrong = match wrong.take() {
                None => connect(&short).await.ok(),
                known => known,
            };
            if let Some(store) = &wrong {
                let attempt = store
                    .try_acquire(&claim_for(Duration::from_secs(1), "held", Mode::Exclusive))
                    .await;
                match attempt {
                    Ok(Attempt::Granted(_)) => panic!("a second holder was let in"),
                    Ok(_) => {}
                    Err(error) => seen = error.to_string(),
                }
            }
            let age = |server: &RedisServer| -> u64 {
                let age = server.info("uptime_in_seconds").expect("an age");
                age.trim().parse().expect("a number")
            };
            nodes.servers()[1..].iter().all(|server| age(server) >= 4)
        })
        .await;
        if !lives_on {
            // Nobody knows how long leases are, and the error says so.
            assert!(seen.contains("does not vote"), "{seen}");
            let (bound, way_out) = ("24h14m25s", "SET lockkeeper_quorum 1000");
            assert!(seen.contains(bound) && seen.contains(way_out), "{seen}");
            let silent = format!("127.0.0.1:{}", nodes.servers()[0].port());
            assert!(seen.contains(&silent), "{seen}");
            let right = open(&long).await;
            let error = right.try_acquire(&claim("held", Mode::Exclusive)).await;
            let error = error.expect_err("nobody votes").to_string();
            assert!(error.contains("does not vote"), "{error}");
            assert_eq!(
                nodes.servers()[1..].iter().map(record).collect::<Vec<_>>(),
                [None, None]
            );
            drop(right);
        }
        nodes.servers()[0].resume();
        let right = open(&long).await;
        until("all have it", async || all_have(&nodes, "60000")).await;
        if let Some(wrong) = wrong {
            until("it is refused", async || {
                let down = |state: &NodeState| matches!(state, NodeState::Down { reason } if reason.contains("max_lease=60s"));
                states(&wrong).iter().all(down)
            })
            .await;
        }
        drop((right, holder));
    }
}

/// Whichever of them is quicker, one is let in, and the other has changed nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_clients_that_come_first_with_different_leases_one_is_let_in() {
    let nodes = Independent::start(5);
    for round in 0..30 {
        for server in nodes.servers() {
            server.command(&["FLUSHALL"]);
        }
        let comes = |longest: &str| {
            let url = nodes.url(&format!("{longest}&node_timeout=10s"));
            tokio::spawn(async move { connect(&url).await })
        };
        let (one, two) = (comes("2s"), comes("3s"));
        let (one, two) = (one.await.expect("ends"), two.await.expect("ends"));
        let all = records(&nodes);
        assert!(
            all.iter().all(|record| *record == all[0]),
            "{round}: {all:?}"
        );
        let (won, lost) = match all[0].as_deref() {
            Some("2000") => (one, two),
            Some("3000") => (two, one),
            other => panic!("{round}: {other:?}"),
        };
        won.unwrap_or_else(|error| panic!("{round}: {error}"));
        match lost {
            Err(Error::Refused { .. }) => {}
            other => panic!("{round}: {other:?}"),
        }
    }
}

/// To look, to let go and to break no room is needed.
#[tokio::test]
async fn nodes_that_are_full_can_be_connected_to() {
    for dialect in ["redisson", "plain"] {
        let nodes = Independent::start(3);
        let url = nodes.url_at_once(&format!("60s&node_timeout=10s&dialect={dialect}"));
        let store = open(&url).await;
        let (one, two) = (claim("one", Mode::Exclusive), claim("two", Mode::Exclusive));
        until("they are held", async || {
            is_granted(&store, &one).await && is_granted(&store, &two).await
        })
        .await;
        for server in nodes.servers() {
            server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
        }
        // One has no record any more, and no room for it.
        nodes.servers()[2].command(&["DEL", RECORD]);
        let late = open(&url).await;
        assert_eq!(late.list("").await.expect("answers").len(), 2);
        let info = late.inspect(&one.name).await.expect("answers");
        assert_eq!(info.expect("is known").holders.len(), 1);
        let request = Break::new(two.name.clone(), BreakTarget::All, "a test", Moment::NEVER);
        let broken = late.break_lock(&request).await;
        assert!(matches!(broken, Ok(BreakOutcome::Ended(ended)) if ended.len() == 1));
        assert_eq!(release(&late, &one).await, Ok(true));
        let error = late.try_acquire(&claim("new", Mode::Exclusive)).await;
        let text = error.expect_err("there is no room").to_string();
        assert!(text.contains("maxmemory"), "{text}");
        for server in nodes.servers() {
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        }
        until("all vote", async || {
            states(&late).iter().all(|state| *state == NodeState::Up)
        })
        .await;
    }
}
