//! The Lockkeeper side of tests that put whole processes against clients in other languages.
//!
//! ```text
//! interop-taker hold    --store URL --kind KIND --name N --lease D
//! interop-taker add     --store URL --kind KIND --name N --counter KEY --rounds N [--pause D] [--counter-at URL]
//! interop-taker contend --store URL --name N --for D [--hold D] [--tasks N]
//! ```
//!
//! `KIND` is `lock`, `fair`, `read`, `write` or `permits` (one of one). `hold` prints `held` and holds until its
//! input ends. `add` and `contend` print `ready` and begin when a line comes. `add` adds one to a counter in Redis
//! (read, pause, write; in the store's own unless another is given) and prints `added N`; `contend` takes one lock again and again and prints `turns N`.

mod options;

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Guard, Lockkeeper};
use lockkeeper_testkit::taking::Failure;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::options::Options;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let options = Options::read(arguments)?;
    let keeper = Lockkeeper::builder().url(options.need("store")?);
    let keeper = keeper.lease(options.duration("lease", Duration::from_secs(30))?);
    let keeper = keeper.connect().await?;
    match command.as_str() {
        "hold" => hold(&keeper, &options).await,
        "add" => add(&keeper, &options).await,
        "contend" => contend(&keeper, &options).await,
        other => Err(format!("{other:?} is none of hold, add, contend").into()),
    }
}

async fn line() -> Result<Option<String>, Failure> {
    Ok(BufReader::new(stdin()).lines().next_line().await?)
}

async fn ready() -> Result<(), Failure> {
    println!("ready");
    line().await?.ok_or("the input ended before the start")?;
    Ok(())
}

async fn acquire(keeper: &Lockkeeper, kind: &str, name: &str) -> Result<Guard, Failure> {
    Ok(match kind {
        "lock" => keeper.lock(name)?.acquire().await?,
        "fair" => keeper.lock(name)?.fair()?.acquire().await?,
        "read" => keeper.rwlock(name)?.read().await?.into(),
        "write" => keeper.rwlock(name)?.write().await?.into(),
        "permits" => keeper.semaphore(name, 1)?.acquire(1).await?,
        other => return Err(format!("{other:?} is no kind of lock").into()),
    })
}

async fn hold(keeper: &Lockkeeper, options: &Options) -> Result<(), Failure> {
    let guard = acquire(keeper, options.need("kind")?, options.need("name")?).await?;
    println!("held");
    while line().await?.is_some() {}
    guard.release().await?;
    Ok(())
}

async fn add(keeper: &Lockkeeper, options: &Options) -> Result<(), Failure> {
    let (kind, name) = (options.need("kind")?, options.need("name")?);
    let counter = options.need("counter")?;
    let rounds: u64 = options.number("rounds", 0)?;
    let pause = options.duration("pause", Duration::ZERO)?;
    let at = match options.get("counter-at") {
        Some(url) => url,
        None => options.need("store")?,
    };
    let client = redis::Client::open(at)?;
    // The default gives up after half a second, which a busy machine may take.
    let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut redis = client
        .get_multiplexed_async_connection_with_config(&patient)
        .await?;
    ready().await?;
    for _ in 0..rounds {
        let guard = acquire(keeper, kind, name).await?;
        let get = redis::cmd("GET").arg(counter).to_owned();
        let before: Option<u64> = get.query_async(&mut redis).await?;
        tokio::time::sleep(pause).await;
        let set = redis::cmd("SET")
            .arg(counter)
            .arg(before.unwrap_or(0) + 1)
            .to_owned();
        let () = set.query_async(&mut redis).await?;
        guard.release().await?;
    }
    keeper.close().await;
    println!("added {rounds}");
    Ok(())
}

async fn contend(keeper: &Lockkeeper, options: &Options) -> Result<(), Failure> {
    let lock = keeper.lock(options.need("name")?)?;
    let time = options.duration("for", Duration::ZERO)?;
    let hold = options.duration("hold", Duration::ZERO)?;
    let tasks: u32 = options.number("tasks", 1)?;
    ready().await?;
    let end = Moment::now() + time;
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let mut turns = 0;
                while Moment::now() < end {
                    let guard = lock.acquire().await?;
                    turns += 1;
                    if !hold.is_zero() {
                        tokio::time::sleep(hold).await;
                    }
                    guard.release().await?;
                }
                Ok::<u64, lockkeeper::Error>(turns)
            })
        })
        .collect();
    let mut turns = 0;
    for task in tasks {
        turns += task.await??;
    }
    keeper.close().await;
    println!("turns {turns}");
    Ok(())
}
