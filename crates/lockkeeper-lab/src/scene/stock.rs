//! The stock that actors sell from: a number that is read, thought about and written back, and a ledger of every sale.
//!
//! It is the resource that a lock protects, so it does not protect itself: a write does not look whether the number is
//! still the one that was read. It does look at tokens that it is shown, and refuses one lower than the highest.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rusqlite::{Connection, TransactionBehavior, params};

/// A stock in a file, for any number of processes.
#[derive(Debug)]
pub struct Stock(Connection);

/// What came of a read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// What is left.
    Left(i64),
    /// The token is lower than this one, which was here before.
    Refused {
        /// The highest token.
        highest: u64,
    },
}

/// What the books say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Books {
    /// How many there were.
    pub initial: i64,
    /// How many are left, by the number.
    pub left: i64,
    /// How many sales there are.
    pub sold: i64,
    /// How many of them wrote over a number that they had not read.
    pub lost_updates: i64,
}

impl Books {
    /// How many were sold that there never were.
    pub fn oversold(&self) -> i64 {
        (self.sold - self.initial).max(0)
    }
}

impl Stock {
    /// A new stock.
    pub fn create(path: &Path, initial: i64) -> Result<Stock> {
        let stock = Stock::open(path)?;
        stock.0.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE stock (initial INTEGER NOT NULL, number INTEGER NOT NULL, fence INTEGER NOT NULL);
             CREATE TABLE ledger (seq INTEGER PRIMARY KEY, who TEXT NOT NULL, token INTEGER, base INTEGER NOT NULL);",
        )?;
        let new = "INSERT INTO stock VALUES (?1, ?1, 0)";
        stock.0.execute(new, [initial])?;
        Ok(stock)
    }

    /// One that there is.
    pub fn open(path: &Path) -> Result<Stock> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        Ok(Stock(connection))
    }

    /// Reads the number in order to change it. A token that is shown shuts out lower ones from now on.
    pub fn read(&mut self, token: Option<u64>) -> Result<Answer> {
        self.with(token, |_| Ok(()))
    }

    /// Writes one less than was read, and notes the sale.
    pub fn sell(&mut self, who: &str, token: Option<u64>, base: i64) -> Result<Answer> {
        self.with(token, |stock| {
            stock.execute("UPDATE stock SET number = ?1", [base - 1])?;
            let sale = "INSERT INTO ledger (who, token, base) VALUES (?1, ?2, ?3)";
            stock.execute(sale, params![who, token.map(u64::cast_signed), base])?;
            Ok(())
        })
    }

    fn with(
        &mut self,
        token: Option<u64>,
        change: impl FnOnce(&Connection) -> Result<()>,
    ) -> Result<Answer> {
        let transaction = self
            .0
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(token) = token {
            let fence = transaction.query_row("SELECT fence FROM stock", [], |row| row.get(0))?;
            let highest = i64::cast_unsigned(fence);
            if token < highest {
                return Ok(Answer::Refused { highest });
            }
            transaction.execute("UPDATE stock SET fence = ?1", [token.cast_signed()])?;
        }
        change(&transaction)?;
        let left = transaction.query_row("SELECT number FROM stock", [], |row| row.get(0))?;
        transaction.commit()?;
        Ok(Answer::Left(left))
    }

    /// What there is to say at the end.
    pub fn books(&self) -> Result<Books> {
        let (initial, left) = self
            .0
            .query_row("SELECT initial, number FROM stock", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let mut sales = self.0.prepare("SELECT base FROM ledger ORDER BY seq")?;
        let bases = sales.query_map([], |row| row.get(0))?;
        let bases: Vec<i64> = bases.collect::<Result<_, _>>()?;
        let mut number = initial;
        let mut lost_updates = 0;
        for &base in &bases {
            lost_updates += i64::from(base != number);
            number = base - 1;
        }
        Ok(Books {
            initial,
            left,
            sold: bases.len() as i64,
            lost_updates,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn stock(initial: i64) -> (tempfile::TempDir, Stock) {
        let folder = tempfile::tempdir().unwrap();
        let stock = Stock::create(&folder.path().join("stock.db"), initial).unwrap();
        (folder, stock)
    }

    #[test]
    fn two_who_read_the_same_sell_one_twice() {
        let (_folder, mut stock) = stock(1);
        assert_eq!(stock.read(None).unwrap(), Answer::Left(1));
        stock.sell("A", None, 1).unwrap();
        stock.sell("B", None, 1).unwrap();
        let books = stock.books().unwrap();
        assert_eq!((books.sold, books.left, books.lost_updates), (2, 0, 1));
        assert_eq!(books.oversold(), 1);
    }

    #[test]
    fn a_reader_with_a_higher_token_shuts_out_the_late_writer() {
        let (_folder, mut stock) = stock(5);
        assert_eq!(stock.read(Some(7)).unwrap(), Answer::Left(5));
        assert_eq!(stock.read(Some(8)).unwrap(), Answer::Left(5));
        let late = stock.sell("A", Some(7), 5).unwrap();
        assert_eq!(late, Answer::Refused { highest: 8 });
        assert_eq!(stock.sell("B", Some(8), 5).unwrap(), Answer::Left(4));
        assert_eq!(stock.books().unwrap().sold, 1);
    }
}
