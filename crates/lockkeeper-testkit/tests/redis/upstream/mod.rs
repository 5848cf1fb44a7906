//! What Redisson's own tests do and what its users report, on a server of ours. `rows` has which row is which test.

mod fair;
mod locks;
mod outages;
mod shared;
mod waiting;

use std::time::Duration;

use lockkeeper::{Guard, HandOff, Lockkeeper, ReleaseOutcome};
use lockkeeper_testkit::servers::redis::RedisServer;

/// What is done by then is done in time.
const SOON: Duration = Duration::from_secs(20);

async fn keeper(server: &RedisServer) -> Lockkeeper {
    keeper_at(&server.url(), Duration::from_secs(30)).await
}

async fn keeper_at(url: &str, lease: Duration) -> Lockkeeper {
    let builder = Lockkeeper::builder().url(url).lease(lease);
    builder.connect().await.expect("connects")
}

/// One that hands nothing over inside: every acquire is one of the server's.
async fn plain_keeper(server: &RedisServer) -> Lockkeeper {
    let builder = Lockkeeper::builder().url(&server.url());
    let builder = builder.hand_off(HandOff::OFF);
    builder.connect().await.expect("connects")
}

/// Lets go of what is held.
async fn let_go(guard: impl Into<Guard>) {
    let guard = guard.into();
    let outcome = soon("the release", guard.release()).await;
    assert_eq!(outcome.expect("answers"), ReleaseOutcome::Released);
}

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let output = tokio::time::timeout(SOON, future).await;
    output.unwrap_or_else(|_| panic!("never: {what}"))
}

/// How long a key still has, in milliseconds.
fn ttl(server: &RedisServer, key: &str) -> i64 {
    let answer = server.strings(&["PTTL", key]);
    answer[0].parse().expect("a number")
}
