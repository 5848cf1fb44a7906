//! Opens the database file: checks that it can be a store of locks, and makes a new one where there is none.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, RenameFlags, StatVfsMountFlags, renameat_with};
use rustix::io::Errno;
use uuid::Uuid;

use super::fault::{Fault, refused};
use super::{file_system, statements, upgrade};
use crate::Error;
use crate::clock::Clock;

/// Marks a file as ours: "Lock".
pub(super) const APPLICATION_ID: i32 = 0x4C6F_636B;
/// The version of the tables.
pub(super) const SCHEMA_VERSION: i32 = 2;
/// The earlier version, which can be upgraded.
const OLD_VERSION: i32 = 1;
/// How long another program may keep the file locked before a verb fails.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Small pages: a transaction writes whole pages, and a lease has about 100 bytes.
pub(super) const PAGE_SIZE: u32 = 1024;
/// A log of more bytes than this is cut to that when it starts over.
pub(super) const LOG_LIMIT: u32 = 4 << 20;

/// Opens the database at `path`, creating it if there is none. Returns its real path as well.
pub(super) fn open(path: &Path, clock: &Clock) -> Result<(Connection, PathBuf), Error> {
    // Absolute, so that no name looks like one of SQLite's special ones.
    let path = std::path::absolute(path)
        .map_err(|error| refused(format!("{path:?} is not a usable path: {error}")))?;
    check_folder(&path)?;
    check_file(&path)?;
    let conn = retry(|| connect_or_create(&path, clock)).map_err(|fault| fault.explain(&path))?;
    // Different links to one file must lead to the same folder of keepers.
    let real = fs::canonicalize(&path)
        .map_err(|error| refused(format!("{path:?} cannot be found again: {error}")))?;
    Ok((conn, real))
}

/// Another connection to a file that [`open`] has prepared.
pub(super) fn reopen(path: &Path) -> Result<Connection, Error> {
    retry(|| connect(path)).map_err(|fault| fault.explain(path))
}

/// Tries again while another program has the file locked, for [`BUSY_TIMEOUT`].
pub(super) fn retry<T>(attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    retry_until(Instant::now() + BUSY_TIMEOUT, attempt)
}

pub(super) fn retry_until<T>(
    deadline: Instant,
    mut attempt: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut pause = Pause::default();
    loop {
        match attempt() {
            Err(Fault::Locked) if Instant::now() < deadline => pause.sleep(),
            answer => return answer,
        }
    }
}

/// Short pauses that grow: a transaction ends in microseconds, but the lock of some other program perhaps in seconds.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Pause {
        Pause(Duration::from_micros(50))
    }
}

impl Pause {
    pub fn sleep(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 3 / 2).min(Duration::from_millis(2));
    }
}

/// The file with this ending, next to the database.
pub(super) fn sibling(database: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(ending);
    path.into()
}

/// The folder of the stores that have a database open.
pub(super) fn keepers_folder(database: &Path) -> PathBuf {
    sibling(database, "-keepers")
}

fn check_folder(path: &Path) -> Result<(), Error> {
    let Some(folder) = path.parent() else {
        return Err(refused(format!("{path:?} names no file")));
    };
    match fs::metadata(folder) {
        Ok(found) if !found.is_dir() => {
            return Err(refused(format!("{folder:?} is not a folder")));
        }
        Ok(_) => {}
        // The folder of the default store is created. Any other may be a typing error.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if folder.file_name().is_none_or(|name| name != "lockkeeper") {
                return Err(refused(format!(
                    "the folder {folder:?} does not exist; create it, or name another place"
                )));
            }
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| {
                refused(format!(
                    "the folder {folder:?} cannot be created ({error}); create it, or name another place"
                ))
            })?;
        }
        Err(error) => {
            return Err(refused(format!(
                "{folder:?} cannot be accessed ({error}); give this user access to it, or name another place"
            )));
        }
    }
    file_system::check(folder)
}

fn check_file(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(refused(format!(
            "{path:?} is a folder; name a file in it, for instance {:?}",
            path.join("locks.db")
        ))),
        Ok(found) if !found.is_file() => Err(refused(format!(
            "{path:?} is not an ordinary file; name another"
        ))),
        // The log is found by the name of the database: with two names there would be two logs.
        Ok(found) if found.nlink() > 1 => Err(refused(format!(
            "{path:?} has more than one hard link; use a copy or a symbolic link"
        ))),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path),
        Err(error) => Err(refused(format!(
            "{path:?} cannot be accessed ({error}); give this user access to it, or name another file"
        ))),
    }
}

/// Creates an empty file with the permissions that the umask allows; SQLite alone would never let a group write.
///
/// The file is made under another name and then renamed. Opening and closing the database itself would drop the locks that
/// this process has on it, if another thread made it first. A hard link would do instead of renaming, but a process that is
/// killed before it removes the other name would leave a file with two names, which is refused.
fn create(path: &Path) -> Result<(), Error> {
    // Anything else that is there now was just made by another process.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(refused(format!(
            "{path:?} is a symbolic link to nowhere; remove it, or name what it should lead to"
        )));
    }
    let temporary = path.with_file_name(format!(".lockkeeper-{}", Uuid::new_v4().simple()));
    let explain = |error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => "name a file on another file system",
            _ => "give this user write access to its folder",
        };
        refused(format!("{path:?} cannot be created ({error}); {advice}")).caused_by(error)
    };
    File::create_new(&temporary).map_err(explain)?;
    let Err(error) = renameat_with(CWD, &temporary, CWD, path, RenameFlags::NOREPLACE) else {
        return Ok(());
    };
    let _ = fs::remove_file(&temporary);
    if error == Errno::EXIST {
        return Ok(());
    }
    // A file system that cannot do this hardly has permissions of its own either, so SQLite may create the file.
    let create = flags() | OpenFlags::SQLITE_OPEN_CREATE;
    let made = Connection::open_with_flags(path, create);
    made.map(|_| ()).map_err(|_| explain(error.into()))
}

fn is_on_read_only_system(path: &Path) -> bool {
    let system = rustix::fs::statvfs(path);
    system.is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Connects to a file that has our tables of this version, after making or upgrading them if need be.
fn connect_or_create(path: &Path, clock: &Clock) -> Result<Connection, Fault> {
    loop {
        let conn = Connection::open_with_flags(path, flags())?;
        if conn.is_readonly("main")? {
            let why = if is_on_read_only_system(path) {
                "is on a read-only file system; name a file on another one"
            } else {
                "is read-only; give this user write access to the file"
            };
            return Err(Fault::Explained(refused(format!("{path:?} {why}"))));
        }
        let content = {
            // In one transaction: another process may be making the tables.
            let snapshot = conn.unchecked_transaction()?;
            check_content(&snapshot, path)?
        };
        // After a change the content is checked anew: another process may have changed it as well.
        match content {
            Content::Current => {
                configure(&conn)?;
                return Ok(conn);
            }
            Content::Empty => {
                conn.pragma_update(None, "page_size", PAGE_SIZE)?;
                use_log(&conn)?;
                create_tables(&conn, path, &clock.boot_id())?;
            }
            Content::Old => {
                // Only with a log does every connection keep a lock on the file, which the upgrade checks.
                use_log(&conn)?;
                drop(conn);
                upgrade::run(path, clock)?;
            }
        }
    }
}

fn connect(path: &Path) -> Result<Connection, Fault> {
    let conn = Connection::open_with_flags(path, flags())?;
    configure(&conn)?;
    Ok(conn)
}

pub(super) fn flags() -> OpenFlags {
    // Not CREATE: the file exists, and one that was deleted since must not come back empty.
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// What a file contains that has our tables, or may get them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// Nothing yet.
    Empty,
    /// The tables of the earlier version.
    Old,
    /// The tables of this version.
    Current,
}

/// Returns what the file contains, and refuses a file of another program.
pub(super) fn check_content(conn: &Connection, path: &Path) -> Result<Content, Fault> {
    let pragma = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let (id, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if id == 0 && version == 0 && tables == 0 {
        return Ok(Content::Empty);
    }
    let refuse = |reason: String| Err(Fault::Explained(refused(reason)));
    if id != APPLICATION_ID {
        return refuse(format!(
            "{path:?} is the database of another program; name another file"
        ));
    }
    match version {
        SCHEMA_VERSION => Ok(Content::Current),
        OLD_VERSION => Ok(Content::Old),
        newer if newer > SCHEMA_VERSION => refuse(format!(
            "{path:?} was made by a newer Lockkeeper (its tables are version {newer}, this program knows \
             {SCHEMA_VERSION}); update this program"
        )),
        unknown => refuse(format!(
            "{path:?} has tables of version {unknown}, which no Lockkeeper made; move it away"
        )),
    }
}

fn create_tables(conn: &Connection, path: &Path, boot: &str) -> Result<(), Fault> {
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have made them meanwhile.
    if check_content(&tx, path)? != Content::Empty {
        return Ok(());
    }
    tx.execute_batch(statements::SCHEMA)?;
    tx.execute(statements::META_START, [boot])?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    tx.commit()?;
    Ok(())
}

fn configure(conn: &Connection) -> Result<(), Fault> {
    conn.busy_timeout(Duration::ZERO)?;
    use_log(conn)?;
    // The log is synced when it is copied back, not with every commit. A power cut may lose the last commits, but it also
    // ends their holders, and it never leaves a broken file.
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    // The worker copies the log back, and no commit does.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", LOG_LIMIT)?;
    conn.pragma_update(None, "cache_size", -16_000)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // Other programs can write to the file. What they put into its schema must not run here.
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Switches the file to a write-ahead log.
fn use_log(conn: &Connection) -> Result<(), Fault> {
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(Fault::Explained(refused(format!(
        "the file system cannot share memory between processes (the log mode stays {mode}); put the file on \
         a local disk"
    ))))
}
