//! Bringing a file of an earlier version up to date, which only happens while nobody else has it open.
//!
//! A program of the earlier version does not know the new columns: it would pass a lock on without its label. Such a program
//! looks at the version once, when it opens the file. So the file changes only while none has it open, and a program
//! that opens it later refuses it.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::{Fault, refused};
use super::file::{self, Content, SCHEMA_VERSION, retry_until};
use super::liveness::{Peer, Pulse};
use super::rows::nanos;
use super::{keepers_folder, sql};
use crate::clock::Clock;

/// How long to wait for programs that only look at the file for a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// Upgrades the file at `path`, unless another program has.
///
/// # Errors
/// A refusal that names the programs which have the file open.
pub(super) fn run(path: &Path, clock: &Clock) -> Result<(), Fault> {
    match retry_until(Instant::now() + PATIENCE, || alone(path, clock)) {
        Err(Fault::Locked) => in_use(path),
        done => done,
    }
}

/// Upgrades the file if nobody else has it open.
fn alone(path: &Path, clock: &Clock) -> Result<(), Fault> {
    let conn = Connection::open_with_flags(path, file::flags())?;
    conn.busy_timeout(Duration::ZERO)?;
    // Every connection keeps a shared lock on the file for as long as it is open. One that asks for this mode before it has
    // read anything locks the file alone, or is told that it is busy.
    conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let tx = Transaction::new_unchecked(&conn, TransactionBehavior::Exclusive)?;
    if file::check_content(&tx, path)? != Content::Old {
        return Ok(());
    }
    tx.execute_batch(sql::UPGRADE)?;
    tx.execute(sql::UPGRADE_LEASES, [nanos(clock.now())])?;
    tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    tx.commit()?;
    Ok(())
}

/// Says which programs have the file open. Fine if one of them has upgraded it.
fn in_use(path: &Path) -> Result<(), Fault> {
    let conn = Connection::open_with_flags(path, file::flags())?;
    if file::check_content(&conn, path)? != Content::Old {
        return Ok(());
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let keepers = keepers_folder(&real);
    let mut processes = conn.prepare(sql::PROCESSES)?;
    let peers = processes.query_map([], |row| Peer::read(row, &keepers))?;
    let peers: Vec<Peer> = peers.collect::<Result<_, _>>()?;
    let alive = peers.iter().filter(|peer| peer.pulse() == Pulse::Alive);
    let mut who: Vec<String> = alive.map(|peer| peer.process.to_string()).collect();
    if who.is_empty() {
        who.push("some program".to_owned());
    }
    Err(Fault::Told(refused(format!(
        "{path:?} is a file of an earlier Lockkeeper, in use by {}; end the programs that use it, or name another \
         file: it is brought up to date once nobody has it open",
        who.join(" and ")
    ))))
}
