//! Locks in a MySQL or MariaDB database that is there already.
//!
//! The tables are ours, the rules are those of [`record`](super::record), and what both SQL stores share is in `store/sql`.
//! `docs/sql.md` has the layout, the rights that are needed, and what is promised when.
//!
//! # What it rests on
//! * A step is one statement, or several in one transaction that is sent as one text: no transaction waits for a client.
//! * Time is the server's: leases end by its clock, and tokens are at least its microseconds.
//! * A server that may have forgotten grants grants nothing until all leases are over.
//!
//! # Layout
//! `config` says where and how. `packet`, `login` and `reply` are the client protocol, a `connection` is driven by the task
//! that owns it, and a `session` is one that is ready; `facts` says whether its server may grant. `statements` turns steps into
//! `text`, and `rows` reads answers back. `wake` is the bell: how a waiter in another process learns that it holds. `fault` says what an error means.
//!
//! The protocol is our own, since a lock needs little of it and all of that little exactly: a text with several statements, an
//! answer for each, and never an answer that belongs to another request.

mod config;
mod connection;
mod engine;
mod facts;
mod fault;
mod login;
mod packet;
#[cfg(feature = "internals")]
pub mod raw;
mod reply;
mod rows;
mod session;
mod statements;
mod text;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use self::config::{Config, LONGEST_LEASE};
use self::engine::MySql;
use self::fault::STORE;
use super::sql::SqlStore;
use super::*;
use crate::url::StoreUrl;

/// Keeps locks in a MySQL or MariaDB database.
///
/// Dropping it ends its connections. What it still holds stays held until the leases end.
#[derive(Debug)]
pub struct MySqlStore(SqlStore<MySql>);

impl MySqlStore {
    /// Connects to the server that a `mysql:` or `mariadb:` URL names, and makes the tables if they are not there.
    ///
    /// Call it on the runtime that is to drive the connections.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] says what is wrong with the URL. [`Error::Unavailable`] when the server cannot be
    /// reached; [`Error::Refused`] when it is read only or too old, refuses the user, or has other tables.
    pub async fn connect(url: &StoreUrl) -> Result<MySqlStore, Error> {
        let config = Config::parse(url)?;
        config.warn();
        let engine = MySql::connect(config).await?;
        Ok(MySqlStore(SqlStore::new(Arc::new(engine))))
    }
}

/// The statements that make the tables, and that give a user the rights it needs: `lockkeeper schema mysql`.
///
/// # Errors
/// [`Error::InvalidArgument`] for a prefix that no URL can have.
pub fn schema(prefix: &str, user: &str) -> Result<String, Error> {
    if !config::is_prefix(prefix) {
        return Err(Error::InvalidArgument {
            what: "prefix",
            reason: config::PREFIXES.into(),
        });
    }
    let tables = statements::Tables::new(prefix);
    let user = user.replace('\\', "\\\\").replace('\'', "''");
    let grants = statements::TABLES.map(|table| {
        let table = tables.table(table);
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO '{user}'@'%'")
    });
    let statements = tables.script().into_iter().chain(grants);
    Ok(statements.map(|one| format!("{one};\n")).collect())
}

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    store: STORE,
    reach: Reach::Network,
    fair: true,
    read_write: true,
    permits: true,
    latches: true,
    queue: true,
    fencing: Fencing::DataOrClock,
    wakeups: Wakeups::Direct,
    survives_restart: true,
    frees_dead_at_once: false,
    time: TimeAuthority::ServerWall,
    lease_end: LeaseEnd::ByItself,
    longest_lease: LONGEST_LEASE,
    // The connection is given up with all that is on it when the server is silent.
    ends_in_time: true,
};

/// What the store can do with leases of this length.
fn capabilities(longest_lease: Duration) -> Capabilities {
    Capabilities {
        longest_lease,
        ..CAPABILITIES
    }
}

impl Store for MySqlStore {
    crate::forward!(0: capabilities facts);
    crate::forward!(0: try_acquire withdraw renew release subscribe inspect list break_lock latch);
}
