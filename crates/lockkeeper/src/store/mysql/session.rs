//! Makes a connection ready: its session, what the server is, our tables, and whether the server may grant.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::config::{Config, KIND};
use super::connection::Connection;
use super::facts::{self, Facts};
use super::fault::{Fault, NO_TABLE, too_old};
use super::reply::Row;
use super::rows::{number, text};
use super::statements::{TABLES, Tables};
use super::text::{NOW, hex, is_same, later, made, too_late};
use crate::clock::Moment;
use crate::store::common::ServerClock;
use crate::store::sql::hosts::{self, Unusable};
use crate::{Error, SETUP_TARGET};

/// The version of the tables that this program knows.
const SCHEMA: i64 = 1;
/// How long tables that were there may be away before they are made anew.
const COME_BACK_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often it is judged anew whether the server may grant, if others change that at the same time.
const TRIES: usize = 8;

/// A connection that is ready for verbs.
#[derive(Debug)]
pub(super) struct Session {
    pub connection: Arc<Connection>,
    pub tables: Tables,
    /// When the server may grant, in its time.
    pub ready_at: u64,
    /// The lock that this connection holds for the bell to wait for.
    pub pillow: String,
    pub is_mariadb: bool,
}

/// Makes a session on the first server that takes writes. `again`: the store is open, and waits for a server that changes its role.
pub(super) async fn open(
    config: &Config,
    clock: &ServerClock,
    pillow: &str,
    again: bool,
) -> Result<Session, Error> {
    let mut tried = Vec::with_capacity(config.addresses.len());
    for address in &config.addresses {
        let opened = match Connection::open(config, address).await {
            Ok(connection) => prepare(config, connection, clock, (pillow, again)).await,
            Err(error) => Err(error.into()),
        };
        match opened {
            Ok(session) => return Ok(session),
            Err(error) => tried.push((address, error)),
        }
    }
    Err(hosts::none_of(&KIND, tried, again))
}

async fn prepare(
    config: &Config,
    connection: Connection,
    clock: &ServerClock,
    (pillow, again): (&str, bool),
) -> Result<Session, Unusable> {
    let version = facts::version(&connection).await.map_err(Fault::of_look)?;
    if !facts::is_known(&version) {
        return Err(too_old(&connection.address, &version).into());
    }
    let is_mariadb = facts::is_mariadb(&version);
    let sent = Moment::now();
    settle(&connection, is_mariadb)
        .await
        .map_err(Fault::of_look)?;
    let facts = Facts::ask(&connection, is_mariadb)
        .await
        .map_err(Fault::of_look)?;
    clock.saw(facts.now, sent, Moment::now());
    if facts.read_only {
        let reason = format!(
            "{} is read only, as a replica is; name the primary, or all servers with commas between them",
            connection.address
        );
        return Err(Unusable::Standby(reason));
    }
    if facts.binlog_by_statement {
        return Err(KIND.refused(format!(
            "{} has binlog_format=STATEMENT, by which a replica gets other locks than its primary; set it to MIXED or ROW",
            connection.address
        ))
        .into());
    }
    let mut tables = Tables::new(&config.prefix);
    let meta = judge(&connection, &tables, config, &facts, again).await?;
    facts.warn(&connection);
    tables.terms = facts.terms(&tables, &meta, config.sits_out);
    let got = connection.rows(format!("SELECT GET_LOCK('{pillow}',0)"));
    got.await.map_err(Fault::of_look)?;
    Ok(Session {
        connection: Arc::new(connection),
        tables,
        ready_at: if config.sits_out { meta.ready_at } else { 0 },
        pillow: pillow.to_owned(),
        is_mariadb,
    })
}

/// Settings of the session, whatever the server's defaults are.
pub(super) async fn settle(connection: &Connection, is_mariadb: bool) -> Result<(), Fault> {
    // Assignments from left to right, and no update refused for having no key. A keeper looks every 15 s at least: a session that idles for
    // a minute is that of a machine that is gone. `@lk` is gone when a proxy resets the session.
    let mut settings = "SET SESSION time_zone='+00:00',autocommit=1,completion_type=0,sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',\
        sql_safe_updates=0,sql_select_limit=18446744073709551615,wait_timeout=60,lock_wait_timeout=2,innodb_lock_wait_timeout=1,\
        @lk='+00:00'"
        .to_owned();
    settings += match is_mariadb {
        true => ",max_statement_time=0,idle_write_transaction_timeout=1",
        false => ",max_execution_time=0",
    };
    let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED,READ WRITE";
    connection.run(format!("{settings};{isolation}"), 2).await?;
    Ok(())
}

/// What the tables say of the server that made the grants.
pub(super) struct Meta {
    /// Its identity. Empty in tables that nobody has used.
    pub server: String,
    /// When it started, if it made grants that a crash may have undone; else 0.
    pub started: i64,
    /// When it may grant.
    pub ready_at: u64,
    /// Whether that is later than it can be.
    pub too_late: bool,
    /// When `lock` and `hold` were made, as the tables say.
    pub made: String,
    /// The same as the server says.
    pub made_now: [i64; 2],
}

impl Meta {
    /// Whether the tables are those that were written to, and no copy from a dump.
    pub fn is_original(&self) -> bool {
        let pairs = self
            .known()
            .map(|known| known.into_iter().zip(self.made_now));
        pairs.is_some_and(|mut pairs| pairs.all(|(known, now)| is_same(known, now)))
    }

    /// [`Meta::made`] as numbers, if it is two.
    pub fn known(&self) -> Option<[i64; 2]> {
        let (lock, hold) = self.made.split_once(':')?;
        Some([lock.parse().ok()?, hold.parse().ok()?])
    }

    /// What the tables are to say in [`Meta::made`] of this server. Never less than before: of a table that is open several times the server
    /// may say an older time later.
    fn made_next(&self, identity: &str) -> String {
        let known = self.known().filter(|_| self.server == identity);
        let known = known.unwrap_or_default();
        let [lock, hold] = [0, 1].map(|table| match self.made_now[table] {
            0 => 0,
            now => now.max(known[table]),
        });
        format!("{lock}:{hold}")
    }
}

/// Finds out whether the server made the grants and has kept them all. If not, it has to wait until all leases are over.
async fn judge(
    connection: &Connection,
    tables: &Tables,
    config: &Config,
    facts: &Facts,
    again: bool,
) -> Result<Meta, Unusable> {
    for _ in 0..TRIES {
        let meta = read_meta(connection, tables, config, again).await?;
        if facts.fits(&meta) {
            return Ok(meta);
        }
        if facts.is_second_writer(&meta)
            || facts.is_beside(&meta) && is_used(connection, tables).await?
        {
            let reason = format!(
                "{} is a node of a cluster of which another node grants the locks; name the same node in every client",
                connection.address
            );
            return Err(Unusable::Standby(reason));
        }
        let arrived = arrive(connection, tables, config, facts, &meta);
        arrived.await.map_err(Fault::of_change)?;
    }
    let reason = "several servers take over the tables at once; try again";
    Err(KIND.unavailable(reason).into())
}

/// Reads what the tables say. Makes those that are not there: if there were any, or `again`, only if they stay away.
async fn read_meta(
    connection: &Connection,
    tables: &Tables,
    config: &Config,
    again: bool,
) -> Result<Meta, Error> {
    let select = format!(
        "SELECT version,max_lease,server,started,ready_at,made,{},{},{} FROM {} WHERE {}",
        made(&tables.table("lock")),
        made(&tables.table("hold")),
        too_late(),
        tables.table("meta"),
        tables.are_there()
    );
    let mut rows = connection.rows(select.clone()).await;
    let missing = |rows: &Result<Vec<Row>, Fault>| match rows {
        Ok(rows) => rows.is_empty(),
        Err(fault) => matches!(fault, Fault::Server(error) if error.code == NO_TABLE),
    };
    if missing(&rows) {
        // They were there. A dump that is loaded makes each of its tables, and fails if there is one in its way; another client may be
        // about to make the rest.
        let lost = again || is_one_there(connection, tables).await?;
        let end = Instant::now() + COME_BACK_WITHIN;
        while lost && missing(&rows) && Instant::now() < end {
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            rows = connection.rows(select.clone()).await;
        }
        if missing(&rows) {
            for statement in tables.schema(lost) {
                let done = connection.one(statement).await.and_then(failed);
                done.map_err(|fault| match (&rows, fault.of_look()) {
                    (Err(Fault::Server(what)), Error::Refused { reason, .. }) => {
                        KIND.refused(format!("{}: {reason}", what.message))
                    }
                    (_, error) => error,
                })?;
            }
            rows = connection.rows(select).await;
        }
    }
    let rows = rows.map_err(Fault::of_look)?;
    let read = |row: &Row| {
        let versions: (i64, i64) = (number(row, 0)?, number(row, 1)?);
        let meta = Meta {
            server: text(row, 2)?,
            started: number(row, 3)?,
            ready_at: number(row, 4)?,
            made: text(row, 5)?,
            made_now: [number(row, 6)?, number(row, 7)?],
            too_late: number(row, 8) == Some(1_u8),
        };
        Some((versions, meta))
    };
    let not_ours = || KIND.refused("the table of versions is not ours; choose another prefix=");
    let ((version, longest), meta) = rows.first().and_then(read).ok_or_else(not_ours)?;
    if version != SCHEMA {
        return Err(KIND.refused(format!(
            "its tables are of version {version}, and this program knows version {SCHEMA}; use a newer program, or other tables with \
             prefix="
        )));
    }
    let ours = super::text::lease(config.longest_lease);
    if ours > longest {
        // A server that sits out does so for the leases that it may have granted and forgotten, this one among them.
        let raise = format!(
            "UPDATE {} SET max_lease=GREATEST(max_lease,{ours}),ready_at=IF(ready_at>{NOW},{},ready_at)",
            tables.table("meta"),
            later()
        );
        connection
            .one(raise)
            .await
            .and_then(failed)
            .map_err(Fault::of_change)?;
    }
    Ok(meta)
}

/// Whether any of our tables is there.
async fn is_one_there(connection: &Connection, tables: &Tables) -> Result<bool, Error> {
    for table in TABLES {
        let select = format!("SELECT 1 FROM {} LIMIT 0", tables.table(table));
        match connection.rows(select).await {
            Err(Fault::Server(error)) if error.code == NO_TABLE => {}
            rows => return rows.map(|_| true).map_err(Fault::of_look),
        }
    }
    Ok(false)
}

/// Whether somebody holds a lock.
async fn is_used(connection: &Connection, tables: &Tables) -> Result<bool, Error> {
    // What other nodes have committed is not here at once.
    let wait = |on: u8| connection.run(format!("SET SESSION wsrep_sync_wait={on}"), 1);
    let waits = wait(1).await.is_ok();
    let rows = connection.rows(tables.is_used()).await;
    if waits {
        wait(0).await.map_err(Fault::of_look)?;
    }
    let rows = rows.map_err(Fault::of_look)?;
    Ok(rows.first().and_then(|row| number(row, 0)) == Some(1_u8))
}

/// Writes down that this server makes the grants from now on. Does nothing if another was faster.
async fn arrive(
    connection: &Connection,
    tables: &Tables,
    config: &Config,
    facts: &Facts,
    before: &Meta,
) -> Result<(), Fault> {
    // Also if this client is told never to sit out: others are not.
    let waits = facts.has_to_wait(before);
    // It is never later than that. It says so after the clock was set back, and nothing would be granted for the whole step.
    let ready_at = if waits {
        later()
    } else {
        format!("LEAST(ready_at,{})", later())
    };
    let update = format!(
        "UPDATE {} SET ready_at={ready_at},server={},started={},made={} WHERE server={} AND started={} AND made={}",
        tables.table("meta"),
        hex(facts.identity.as_bytes()),
        facts.mark(),
        hex(before.made_next(&facts.identity).as_bytes()),
        hex(before.server.as_bytes()),
        before.started,
        hex(before.made.as_bytes())
    );
    connection.one(update).await.and_then(failed)?;
    if waits && config.sits_out {
        tracing::warn!(
            target: SETUP_TARGET,
            server = %connection.address,
            "the server is another one, or may have forgotten grants: it grants nothing until all leases are over"
        );
    }
    Ok(())
}

/// An answer, if it is no error.
fn failed(reply: super::reply::Reply) -> Result<super::reply::Reply, Fault> {
    match reply {
        super::reply::Reply::Failed(error) => Err(Fault::Server(error)),
        other => Ok(other),
    }
}
