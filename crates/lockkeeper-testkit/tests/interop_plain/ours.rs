//! A process of ours among the peers of `interop/plain`: what they do on the order `load`, with Lockkeeper.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
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
    let keeper = Lockkeeper::builder()
        .url(&format!("{url}?dialect=plain"))
        .lease(Duration::from_millis(load.ttl_ms));
    let keeper = keeper.connect().await?;
    let lock = keeper.lock(&load.name)?;
    let mut counter = Counter::connect(url)?;
    for _ in 0..load.rounds {
        let guard = lock.acquire().await?;
        let value = counter.get(&load.counter)?;
        tokio::time::sleep(Duration::from_millis(load.pause_ms)).await;
        counter.set(&load.counter, value + 1)?;
        let outcome = guard.release().await?;
        if outcome != ReleaseOutcome::Released {
            return Err(format!("the lock was lost: {outcome:?}").into());
        }
    }
    keeper.close().await;
    Ok(serde_json::json!({ "ok": true, "done": load.rounds }))
}

/// GET and SET on a connection of their own.
struct Counter(BufReader<TcpStream>);

impl Counter {
    fn connect(url: &str) -> Result<Counter, Failure> {
        let address = url.trim_start_matches("redis://");
        let address = address.split('/').next().unwrap_or(address);
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Counter(BufReader::new(stream)))
    }

    fn get(&mut self, key: &str) -> Result<u64, Failure> {
        match self.ask(&["GET", key])?.as_str() {
            "$-1" => Ok(0),
            _ => Ok(self.line()?.parse()?),
        }
    }

    fn set(&mut self, key: &str, value: u64) -> Result<(), Failure> {
        match self.ask(&["SET", key, &value.to_string()])?.as_str() {
            "+OK" => Ok(()),
            other => Err(other.into()),
        }
    }

    fn ask(&mut self, parts: &[&str]) -> Result<String, Failure> {
        let mut request = format!("*{}\r\n", parts.len());
        for part in parts {
            request += &format!("${}\r\n{part}\r\n", part.len());
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        self.line()
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
