//! The user of docs/quorum.md: the suite passes with it, and it has nothing more than that needs.

use std::sync::{Arc, OnceLock};

use crate::claims::break_of;
use crate::common::*;
use lockkeeper::store::{ClaimId, Interest, Mode, Store};
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

/// The words of the documented user, read from the page.
fn documented() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/quorum.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let from = page.find("ACL SETUSER").expect("it has a user");
    let rules = page[from..].split("```").next().expect("a block");
    rules.split_whitespace().map(str::to_owned).collect()
}

/// Makes the user, without one of its words.
fn make_user(server: &RedisServer, without: &str) {
    let words = documented();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.retain(|word| *word != without);
    words.insert(3, "reset");
    assert_eq!(server.command(&words), "+OK\r\n", "{words:?}");
}

fn url(nodes: &Independent, more: &str) -> String {
    let ports = nodes.servers().iter().map(RedisServer::port);
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    let hosts = hosts.join(",");
    format!(
        "redlock://locks:PASSWORD@{hosts}/1?quarantine=off&max_lease=120s&node_timeout=5s{more}"
    )
}

fn shared_nodes() -> &'static Independent {
    static NODES: OnceLock<Independent> = OnceLock::new();
    NODES.get_or_init(|| {
        let nodes = crate::grown(3);
        nodes.servers().iter().for_each(|node| make_user(node, ""));
        nodes
    })
}

async fn subject(options: &str) -> Subject {
    let case = claim("x", Mode::Exclusive).id.keeper;
    let url = url(shared_nodes(), &format!("&prefix=app:{case}:{options}"));
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store)).with_other(Arc::new(other))
}

async fn redisson() -> Subject {
    subject("").await
}

async fn plain() -> Subject {
    subject("&dialect=plain").await
}

lockkeeper_testkit::conformance_tests!(as_the_documented_user, redisson, transport);
lockkeeper_testkit::conformance_tests!(as_the_documented_user_plainly, plain, transport);

/// Uses everything that the store has; whatever is refused is passed over.
async fn use_everything(nodes: &Independent) {
    for dialect in ["redisson", "plain"] {
        let url = url(nodes, &format!("&prefix=app:&dialect={dialect}"));
        let Ok(store) = connect(&url).await else {
            return;
        };
        for (name, mode) in [
            ("lock", Mode::Exclusive),
            ("book", Mode::Read),
            ("page", Mode::Write),
            // Names with braces have other keys.
            ("{braces}", Mode::Exclusive),
        ] {
            let held = claim(name, mode);
            let _ = store.try_acquire(&held).await;
            let reader = claim(name, Mode::Read)
                .with_id(ClaimId {
                    number: held.id.number + 1_000_000,
                    ..held.id
                })
                .with_beside(Some(held.id))
                .with_label(None);
            let _ = store.try_acquire(&reader).await;
            let wish = claim(name, mode);
            let interest = Interest::Claim(wish.name.clone(), wish.id);
            let listening = store.subscribe(interest).await;
            let _ = store.try_acquire(&wish).await;
            let _ = renew(&store, &held, LEASE).await;
            let _ = store.inspect(&held.name).await;
            let _ = store.list("").await;
            let _ = release(&store, &held).await;
            let _ = release(&store, &reader).await;
            let _ = store.try_acquire(&wish).await;
            let request = break_of(&wish);
            let _ = store.break_lock(&request).await;
            drop(listening);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_word_of_the_documented_user_is_needed() {
    let nodes = Independent::start(3);
    let all = |without: &str| {
        for node in nodes.servers() {
            node.command(&["FLUSHALL"]);
            node.command(&["ACL", "LOG", "RESET"]);
            make_user(node, without);
        }
    };
    all("");
    use_everything(&nodes).await;
    for node in nodes.servers() {
        let log = node.command(&["ACL", "LOG"]);
        assert!(log.starts_with("*0"), "something was denied: {log}");
    }
    let mut idle = Vec::new();
    // The others say who it is, and that it has nothing else.
    let words = documented().into_iter();
    for word in words.filter(|word| word.starts_with(['+', '~', '&'])) {
        all(&word);
        let log = async || {
            use_everything(&nodes).await;
            let nodes = nodes.servers().iter();
            let texts = nodes.flat_map(|node| node.strings(&["ACL", "LOG"]));
            texts.collect::<Vec<String>>()
        };
        let needed = match word.split_at(1) {
            // An unsubscription that is refused is noticed by nobody; the connection is just not told so.
            ("+", command) => {
                let denied = |text: &String| text.eq_ignore_ascii_case(command);
                log().await.iter().any(denied)
            }
            ("~", _) => log().await.iter().any(|text| text == "key"),
            _ => log().await.iter().any(|text| text == "channel"),
        };
        if !needed {
            idle.push(word);
        }
    }
    assert!(idle.is_empty(), "nobody needs {idle:?}");
}
