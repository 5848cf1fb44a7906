//! Several processes of several kinds add one to a key, by GET, a pause and SET, under one lock.

use std::time::Duration;

use lockkeeper_testkit::servers::independent::Independent;
use serde_json::json;

use crate::peer::{Kind, Peer};

const ROUNDS: u64 = 40;

/// Each process takes the lock that `name` says for it. Answers what the counter says in the end.
fn count(nodes: usize, kinds: &[Kind], name: impl Fn(usize) -> String) -> u64 {
    let nodes = Independent::start(nodes);
    let mut peers: Vec<Peer> = kinds
        .iter()
        .map(|kind| Peer::start(*kind, &nodes))
        .collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.order(&json!({
            "do": "load",
            "name": name(number),
            "counter": "counter",
            "rounds": ROUNDS,
            "pause_ms": 2,
            "ttl_ms": Duration::from_secs(30).as_millis() as u64,
        }));
    }
    for peer in &peers {
        assert!(peer.answer());
    }
    let value = nodes.servers()[0].strings(&["GET", "counter"]);
    value[0].parse().expect("a number")
}

pub fn no_update_is_lost(nodes: usize, kinds: &[Kind]) {
    let counted = count(nodes, kinds, |_| "load".into());
    assert_eq!(counted, ROUNDS * kinds.len() as u64);
}

#[test]
fn no_update_is_lost_with_all_kinds_together() {
    use Kind::{Go, Node, Ours, Python};
    no_update_is_lost(1, &[Python, Go, Node, Ours, Python, Go, Node, Ours]);
}

#[test]
fn no_update_is_lost_with_all_kinds_together_over_a_quorum() {
    use Kind::{Go, Node, Ours};
    no_update_is_lost(5, &[Go, Node, Ours, Go, Node, Ours]);
}

/// Else the tests above would prove nothing.
#[test]
fn updates_are_lost_when_each_has_a_lock_of_its_own() {
    use Kind::{Go, Node, Ours, Python};
    let kinds = [Python, Go, Node, Ours];
    let counted = count(1, &kinds, |number| format!("load-{number}"));
    assert!(counted < ROUNDS * kinds.len() as u64, "{counted}");
}
