//! Makes a connection ready: its session, what the server is, our tables, and whether the server may grant.

use std::sync::Arc;

use super::config::{Config, KIND};
use super::connection::Connection;
use super::fault::Fault;
use super::reply::Row;
use super::rows::{number, text};
use super::statements::Tables;
use super::text::{NOW, hex};
use crate::clock::Moment;
use crate::store::common::ServerClock;
use crate::{Error, SETUP_TARGET};

/// The version of the tables that this program knows.
const SCHEMA: i64 = 1;
/// Two starts of a server differ by more than this.
const SAME_START: i64 = 3_000_000;
/// There is no such table.
const NO_TABLE: u16 = 1146;
/// There is no such variable.
const NO_VARIABLE: u16 = 1193;

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

/// What a server says of itself.
struct Facts {
    now: u64,
    flush: i64,
    read_only: bool,
    binlog_by_statement: bool,
    galera: bool,
    /// When it started, in microseconds.
    started: i64,
    /// Its identity, and the expression that says so.
    identity: String,
    identified_by: &'static str,
}

/// Makes a session on the first server that takes writes.
pub(super) async fn open(
    config: &Config,
    clock: &ServerClock,
    pillow: &str,
) -> Result<Session, Error> {
    let mut why = None;
    for address in &config.addresses {
        let opened = match Connection::open(config, address).await {
            Ok(connection) => prepare(config, connection, clock, pillow).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(session) => return Ok(session),
            Err(error) => why = why.or(Some(error)),
        }
    }
    Err(why.unwrap_or_else(|| KIND.unavailable("there is no server")))
}

async fn prepare(
    config: &Config,
    connection: Connection,
    clock: &ServerClock,
    pillow: &str,
) -> Result<Session, Error> {
    let is_mariadb = connection.version.contains("MariaDB");
    let sent = Moment::now();
    settle(&connection, is_mariadb)
        .await
        .map_err(Fault::of_look)?;
    let facts = Facts::ask(&connection, is_mariadb)
        .await
        .map_err(Fault::of_look)?;
    clock.saw(facts.now, sent, Moment::now());
    if facts.read_only {
        return Err(KIND.refused(format!(
            "{} is read only, as a replica is; name the primary, or all servers with commas between them",
            connection.address
        )));
    }
    if facts.binlog_by_statement {
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
        connection.one(level).await.map_err(Fault::of_look)?;
    }
    let mut tables = Tables::new(&config.prefix);
    let (server, started, ready_at) = meta(&connection, &tables, config).await?;
    let known = server == facts.identity
        && (facts.flush == 1 || (started - facts.started).abs() < SAME_START);
    let ready_at = match known {
        true => ready_at,
        false => arrive(&connection, &tables, config, &facts, &server)
            .await
            .map_err(Fault::of_change)?,
    };
    facts.warn(&connection);
    tables.may_grant = facts.may_grant(&tables, ready_at);
    let got = connection.rows(format!("SELECT GET_LOCK('{pillow}',0)"));
    got.await.map_err(Fault::of_look)?;
    Ok(Session {
        connection: Arc::new(connection),
        tables,
        ready_at,
        pillow: pillow.to_owned(),
        is_mariadb,
    })
}

/// Settings of the session, whatever the server's defaults are.
pub(super) async fn settle(connection: &Connection, is_mariadb: bool) -> Result<(), Fault> {
    // Assignments from left to right, and no update refused for having no key; a session that idles for hours is kept.
    let mut settings = "SET SESSION time_zone='+00:00',autocommit=1,sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',\
        sql_safe_updates=0,sql_select_limit=18446744073709551615,wait_timeout=28800,lock_wait_timeout=2,innodb_lock_wait_timeout=1"
        .to_owned();
    settings += match is_mariadb {
        true => ",max_statement_time=0,idle_write_transaction_timeout=1",
        false => ",max_execution_time=0",
    };
    let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    connection.run(format!("{settings};{isolation}"), 2).await?;
    Ok(())
}

impl Facts {
    async fn ask(connection: &Connection, is_mariadb: bool) -> Result<Facts, Fault> {
        let identified_by = match is_mariadb {
            true => "@@server_uid",
            false => "@@server_uuid",
        };
        // Versions that have no identity are known by their place.
        let place = "CONCAT(@@hostname,':',@@port,':',@@server_id)";
        let asked = |by: &str| connection.rows(format!("SELECT CAST({by} AS BINARY)"));
        let (identified_by, rows) = match asked(identified_by).await {
            Err(Fault::Server(error)) if error.code == NO_VARIABLE => (place, asked(place).await?),
            other => (identified_by, other?),
        };
        let odd = || Fault::Lost("the server says nothing of itself".into());
        let identity = rows.first().and_then(|row| text(row, 0)).ok_or_else(odd)?;
        let rows = connection.rows(format!(
            "SELECT {NOW},@@innodb_flush_log_at_trx_commit,@@read_only,@@log_bin AND @@binlog_format='STATEMENT'"
        ));
        let rows = rows.await?;
        let row = rows.first().ok_or_else(odd)?;
        let now: u64 = number(row, 0).ok_or_else(odd)?;
        let status = connection.rows("SHOW GLOBAL STATUS WHERE Variable_name='Uptime'");
        let uptime: i64 = status
            .await?
            .first()
            .and_then(|row| number(row, 1))
            .unwrap_or_default();
        let wsrep =
            connection.rows("SHOW GLOBAL VARIABLES WHERE Variable_name='wsrep_on' AND Value='ON'");
        Ok(Facts {
            now,
            flush: number(row, 1).unwrap_or(1),
            read_only: number::<i64>(row, 2) != Some(0),
            binlog_by_statement: number::<i64>(row, 3) == Some(1),
            galera: !wsrep.await?.is_empty(),
            started: now as i64 - uptime * 1_000_000,
            identity,
            identified_by,
        })
    }

    /// What a statement that grants asks for. A proxy may change servers under a connection.
    fn may_grant(&self, tables: &Tables, ready_at: u64) -> String {
        let identity = format!(
            "CAST({} AS BINARY)={}",
            self.identified_by,
            hex(self.identity.as_bytes())
        );
        match self.galera {
            false => format!("{identity} AND {NOW}>={ready_at}"),
            // Another node may have become the one that grants.
            true => format!(
                "{identity} AND EXISTS(SELECT 1 FROM {} WHERE server={} AND ready_at<={NOW})",
                tables.table("meta"),
                hex(self.identity.as_bytes())
            ),
        }
    }

    fn warn(&self, connection: &Connection) {
        let server = &connection.address;
        if self.flush != 1 {
            tracing::warn!(
                target: SETUP_TARGET,
                %server,
                "innodb_flush_log_at_trx_commit is {}: a crash may forget grants, so after a restart nothing is granted until all \
                 leases are over; set it to 1",
                self.flush
            );
        }
        if self.galera {
            tracing::warn!(
                target: SETUP_TARGET,
                %server,
                "the server is a Galera node: name the same node in every client, as only one may grant"
            );
        }
    }
}

/// Which server made the grants, when it started, and when it may grant. Makes the tables if they are not there.
async fn meta(
    connection: &Connection,
    tables: &Tables,
    config: &Config,
) -> Result<(String, i64, u64), Error> {
    let select = format!(
        "SELECT version,max_lease,server,started,ready_at FROM {}",
        tables.table("meta")
    );
    let mut rows = connection.rows(select.clone()).await;
    let missing = |fault: &Fault| matches!(fault, Fault::Server(error) if error.code == NO_TABLE);
    if rows.as_ref().is_err_and(missing) || rows.as_ref().is_ok_and(Vec::is_empty) {
        for statement in tables.schema() {
            connection
                .one(statement)
                .await
                .and_then(failed)
                .map_err(Fault::of_look)?;
        }
        rows = connection.rows(select).await;
    }
    let rows = rows.map_err(Fault::of_look)?;
    let read = |row: &Row| {
        let versions: (i64, i64) = (number(row, 0)?, number(row, 1)?);
        Some((versions, (text(row, 2)?, number(row, 3)?, number(row, 4)?)))
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
        let raise = format!(
            "UPDATE {} SET max_lease=GREATEST(max_lease,{ours})",
            tables.table("meta")
        );
        connection
            .one(raise)
            .await
            .and_then(failed)
            .map_err(Fault::of_change)?;
    }
    Ok(meta)
}

/// The server is not the one that made the grants, or may have forgotten some: it waits until all leases are over.
async fn arrive(
    connection: &Connection,
    tables: &Tables,
    config: &Config,
    facts: &Facts,
    before: &str,
) -> Result<u64, Fault> {
    let meta = tables.table("meta");
    // Nothing was ever granted from new tables.
    let waits = config.sits_out && !before.is_empty();
    let ready_at = match waits {
        true => format!("GREATEST(ready_at,{NOW}+CAST(max_lease*1.01 AS SIGNED)+1000000)"),
        false => "ready_at".into(),
    };
    let update = format!(
        "UPDATE {meta} SET ready_at={ready_at},server={},started={} WHERE server={}",
        hex(facts.identity.as_bytes()),
        facts.started,
        hex(before.as_bytes())
    );
    connection.one(update).await.and_then(failed)?;
    let rows = connection
        .rows(format!("SELECT ready_at FROM {meta}"))
        .await?;
    let ready_at = rows
        .first()
        .and_then(|row| number(row, 0))
        .unwrap_or(u64::MAX);
    if waits {
        tracing::warn!(
            target: SETUP_TARGET,
            server = %connection.address,
            "the server is another one, or may have forgotten grants: it grants nothing until all leases are over"
        );
    }
    Ok(ready_at)
}

/// An answer, if it is no error.
fn failed(reply: super::reply::Reply) -> Result<super::reply::Reply, Fault> {
    match reply {
        super::reply::Reply::Failed(error) => Err(Fault::Server(error)),
        other => Ok(other),
    }
}
