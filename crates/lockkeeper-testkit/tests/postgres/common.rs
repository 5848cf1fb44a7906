//! What the tests of the PostgreSQL store share.

use lockkeeper::Error;
use lockkeeper::store::postgres::{self, PostgresStore};
use lockkeeper::url::StoreUrl;
use lockkeeper_testkit::servers::postgres::PostgresServer;

pub async fn connect(url: &str) -> Result<PostgresStore, Error> {
    PostgresStore::connect(&StoreUrl::parse(url).expect("a URL")).await
}

pub async fn open(url: &str) -> PostgresStore {
    connect(url).await.expect("connects")
}

/// Has an administrator make the tables in a new schema, for a user of the same name that has no other rights.
pub fn made_by_administrator(server: &PostgresServer) -> String {
    let schema = PostgresServer::fresh_schema();
    server.sql(&format!("CREATE USER {schema}"));
    server.sql(&postgres::schema(&schema, &schema));
    schema
}
