//! The raw limit on a SQL server: two updates of one row, each committed; beside it a session lock and the statements of a lease
//! table. All by the client of our own store.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::clock::Moment;
use lockkeeper::store::{mysql, postgres};
use lockkeeper::url::StoreUrl;
use tokio::runtime::Handle;

use super::lap::{Lap, Pair};
use super::tally::Times;

/// How long a client of the lease table sleeps when somebody else has the lock: it has nobody to wake it.
const POLL: Duration = Duration::from_millis(10);

/// What the bare commits are of.
const ROW: &str = "(name VARCHAR(128) PRIMARY KEY, holder VARCHAR(64), until BIGINT NOT NULL)";

/// A connection by the client of one of our stores.
#[derive(Clone)]
enum Connection {
    Postgres(Arc<postgres::raw::RawConnection>),
    MySql(Arc<mysql::raw::RawConnection>),
}

/// A statement, as its server likes it best.
#[derive(Clone)]
enum Statement {
    Prepared(postgres::raw::Prepared),
    Text(String),
}

impl Connection {
    async fn open(url: &StoreUrl) -> Result<Connection> {
        Ok(match url.scheme() {
            "mysql" | "mariadb" => {
                Connection::MySql(Arc::new(mysql::raw::RawConnection::connect(url).await?))
            }
            _ => Connection::Postgres(Arc::new(postgres::raw::RawConnection::connect(url).await?)),
        })
    }

    async fn prepare(&self, text: String) -> Result<Statement> {
        Ok(match self {
            Connection::Postgres(raw) => Statement::Prepared(raw.prepare(&text).await?),
            Connection::MySql(_) => Statement::Text(text),
        })
    }

    /// How many rows the statement touched.
    async fn run(&self, statement: &Statement) -> Result<u64> {
        Ok(match (self, statement) {
            (Connection::Postgres(raw), Statement::Prepared(prepared)) => raw.run(prepared).await?,
            (Connection::MySql(raw), Statement::Text(text)) => raw.run(text).await?,
            _ => anyhow::bail!("the statement belongs to another kind of server"),
        })
    }

    async fn do_once(&self, text: String) -> Result<u64> {
        let statement = self.prepare(text).await?;
        self.run(&statement).await
    }

    async fn number(&self, text: &str) -> Result<u64> {
        Ok(match self {
            Connection::Postgres(raw) => raw.number(text).await?,
            Connection::MySql(raw) => raw.number(text).await?,
        })
    }

    /// The name of a table beside ours.
    fn table(&self, name: &str) -> String {
        match self {
            Connection::Postgres(raw) => format!("{}.{name}", raw.schema()),
            Connection::MySql(raw) => format!("{}{name}", raw.prefix()),
        }
    }

    /// The server's time in microseconds.
    fn now(&self) -> &'static str {
        match self {
            Connection::Postgres(_) => "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            Connection::MySql(_) => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))",
        }
    }
}

/// The server under test, spoken to without Lockkeeper. It has a table of its own for as long as this lives.
pub struct Server {
    url: StoreUrl,
    runtime: Handle,
    connection: Connection,
    table: String,
    kind: Kind,
}

/// What a server can reach differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MariaDb,
    MySql,
}

impl Server {
    /// The server that a URL names.
    pub fn find(url: &StoreUrl, unique: &str, runtime: Handle) -> Result<Server> {
        let connection = runtime.block_on(Connection::open(url))?;
        let table = connection.table(&format!("bench_{unique}"));
        let create = format!("CREATE TABLE {table} {ROW}");
        runtime.block_on(connection.do_once(create))?;
        let kind = match &connection {
            Connection::Postgres(_) => Kind::Postgres,
            Connection::MySql(raw) => {
                let asked = raw.number("SELECT VERSION() LIKE '%MariaDB%'");
                if runtime.block_on(asked)? == 1 {
                    Kind::MariaDb
                } else {
                    Kind::MySql
                }
            }
        };
        Ok(Server {
            url: url.clone(),
            runtime,
            connection,
            table,
            kind,
        })
    }

    /// Which kind of server it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Two bare commits for each name, over a connection each: a connection commits one after the other.
    pub fn commits(&self, names: &[String]) -> Result<Vec<Commits>> {
        let one = |name: &String| {
            self.runtime.block_on(async {
                let connection = self.row(name).await?;
                let table = &self.table;
                let set = |until: &str| {
                    format!("UPDATE {table} SET until = {until} WHERE name = '{name}'")
                };
                let (take, free) = (set("until + 1"), set("until + 2"));
                Ok(Commits {
                    take: connection.prepare(take).await?,
                    free: connection.prepare(free).await?,
                    connection,
                })
            })
        };
        names.iter().map(one).collect()
    }

    /// A lock of the session for each name: no lease, no token, nothing on a disk.
    pub fn session_locks(&self, names: &[String]) -> Result<Vec<Session>> {
        let one = |name: &String| {
            self.runtime.block_on(async {
                let connection = Connection::open(&self.url).await?;
                let (take, free) = match &connection {
                    Connection::Postgres(_) => (
                        format!("SELECT pg_advisory_lock(hashtextextended('{name}', 0))"),
                        format!("SELECT pg_advisory_unlock(hashtextextended('{name}', 0))"),
                    ),
                    // A name has 64 characters at most.
                    Connection::MySql(_) => (
                        format!("SELECT GET_LOCK(SHA1('{name}'), 10)"),
                        format!("SELECT RELEASE_LOCK(SHA1('{name}'))"),
                    ),
                };
                Ok(Session(Commits {
                    take: connection.prepare(take).await?,
                    free: connection.prepare(free).await?,
                    connection,
                }))
            })
        };
        names.iter().map(one).collect()
    }

    /// A lease table as ShedLock's clients use it, one holder for each name, over one connection each.
    pub fn lease_table(&self, names: &[String]) -> Result<Vec<Leases>> {
        let one = |(at, name): (usize, &String)| {
            self.runtime.block_on(async {
                let connection = self.row(name).await?;
                let (table, now) = (&self.table, connection.now());
                let take = format!(
                    "UPDATE {table} SET until = {now} + 30000000, holder = 'h{at}' \
                     WHERE name = '{name}' AND until <= {now}"
                );
                let free = format!(
                    "UPDATE {table} SET until = {now} WHERE name = '{name}' AND holder = 'h{at}'"
                );
                Ok(Leases {
                    take: connection.prepare(take).await?,
                    free: connection.prepare(free).await?,
                    connection,
                })
            })
        };
        names.iter().enumerate().map(one).collect()
    }

    /// A connection, and a row of this name.
    async fn row(&self, name: &str) -> Result<Connection> {
        let connection = Connection::open(&self.url).await?;
        let table = &self.table;
        let insert = format!(
            "INSERT INTO {table} (name, until) SELECT '{name}', 0 FROM (SELECT 1 AS one) AS one \
             WHERE NOT EXISTS (SELECT * FROM {table} AS there WHERE there.name = '{name}')"
        );
        connection.do_once(insert).await?;
        Ok(connection)
    }

    /// How long the smallest statement takes, each sent a `pause` after the last was answered.
    pub fn ping(&self, length: Duration, pause: Duration) -> Result<Times> {
        let connection = self.connection.clone();
        let pings = async move {
            let ping = connection.prepare("SELECT 1".into()).await?;
            let mut times = Times::new();
            let end = Moment::now() + length;
            while Moment::now() < end || times.count() == 0 {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let sent = Moment::now();
                connection.run(&ping).await?;
                times.record(Moment::now().since(sent));
            }
            Ok(times)
        };
        self.runtime.block_on(self.runtime.spawn(pings))?
    }

    /// How many transactions changed something, or how many statements the server was sent, by all clients.
    pub fn requests(&self) -> Result<u64> {
        let text = match &self.connection {
            // Its statistics are up to ten seconds late. Every transaction that writes takes a number.
            Connection::Postgres(_) => "SELECT txid_snapshot_xmax(txid_current_snapshot())",
            Connection::MySql(_) => "SHOW GLOBAL STATUS LIKE 'Queries'",
        };
        self.runtime.block_on(self.connection.number(text))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let drop = format!("DROP TABLE {}", self.table);
        let _ = self.runtime.block_on(self.connection.do_once(drop));
    }
}

/// Two statements that touch one row each.
#[derive(Clone)]
pub struct Commits {
    connection: Connection,
    take: Statement,
    free: Statement,
}

impl Pair for Commits {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        let taken = self.connection.run(&self.take).await?;
        anyhow::ensure!(taken == 1, "the reference touched {taken} rows");
        lap.acquired().await;
        let freed = self.connection.run(&self.free).await?;
        anyhow::ensure!(freed == 1, "the reference touched {freed} rows");
        Ok(())
    }
}

/// A lock of the session.
#[derive(Clone)]
pub struct Session(Commits);

impl Pair for Session {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        self.0.run(lap).await
    }
}

/// One holder in a lease table.
#[derive(Clone)]
pub struct Leases {
    connection: Connection,
    take: Statement,
    free: Statement,
}

impl Pair for Leases {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        while self.connection.run(&self.take).await? == 0 {
            if super::lap::interrupted() {
                anyhow::bail!("interrupted");
            }
            tokio::time::sleep(POLL).await;
        }
        lap.acquired().await;
        let freed = self.connection.run(&self.free).await?;
        anyhow::ensure!(freed == 1, "the reference lost its lease");
        Ok(())
    }
}
