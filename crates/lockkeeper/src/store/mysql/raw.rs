//! A connection that runs the statements of its caller: `lockkeeper bench` measures our locks beside it.

use super::config::{Config, KIND};
use super::connection::Connection;
use super::fault::Fault;
use super::reply::Reply;
use crate::Error;
use crate::url::StoreUrl;

/// One connection, without the checks of a store.
#[derive(Debug)]
pub struct RawConnection {
    connection: Connection,
    prefix: String,
}

impl RawConnection {
    /// Connects to the first server of a URL. The caller's runtime drives the connection.
    ///
    /// # Errors
    /// Those of [`MySqlStore::connect`](super::MySqlStore::connect).
    pub async fn connect(url: &StoreUrl) -> Result<RawConnection, Error> {
        let config = Config::parse(url)?;
        let Some(address) = config.addresses.first() else {
            return Err(KIND.unavailable("no server is named"));
        };
        Ok(RawConnection {
            connection: Connection::open(&config, address).await?,
            prefix: config.prefix.clone(),
        })
    }

    /// What the names of our tables begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Runs one statement, and returns how many rows it touched or returned.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn run(&self, text: &str) -> Result<u64, Error> {
        match self.connection.one(text).await.map_err(Fault::of_change)? {
            Reply::Done { rows, .. } => Ok(rows),
            Reply::Rows(rows) => Ok(rows.len() as u64),
            Reply::Failed(error) => Err(super::fault::explain(&error)),
        }
    }

    /// Returns the number in the last column of the row that a statement selects.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn number(&self, text: &str) -> Result<u64, Error> {
        let rows = self.connection.rows(text).await.map_err(Fault::of_look)?;
        let value = rows.into_iter().next().and_then(|mut row| row.pop()?);
        let value = value.and_then(|value| String::from_utf8(value).ok());
        let number = value.and_then(|value| value.parse().ok());
        number.ok_or_else(|| KIND.unavailable(format!("{text:?} selects no number")))
    }
}
