//! One keeper for asynchronous code and for code that blocks its thread: `cargo run -p lockkeeper --example spawn_blocking`.
//!
//! Work that blocks belongs into `spawn_blocking`. It acquires with the blocking keeper, whose guards stay on their thread,
//! and long work looks at its guard now and then: a thread cannot be stopped from outside.

use std::time::Duration;

use lockkeeper::{Error, Lockkeeper, blocking};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let keeper = Lockkeeper::connect("memory:").await?;
    let works = (1..=3).map(|number| {
        let keeper = keeper.blocking();
        tokio::task::spawn_blocking(move || build_report(&keeper, number))
    });
    for work in works.collect::<Vec<_>>() {
        println!("{}", work.await??);
    }
    // The same lock, from asynchronous code.
    let guard = keeper.lock("report")?.acquire().await?;
    guard.release().await?;
    Ok(())
}

/// Pages one after the other, for as long as the lock is held.
fn build_report(keeper: &blocking::Lockkeeper, number: u32) -> Result<String, Error> {
    let guard = keeper.lock("report")?.acquire()?;
    let mut pages = 0;
    let built = guard.try_run(|| {
        while pages < 3 && guard.is_held() {
            std::thread::sleep(Duration::from_millis(2));
            pages += 1;
        }
        Ok::<_, Error>(format!(
            "report {number}: {pages} pages under token {}",
            guard.token()
        ))
    });
    let report = built?;
    // A lock that was lost meanwhile is an error here at the latest: then the report may not be the only one.
    guard.release()?;
    Ok(report)
}
