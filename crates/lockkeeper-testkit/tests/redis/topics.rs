//! Many names that are waited for at once: what they need to hear is asked for together.

use std::future::poll_fn;
use std::task::Poll;

use crate::common::*;
use lockkeeper::store::{Interest, Store};
use lockkeeper_testkit::servers::redis::RedisServer;

const NAMES: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_that_are_waited_for_take_few_commands() {
    let server = RedisServer::start();
    let store = open(&format!("{}?response_timeout=10s", server.url())).await;
    let count = |command| server.calls_of(command);
    let before = (count("subscribe"), count("unsubscribe"));
    server.pause();
    let mut waiting: Vec<_> = (0..NAMES)
        .map(|number| store.subscribe(Interest::Latch(name(&format!("latch {number}")))))
        .collect();
    // All of them want to hear something from the first poll on.
    poll_fn(|context| {
        for one in &mut waiting {
            assert!(one.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    })
    .await;
    server.resume();
    let mut subscriptions = Vec::new();
    for one in waiting {
        subscriptions.push(one.await.expect("subscribes"));
    }
    // The first goes alone, and the others when it is answered.
    let subscribed = count("subscribe") - before.0;
    assert!((1..=4).contains(&subscribed), "{subscribed}");
    server.pause();
    drop(subscriptions);
    server.resume();
    until("all are left", async || {
        server
            .strings(&["PUBSUB", "CHANNELS", "*latch*"])
            .is_empty()
    })
    .await;
    let left = count("unsubscribe") - before.1;
    assert!((1..=4).contains(&left), "{left}");
}
