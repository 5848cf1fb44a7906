//! What a server says of itself, and what follows: whether it may grant.
//!
//! Three things make a server forget a grant that it has confirmed: it is another server, which was not told of the grant; the
//! machine lost power before the commit was on disk; or a dump brought older tables back. So the tables say which server made the
//! grants, when it started if its commits do not wait for the disk, and when they were made themselves, which a dump that is loaded
//! says wrong. A server that does not fit waits until all leases are over.

use super::connection::Connection;
use super::fault::Fault;
use super::rows::{number, text};
use super::session::Meta;
use super::statements::Tables;
use super::text::{NOW, hex, same, too_late};
use crate::SETUP_TARGET;

/// Two starts of a server differ by more than this.
const SAME_START: i64 = 3_000_000;
/// There is no such variable.
const NO_VARIABLE: u16 = 1193;
/// Whether a commit that was confirmed is on disk. With a binary log, a commit that is not in it is undone after a crash.
const SYNCED: &str =
    "(@@innodb_flush_log_at_trx_commit IN (1,3) AND (@@log_bin=0 OR @@sync_binlog=1))";

/// Whether the server takes writes. MariaDB 12 has words for it, older ones and MySQL a number, and both are compared as text.
const TAKES_WRITES: &str = "CONCAT(@@global.read_only) IN ('0','OFF')";

/// What the server calls its version. A proxy that greets for it may call another. ProxySQL also answers `SELECT VERSION()` by itself, in
/// these very words.
pub(super) async fn version(connection: &Connection) -> Result<String, Fault> {
    let rows = connection.rows("SELECT CONCAT(VERSION())").await?;
    let version = rows.first().and_then(|row| text(row, 0));
    version.ok_or_else(|| Fault::Lost("the server says no version".into()))
}

pub(super) fn is_mariadb(version: &str) -> bool {
    version.contains("MariaDB")
}

/// Whether our statements mean what they say on a server of this version: MySQL 8.0, MariaDB 10.6 or later.
pub(super) fn is_known(version: &str) -> bool {
    let numbers = version.split(|c: char| !c.is_ascii_digit());
    let mut numbers = numbers.map(|number| number.parse().unwrap_or(0_u32));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // TiDB calls itself MySQL 8.0, and locks rows in other ways.
    let least = if is_mariadb(version) { (10, 6) } else { (8, 0) };
    found >= least && !version.contains("TiDB")
}

/// What a server says of itself.
pub(super) struct Facts {
    pub now: u64,
    /// Whether a commit that was confirmed is on disk.
    pub synced: bool,
    pub read_only: bool,
    pub binlog_by_statement: bool,
    pub galera: bool,
    /// Whether it has, or had, transactions of another server. Replication may have left our tables out.
    pub replicated: bool,
    /// When it started, in microseconds.
    pub started: i64,
    /// Its identity, and the expression that says so.
    pub identity: String,
    identified_by: &'static str,
}

/// What has to be true of the server, as SQL. A session idles while roles change, and a proxy changes servers under it: so
/// statements ask, and not only the session when it begins.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// For a statement that grants.
    pub may_grant: String,
    /// For a SELECT from `meta`: the session still knows the server right.
    pub fits: String,
    /// `lock` is the table that the session knows.
    pub same_lock: String,
    /// `hold` is the table that the session knows.
    pub same_hold: String,
    /// For a SELECT from `meta`: from when on the server may grant.
    pub ready_at: &'static str,
}

impl Default for Terms {
    /// Of a server of which nothing is known.
    fn default() -> Terms {
        Terms {
            may_grant: "FALSE".into(),
            fits: "FALSE".into(),
            same_lock: "FALSE".into(),
            same_hold: "FALSE".into(),
            ready_at: "ready_at",
        }
    }
}

impl Facts {
    pub async fn ask(connection: &Connection, is_mariadb: bool) -> Result<Facts, Fault> {
        // MariaDB makes its identity of the port and the hardware address, which containers share. A replica has another number.
        let identified_by = if is_mariadb {
            "CONCAT(@@server_uid,':',@@server_id)"
        } else {
            "CONCAT(@@server_uuid,':',@@server_id)"
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
            "SELECT {NOW},{SYNCED},{TAKES_WRITES},@@log_bin AND @@binlog_format='STATEMENT'"
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
        let wsrep = connection.rows(
            "SHOW GLOBAL VARIABLES WHERE (Variable_name='wsrep_on' AND Value='ON') \
             OR (Variable_name='group_replication_single_primary_mode' AND Value='OFF')",
        );
        let others = if is_mariadb {
            "SELECT @@gtid_slave_pos<>''"
        } else {
            "SELECT GTID_SUBTRACT(@@gtid_executed,CONCAT(@@server_uuid,':1-9223372036854775806'))<>''"
        };
        let replicated = match connection.rows(others).await {
            Err(Fault::Server(error)) if error.code == NO_VARIABLE => false,
            rows => rows?.first().and_then(|row| number::<i64>(row, 0)) == Some(1),
        };
        Ok(Facts {
            now,
            replicated,
            synced: number::<i64>(row, 1) == Some(1),
            read_only: number::<i64>(row, 2) != Some(1),
            binlog_by_statement: number::<i64>(row, 3) == Some(1),
            galera: !wsrep.await?.is_empty(),
            started: now as i64 - uptime * 1_000_000,
            identity,
            identified_by,
        })
    }

    /// Whether the server made the grants, and has kept all of them.
    pub fn fits(&self, meta: &Meta) -> bool {
        let marked = if self.synced {
            meta.started == 0
        } else {
            self.is_same_start(meta)
        };
        self.identity == meta.server && marked && meta.is_original() && !meta.too_late
    }

    /// Whether the server has to wait before it grants, where it does not fit.
    pub fn has_to_wait(&self, meta: &Meta) -> bool {
        if !meta.is_original() {
            return true;
        }
        if self.identity == meta.server {
            // Its commits wait for the disk again, and what they did not wait for is there with the next one.
            return !(self.synced && self.is_same_start(meta));
        }
        // Nothing was ever granted from new tables. Unless the first grants may be lost with the mark that there were any, or were made
        // by another server, in tables that this one was not sent.
        !(self.synced && meta.server.is_empty() && !self.replicated)
    }

    /// Whether another node of a cluster made the grants.
    pub fn is_beside(&self, meta: &Meta) -> bool {
        let other = !meta.server.is_empty() && meta.server != self.identity;
        self.galera && other
    }

    /// Whether another node of a cluster is about to grant.
    pub fn is_second_writer(&self, meta: &Meta) -> bool {
        self.is_beside(meta) && meta.ready_at > self.now && !meta.too_late
    }

    /// What the tables are to say in [`Meta::started`].
    pub fn mark(&self) -> i64 {
        if self.synced { 0 } else { self.started }
    }

    fn is_same_start(&self, meta: &Meta) -> bool {
        meta.started != 0 && (meta.started - self.started).abs() < SAME_START
    }

    /// What has to stay true for a session that begins with this. A client that is told never to sit out may be granted at any time.
    pub fn terms(&self, tables: &Tables, meta: &Meta, sits_out: bool) -> Terms {
        let table = tables.table("meta");
        let [lock_made, hold_made] = meta.known().unwrap_or_default();
        let ready_at = if sits_out { "ready_at" } else { "0" };
        let identity = hex(self.identity.as_bytes());
        // A server that is read only is no primary, even to a user who may write there.
        let mut server = format!(
            "CAST({} AS BINARY)={identity} AND {TAKES_WRITES}",
            self.identified_by
        );
        if self.synced {
            server += &format!(" AND {SYNCED}");
        }
        let written = format!(
            "server={identity} AND started={} AND made={}",
            meta.started,
            hex(meta.made.as_bytes())
        );
        Terms {
            may_grant: format!(
                "{server} AND EXISTS(SELECT 1 FROM {table} WHERE {written} AND {ready_at}<={NOW})"
            ),
            fits: format!("{server} AND {written} AND NOT {}", too_late()),
            same_lock: same(&tables.table("lock"), lock_made),
            same_hold: same(&tables.table("hold"), hold_made),
            ready_at,
        }
    }

    pub fn warn(&self, connection: &Connection) {
        let server = &connection.address;
        if !self.synced {
            tracing::warn!(
                target: SETUP_TARGET,
                %server,
                "commits do not wait for the disk: a crash may forget grants, so after a restart nothing is granted until all leases are \
                 over; set innodb_flush_log_at_trx_commit to 1 and, with a binary log, sync_binlog to 1"
            );
        }
        if self.galera {
            tracing::warn!(
                target: SETUP_TARGET,
                %server,
                "the server is a node of a cluster with several writers: name the same node in every client, as only one may grant"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_whose_statements_are_known_are_used() {
        for version in [
            "8.0.31",
            "8.4.3-3",
            "9.7.4",
            "10.6.0-MariaDB",
            "10.11.19-MariaDB-deb12-log",
            "11.4.5-MariaDB",
        ] {
            assert!(is_known(version), "{version}");
        }
        for version in [
            "5.7.44-log",
            "10.5.27-MariaDB",
            "5.5.68-MariaDB",
            "8.0.11-TiDB-v8.5.0",
            "",
            "?",
        ] {
            assert!(!is_known(version), "{version}");
        }
    }
}
