//! A connection that runs the statements of its caller: `lockkeeper bench` measures our locks beside it.

use tokio_postgres::{Client, Statement};

use super::config::{Config, KIND};
use super::connection::log_in;
use super::fault;
use crate::Error;
use crate::store::common::AbortOnDrop;
use crate::url::StoreUrl;

/// One connection, without the checks of a store.
#[derive(Debug)]
pub struct RawConnection {
    client: Client,
    schema: String,
    _driver: AbortOnDrop,
}

/// A statement that the server has planned.
#[derive(Clone, Debug)]
pub struct Prepared(Statement);

impl RawConnection {
    /// Connects to the first server of a URL. The caller's runtime drives the connection.
    ///
    /// # Errors
    /// Those of [`PostgresStore::connect`](super::PostgresStore::connect).
    pub async fn connect(url: &StoreUrl) -> Result<RawConnection, Error> {
        let config = Config::parse(url)?;
        let Some(address) = config.servers.first() else {
            return Err(KIND.unavailable("no server is named"));
        };
        let (client, connection) = log_in(address, &config, Default::default()).await?;
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(RawConnection {
            client,
            schema: config.schema,
            _driver: AbortOnDrop::of(&driver),
        })
    }

    /// The schema of our tables, as statements write it.
    pub fn schema(&self) -> String {
        super::statements::identifier(&self.schema)
    }

    /// Has the server plan a statement.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn prepare(&self, text: &str) -> Result<Prepared, Error> {
        let prepared = self.client.prepare(text).await;
        prepared.map(Prepared).map_err(|error| self.explain(&error))
    }

    /// Runs a planned statement, and returns how many rows it touched or returned.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn run(&self, statement: &Prepared) -> Result<u64, Error> {
        let done = self.client.execute(&statement.0, &[]).await;
        done.map_err(|error| self.explain(&error))
    }

    /// Returns the number that a statement selects.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn number(&self, text: &str) -> Result<u64, Error> {
        let row = self.client.query_one(text, &[]).await;
        let row = row.map_err(|error| self.explain(&error))?;
        let number: i64 = row.try_get(0).map_err(|error| self.explain(&error))?;
        Ok(number.unsigned_abs())
    }

    fn explain(&self, error: &tokio_postgres::Error) -> Error {
        fault::of_connecting(error, &self.schema)
    }
}
