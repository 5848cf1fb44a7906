//! A shop that never oversells: a hundred buyers, ten items, one lock.
//!
//! `cargo run -p lockkeeper --example inventory`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockkeeper::Lockkeeper;

#[tokio::main]
async fn main() -> Result<(), lockkeeper::Error> {
    let keeper = Lockkeeper::connect("memory:").await?;
    let stock = Arc::new(AtomicU32::new(10));
    let buyers: Vec<_> = (0..100)
        .map(|_| {
            let (keeper, stock) = (keeper.clone(), stock.clone());
            tokio::spawn(async move {
                let guard = keeper.lock("stock:42")?.acquire().await?;
                // Read, think, write: wrong without a lock.
                let left = stock.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                if left > 0 {
                    stock.store(left - 1, Ordering::Relaxed);
                }
                guard.release().await?;
                Ok::<bool, lockkeeper::Error>(left > 0)
            })
        })
        .collect();
    let mut sold = 0;
    for buyer in buyers {
        sold += u32::from(buyer.await.expect("no panic")?);
    }
    println!("sold {sold}, left {}", stock.load(Ordering::Relaxed));
    assert_eq!((sold, stock.load(Ordering::Relaxed)), (10, 0));
    Ok(())
}
