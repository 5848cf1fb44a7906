//! What a figure stands beside: the least that the same work could cost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
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
    pub const LOAD: &str = lockkeeper::store::sqlite::LOAD;
    pub const LEASE_START: &str = "INSERT INTO lock \
         (name,claim,token,process,mode,permits,taken,tokens,expires,since) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)";
    pub const LEASE_END: &str = "DELETE FROM lock WHERE name=?1 AND claim=?2";
    pub const FENCE_START: &str = "INSERT INTO lock (name,claim,token,waited) VALUES (?1,x'',0,0)";
    pub const FENCE_MOVE: &str = "UPDATE lock SET token=?2,waited=?3 WHERE name=?1 AND claim=x''";
}

/// When the log is copied back into the database. Someone has to: it would grow for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// While the clock stands still: what is measured is the two transactions and nothing else.
    Aside,
    /// By SQLite itself every 1000 pages, as in any program that does not see to it: it waits for the disk.
    Within,
}

/// After how long the log is copied back aside: it has about 1000 pages then, as many as the store's.
const SLICE: Duration = Duration::from_millis(10);

/// A Lockkeeper file of its own, on the same disk as the store, and a plain connection to it.
pub struct RawSqlite {
    conn: Connection,
    log: Log,
    /// As long as ours: a name is written several times in a pair.
    name: String,
    _folder: Folder,
}

impl RawSqlite {
    /// `store` is the file under test.
    pub fn open(store: &Path, unique: &str, name: String, log: Log) -> Result<RawSqlite> {
        let folder = Folder::beside(store, &format!("{unique}-{log:?}"))?;
        let path = folder.0.join("reference.db");
        drop(lockkeeper::store::sqlite::SqliteStore::open(&path)?);
        let conn = Connection::open(&path)?;
        conn.busy_timeout(Duration::from_secs(5))?;
        conn.pragma_update(None, "synchronous", "NORMAL")?;
        if log == Log::Aside {
            conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        }
        conn.pragma_update(None, "cache_size", -16_000)?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        conn.execute(sql::FENCE_START, [&name])?;
        Ok(RawSqlite {
            conn,
            log,
            name,
            _folder: folder,
        })
    }
}

impl Side for RawSqlite {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let mut raw = Raw::prepare(&self.conn, &self.name)?;
        if self.log == Log::Within {
            let counted = repeat_blocking(&mut raw, window)?;
            return Ok(Tally::of(vec![counted], window.length(), None));
        }
        let mut total: Option<Tally> = None;
        for slice in window.slices(SLICE) {
            let counted = repeat_blocking(&mut raw, slice)?;
            let tally = Tally::of(vec![counted], slice.length(), None);
            match &mut total {
                Some(total) => total.then(&tally),
                None => total = Some(tally),
            }
            let restart = "PRAGMA wal_checkpoint(RESTART)";
            self.conn.query_row(restart, [], |_| Ok(()))?;
        }
        total.context("the window has no length")
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
}

impl<'c> Raw<'c> {
    fn prepare(conn: &'c Connection, name: &'c str) -> Result<Raw<'c>> {
        Ok(Raw {
            begin: conn.prepare(sql::BEGIN)?,
            load: conn.prepare(sql::LOAD)?,
            lease_start: conn.prepare(sql::LEASE_START)?,
            lease_end: conn.prepare(sql::LEASE_END)?,
            fence_move: conn.prepare(sql::FENCE_MOVE)?,
            commit: conn.prepare(sql::COMMIT)?,
            claim: [7; 24],
            name,
            clock: Clock::real(),
        })
    }

    /// Reads everything about the name; answers the last token.
    fn load(&mut self) -> Result<i64> {
        let mut last = 0;
        let mut rows = self.load.query([self.name])?;
        while let Some(row) = rows.next()? {
            last = last.max(row.get(1)?);
        }
        Ok(last)
    }
}

impl BlockingPair for &mut Raw<'_> {
    fn run(&mut self, lap: &mut Lap) -> Result<()> {
        self.begin.execute([])?;
        let (now, micros) = (Moment::now(), self.clock.unix_micros() as i64);
        let token = micros.max(self.load()? + 1);
        let expires = (now + Duration::from_secs(30)).as_nanos() as i64;
        self.lease_start.execute(params![
            self.name, self.claim, token, 1, 0, 0, 0, 1, expires, micros
        ])?;
        self.fence_move.execute(params![self.name, token, 0])?;
        self.commit.execute([])?;

        lap.acquired_blocking();

        self.begin.execute([])?;
        self.load()?;
        self.lease_end.execute(params![self.name, self.claim])?;
        self.commit.execute([])?;

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
