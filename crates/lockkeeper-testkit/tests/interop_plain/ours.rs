//! A process of ours among the peers of `interop/plain`: what they do on the order `load`, with Lockkeeper.

use std::io::BufRead;
use std::time::Duration;

use lockkeeper::{Lockkeeper, ReleaseOutcome};
use serde::Deserialize;

type Failure = Box<dyn std::error::Error>;

#[derive(Deserialize)]
struct Load {
    name: String,
    counter: String,
    rounds: u32,
    pause_ms: u64,
    ttl_ms: u64,
}

fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("give the server's URL")?;
    let runtime = tokio::runtime::Runtime::new()?;
    for line in std::io::stdin().lock().lines() {
        let load: Load = serde_json::from_str(&line?)?;
        println!("{}", runtime.block_on(work(&url, &load))?);
    }
    Ok(())
}

async fn work(url: &str, load: &Load) -> Result<serde_json::Value, Failure> {
    // Several servers are a quorum; what is counted is on the first.
    let (url, store) = match url.split_once(',') {
        None => (url, format!("{url}?dialect=plain")),
        Some((first, _)) => {
            let hosts = url.replace("redis://", "").replace("/0", "");
            let options = "dialect=plain&max_lease=60s&quarantine=off";
            (first, format!("redlock://{hosts}?{options}"))
        }
    };
    let keeper = Lockkeeper::builder()
        .url(&store)
        .lease(Duration::from_millis(load.ttl_ms));
    let keeper = keeper.connect().await?;
    let lock = keeper.lock(&load.name)?;
    let counter = redis::Client::open(url)?;
    // The default gives up after half a second, which a busy machine may take.
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut counter = counter
        .get_multiplexed_async_connection_with_config(&patient)
        .await?;
    for _ in 0..load.rounds {
        let guard = lock.acquire().await?;
        let mut get = redis::cmd("GET");
        let value: Option<u64> = get.arg(&load.counter).query_async(&mut counter).await?;
        tokio::time::sleep(Duration::from_millis(load.pause_ms)).await;
        let mut set = redis::cmd("SET");
        set.arg(&load.counter).arg(value.unwrap_or(0) + 1);
        set.exec_async(&mut counter).await?;
        let outcome = guard.release().await?;
        if outcome != ReleaseOutcome::Released {
            return Err(format!("the lock was lost: {outcome:?}").into());
        }
    }
    keeper.close().await;
    Ok(serde_json::json!({ "ok": true, "done": load.rounds }))
}
