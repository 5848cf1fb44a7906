//! The quorum store on real, independent servers: the conformance suite here, and what only this store has in the
//! modules.
//!
//! The cases share servers that are started once, each under a prefix of its own. They use leases of minutes, so nodes
//! would have to be that old before they vote: here they vote at once, and no node restarts. A busy machine may keep a
//! server from answering for long, so requests may take long here.

mod acl;
mod agreement;
#[path = "../support/claims.rs"]
mod claims;
mod common;
mod hints;
mod hostile;
mod late;
mod multi;
mod nodes;
mod not_locks;
mod quarantine;
mod refusals;
mod runtimes;
mod scripts;
mod shown;
mod sick;
mod tokens;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::open;
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::independent::Independent;

/// Two stores on the same nodes, as two processes have them.
async fn shared(nodes: &Independent, dialect: &str) -> Subject {
    static CASES: AtomicU64 = AtomicU64::new(1);
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    let url = nodes.url_at_once(&format!(
        "120s&node_timeout=5s&dialect={dialect}&prefix=case{case}:"
    ));
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store)).with_other(Arc::new(other))
}

fn three_nodes() -> &'static Independent {
    static NODES: OnceLock<Independent> = OnceLock::new();
    NODES.get_or_init(|| grown(3))
}

fn five_nodes() -> &'static Independent {
    static NODES: OnceLock<Independent> = OnceLock::new();
    NODES.get_or_init(|| grown(5))
}

/// Nodes that are a few seconds old. Tokens of one that has just started are as far ahead of its clock as they may be, so that it has no
/// room for the long runs of some cases.
fn grown(nodes: usize) -> Independent {
    let nodes = Independent::start(nodes);
    nodes.wait_out_quarantine(Duration::from_secs(1));
    nodes
}

async fn three() -> Subject {
    shared(three_nodes(), "redisson").await
}

async fn three_plain() -> Subject {
    shared(three_nodes(), "plain").await
}

async fn five() -> Subject {
    shared(five_nodes(), "redisson").await
}

async fn five_plain() -> Subject {
    shared(five_nodes(), "plain").await
}

lockkeeper_testkit::conformance_tests!(on_three_nodes, three);
lockkeeper_testkit::conformance_tests!(on_three_plain_nodes, three_plain);
lockkeeper_testkit::conformance_tests!(on_five_nodes, five, transport);
lockkeeper_testkit::conformance_tests!(on_five_plain_nodes, five_plain, transport);
