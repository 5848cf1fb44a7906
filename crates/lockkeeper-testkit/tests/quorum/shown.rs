//! What people see of a hold on a quorum: its lease and its label, as most nodes have them.

use std::time::Duration;

use crate::common::*;
use lockkeeper::Label;
use lockkeeper::store::quorum::QuorumStore;
use lockkeeper::store::{Claim, Holder, Mode, Renewed, Store};
use lockkeeper_testkit::servers::independent::Independent;

fn labelled(claim: Claim, text: &str) -> Claim {
    claim.with_label(Some(Label::new(text).expect("a label")))
}

async fn holders(store: &QuorumStore, claim: &Claim) -> Vec<Holder> {
    let info = store.inspect(&claim.name).await.expect("answers");
    info.map_or_else(Vec::new, |info| info.holders)
}

fn shown(holder: &Holder) -> (Option<&str>, Option<Duration>) {
    (holder.label.as_ref().map(Label::as_str), holder.lease)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_a_hold_gets_its_label_back() {
    for dialect in ["redisson", "plain"] {
        let nodes = Independent::start(3);
        let url = nodes.url_at_once(&format!("120s&node_timeout=10s&dialect={dialect}"));
        let store = open(&url).await;
        let held = labelled(claim("x", Mode::Exclusive), "order 42");
        assert!(is_granted(&store, &held).await);
        let is_everywhere = async || {
            assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
            nodes.count_key("x") == 3
        };
        until("all nodes have it", is_everywhere).await;
        nodes.servers()[0].command(&["DEL", "x"]);
        until("that node has it again", is_everywhere).await;
        // That node and another are a majority.
        nodes.servers()[1].command(&["DEL", "x"]);
        let seen = holders(&store, &held).await;
        assert_eq!(seen[0].label, held.label, "{dialect}");
        // The next renewal tells it the whole lease, too.
        assert_eq!(renew(&store, &held, 2 * LEASE).await, Ok(Renewed::Renewed));
        let seen = holders(&store, &held).await;
        assert_eq!(shown(&seen[0]), (Some("order 42"), Some(2 * LEASE)));
        assert_eq!(release(&store, &held).await, Ok(true));
        let next = claim("x", Mode::Exclusive);
        until("it is free", async || is_granted(&store, &next).await).await;
        let seen = holders(&store, &next).await;
        assert_eq!(shown(&seen[0]), (None, Some(LEASE)), "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_becomes_a_reader_keeps_its_label_until_then() {
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=10s")).await;
    for mode in [Mode::Write, Mode::Exclusive] {
        let writer = labelled(claim("book", mode), "writes");
        assert!(is_granted(&store, &writer).await);
        let mut reader = labelled(claim("book", Mode::Read), "reads");
        reader.id.keeper = writer.id.keeper;
        reader.beside = Some(writer.id);
        assert!(is_granted(&store, &reader).await);
        let seen = holders(&store, &writer).await;
        let mut seen: Vec<_> = seen.iter().map(shown).collect();
        seen.sort_unstable();
        let lease = Some(LEASE);
        assert_eq!(seen, [(Some("reads"), lease), (Some("writes"), lease)]);
        assert_eq!(release(&store, &writer).await, Ok(true));
        assert_eq!(
            renew(&store, &reader, 2 * LEASE).await,
            Ok(Renewed::Renewed)
        );
        let seen = holders(&store, &reader).await;
        assert_eq!(shown(&seen[0]), (Some("reads"), Some(2 * LEASE)));
        assert_eq!(release(&store, &reader).await, Ok(true));
    }
}
