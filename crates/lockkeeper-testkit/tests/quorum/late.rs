//! Requests that reach a node when its vote may be another's: they do nothing by then.

use std::time::Duration;

use crate::claims::{break_all, break_of, renewal_for};
use crate::common::*;
use crate::nodes::taken_everywhere;
use lockkeeper::clock::Moment;
use lockkeeper::store::{BreakOutcome, BreakTarget, Mode, NodeState, Renewed, Store};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::redis::RedisServer;

/// Nodes of which the second has a slow way for some, and the URLs of those without and with it.
struct Site {
    nodes: Independent,
    slow: Proxy,
    direct: String,
    delayed: String,
}

impl Site {
    fn new(dialect: &str) -> Site {
        let nodes = Independent::start(3);
        let slow = Proxy::to(nodes.servers()[1].port());
        let ports: Vec<u16> = nodes.servers().iter().map(|server| server.port()).collect();
        let delayed = Independent::url_of([ports[0], slow.port(), ports[2]]);
        // The connection outlives what is held on it.
        let options = format!(
            "quarantine=off&max_lease=120s&dialect={dialect}&response_timeout=10s&node_timeout"
        );
        Site {
            direct: nodes.url_at_once(&format!("120s&node_timeout=10s&dialect={dialect}")),
            delayed: format!("{delayed}?{options}=500ms"),
            nodes,
            slow,
        }
    }

    fn second(&self) -> &RedisServer {
        &self.nodes.servers()[1]
    }

    /// Lets through what was held, and waits until the node has run it.
    async fn deliver(&self) {
        let before = self.second().calls_of("evalsha");
        self.slow.heal();
        until("it has come", async || {
            self.second().calls_of("evalsha") > before
        })
        .await;
    }
}

#[tokio::test]
async fn a_break_that_reaches_a_node_late_spares_the_next_holder() {
    for dialect in ["redisson", "plain"] {
        let site = Site::new(dialect);
        let store = open(&site.direct).await;
        let administrator = open(&site.delayed).await;
        let (held, next) = (
            claim("busy", Mode::Exclusive),
            claim("busy", Mode::Exclusive),
        );
        // A script that the node does not know would do nothing anyway.
        break_all(&administrator, &claim("other", Mode::Exclusive)).await;
        taken_everywhere(&store, &held, &site.nodes).await;
        site.slow.requests(Way::Held);
        assert_eq!(break_all(&administrator, &held).await[0].claim, held.id);
        assert_eq!(site.nodes.count_key("busy"), 1, "one has not heard of it");
        // It learns that it was broken, and lets go of what is left.
        assert_eq!(release(&store, &held).await, Ok(false));
        until("all let go", async || site.nodes.count_key("busy") == 0).await;
        taken_everywhere(&store, &next, &site.nodes).await;
        site.deliver().await;
        assert_eq!(site.nodes.count_key("busy"), 3, "{dialect}");
        assert_eq!(renew(&store, &next, LEASE).await, Ok(Renewed::Renewed));
        assert_eq!(votes(&store, &next), 3);
    }
}

/// A try that came to nothing has a vote that is not taken back yet, and a break ends that. The next try of the same claim
/// has nothing to do with it.
#[tokio::test]
async fn a_break_that_a_node_missed_spares_a_later_round_of_the_claim() {
    for dialect in ["redisson", "plain"] {
        let site = Site::new(dialect);
        let store = open(&site.direct).await;
        let administrator = open(&site.delayed).await;
        break_all(&administrator, &claim("other", Mode::Exclusive)).await;
        // So that its next round is a later one.
        let warm_up = claim("warm-up", Mode::Exclusive);
        taken_everywhere(&store, &warm_up, &site.nodes).await;
        let tries = claim("busy", Mode::Exclusive);
        let (id, record) = (tries.id.to_string(), "1000 1 1 1000 a channel");
        let first = &site.nodes.servers()[0];
        match dialect {
            "plain" => first.command(&["SET", "busy", &format!("{id} {record}")]),
            _ => first.command(&[
                "HSET",
                "busy",
                &id,
                "1",
                &format!("lockkeeper:{id}"),
                record,
            ]),
        };
        first.command(&["PEXPIRE", "busy", "60000"]);
        site.slow.requests(Way::Held);
        assert_eq!(break_all(&administrator, &tries).await[0].claim, tries.id);
        taken_everywhere(&store, &tries, &site.nodes).await;
        site.slow.heal();
        until("the administrator knows that it is back", async || {
            states(&administrator)[1] == NodeState::Up
        })
        .await;
        // All nodes have answered what they were told before.
        let seen = administrator.inspect(&tries.name).await.expect("answers");
        assert_eq!(seen.expect("it is held").holders[0].claim, tries.id);
        assert_eq!(site.nodes.count_key("busy"), 3, "{dialect}");
    }
}

#[tokio::test]
async fn a_renewal_that_reaches_a_node_late_prolongs_nothing() {
    for dialect in ["redisson", "plain"] {
        let site = Site::new(dialect);
        let store = open(&site.delayed).await;
        let held = claim("busy", Mode::Exclusive);
        taken_everywhere(&store, &held, &site.nodes).await;
        let left = |server: &RedisServer| -> u64 {
            let left = server.strings(&["PTTL", "busy"]);
            left[0].parse().expect("ms")
        };
        site.slow.requests(Way::Held);
        let not_after = Moment::now() + Duration::from_millis(900);
        let renewal = (renewal_for(2 * LEASE, &held)).with_not_after(not_after);
        assert_eq!(store.renew(&[renewal]).await, Ok(vec![Renewed::Renewed]));
        let [first, _, _] = site.nodes.servers() else {
            panic!("there are three");
        };
        assert!(left(first) > LEASE.as_millis() as u64);
        until("it is late", async || Moment::now() > not_after).await;
        site.deliver().await;
        assert!(left(site.second()) <= LEASE.as_millis() as u64, "{dialect}");
    }
}

/// Java's holders are named by what they write into the hash.
#[tokio::test]
async fn a_client_of_redissons_is_broken_by_its_name() {
    const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
    let nodes = Independent::start(3);
    let store = open(&nodes.url_at_once("120s&node_timeout=10s")).await;
    let named = |claim: &str| BreakTarget::Claim(claim.parse().expect("an id"));
    let held = claim("busy", Mode::Exclusive);
    for server in nodes.servers() {
        server.command(&["HSET", "busy", JAVA, "1"]);
        server.command(&["PEXPIRE", "busy", "30000"]);
    }
    let mut request = break_of(&held);
    request.target = named("5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:43");
    match store.break_lock(&request).await {
        Ok(BreakOutcome::NotHeld(holders)) => assert_eq!(holders[0].claim.to_string(), JAVA),
        other => panic!("another is meant, was {other:?}"),
    }
    assert_eq!(nodes.count_key("busy"), 3);
    request.target = named(JAVA);
    match store.break_lock(&request).await {
        Ok(BreakOutcome::Ended(ended)) => assert_eq!(ended[0].claim.to_string(), JAVA),
        other => panic!("it is there, was {other:?}"),
    }
    assert_eq!(nodes.count_key("busy"), 0);
    assert!(is_granted(&store, &held).await);
}

/// A node keeps the reason of a break also where it had no hold, since it cannot know of the others. So it is not asked to break
/// where nobody knows of a hold.
#[tokio::test]
async fn a_break_of_what_no_node_knows_leaves_no_record() {
    for dialect in ["redisson", "plain"] {
        let nodes = Independent::start(3);
        let url = nodes.url_at_once(&format!("120s&node_timeout=10s&dialect={dialect}"));
        let store = open(&url).await;
        let held = claim("busy", Mode::Exclusive);
        assert!(break_all(&store, &held).await.is_empty());
        assert_eq!(nodes.count_key("lockkeeper_broken:{busy}"), 0, "{dialect}");
        // A vote that is left on one node is no hold; it is ended all the same.
        let vote = ["SET", "busy", "d1e8a7c29f0b11ee8c990242ac120002"];
        let javas = [
            "HSET",
            "busy",
            "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42",
            "1",
        ];
        nodes.servers()[1].command(if dialect == "plain" { &vote } else { &javas });
        assert!(break_all(&store, &held).await.is_empty());
        assert_eq!(nodes.count_key("busy"), 0, "{dialect}");
        // What is held is broken with a reason.
        assert!(is_granted(&store, &held).await);
        assert_eq!(break_all(&store, &held).await.len(), 1);
        let info = store.inspect(&held.name).await.expect("answers");
        assert!(info.expect("it is known").broken.is_some(), "{dialect}");
    }
}
