//! Stock in a SQLite file, for the instances of one machine.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::Token;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::{Account, Answering, Fenced, MOST_FAMILIES, Sale, Stock};
use crate::shop::item::{GOODS, GOODS_SIZE, Item};
use crate::words;

/// Marks the file as ours: "shop".
const APPLICATION_ID: i32 = 0x73_68_6f_70;
/// How long another process may take with the file.
const PATIENCE: Duration = Duration::from_secs(10);

/// A step, done by the thread that has the connection.
type Step = Box<dyn FnOnce(&mut Connection) + Send>;

/// A SQLite file, and a thread that waits for it so that no task has to.
#[derive(Debug)]
pub struct SqliteStock {
    steps: mpsc::Sender<Step>,
}

impl SqliteStock {
    pub async fn open(path: &Path, size: u32) -> Result<SqliteStock> {
        let path = path.to_owned();
        let opening = tokio::task::spawn_blocking(move || {
            let connection = connect(&path, size);
            connection.with_context(|| words::stock_not_opened(&path))
        });
        let mut connection = opening.await??;
        let (sender, steps) = mpsc::channel::<Step>();
        let work = move || {
            for step in steps {
                step(&mut connection);
            }
        };
        std::thread::Builder::new()
            .name("shop-stock".into())
            .spawn(work)?;
        Ok(SqliteStock { steps: sender })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answering<'_, T> {
        let (sender, answer) = oneshot::channel();
        let step: Step = Box::new(move |connection| {
            let _ = sender.send(work(connection));
        });
        Box::pin(async move {
            let sent = self.steps.send(step);
            sent.ok().context("the stock is closed")?;
            Ok(answer.await??)
        })
    }

    /// One transaction.
    fn transact<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Answering<'_, T> {
        self.run(|connection| transact(connection, change))
    }
}

fn transact<T>(
    connection: &mut Connection,
    change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    // Immediate: one that reads first and writes then could not wait for another that writes.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let result = change(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

fn connect(path: &Path, size: u32) -> Result<Connection> {
    check_folder(path)?;
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    if !is_ours_or_new(&connection)? {
        bail!(words::FILE_OF_OTHERS);
    }
    switch_to_wal(&connection)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    transact(&mut connection, |transaction| {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.execute_batch(include_str!("schema.sql"))?;
        let opened = "SELECT count(*) FROM opening";
        let opened: i64 = transaction.query_row(opened, (), |row| row.get(0))?;
        match opened {
            0 => stock_up(transaction, size),
            _ => Ok(()),
        }
    })?;
    Ok(connection)
}

/// As stores of locks do it: the usual place is ours to make. Any other that is not there may be a typing error, and what
/// is made there would be another stock.
fn check_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let Some(folder) = folder.filter(|folder| !folder.exists()) else {
        return Ok(());
    };
    if folder.file_name().is_none_or(|name| name != "lockkeeper") {
        bail!(words::no_folder(folder));
    }
    Ok(std::fs::create_dir_all(folder)?)
}

fn is_ours_or_new(connection: &Connection) -> rusqlite::Result<bool> {
    // One snapshot: another instance may be making the same file just now.
    let snapshot = connection.unchecked_transaction()?;
    let id: i32 = snapshot.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = snapshot.query_row(tables, (), |row| row.get(0))?;
    Ok(id == APPLICATION_ID || (id == 0 && tables == 0))
}

/// SQLite does not wait by itself here when another process switches at the same time.
fn switch_to_wal(connection: &Connection) -> rusqlite::Result<()> {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let switched = connection.pragma_update(None, "journal_mode", "WAL");
        match switched {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && std::time::Instant::now() < end =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            switched => return switched,
        }
    }
}

/// Everything as it is at the start.
fn stock_up(transaction: &Transaction<'_>, size: u32) -> rusqlite::Result<()> {
    for table in ["ledger", "family_reward_record", "opening"] {
        transaction.execute(&format!("DELETE FROM {table}"), ())?;
    }
    let open = |item: Item, size: i64| {
        let open = "INSERT INTO opening (item, size) VALUES (?, ?)";
        transaction.execute(open, (item.to_string(), size))
    };
    for item in [Item::Inventory, Item::Product] {
        let fill = "INSERT OR REPLACE INTO inventory (item, stock) VALUES (?, ?)";
        transaction.execute(fill, (item.to_string(), size))?;
        open(item, size.into())?;
    }
    for (id, name) in GOODS {
        let fill = "INSERT OR REPLACE INTO good (id, good_name, good_counts) VALUES (?, ?, ?)";
        transaction.execute(fill, (id, name, GOODS_SIZE))?;
        open(Item::Good(id), GOODS_SIZE)?;
    }
    Ok(())
}

/// Remembers a token, unless a higher one was shown before: that is answered.
fn admit(
    transaction: &Transaction<'_>,
    item: Item,
    token: Option<Token>,
) -> rusqlite::Result<Option<u64>> {
    let Some(token) = token else { return Ok(None) };
    let mut admit = transaction.prepare_cached(
        "INSERT INTO fence (item, token) VALUES (?, ?)
         ON CONFLICT (item) DO UPDATE SET token = excluded.token WHERE token <= excluded.token",
    )?;
    let changed = admit.execute((item.to_string(), token.get().cast_signed()))?;
    if changed == 1 {
        return Ok(None);
    }
    let seen: i64 = transaction
        .prepare_cached("SELECT token FROM fence WHERE item = ?")?
        .query_row([item.to_string()], |row| row.get(0))?;
    Ok(Some(seen.cast_unsigned()))
}

fn count(connection: &Connection, item: Item) -> rusqlite::Result<i64> {
    match item {
        Item::Inventory | Item::Product => connection
            .prepare_cached("SELECT stock FROM inventory WHERE item = ?")?
            .query_row([item.to_string()], |row| row.get(0)),
        Item::Good(id) => connection
            .prepare_cached("SELECT good_counts FROM good WHERE id = ?")?
            .query_row([id], |row| row.get(0)),
        Item::Reward { family, kind } => connection
            .prepare_cached(
                "SELECT 1 - count(*) FROM family_reward_record WHERE family_id = ? AND reward_type = ?",
            )?
            .query_row([family, kind], |row| row.get(0)),
    }
}

/// The change itself. A good is counted down; the inventory is set to what was read, less one.
fn take_one(transaction: &Transaction<'_>, sale: Sale) -> rusqlite::Result<()> {
    let changed = match sale.item {
        Item::Inventory | Item::Product => transaction
            .prepare_cached("UPDATE inventory SET stock = ? WHERE item = ?")?
            .execute((sale.read - 1, sale.item.to_string()))?,
        Item::Good(id) => transaction
            .prepare_cached("UPDATE good SET good_counts = good_counts - 1 WHERE id = ?")?
            .execute([id])?,
        Item::Reward { family, kind } => transaction
            .prepare_cached(
                "INSERT INTO family_reward_record (family_id, reward_type) VALUES (?, ?)",
            )?
            .execute([family, kind])?,
    };
    match changed {
        1 => Ok(()),
        _ => Err(rusqlite::Error::QueryReturnedNoRows),
    }
}

impl Stock for SqliteStock {
    fn read(&self, item: Item, token: Option<Token>) -> Answering<'_, Fenced> {
        self.run(move |connection| {
            let read = count(connection, item)?;
            // No write follows when there is none left: nothing to be fenced, and nothing to be written here.
            if token.is_none() || read < 1 {
                return Ok(Fenced::Count(read));
            }
            transact(connection, |transaction| {
                if let Some(seen) = admit(transaction, item, token)? {
                    return Ok(Fenced::Refused { seen });
                }
                count(transaction, item).map(Fenced::Count)
            })
        })
    }

    fn write(&self, sale: Sale) -> Answering<'_, Fenced> {
        self.transact(move |transaction| {
            if let Some(seen) = admit(transaction, sale.item, sale.token)? {
                return Ok(Fenced::Refused { seen });
            }
            take_one(transaction, sale)?;
            let left = count(transaction, sale.item)?;
            let token = sale.token.map(|token| token.get().cast_signed());
            transaction
                .prepare_cached(
                    "INSERT INTO ledger (item, port, remaining, token) VALUES (?, ?, ?, ?)",
                )?
                .execute((sale.item.to_string(), sale.port, left, token))?;
            Ok(Fenced::Count(left))
        })
    }

    fn accounts(&self) -> Answering<'_, Vec<Account>> {
        self.transact(accounts)
    }

    fn reset(&self, size: u32) -> Answering<'_, ()> {
        self.transact(move |transaction| stock_up(transaction, size))
    }
}

fn accounts(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<Account>> {
    let goods = GOODS.map(|(id, _)| Item::Good(id));
    let mut items = [&[Item::Inventory, Item::Product][..], &goods].concat();
    let mut families = transaction.prepare_cached(
        "SELECT DISTINCT family_id, reward_type FROM family_reward_record
         ORDER BY family_id, reward_type LIMIT ?",
    )?;
    let families = families.query_map([MOST_FAMILIES], |row| {
        Ok(Item::Reward {
            family: row.get(0)?,
            kind: row.get(1)?,
        })
    })?;
    for family in families {
        items.push(family?);
    }
    let mut openings = transaction.prepare_cached("SELECT size FROM opening WHERE item = ?")?;
    let mut ledger = transaction.prepare_cached("SELECT count(*) FROM ledger WHERE item = ?")?;
    let mut account = |item: Item| {
        let name = item.to_string();
        let opening = openings.query_row([&name], |row| row.get(0)).optional()?;
        Ok(Account {
            // A family has one reward coming.
            opening: opening.unwrap_or(1),
            stock: count(transaction, item)?,
            sales: ledger.query_row([&name], |row| row.get(0))?,
            item: name,
        })
    };
    items.into_iter().map(&mut account).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_tells_the_token_that_was_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let stock = SqliteStock::open(&folder.path().join("shop.db"), 5).await;
        let stock = stock.expect("a stock");
        let read = |token| stock.read(Item::Inventory, Some(Token::new(token)));
        assert_eq!(read(9).await.expect("reads"), Fenced::Count(5));
        let refused = read(7).await.expect("reads");
        assert_eq!(refused, Fenced::Refused { seen: 9 });
    }

    #[test]
    fn a_stock_that_many_open_first_is_opened_by_all() {
        for round in 0..100 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("shop.db");
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        start.wait();
                        let opened = connect(&path, 7).map(drop);
                        assert!(opened.is_ok(), "round {round}: {opened:?}");
                    });
                }
            });
        }
    }
}
