//! The three steps of every sale: read, decide, write back.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Error;
use lockkeeper::Token;
use tokio::sync::watch;

use super::item::Item;
use super::lock::{Held, Locks};
use super::stock::{Fenced, Sale, Stock};

/// One instance's shop.
#[derive(Debug)]
pub(super) struct Shop {
    pub locks: Locks,
    pub stock: std::sync::Arc<dyn Stock>,
    pub port: u16,
    /// How long to wait for a lock.
    pub wait: Duration,
    /// How long a decision takes, between reading and writing.
    pub work: Duration,
    /// No decision is made before this is true.
    pub decides: watch::Receiver<bool>,
    pub waiting: AtomicU64,
    pub deciding: AtomicU64,
}

/// What became of a customer.
#[derive(Debug)]
pub(super) enum Outcome {
    /// One was sold; this is what is left.
    Sold(i64, Option<Token>),
    /// There was none left.
    SoldOut(i64, Option<Token>),
    /// Others had the lock for too long. Nothing was sold.
    Busy,
    /// Someone with a higher token was at the stock: the lock was lost meanwhile. Nothing was sold.
    Fenced(Token),
    /// The lock or the stock could not be used. Nothing was sold.
    Unavailable(Error),
    /// The stock did not say whether it wrote the sale.
    Unknown(Error),
}

impl Shop {
    /// Sells one to the customer that asks.
    pub async fn sell(&self, item: Item, locked: bool) -> Outcome {
        let held = if locked {
            self.waiting.fetch_add(1, SeqCst);
            let held = self.locks.acquire(&item.lock_name(), self.wait).await;
            self.waiting.fetch_sub(1, SeqCst);
            held
        } else {
            Ok(Some(Held::Nothing))
        };
        let held = match held {
            Ok(Some(held)) => held,
            Ok(None) => return Outcome::Busy,
            Err(error) => return Outcome::Unavailable(error.context("the lock cannot be used")),
        };
        let outcome = self.read_decide_write(item, held.token()).await;
        // What was sold is sold. A lock that could not be given back goes back by its lease, if it has one.
        let _ = held.release().await;
        outcome
    }

    async fn read_decide_write(&self, item: Item, token: Option<Token>) -> Outcome {
        let read = match self.stock.read(item, token).await {
            Ok(Fenced::Count(read)) => read,
            Ok(Fenced::Refused { .. }) => return refused(token),
            Err(error) => return Outcome::Unavailable(error.context("the stock cannot be read")),
        };
        if read < 1 {
            return Outcome::SoldOut(read, token);
        }
        self.deciding.fetch_add(1, SeqCst);
        // The sender may be gone.
        let _ = self.decides.clone().wait_for(|decides| *decides).await;
        if !self.work.is_zero() {
            tokio::time::sleep(self.work).await;
        }
        self.deciding.fetch_sub(1, SeqCst);
        let sale = Sale {
            item,
            read,
            token,
            port: self.port,
        };
        match self.stock.write(sale).await {
            Ok(Fenced::Count(left)) => Outcome::Sold(left, token),
            Ok(Fenced::Refused { .. }) => refused(token),
            Err(error) => Outcome::Unknown(error.context("the stock did not confirm the sale")),
        }
    }
}

fn refused(token: Option<Token>) -> Outcome {
    // Only who shows a token is refused.
    token.map_or(Outcome::Busy, Outcome::Fenced)
}
