//! Stock on a Redis server: the key `inventory001` and others, each with its ledger, fence and opening beside it.

use std::time::Duration;

use anyhow::Result;
use lockkeeper::Token;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncCommands, AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, FromRedisValue,
    IntoConnectionInfo, RedisError, Script, ScriptInvocation,
};
use tokio::sync::Mutex;

use super::{Account, Answering, Fenced, MOST_FAMILIES, STOCK_VARIABLE, Sale, Stock};
use crate::shop::item::{GOODS, GOODS_SIZE, Item};
use crate::words;

/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The keys of all rewards that were given.
const REWARDS: &str = "family_reward_record";

/// A Redis server.
#[derive(Debug)]
pub struct RedisStock {
    client: Client,
    /// Its address, for messages.
    server: String,
    connection: Mutex<Option<MultiplexedConnection>>,
    open: Script,
    read: Script,
    write: Script,
}

/// The server that a URL names.
pub fn server(url: &str) -> Result<ConnectionInfo> {
    // The driver's error might repeat a password.
    url.into_connection_info()
        .map_err(|_| anyhow::anyhow!(words::STOCK_URL_NOT_READ))
}

/// The keys of an item.
struct Keys {
    item: String,
    opening: String,
    fence: String,
    ledger: String,
}

impl Keys {
    fn of(item: &str) -> Keys {
        Keys {
            item: item.to_owned(),
            opening: format!("{item}:opening"),
            fence: format!("{item}:fence"),
            ledger: format!("{item}:ledger"),
        }
    }
}

impl RedisStock {
    pub async fn open(server: ConnectionInfo, size: u32) -> Result<RedisStock> {
        // Off by default: small requests would wait for acknowledgements.
        let tcp = TcpSettings::default().set_nodelay(true);
        let stock = RedisStock {
            server: server.addr().to_string(),
            client: Client::open(server.set_tcp_settings(tcp))?,
            connection: Mutex::default(),
            open: Script::new(include_str!("open.lua")),
            read: Script::new(include_str!("read.lua")),
            write: Script::new(include_str!("write.lua")),
        };
        stock.stock_up(size, false).await?;
        Ok(stock)
    }

    async fn stock_up(&self, size: u32, anew: bool) -> Result<()> {
        let size = i64::from(size);
        let products = [Item::Inventory, Item::Product].map(|item| (item, size, ""));
        let goods = GOODS.map(|(id, name)| (Item::Good(id), GOODS_SIZE, name));
        for (item, size, name) in products.into_iter().chain(goods) {
            let keys = Keys::of(&item.to_string());
            let mut open = self.open.key(keys.item);
            open.key(keys.opening).key(keys.ledger);
            open.arg(kind(item))
                .arg(size)
                .arg(name)
                .arg(i32::from(anew));
            let _: i64 = self.run(&open).await?;
        }
        if anew {
            let mut connection = self.connection().await?;
            let rewards: Vec<String> = self.told(connection.smembers(REWARDS).await)?;
            let ledgers = rewards.iter().map(|item| Keys::of(item).ledger);
            let all: Vec<String> = ledgers.chain(rewards.iter().cloned()).collect();
            let _: () = self.told(connection.del((all, REWARDS)).await)?;
        }
        Ok(())
    }

    async fn run<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T> {
        let mut connection = self.connection().await?;
        let answer = script.invoke_async(&mut connection).await;
        if answer.as_ref().is_err_and(broken) {
            *self.connection.lock().await = None;
        }
        self.told(answer)
    }

    async fn connection(&self) -> Result<MultiplexedConnection> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = &*slot {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        let connection = self.told(connection)?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// Says what went wrong once, and where: the driver's errors repeat themselves in their sources.
    fn told<T>(&self, answer: redis::RedisResult<T>) -> Result<T> {
        answer.map_err(|error| {
            let why = match error.kind() {
                _ if wants_password(&error) => words::wants_password(STOCK_VARIABLE),
                ErrorKind::AuthenticationFailed => words::refuses_password(STOCK_VARIABLE),
                _ => error.to_string().into(),
            };
            anyhow::anyhow!(words::stock_server_fails(&self.server, &why))
        })
    }
}

/// Whether none was given. When the database is chosen, the driver passes on the words alone.
fn wants_password(error: &RedisError) -> bool {
    let said = error.detail().unwrap_or_default();
    error.code() == Some("NOAUTH") || said.contains("Authentication required")
}

/// Whether another connection may do better.
fn broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped()
}

fn kind(item: Item) -> &'static str {
    match item {
        Item::Inventory | Item::Product => "inventory",
        Item::Good(_) => "good",
        Item::Reward { .. } => "reward",
    }
}

fn shown(token: Option<Token>) -> String {
    token.map_or_else(String::new, |token| token.to_string())
}

/// What a script answers: 1 and how many there are, or 0 and the highest token that was shown.
fn fenced(answer: (i64, i64)) -> Fenced {
    match answer {
        (0, seen) => Fenced::Refused {
            seen: seen.cast_unsigned(),
        },
        (_, left) => Fenced::Count(left),
    }
}

impl Stock for RedisStock {
    fn read(&self, item: Item, token: Option<Token>) -> Answering<'_, Fenced> {
        Box::pin(async move {
            let keys = Keys::of(&item.to_string());
            let mut read = self.read.key(keys.item);
            read.key(keys.fence).arg(kind(item)).arg(shown(token));
            Ok(fenced(self.run(&read).await?))
        })
    }

    fn write(&self, sale: Sale) -> Answering<'_, Fenced> {
        Box::pin(async move {
            let keys = Keys::of(&sale.item.to_string());
            let mut write = self.write.key(keys.item);
            write.key(keys.fence).key(keys.ledger).key(REWARDS);
            write.arg(kind(sale.item)).arg(shown(sale.token));
            write.arg(sale.read).arg(sale.port);
            Ok(fenced(self.run(&write).await?))
        })
    }

    fn accounts(&self) -> Answering<'_, Vec<Account>> {
        Box::pin(async move {
            let goods = GOODS.map(|(id, _)| Item::Good(id));
            let items = [&[Item::Inventory, Item::Product][..], &goods].concat();
            let mut accounts = Vec::new();
            for item in items {
                accounts.push(self.account(kind(item), item.to_string()).await?);
            }
            let mut connection = self.connection().await?;
            let mut rewards: Vec<String> = self.told(connection.smembers(REWARDS).await)?;
            rewards.sort();
            for item in rewards.into_iter().take(MOST_FAMILIES as usize) {
                accounts.push(self.account("reward", item).await?);
            }
            Ok(accounts)
        })
    }

    fn reset(&self, size: u32) -> Answering<'_, ()> {
        Box::pin(self.stock_up(size, true))
    }
}

impl RedisStock {
    async fn account(&self, kind: &str, item: String) -> Result<Account> {
        let keys = Keys::of(&item);
        let mut read = self.read.key(keys.item);
        read.key(keys.fence).arg(kind).arg("");
        let (_, stock): (i64, i64) = self.run(&read).await?;
        let mut connection = self.connection().await?;
        let opening: Option<i64> = self.told(connection.get(keys.opening).await)?;
        let sales: i64 = self.told(connection.llen(keys.ledger).await)?;
        // A family has one reward coming.
        let opening = opening.unwrap_or(1);
        Ok(Account {
            item,
            opening,
            stock,
            sales,
        })
    }
}
