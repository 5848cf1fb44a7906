//! Many who hold one name again and again, judged by the history checker.

use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::{Attempt, Claim};

use super::client::{Client, LONG};
use crate::checker::{Demands, check};
use crate::history::{Answer, Recorder};

/// Each holds so many times; `claim` says what, by its number.
pub(super) async fn take_turns(
    clients: Vec<Client>,
    rounds: usize,
    claim: impl Fn(&Client, usize) -> Claim + Copy + Send + 'static,
) {
    let recorder = Recorder::in_memory("crowd", Clock::real());
    let mut tasks = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        let (owner, recorder) = (format!("c{number}"), recorder.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..rounds {
                hold_once(&client, &owner, claim(&client, number), &recorder).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("a claimant finishes");
    }
    check(&recorder.events(), &Demands::default()).expect_valid();
}

async fn hold_once(client: &Client, owner: &str, claim: Claim, recorder: &Recorder) {
    let enqueue = client.store.capabilities().queue;
    let claim = claim.with_enqueue(enqueue);
    let subscription = client.subscribe_to(&claim).await;
    let op = recorder.acquire(&claim.name, owner, claim.mode);
    let grant = loop {
        if let Attempt::Granted(grant) = client.attempt(&claim).await {
            break grant;
        }
        let retry = Duration::from_millis(if enqueue { 250 } else { 10 });
        let _ = tokio::time::timeout(retry, subscription.hint()).await;
    };
    recorder.granted(op, grant.token, Moment::now() + LONG / 2);
    tokio::task::yield_now().await;
    let release = recorder.release(op, owner);
    assert!(client.release(&claim).await, "{owner} held until now");
    recorder.ok(release, Answer::Released);
}
