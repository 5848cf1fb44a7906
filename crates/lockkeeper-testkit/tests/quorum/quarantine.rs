//! A node votes only when it is older than any lease.

use std::time::Duration;

use crate::claims::break_all;
use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Claim, Mode, NodeState, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

const SHORT: Duration = Duration::from_millis(900);

fn short(text: &str) -> Claim {
    claim(text, Mode::Exclusive).with_lease(SHORT)
}

#[tokio::test]
async fn fresh_nodes_sit_out_and_who_waits_is_told_and_gets_it() {
    let nodes = Independent::start(3);
    let began = Moment::now();
    let keeper = keeper(&nodes.url("3s&node_timeout=10s")).await;
    let lock = keeper.lock("early").expect("a lock");
    let error = lock.try_acquire().await.expect_err("they sit out");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    for server in nodes.servers() {
        let says = format!("127.0.0.1:{} sits out for ", server.port());
        assert!(text.contains(&says), "{text}");
    }
    let sits = |state: &NodeState| matches!(state, NodeState::SittingOut { ready_in } if !ready_in.is_zero());
    assert!(keeper.nodes().iter().all(|status| sits(&status.state)));
    // The longest lease, and so the keeper's own, is shorter than what there is to wait for.
    let guard = lock.acquire().await.expect("it waits until they vote");
    assert!(guard.is_held());
    let waited = Moment::now().since(began);
    // A server tells its age in whole seconds, and was started before we looked.
    assert!(waited > Duration::from_secs(2), "{waited:?}");
    // A majority is enough; the last may be younger.
    until("all vote", async || {
        let nodes = keeper.nodes();
        nodes.iter().all(|status| status.state == NodeState::Up)
    })
    .await;
}

#[tokio::test]
async fn a_node_that_restarted_empty_lets_no_second_holder_in() {
    let mut nodes = Independent::start(3);
    let url = nodes.url("2s&node_timeout=10s");
    nodes.wait_out_quarantine(Duration::from_secs(2));
    let (one, two) = (open(&url).await, open(&url).await);
    // Held on two of three; the third is cut off, for the first alone it would be enough to forget.
    let held = claim("kept", Mode::Exclusive).with_lease(Duration::from_secs(2));
    nodes.server(2).kill();
    assert!(is_granted(&one, &held).await);
    nodes.server(2).restart_empty();
    nodes.server(1).restart_empty();
    until("both are back", async || {
        states(&two)[1..]
            .iter()
            .all(|state| matches!(state, NodeState::SittingOut { .. }))
    })
    .await;
    // Two nodes know nothing of the hold. Neither may vote, for old clients and new ones.
    let three = open(&url).await;
    for store in [&two, &three] {
        let error = store.try_acquire(&short("kept")).await;
        let text = error.expect_err("no majority may vote").to_string();
        assert!(text.contains("sits out"), "{text}");
    }
    // Later it is free: the lease is long over.
    until("it is granted", async || {
        matches!(
            two.try_acquire(&short("kept")).await,
            Ok(lockkeeper::store::Attempt::Granted(_))
        )
    })
    .await;
}

/// Nobody is told that a lock is free because two of three have forgotten it.
#[tokio::test]
async fn a_hold_that_most_nodes_forgot_is_still_seen_and_can_be_broken() {
    let mut nodes = Independent::start(3);
    let url = nodes.url("10s&node_timeout=10s");
    nodes.wait_out_quarantine(Duration::from_secs(10));
    let store = open(&url).await;
    let held = claim("forgotten", Mode::Exclusive).with_lease(Duration::from_secs(10));
    assert!(is_granted(&store, &held).await);
    until("it is everywhere", async || {
        nodes.count_key("forgotten") == 3
    })
    .await;
    nodes.server(2).restart_empty();
    nodes.server(1).restart_empty();
    let store = open(&url).await;
    until("they sit out", async || {
        let sits = |state: &NodeState| matches!(state, NodeState::SittingOut { .. });
        states(&store).iter().filter(|state| sits(state)).count() == 2
    })
    .await;
    let info = store.inspect(&held.name).await.expect("answers");
    let holders = info.expect("is known").holders;
    assert_eq!(holders.len(), 1, "{holders:?}");
    assert_eq!(store.list("").await.expect("answers").len(), 1);
    let ended = break_all(&store, &held).await;
    assert_eq!(ended.len(), 1, "{ended:?}");
    let info = store.inspect(&held.name).await.expect("answers");
    assert!(info.is_none_or(|info| info.holders.is_empty()));
}

#[tokio::test]
async fn with_quarantine_off_a_second_holder_gets_in() {
    let mut nodes = Independent::start(3);
    let url = nodes.url_at_once("60s&node_timeout=10s");
    let (one, two) = (open(&url).await, open(&url).await);
    let held = claim("lost", Mode::Exclusive);
    nodes.server(2).kill();
    assert!(is_granted(&one, &held).await);
    nodes.server(2).restart_empty();
    nodes.server(1).restart_empty();
    // This is what the option costs: long before the first lease ends there is a second holder.
    let began = Moment::now();
    until("a second holder is let in", async || {
        let attempt = two.try_acquire(&short("lost")).await;
        matches!(attempt, Ok(lockkeeper::store::Attempt::Granted(_)))
    })
    .await;
    assert!(Moment::now().since(began) < LEASE);
    has_hold(&nodes.servers()[0], &held);
}

/// The node has kept the hold all the time.
fn has_hold(server: &RedisServer, held: &Claim) {
    let (name, id) = (held.name.to_string(), held.id.to_string());
    assert_eq!(server.command(&["HEXISTS", &name, &id]), ":1\r\n");
}

#[tokio::test]
async fn clients_agree_on_the_longest_lease() {
    let nodes = Independent::start(3);
    let first = open(&nodes.url_at_once("2s&node_timeout=10s")).await;
    let error = connect(&nodes.url_at_once("3s&node_timeout=10s")).await;
    let text = error.expect_err("another longest lease").to_string();
    for word in ["max_lease=2s", "max_lease=3s", "lockkeeper_quorum"] {
        assert!(text.contains(word), "{text}");
    }
    open(&nodes.url_at_once("2s&node_timeout=10s")).await;
    // And nobody holds for longer.
    let long = claim("long", Mode::Exclusive);
    let error = first.try_acquire(&long).await.expect_err("too long");
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert!(error.to_string().contains("max_lease=2s"), "{error}");
    let held = short("held");
    assert!(is_granted(&first, &held).await);
    let error = renew(&first, &held, Duration::from_secs(3)).await;
    assert!(
        matches!(error, Err(Error::InvalidArgument { .. })),
        "{error:?}"
    );
    // A keeper's usual lease is no longer than that.
    let keeper = keeper(&nodes.url_at_once("2s&node_timeout=10s")).await;
    let guard = keeper.lock("usual").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    assert!(guard.deadline().remaining() <= Duration::from_secs(2));
    let error = guard.extend(Duration::from_secs(60)).await;
    assert!(
        matches!(error, Err(Error::InvalidArgument { .. })),
        "{error:?}"
    );
    let builder = Lockkeeper::builder().url(&nodes.url_at_once("2s&node_timeout=10s"));
    let keeper = builder.lease(Duration::from_secs(5)).connect().await;
    let error = keeper.expect_err("a lease that is never granted");
    assert!(error.to_string().contains("longer than 2s"), "{error}");
}

#[tokio::test]
async fn what_a_restarted_node_forgot_does_not_turn_tokens_back() {
    let mut nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("2s&node_timeout=10s")).await;
    let mut last = 0;
    for round in 0..6 {
        let held = short("tokens");
        until("it is granted", async || {
            match store.try_acquire(&held).await {
                Ok(lockkeeper::store::Attempt::Granted(grant)) => {
                    assert!(grant.token.get() > last, "round {round}");
                    last = grant.token.get();
                    true
                }
                _ => false,
            }
        })
        .await;
        assert_eq!(release(&store, &held).await, Ok(true));
        nodes.server(round % 3).restart_empty();
        until("it is back", async || {
            states(&store).iter().all(|state| *state == NodeState::Up)
        })
        .await;
    }
}

#[tokio::test]
async fn a_hold_that_a_node_forgot_is_released_all_the_same() {
    let longest = Duration::from_secs(8);
    let mut nodes = Independent::start(5);
    nodes.wait_out_quarantine(longest);
    let url = nodes.url("8s&node_timeout=10s");
    let store = open(&url).await;
    // Held on three of five, of which one forgets it. Nobody else can have had it: that one does not vote.
    nodes.server(3).kill();
    nodes.server(4).kill();
    let held = claim("forgotten", Mode::Exclusive).with_lease(longest);
    assert!(is_granted(&store, &held).await);
    until("all three keep it", async || votes(&store, &held) == 3).await;
    nodes.server(2).restart_empty();
    until("it is back", async || {
        matches!(states(&store)[2], NodeState::SittingOut { .. })
    })
    .await;
    let kept = || {
        let up = nodes.servers()[..3].iter();
        let kept = up.map(|server| server.command(&["EXISTS", "forgotten"]));
        kept.filter(|answer| answer == ":1\r\n").count()
    };
    assert_eq!(kept(), 2);
    assert_eq!(release(&store, &held).await, Ok(true));
    until("it is let go of", async || kept() == 0).await;
    assert_eq!(release(&store, &held).await, Ok(false), "once only");
}

#[tokio::test]
async fn who_waits_for_a_while_is_told_who_sits_out() {
    let nodes = Independent::start(3);
    let keeper_of_fresh = keeper(&nodes.url("60s&node_timeout=10s")).await;
    let while_ = Duration::from_millis(200);
    let lock = keeper_of_fresh.lock("early").expect("a lock");
    let rwlock = keeper_of_fresh.rwlock("early").expect("a lock");
    let short = lock.clone().with_lease(SHORT).expect("a lease");
    for error in [
        lock.acquire_within(while_).await.expect_err("they sit out"),
        short
            .acquire_within(while_)
            .await
            .expect_err("they sit out"),
        rwlock.read_within(while_).await.expect_err("they sit out"),
        rwlock.write_within(while_).await.expect_err("they sit out"),
    ] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        for server in nodes.servers() {
            let says = format!("127.0.0.1:{} sits out for ", server.port());
            assert!(text.contains(&says), "{text}");
        }
    }
    // Where they vote, the end of the time is no error.
    let nodes = Independent::start(3);
    let keeper = keeper(&nodes.url_at_once("60s&node_timeout=10s")).await;
    let lock = keeper.lock("busy").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    let waited = lock.acquire_within(while_).await.expect("answers");
    assert!(waited.is_none());
    guard.release().await.expect("releases");
}

/// Also if it ran out of time within its first try, because another node says nothing.
#[tokio::test]
async fn who_is_cut_short_is_told_who_sits_out() {
    let mut nodes = Independent::start(5);
    let longest = Duration::from_secs(5);
    nodes.wait_out_quarantine(longest);
    let keeper = keeper(&nodes.url("5s&node_timeout=10s")).await;
    for at in 0..3 {
        nodes.server(at).restart_empty();
    }
    until("three sit out", async || {
        let sit_out = |state: &NodeState| matches!(state, NodeState::SittingOut { .. });
        let nodes = keeper.nodes();
        nodes.iter().filter(|node| sit_out(&node.state)).count() == 3
    })
    .await;
    nodes.server(4).pause();
    let lock = keeper.lock("silent").expect("a lock");
    // The second stands behind the first, for whom nobody has answered yet.
    let waited = tokio::join!(
        lock.acquire_within(Duration::from_millis(400)),
        lock.acquire_within(Duration::from_millis(200)),
    );
    nodes.server(4).resume();
    let says = format!("127.0.0.1:{} sits out for ", nodes.servers()[0].port());
    for waited in [waited.0, waited.1] {
        let text = waited.expect_err("too few vote").to_string();
        assert!(text.contains(&says), "{text}");
    }
}
