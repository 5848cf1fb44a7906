//! Upgrades a file of an earlier version, while no other program has it open.
//!
//! A program of the earlier version does not know the new columns: it would pass a lock on without its label. It reads the
//! version once, when it opens the file. So the file is upgraded only while no program has it open, and a program of the
//! earlier version that opens it later refuses it.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::{Fault, refused};
use super::file::{self, Content, SCHEMA_VERSION, keepers_folder, retry_until};
use super::liveness::{Liveness, Peer};
use super::rows::nanos;
use super::statements;
use crate::clock::Clock;

/// How long to wait for programs that have the file open for a moment.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(5);

/// Upgrades the file at `path`, unless another program has done so.
///
/// # Errors
/// A refusal that names the programs which have the file open.
pub(super) fn run(path: &Path, clock: &Clock) -> Result<(), Fault> {
    match retry_until(Instant::now() + WAIT_FOR_OTHERS, || upgrade(path, clock)) {
        Err(Fault::Locked) => refuse_in_use(path),
        done => done,
    }
}

/// Upgrades the file if no other program has it open.
fn upgrade(path: &Path, clock: &Clock) -> Result<(), Fault> {
    let conn = Connection::open_with_flags(path, file::flags())?;
    conn.busy_timeout(Duration::ZERO)?;
    // Every connection keeps a shared lock on the file for as long as it is open. A connection that asks for this mode before
    // it has read anything gets the only lock, or an error.
    conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let tx = Transaction::new_unchecked(&conn, TransactionBehavior::Exclusive)?;
    if file::check_content(&tx, path)? != Content::Old {
        return Ok(());
    }
    tx.execute_batch(statements::UPGRADE)?;
    tx.execute(statements::UPGRADE_LEASES, [nanos(clock.now())])?;
    tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    tx.commit()?;
    Ok(())
}

/// Refuses a file that other programs have open, and names them; unless one of them has upgraded it.
fn refuse_in_use(path: &Path) -> Result<(), Fault> {
    let conn = Connection::open_with_flags(path, file::flags())?;
    if file::check_content(&conn, path)? != Content::Old {
        return Ok(());
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let keepers = keepers_folder(&real);
    let mut processes = conn.prepare(statements::PROCESSES)?;
    let peers = processes.query_map([], |row| Peer::read(row, &keepers))?;
    let peers: Vec<Peer> = peers.collect::<Result<_, _>>()?;
    let alive = peers
        .iter()
        .filter(|peer| peer.liveness() == Liveness::Alive);
    let mut users: Vec<String> = alive.map(|peer| peer.process.to_string()).collect();
    if users.is_empty() {
        users.push("some program".to_owned());
    }
    Err(Fault::Explained(refused(format!(
        "{path:?} is a file of an earlier Lockkeeper, in use by {}; end the programs that use it, or name another \
         file: it is brought up to date once nobody has it open",
        users.join(" and ")
    ))))
}
