//! Where the counts are: one file a kind.
//!
//! A sale reads, decides and writes back, in separate steps on purpose: the lock is what makes them one. A write and
//! its line in the ledger are one step, so that the ledger is right whichever process is killed, and shows for certain
//! what was oversold and what was lost.

mod redis;
mod sqlite;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use ::redis::ConnectionInfo;
use anyhow::Result;
use lockkeeper::Token;
use lockkeeper::url::{StoreUrl, state_folder};
use serde::{Deserialize, Serialize};

use super::item::Item;
use crate::words;

/// The environment variable that names the stock when no argument does.
pub const STOCK_VARIABLE: &str = "LOCKKEEPER_SHOP_STOCK";
/// How much of the inventory there is in a new stock.
pub const USUAL_SIZE: u32 = 5_000;

/// What a stock will answer.
pub(crate) type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// What a stock answers to someone with a token, or without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fenced {
    /// How many there are.
    Count(i64),
    /// A holder with a higher token was here: the caller no longer holds the lock.
    Refused {
        /// The highest token that was shown.
        seen: u64,
    },
}

/// What is written when one is sold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sale {
    pub item: Item,
    /// How many were read. Not compared with how many there are: that they are the same is what the lock is for.
    pub read: i64,
    pub token: Option<Token>,
    /// The instance that sells.
    pub port: u16,
}

/// Counts, and a ledger of all sales.
pub(crate) trait Stock: Send + Sync + fmt::Debug {
    /// How many there are. A token is remembered: a caller that read before with a lower one cannot write any more.
    fn read(&self, item: Item, token: Option<Token>) -> Answering<'_, Fenced>;

    /// Writes what is left after a sale and a line in the ledger; answers what is left.
    fn write(&self, sale: Sale) -> Answering<'_, Fenced>;

    /// The books.
    fn accounts(&self) -> Answering<'_, Vec<Account>>;

    /// Puts everything back to its start, with so much in the inventory. Fences stay.
    fn reset(&self, size: u32) -> Answering<'_, ()>;
}

/// What the books say about an item.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub item: String,
    /// How many there were at the start.
    pub opening: i64,
    /// How many there are by the count.
    pub stock: i64,
    /// How many were sold by the ledger.
    pub sales: i64,
}

impl Account {
    /// How many more were sold than there ever were.
    pub fn oversold(&self) -> i64 {
        (self.sales - self.opening).max(0)
    }

    /// How many sales the count does not know of: someone wrote over them.
    pub fn lost_updates(&self) -> i64 {
        self.sales - (self.opening - self.stock)
    }
}

/// How many families' accounts are shown.
const MOST_FAMILIES: u32 = 1_000;

/// Where a stock is.
enum Place {
    File(PathBuf),
    Server(Box<ConnectionInfo>),
}

impl Place {
    fn parse(text: &str) -> Result<Place> {
        let url = StoreUrl::parse(text)?;
        Ok(match url.scheme() {
            "sqlite" => Place::File(url.path()?),
            "redis" => Place::Server(Box::new(redis::server(text)?)),
            other => anyhow::bail!(words::no_stock(other)),
        })
    }
}

/// Whether a URL can name a stock, without a look at it.
///
/// # Errors
/// What is wrong with it, and what to write instead; a password is not repeated.
pub fn check(text: &str) -> Result<()> {
    Place::parse(text).map(drop)
}

/// Opens the stock that a URL names, and makes it if it is new, with so much in the inventory.
pub(crate) async fn open(text: &str, size: u32) -> Result<Arc<dyn Stock>> {
    Ok(match Place::parse(text)? {
        Place::File(path) => Arc::new(sqlite::SqliteStock::open(&path, size).await?),
        Place::Server(server) => Arc::new(redis::RedisStock::open(*server, size).await?),
    })
}

/// Puts the stock of a URL back to its start, with so much in the inventory.
///
/// # Errors
/// When it cannot be opened.
pub async fn reset(text: &str, size: u32) -> Result<()> {
    open(text, size).await?.reset(size).await
}

/// The URL of a stock that nobody named: what `LOCKKEEPER_SHOP_STOCK` says, else a SQLite file in the state folder.
///
/// # Errors
/// When there is no such folder.
pub fn usual() -> Result<String> {
    match std::env::var(STOCK_VARIABLE) {
        Ok(url) if !url.is_empty() => return Ok(url),
        Err(std::env::VarError::NotUnicode(_)) => anyhow::bail!(words::not_text(STOCK_VARIABLE)),
        _ => {}
    }
    let folder = state_folder().map(|folder| folder.join("lockkeeper"));
    let path = folder.and_then(|folder| folder.join("shop.db").to_str().map(str::to_owned));
    match path {
        Some(path) => Ok(format!("sqlite:{path}")),
        None => anyhow::bail!(words::NO_HOME_FOR_STOCK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_show_what_was_oversold_and_what_was_lost() {
        let account = |stock, sales| Account {
            item: "x".into(),
            opening: 5,
            stock,
            sales,
        };
        let kept = account(2, 3);
        assert_eq!((kept.oversold(), kept.lost_updates()), (0, 0));
        // Two read 5, both wrote 4.
        let lost = account(4, 2);
        assert_eq!((lost.oversold(), lost.lost_updates()), (0, 1));
        // Ten read 5, and each took one off.
        let oversold = account(-5, 10);
        assert_eq!((oversold.oversold(), oversold.lost_updates()), (5, 0));
    }
}
