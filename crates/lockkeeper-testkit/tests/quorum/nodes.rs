//! Nodes that are down, stalled or forgetful.

use std::time::Duration;

use crate::claims::{break_all, claim_for};
use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::quorum::QuorumStore;
use lockkeeper::store::{Claim, Mode, NodeState, Renewed, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::{Proxy, Way};

/// Longer than any answer takes, even here, and far longer than any test that must not wait for it.
const PATIENT: &str = "120s&node_timeout=10s";

/// Takes it, and waits until every node keeps it. Nodes that have just started may want higher tokens than the majority
/// did: a renewal brings it to them. Nothing is on its way to them afterwards: a node whose vote was late may be told twice.
pub(super) async fn taken_everywhere(store: &QuorumStore, held: &Claim, nodes: &Independent) {
    assert!(is_granted(store, held).await);
    until("all keep it", async || {
        assert_eq!(renew(store, held, LEASE).await, Ok(Renewed::Renewed));
        store.settled().await;
        nodes.count_key(&held.name) == nodes.servers().len()
    })
    .await;
}

/// A way to each node that can be cut, and the URL of a quorum over these.
fn proxied(nodes: &Independent) -> (Vec<Proxy>, String) {
    let ports = nodes.servers().iter().map(|server| server.port());
    let proxies: Vec<Proxy> = ports.map(Proxy::to).collect();
    let url = Independent::url_of(proxies.iter().map(Proxy::port));
    (proxies, format!("{url}?quarantine=off&max_lease={PATIENT}"))
}

#[tokio::test]
async fn with_one_of_three_down_all_works() {
    let mut nodes = Independent::start(3);
    let store = open(&nodes.url_at_once(PATIENT)).await;
    nodes.server(1).kill();
    until("it is known", async || {
        matches!(states(&store)[1], NodeState::Down { .. })
    })
    .await;
    let held = claim("held", Mode::Exclusive);
    assert!(is_granted(&store, &held).await);
    assert!(!is_granted(&store, &claim("held", Mode::Exclusive)).await);
    assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
    let kept = store.votes(held.id).expect("votes");
    let kept: Vec<bool> = kept.iter().map(|vote| vote.holds).collect();
    assert_eq!(kept, [true, false, true]);
    assert_eq!(release(&store, &held).await, Ok(true));
    // A client that comes now finds it the same way, and the node when it is back.
    let other = open(&nodes.url_at_once(PATIENT)).await;
    assert!(is_granted(&other, &claim("held", Mode::Exclusive)).await);
    nodes.server(1).restart();
    until("it is back", async || {
        states(&store).iter().all(|s| *s == NodeState::Up)
            && states(&other).iter().all(|s| *s == NodeState::Up)
    })
    .await;
}

#[tokio::test]
async fn nodes_that_do_not_know_the_script_let_go_though_nobody_stays_for_their_answer() {
    const SHORT: Duration = Duration::from_secs(2);
    for dialect in ["redisson", "plain"] {
        let nodes = Independent::start(3);
        // Old enough to take the first token they are offered: nothing was taken back before, by the script in question.
        nodes.wait_out_quarantine(SHORT);
        let (proxies, _) = proxied(&nodes);
        let url = Independent::url_of(proxies.iter().map(Proxy::port));
        let store = open(&format!(
            "{url}?max_lease=2s&node_timeout=10s&dialect={dialect}"
        ))
        .await;
        let held = claim_for(SHORT, "held", Mode::Exclusive);
        assert!(is_granted(&store, &held).await);
        until("all keep it", async || nodes.count_key("held") == 3).await;
        // So that no lease ends what a release is to.
        for server in nodes.servers() {
            assert_eq!(server.command(&["PERSIST", "held"]).trim(), ":1");
        }
        // As of a process that has ended when the answer of the third comes: what it says is never read.
        proxies[2].replies(Way::Held);
        assert_eq!(release(&store, &held).await, Ok(true));
        until("none keeps it", async || nodes.count_key("held") == 0).await;
    }
}

#[tokio::test]
async fn with_two_of_three_down_it_fails_clearly_and_soon() {
    let mut nodes = Independent::start(3);
    let url = nodes.url_at_once("120s");
    let store = open(&url).await;
    let held = claim("held", Mode::Exclusive);
    assert!(is_granted(&store, &held).await);
    let (one, two) = (nodes.servers()[0].port(), nodes.servers()[2].port());
    nodes.server(0).kill();
    nodes.server(2).kill();
    let began = Moment::now();
    let error = store.try_acquire(&claim("free", Mode::Exclusive)).await;
    let error = error.expect_err("there is no majority");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    for word in ["2 of 3", &format!(":{one}"), &format!(":{two}")] {
        assert!(text.contains(word), "{text}");
    }
    // Nobody says that it is held or not held: that is not known.
    assert!(renew(&store, &held, LEASE).await.is_err());
    let released = release(&store, &held).await;
    assert!(
        matches!(released, Err(Error::OutcomeUnknown { .. })),
        "{released:?}"
    );
    let text = connect(&url).await.expect_err("too few").to_string();
    assert!(text.contains(&format!(":{one}")), "{text}");
    assert!(Moment::now().since(began) < Duration::from_secs(20));
}

#[tokio::test]
async fn a_stalled_minority_costs_nothing() {
    let nodes = Independent::start(5);
    let store = open(&nodes.url_at_once(PATIENT)).await;
    // Scripts are known everywhere.
    let warm = claim("warm", Mode::Exclusive);
    assert!(is_granted(&store, &warm).await);
    assert_eq!(release(&store, &warm).await, Ok(true));
    nodes.servers()[0].pause();
    nodes.servers()[3].pause();
    let began = Moment::now();
    for _ in 0..20 {
        let held = claim("busy", Mode::Exclusive);
        assert!(is_granted(&store, &held).await);
        assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
        assert!(votes(&store, &held) >= 3);
        assert_eq!(release(&store, &held).await, Ok(true));
    }
    // A client that waited for a stalled node would have waited for 10 s.
    let took = Moment::now().since(began);
    assert!(took < Duration::from_secs(10), "{took:?}");
    nodes.servers()[0].resume();
    nodes.servers()[3].resume();
    until("nothing is left", async || nodes.count_key("busy") == 0).await;
    until("all are up", async || {
        states(&store).iter().all(|state| *state == NodeState::Up)
    })
    .await;
}

#[tokio::test]
async fn a_node_that_is_behind_is_asked_no_more_until_it_answers() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=500ms&response_timeout=10s")).await;
    nodes.servers()[2].pause();
    let held = claim("first", Mode::Exclusive);
    assert!(is_granted(&store, &held).await);
    until("it is behind", async || {
        states(&store)[2] == NodeState::Behind
    })
    .await;
    for _ in 0..200 {
        let held = claim("more", Mode::Exclusive);
        assert!(is_granted(&store, &held).await);
        assert_eq!(votes(&store, &held), 2);
        assert_eq!(release(&store, &held).await, Ok(true));
    }
    assert_eq!(release(&store, &held).await, Ok(true));
    let before = states(&store)[2].clone();
    nodes.servers()[2].resume();
    assert_eq!(before, NodeState::Behind);
    until("it is up", async || states(&store)[2] == NodeState::Up).await;
    // What it was asked while it stood still came too late, or was taken back.
    until("nothing is left", async || {
        nodes.count_key("first") + nodes.count_key("more") == 0
    })
    .await;
    let fences = nodes.servers()[2].keys();
    assert!(
        !fences.iter().any(|key| key.contains("more")),
        "it was asked: {fences:?}"
    );
}

#[tokio::test]
async fn a_node_that_is_behind_hears_of_a_release_before_it_answers() {
    let nodes = Independent::start(3);
    let (proxies, _) = proxied(&nodes);
    let url = Independent::url_of(proxies.iter().map(Proxy::port));
    let options = "quarantine=off&max_lease=120s&node_timeout=1s&response_timeout=10s";
    let store = open(&format!("{url}?{options}")).await;
    let held = claim("held", Mode::Exclusive);
    taken_everywhere(&store, &held, &nodes).await;
    // A releaser may be a process that ends: it cannot wait for the answers of a node that is slow.
    proxies[2].replies(Way::Held);
    assert!(is_granted(&store, &claim("other", Mode::Exclusive)).await);
    until("it is behind", async || {
        states(&store)[2] == NodeState::Behind
    })
    .await;
    assert_eq!(release(&store, &held).await, Ok(true));
    until("none keeps it", async || nodes.count_key("held") == 0).await;
    assert_eq!(states(&store)[2], NodeState::Behind);
}

#[tokio::test]
async fn a_release_reaches_a_node_that_was_away() {
    let nodes = Independent::start(3);
    let (proxies, url) = proxied(&nodes);
    let store = open(&url).await;
    let held = claim("away", Mode::Exclusive);
    taken_everywhere(&store, &held, &nodes).await;
    proxies[1].refuse();
    assert_eq!(release(&store, &held).await, Ok(true));
    until("the others let go", async || nodes.count_key("away") == 1).await;
    assert_eq!(nodes.servers()[1].command(&["EXISTS", "away"]), ":1\r\n");
    proxies[1].heal();
    until("it lets go as well", async || nodes.count_key("away") == 0).await;
}

#[tokio::test]
async fn a_failed_round_is_cleared_up_where_no_answer_came() {
    let nodes = Independent::start(3);
    let (proxies, url) = proxied(&nodes);
    let store = open(&url).await;
    let warm = claim("warm", Mode::Exclusive);
    assert!(is_granted(&store, &warm).await);
    // Two nodes vote and their answers are lost: there is no majority.
    for proxy in &proxies[..2] {
        proxy.lose_replies("lost", 1);
    }
    let error = store.try_acquire(&claim("lost", Mode::Exclusive)).await;
    assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
    assert_eq!(proxies[0].lost_replies() + proxies[1].lost_replies(), 2);
    until("nothing is left", async || nodes.count_key("lost") == 0).await;
}

#[tokio::test]
async fn a_renewal_brings_a_hold_back_to_a_node_that_lost_it() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once(PATIENT)).await;
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write] {
        let held = claim(&format!("{mode}"), mode);
        let name = held.name.to_string();
        taken_everywhere(&store, &held, &nodes).await;
        nodes.servers()[1].command(&["DEL", &name]);
        assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
        until("it is back", async || nodes.count_key(&name) == 3).await;
        until("it is counted", async || votes(&store, &held) == 3).await;
        // It counts from now on: another node may go.
        nodes.servers()[2].command(&["DEL", &name]);
        assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
        assert_eq!(release(&store, &held).await, Ok(true));
        until("all let go", async || nodes.count_key(&name) == 0).await;
    }
}

#[tokio::test]
async fn a_hold_that_a_majority_lost_is_lost() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once(PATIENT)).await;
    let held = claim("gone", Mode::Exclusive);
    taken_everywhere(&store, &held, &nodes).await;
    // A renewal before may still bring it back to a node.
    until("it is lost", async || {
        for server in &nodes.servers()[..2] {
            server.command(&["DEL", "gone"]);
        }
        renew(&store, &held, LEASE).await == Ok(Renewed::NotHeld)
    })
    .await;
    // Nor is it brought back, and what is left of it is taken back.
    until("nothing is left", async || nodes.count_key("gone") == 0).await;
    assert!(is_granted(&store, &claim("gone", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_holder_that_lost_its_majority_is_told() {
    let nodes = Independent::start(3);
    let url = nodes.url_at_once(PATIENT);
    let builder = Lockkeeper::builder().url(&url);
    let keeper = builder.lease(Duration::from_secs(2)).connect().await;
    let keeper = keeper.expect("connects");
    let guard = keeper.lock("told").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    assert_eq!(guard.votes().expect("votes").len(), 3);
    for server in &nodes.servers()[1..] {
        server.command(&["DEL", "told"]);
    }
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
    assert!(lost.is_ok(), "it is never told");
    assert!(!guard.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_in_another_keeper_wakes_promptly() {
    let nodes = Independent::start(3);
    for dialect in ["redisson", "plain"] {
        let url = nodes.url_at_once(&format!("{PATIENT}&dialect={dialect}&prefix={dialect}:"));
        let (one, two) = (keeper(&url).await, keeper(&url).await);
        let mut took = Vec::new();
        for _ in 0..20 {
            let guard = one.lock("prompt").expect("a lock").acquire().await;
            let guard = guard.expect("acquires");
            let lock = two.lock("prompt").expect("a lock");
            let waiter = tokio::spawn(async move {
                let guard = lock.acquire().await.expect("acquires");
                let at = Moment::now();
                guard.release().await.expect("releases");
                at
            });
            tokio::time::sleep(Duration::from_millis(60)).await;
            let released = Moment::now();
            guard.release().await.expect("releases");
            took.push(waiter.await.expect("finishes").since(released));
        }
        took.sort();
        // A hint that does not come costs 750 ms or more; a slow machine some milliseconds.
        assert!(took[10] < Duration::from_millis(300), "{dialect}: {took:?}");
    }
}

#[tokio::test]
async fn a_node_that_was_only_looked_at_comes_back() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=200ms&response_timeout=10s")).await;
    let held = claim("seen", Mode::Exclusive);
    taken_everywhere(&store, &held, &nodes).await;
    until("it is counted", async || votes(&store, &held) == 3).await;
    // Nothing is under way to it, and nothing else is asked of it while it stands still.
    tokio::time::sleep(Duration::from_millis(100)).await;
    nodes.servers()[2].pause();
    let seen = store.inspect(&held.name).await.expect("a majority answers");
    assert_eq!(seen.expect("is known").holders.len(), 1);
    assert_eq!(states(&store)[2], NodeState::Behind);
    nodes.servers()[2].resume();
    until("it is up", async || states(&store)[2] == NodeState::Up).await;
}

#[tokio::test]
async fn a_hold_that_comes_back_to_a_node_after_its_release_is_let_go_of() {
    let nodes = Independent::start(3);
    let slow = Proxy::to(nodes.servers()[2].port());
    let ports = nodes.servers()[..2].iter().map(|server| server.port());
    let url = Independent::url_of(ports.chain([slow.port()]));
    slow.refuse();
    let options = format!("quarantine=off&response_timeout=10s&max_lease={PATIENT}");
    let store = open(&format!("{url}?{options}")).await;
    let held = claim("back", Mode::Exclusive);
    assert!(is_granted(&store, &held).await);
    // The third node knows the scripts that renew and let go: what brings the hold there takes a second request, and the
    // release comes in between.
    let calls = |command: &str| nodes.servers()[2].calls_of(command);
    let other = open(&nodes.url_at_once(PATIENT)).await;
    until("it is up", async || states(&other)[2] == NodeState::Up).await;
    let (known, nothing) = (calls("eval"), claim("other", Mode::Exclusive));
    assert_eq!(renew(&other, &nothing, LEASE).await, Ok(Renewed::NotHeld));
    assert_eq!(release(&other, &nothing).await, Ok(false));
    until("it knows them", async || calls("eval") == known + 2).await;
    slow.heal();
    until("it is up", async || states(&store)[2] == NodeState::Up).await;
    let known = calls("eval");
    // A renewal says nothing of tokens: the first request that does brings the hold there.
    slow.hold_replies_to("redisson_lock_token:{back}");
    assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
    until("it is to be brought there", async || slow.stopped() > 0).await;
    assert_eq!(nodes.count_key("back"), 2, "not yet");
    assert_eq!(release(&store, &held).await, Ok(true));
    until("it is released there", async || calls("eval") > known).await;
    slow.heal();
    until("it is brought there", async || calls("eval") > known + 1).await;
    until("all let go", async || nodes.count_key("back") == 0).await;
}

#[tokio::test]
async fn a_list_does_not_wait_for_a_stalled_node() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=500ms&response_timeout=10s")).await;
    let held = claim("listed", Mode::Exclusive);
    taken_everywhere(&store, &held, &nodes).await;
    nodes.servers()[2].pause();
    let list = store.list("").await.expect("answers");
    let stalled = states(&store)[2].clone();
    nodes.servers()[2].resume();
    // Otherwise it was waited for until its connection was given up.
    assert_eq!(stalled, NodeState::Behind);
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].name, held.name);
    assert_eq!(list[0].holders[0].claim, held.id);
}

#[tokio::test]
async fn a_break_reaches_a_node_that_was_away_and_spares_the_next_holder() {
    for dialect in ["redisson", "plain"] {
        let nodes = Independent::start(3);
        let (proxies, url) = proxied(&nodes);
        let administrator = open(&format!("{url}&dialect={dialect}")).await;
        let direct = nodes.url_at_once(PATIENT);
        let store = open(&format!("{direct}&dialect={dialect}")).await;
        let held = claim("broken", Mode::Exclusive);
        taken_everywhere(&store, &held, &nodes).await;
        proxies[1].refuse();
        until("it is known", async || {
            matches!(states(&administrator)[1], NodeState::Down { .. })
        })
        .await;
        let ended = break_all(&administrator, &held).await;
        assert_eq!(ended[0].claim, held.id);
        assert_eq!(nodes.count_key("broken"), 1);
        // The node that was away still keeps the old hold: two votes are enough.
        let next = claim("broken", Mode::Exclusive);
        assert!(is_granted(&store, &next).await);
        assert_eq!(votes(&store, &next), 2);
        proxies[1].heal();
        until("it is ended there too", async || {
            nodes.count_key("broken") == 2
        })
        .await;
        assert_eq!(renew(&store, &next, LEASE).await, Ok(Renewed::Renewed));
        assert_eq!(release(&store, &next).await, Ok(true));
    }
}
