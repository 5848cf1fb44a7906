//! A holder that sleeps past its lease wakes up and writes late; the fence refuses it.
//!
//! `cargo run -p lockkeeper --example fencing`

use std::time::Duration;

use lockkeeper::{FenceGate, Lockkeeper};

#[tokio::main]
async fn main() -> Result<(), lockkeeper::Error> {
    let keeper = Lockkeeper::connect("memory:").await?;
    let resource = FenceGate::new();

    let lock = keeper
        .lock("ledger")?
        .fixed_lease(Duration::from_millis(200))?;
    let slow = lock.acquire().await?;
    slow.lost().await; // it did not finish in time
    println!(
        "the first holder lost the lock; is_held() = {}",
        slow.is_held()
    );

    let next = lock.acquire().await?;
    println!(
        "the next one writes: admitted = {}",
        resource.admit(next.token())
    );
    let late = resource.admit(slow.token());
    println!("the first one writes late: admitted = {late}");
    assert!(!late);
    next.release().await?;
    Ok(())
}
