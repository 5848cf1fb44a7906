//! Locks with rslock. See ../../README.md.

mod harness;

use std::time::Duration;

use harness::{Failure, Library};
use rslock::{LockGuard, LockManager};

const LEASE: Duration = Duration::from_secs(30);

struct Rslock(LockManager);

impl Library for Rslock {
    type Lock = String;
    type Guard = LockGuard;

    fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(name.to_owned())
    }

    /// Its defaults: rounds of three tries up to 200 ms apart, for as long as it takes.
    async fn acquire(&self, lock: &String) -> Result<LockGuard, Failure> {
        Ok(self.0.acquire(lock.as_str(), LEASE).await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<(), Failure> {
        guard.release().await;
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let urls = std::env::args().nth(1).ok_or("give the server's URL")?;
    let urls: Vec<&str> = urls.split(',').collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let library = Rslock(LockManager::new(urls));
    harness::obey(&runtime, "rslock 0.10.0", library)
}
