//! What a figure stands beside: the least that the same work could cost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::clock::{Clock, Moment};
use rusqlite::{Connection, Statement, params};

use super::lap::{BlockingPair, Lap, Pair, Window, repeat_blocking};
use super::side::Side;
use super::tally::Tally;

/// A lock that is no more than a lock of this process.
#[derive(Clone, Default)]
pub struct Mutex(Arc<tokio::sync::Mutex<()>>);

impl Pair for Mutex {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        let guard = self.0.lock().await;
        lap.acquired().await;
        drop(guard);
        Ok(())
    }
}

/// The statements of an acquire and a release that nobody contests, as the sqlite store runs them.
mod sql {
    pub const BEGIN: &str = "BEGIN IMMEDIATE";
    pub const COMMIT: &str = "COMMIT";
    pub const LOAD: &str = include_str!("../../../lockkeeper/src/store/sqlite/load.sql");
    pub const LEASE_START: &str = "INSERT INTO lease VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)";
    pub const LEASE_END: &str = "DELETE FROM lease WHERE name=?1 AND claim=?2";
    pub const FENCE_START: &str = "INSERT OR IGNORE INTO fence (name, last) VALUES (?1, 0)";
    pub const FENCE_MOVE: &str = "UPDATE fence SET last=?2 WHERE name=?1";
}

/// After how many pairs the log is copied back: the store does it after about 1000 pages, and a pair writes 3.
const TIDY_PAIRS: u32 = 333;
/// A log of this many pages is started over even if the writer has to wait for it.
const MAX_LOG_PAGES: i64 = 6000;

/// A Lockkeeper file of its own, on the same disk as the store, and a plain connection to it.
pub struct RawSqlite {
    conn: Connection,
    tidy: Sender<()>,
    /// As long as ours: a name is written several times in a pair.
    name: String,
    _folder: Folder,
}

impl RawSqlite {
    /// `store` is the file under test.
    pub fn open(store: &Path, unique: &str, name: String) -> Result<RawSqlite> {
        let folder = Folder::beside(store, unique)?;
        let path = folder.0.join("reference.db");
        drop(lockkeeper::store::sqlite::SqliteStore::open(&path)?);
        let conn = connect(&path)?;
        conn.execute(sql::FENCE_START, [&name])?;
        let log = connect(&path)?;
        let (tidy, due) = channel();
        std::thread::spawn(move || {
            while due.recv().is_ok() {
                // A failure shows in the figure of the reference, and nobody depends on the file.
                let _ = tidy_log(&log);
            }
        });
        Ok(RawSqlite {
            conn,
            tidy,
            name,
            _folder: folder,
        })
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "cache_size", -16_000)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

/// Copies the log back as the store does, beside the pairs: without it a log would grow for ever, and within
/// them it would wait for the disk.
fn tidy_log(log: &Connection) -> rusqlite::Result<()> {
    let checkpoint = |how| log.query_row(how, [], |row| Ok((row.get(1)?, row.get(2)?)));
    let (pages, copied): (i64, i64) = checkpoint("PRAGMA wal_checkpoint(PASSIVE)")?;
    if pages > MAX_LOG_PAGES && copied < pages {
        checkpoint("PRAGMA wal_checkpoint(RESTART)")?;
    }
    Ok(())
}

impl Side for RawSqlite {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let counted = repeat_blocking(Raw::prepare(self)?, window)?;
        Ok(Tally::of(vec![counted], window.length(), None))
    }
}

struct Raw<'c> {
    begin: Statement<'c>,
    load: Statement<'c>,
    lease_start: Statement<'c>,
    lease_end: Statement<'c>,
    fence_move: Statement<'c>,
    commit: Statement<'c>,
    claim: [u8; 24],
    name: &'c str,
    clock: Clock,
    tidy: &'c Sender<()>,
    pairs: u32,
}

impl<'c> Raw<'c> {
    fn prepare(raw: &'c RawSqlite) -> Result<Raw<'c>> {
        let conn = &raw.conn;
        Ok(Raw {
            begin: conn.prepare(sql::BEGIN)?,
            load: conn.prepare(sql::LOAD)?,
            lease_start: conn.prepare(sql::LEASE_START)?,
            lease_end: conn.prepare(sql::LEASE_END)?,
            fence_move: conn.prepare(sql::FENCE_MOVE)?,
            commit: conn.prepare(sql::COMMIT)?,
            claim: [7; 24],
            name: &raw.name,
            clock: Clock::real(),
            tidy: &raw.tidy,
            pairs: 0,
        })
    }

    /// Reads everything about the name; answers the last token.
    fn load(&mut self) -> Result<i64> {
        let mut last = 0;
        let mut rows = self.load.query([self.name])?;
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(0)? == 2 {
                last = row.get(6)?;
            }
        }
        Ok(last)
    }
}

impl BlockingPair for Raw<'_> {
    fn run(&mut self, lap: &mut Lap) -> Result<()> {
        self.begin.execute([])?;
        let (now, micros) = (Moment::now(), self.clock.unix_micros() as i64);
        let token = micros.max(self.load()? + 1);
        let expires = (now + Duration::from_secs(30)).as_nanos() as i64;
        self.lease_start.execute(params![
            self.name, self.claim, 1, 0, 0, 0, token, 1, expires, micros
        ])?;
        self.fence_move.execute(params![self.name, token])?;
        self.commit.execute([])?;

        lap.acquired_blocking();

        self.begin.execute([])?;
        self.load()?;
        self.lease_end.execute(params![self.name, self.claim])?;
        self.commit.execute([])?;

        self.pairs += 1;
        if self.pairs.is_multiple_of(TIDY_PAIRS) {
            let _ = self.tidy.send(());
        }
        Ok(())
    }
}

/// A folder that is removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn beside(file: &Path, unique: &str) -> Result<Folder> {
        let parent = file.parent().unwrap_or(Path::new(""));
        let path = std::path::absolute(parent.join(format!(".lockkeeper-bench-{unique}")))?;
        std::fs::create_dir(&path)
            .with_context(|| format!("{path:?}, the place of the reference, cannot be created"))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
