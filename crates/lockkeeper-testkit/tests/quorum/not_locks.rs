//! Keys of an application that have the name of a lock: a break on nodes never deletes them.

use lockkeeper::store::{Mode, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::independent::Independent;

use crate::claims::break_of;
use crate::common::*;

/// A hash of what the key has on each node.
fn dump(nodes: &Independent) -> Vec<Vec<String>> {
    let script = "return redis.sha1hex(redis.call('DUMP', KEYS[1]))";
    let dump = ["EVAL", script, "1", "data"];
    let servers = nodes.servers().iter();
    servers.map(|server| server.strings(&dump)).collect()
}

fn on_each(nodes: &Independent, command: &[&str]) {
    for server in nodes.servers() {
        server.command(command);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_keeps_data_of_an_application() {
    let nodes = Independent::start(3);
    let url = nodes.url_at_once("120s&node_timeout=5s");
    for dialect in ["redisson", "plain"] {
        let store = open(&format!("{url}&dialect={dialect}")).await;
        for data in [
            &["SET", "data", "draft"][..],
            &["HSET", "data", "name", "a customer"],
            &["HSET", "data", "mode", "read", "page", "12"],
            &["HSET", "data", "canary-field", "a secret"],
            &["RPUSH", "data", "first"],
            &["SADD", "data", "one"],
        ] {
            on_each(&nodes, data);
            let before = dump(&nodes);
            let wish = claim("data", Mode::Exclusive);
            let refused = store.break_lock(&break_of(&wish)).await;
            let error = refused.expect_err("it is no lock").to_string();
            assert!(error.contains("something else"), "{data:?}: {error}");
            assert!(!error.contains("canary"), "{data:?}: {error}");
            assert!(!is_granted(&store, &wish).await, "{data:?}");
            let _ = store.inspect(&wish.name).await;
            assert_eq!(release(&store, &wish).await, Ok(false), "{data:?}");
            assert_eq!(dump(&nodes), before, "{dialect} {data:?}");
            on_each(&nodes, &["DEL", "data"]);
        }
    }
}

/// They look like the holds of some client, so only a break, which would delete them, has to know better.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_an_application_are_not_broken() {
    let nodes = Independent::start(3);
    let url = nodes.url_at_once("120s&node_timeout=5s");
    let store = open(&url).await;
    on_each(&nodes, &["HSET", "data", "canary-field:12", "3"]);
    let before = dump(&nodes);
    let wish = claim("data", Mode::Exclusive);
    let refused = store.break_lock(&break_of(&wish)).await;
    let error = refused.expect_err("it is no lock").to_string();
    assert!(error.contains("something else"), "{error}");
    assert!(!error.contains("canary"), "{error}");
    assert_eq!(dump(&nodes), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_our_own_keys_is_refused_at_once() {
    let nodes = Independent::start(3);
    let url = nodes.url_at_once("120s&node_timeout=5s");
    for dialect in ["redisson", "plain"] {
        let keeper = Lockkeeper::connect(&format!("{url}&dialect={dialect}")).await;
        let keeper = keeper.expect("connects");
        for name in ["lockkeeper_x", "redisson_lock_token:{x}"] {
            let lock = keeper.lock(name);
            let refused = matches!(lock, Err(Error::InvalidName { .. }));
            assert!(refused, "{dialect} {name}: {lock:?}");
        }
    }
}
